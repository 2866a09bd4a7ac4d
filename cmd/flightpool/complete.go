package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/flightpool/flightpool/cmd/flightpool/internal/output"
)

var keywords = strings.Fields(`ALTER ANALYZE AND AS ASC BEGIN BETWEEN BY CASE CAST COMMIT COPY CREATE CROSS DELETE DESC DESCRIBE
	DISTINCT DROP ELSE END EXCEPT EXISTS EXPLAIN FALSE FROM FULL GROUP HAVING IN INNER INSERT INTERSECT INTERVAL INTO IS JOIN
	LEFT LIKE LIMIT NOT NULL OFFSET ON OR ORDER OUTER OVER PARTITION PRIMARY RECURSIVE RIGHT ROLLBACK SAVEPOINT SELECT SET
	SHOW TABLE TEMP THEN TRUE UNION UPDATE USING VALUES VIEW WHEN WHERE WINDOW WITH`)

// complete is liner's WordCompleter: what the word before pos may become.
func (c *catalog) complete(line string, pos int) (head string, completions []string, tail string) {
	runes := []rune(line)
	before, tail := string(runes[:pos]), string(runes[pos:])
	if strings.HasPrefix(before, `\`) && !strings.Contains(before, " ") {
		return "", matching(before, metaNames(), func(_, name string) string { return name }), tail
	}
	var word string
	spell := spelled
	if open := strings.LastIndex(before, `"`); strings.Count(before, `"`)%2 == 1 { // within a name
		head, word, spell = before[:open], before[open+1:], quoted
	} else {
		start := len(before)
		for start > 0 && isWord(before[start-1]) {
			start--
		}
		head, word = before[:start], before[start:]
		if word == "" && !strings.HasSuffix(head, ".") && !strings.HasSuffix(head, " ") {
			return head, nil, tail
		}
	}
	c.wait()
	return head, matching(word, c.candidates(head, line), spell), tail
}

// wait lets names arrive that are being asked for.
func (c *catalog) wait() {
	c.mu.Lock()
	asked := c.asked
	c.mu.Unlock()
	select {
	case <-asked:
	case <-time.After(2 * time.Second):
	}
}

// candidates are the columns of the table before a dot; else columns of the
// tables that the line names, tables, and words of SQL.
func (c *catalog) candidates(head, line string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if owner, ok := strings.CutSuffix(head, "."); ok {
		owner = owner[strings.LastIndexFunc(owner, func(r rune) bool { return r < 0x80 && !isWord(byte(r)) })+1:]
		if columns, known := c.columns[owner]; known {
			return columns
		}
		return slices.Sorted(maps.Keys(c.columns)) // of a schema, perhaps
	}
	if strings.HasPrefix(line, `\d `) {
		return slices.Sorted(maps.Keys(c.columns))
	}
	var all []string
	for table, columns := range c.columns {
		if strings.Contains(line, table) {
			all = append(all, columns...)
		}
	}
	return slices.Concat(all, slices.Sorted(maps.Keys(c.columns)), keywords)
}

// matching are the candidates that begin with word, as they are spelled; those that a
// terminal would obey are left out.
func matching(word string, candidates []string, spell func(word, name string) string) []string {
	var found []string
	for _, name := range candidates {
		if len(name) >= len(word) && strings.EqualFold(name[:len(word)], word) && output.Printable(name) == name {
			found = append(found, spell(word, name))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// spelled is a candidate as it stands in SQL: a word of SQL in the case of what was typed,
// where that has lower letters only, and a name in quotes if it needs them.
func spelled(word, name string) string {
	switch {
	case slices.Contains(keywords, name) && word != "" && word == strings.ToLower(word):
		return strings.ToLower(name)
	case slices.Contains(keywords, name), plainName.MatchString(name) && !slices.Contains(keywords, strings.ToUpper(name)):
		return name
	default:
		return quoted(word, name)
	}
}

// plainName is a name that servers read without quotes as it is.
var plainName = regexp.MustCompile(`^[\pL_][\pL\pN_]*$`)

// quoted is a name in quotes.
func quoted(_, name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func metaNames() []string {
	var names []string
	for _, m := range metas() {
		names = append(names, m.name)
	}
	return names
}
