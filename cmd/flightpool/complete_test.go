package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCompletionWaitsAMomentForTheNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &catalog{asking: true, asked: make(chan struct{})}
		time.AfterFunc(time.Second, func() {
			c.mu.Lock()
			c.columns = map[string][]string{"flights": {"origin"}}
			c.mu.Unlock()
			close(c.asked)
		})
		_, words, _ := c.complete("SELECT * FROM fli", 17)
		require.Equal(t, []string{"flights"}, words)
		_, words, _ = c.complete("SELECT flights.o", 16)
		require.Equal(t, []string{"origin"}, words)

		c.asked = make(chan struct{}) // of a server that does not answer
		began := time.Now()
		head, words, tail := c.complete("sel 1", 3)
		require.Equal(t, []string{"select"}, words)
		require.Equal(t, []string{"", " 1"}, []string{head, tail})
		require.Equal(t, 2*time.Second, time.Since(began))
	})
}

// A name that needs quotes is completed in them, also one that was begun with a quote.
func TestNamesAreCompletedAsSQLReadsThem(t *testing.T) {
	asked := make(chan struct{})
	close(asked)
	c := &catalog{asked: asked, columns: map[string][]string{
		"flights": {"origin", "Flight Number", "order", `odd"one`}, "my flights": {"a"}, "größe": {"b"}, "2024": {"c"},
	}}
	for _, k := range []struct {
		line, head string
		words      []string
	}{
		{"SELECT * FROM fl", "SELECT * FROM ", []string{"flights"}},
		{"SELECT * FROM my", "SELECT * FROM ", []string{`"my flights"`}},
		{`SELECT * FROM "my f`, "SELECT * FROM ", []string{`"my flights"`}},
		{`SELECT * FROM "my flights" wh`, `SELECT * FROM "my flights" `, []string{"when", "where"}},
		{"SELECT * FROM 20", "SELECT * FROM ", []string{`"2024"`}},
		{"SELECT * FROM grö", "SELECT * FROM ", []string{"größe"}},
		{"SELECT flights.o", "SELECT flights.", []string{`"odd""one"`, `"order"`, "origin"}},
		{"SELECT flights.fl", "SELECT flights.", []string{`"Flight Number"`}},
		{`\d my`, `\d `, []string{`"my flights"`}},
		{`\st`, "", []string{`\stats`}},
		{"ord", "", []string{"order"}},
	} {
		head, words, tail := c.complete(k.line, len([]rune(k.line)))
		require.Equal(t, k.words, words, k.line)
		require.Equal(t, k.head, head, k.line)
		require.Empty(t, tail)
	}
}

// What is pasted may have tabs. Within a text one is a part of it, whatever the word before it may become.
func TestATabWithinATextIsATab(t *testing.T) {
	asked := make(chan struct{})
	close(asked)
	c := &catalog{asked: asked, columns: map[string][]string{"flights": {"origin"}}}
	for i := range 100 {
		c.columns["many"] = append(c.columns["many"], fmt.Sprint("m", i))
	}
	for _, k := range []struct{ begun, before, after string }{
		{"", "INSERT INTO flights VALUES ('orig", "\t"},
		{"", "INSERT INTO flights VALUES ('nothing like it", "\t"},
		{"", "INSERT INTO flights VALUES ('say \"orig", "\t"},
		{"", `SELECT E'it\'s sel`, "\t"},
		{"", "SELECT $x$ sel", "\t"},
		{"", "SELECT 1 -- sel", "\t"},
		{"", "SELECT `sel", "ect"},
		{"SELECT 'a\n", `\d`, "\t"},
		{"SELECT 'a\n", "b' AS sel", "ect"},
		{"SELECT $x$\n", "$$ sel", "\t"},
		{"SELECT /* /* a\n", "*/ sel", "\t"},
		{"SELECT \"a\n", "origin", "\t"},
		{"", `INSERT INTO flights VALUES ("nothing like it`, "\t"}, // a text to some servers
		{"SELECT 'a';\n", "SELECT 'it''s', \"flig", `hts"`},
		{"", "SELECT", "\t"}, // nothing to complete
		{"", "Select", "\t"},
		{"", "SELECT 5 -", "\t"},              // nor here
		{"", "SELECT *, m1 FROM many ", "\t"}, // too many to list, which liner would ask about
		{"", "SELECT nothing", ""},            // left out, as who typed it goes on
		{"", "  ", ""},
	} {
		var pending splitter
		pending.feed(k.begun)
		c.goOn(&pending)
		head, words, tail := c.complete(k.before+"ö');", len([]rune(k.before)))
		if k.after == "" {
			require.Empty(t, strings.Join(words, ""), k.before)
			continue
		}
		require.Len(t, words, 1, k.before)
		require.Equal(t, k.before+k.after+"ö');", head+words[0]+tail, k.before)
	}
}
