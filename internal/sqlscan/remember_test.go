package sqlscan

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/invariant"
)

// More texts than are remembered, by several goroutines: what comes is always what the
// text itself is judged to be.
func TestWhatIsRememberedIsOfTheText(t *testing.T) {
	verbs := []string{"SELECT %d", "DELETE FROM t%d", "SET x = %d", "INSERT INTO t%d VALUES (?)", "BEGIN; DROP TABLE t%d", "SELECT '%d", "CREATE TEMP TABLE t%d (a INT)"}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 3000 {
				sql := fmt.Sprintf(verbs[i%len(verbs)], i%700)
				if got := Parse(sql); len(got.Statements) == 0 || fmt.Sprint(got) != fmt.Sprint(judge(sql)) {
					t.Errorf("%s: %v", sql, got)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestALongTextIsNotRemembered(t *testing.T) {
	for _, length := range []int{longestText, longestText + 1} {
		sql := "SELECT 1 --" + strings.Repeat("x", length-11)
		require.True(t, Parse(sql).Statements[0].ReadOnly)
		require.Equal(t, length == longestText, rememberedIn(sql) != "")
	}
}

// A text may be a piece of a file of many megabytes, which would be kept with it.
func TestNothingOfTheCallersTextIsKept(t *testing.T) {
	sql := strings.Repeat("INSERT INTO a.kept SELECT 1;", 2)[:27]
	require.Equal(t, "a.kept", Parse(sql).Statements[0].InsertInto)
	kept := rememberedIn(sql)
	require.Equal(t, sql, kept)
	require.NotSame(t, unsafe.StringData(sql), unsafe.StringData(kept))
	target := Parse(sql).Statements[0].InsertInto
	at := uintptr(unsafe.Pointer(unsafe.StringData(target)))
	begin := uintptr(unsafe.Pointer(unsafe.StringData(sql)))
	require.False(t, begin <= at && at < begin+uintptr(len(sql)))
}

func TestAScriptThatSomebodyHasChangedIsFound(t *testing.T) {
	const sql = "SELECT 'of this test alone'"
	Parse(sql).Statements[0].ReadOnly = false
	again := func() { Parse(sql) }
	if invariant.Enabled {
		require.Panics(t, again)
	} else {
		require.NotPanics(t, again)
	}
	for i := range remembered {
		if j := remembered[i].Load(); j != nil && j.sql == sql {
			remembered[i].Store(nil)
		}
	}
}

func rememberedIn(sql string) string {
	for i := range remembered {
		if j := remembered[i].Load(); j != nil && j.sql == sql {
			return j.sql
		}
	}
	return ""
}

func BenchmarkParse(b *testing.B) {
	const sql = "SELECT o.id, o.total, c.name FROM orders o JOIN customers c ON c.id = o.customer WHERE o.placed > ? AND c.country = ? ORDER BY o.placed DESC LIMIT 100"
	for name, parse := range map[string]func(string) Script{"again": Parse, "first": judge} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				parse(sql)
			}
		})
	}
}
