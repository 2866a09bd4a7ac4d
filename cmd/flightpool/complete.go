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

// maxListed is how many completions liner lists without a question, whose answer would be taken from what is pasted.
const maxListed = 100

// complete is liner's WordCompleter: what the word before pos may become. What is pasted has tabs that are none of the user's: one
// within a text or comment is given as it is, and so is one behind what cannot be completed. Liner drops those to which nothing is
// answered.
func (c *catalog) complete(line string, pos int) (head string, completions []string, tail string) {
	runes := []rune(line)
	before, tail := string(runes[:pos]), string(runes[pos:])
	mode, tab := c.modeBehind(before), []string{"\t"}
	var word string
	spell := spelled
	switch open := strings.LastIndex(before, `"`); {
	case mode == '"' && open >= 0: // within a name
		head, word, spell = before[:open], before[open+1:], quoted
	case mode != 0 && mode != '`': // or in one that an earlier line has begun
		return before, tab, tail
	case strings.HasPrefix(before, `\`) && !strings.Contains(before, " "):
		return "", matching(before, metaNames(), func(_, name string) string { return name }), tail
	case strings.TrimSpace(before) == "":
		return before, nil, tail
	default:
		start := len(before)
		for start > 0 && isWord(before[start-1]) {
			start--
		}
		head, word = before[:start], before[start:]
		if word == "" && !strings.HasSuffix(head, ".") && !strings.HasSuffix(head, " ") {
			return before, tab, tail
		}
	}
	c.wait()
	completions = matching(word, c.candidates(head, line), spell)
	isWhole := len(completions) == 1 && strings.EqualFold(head+completions[0], before)
	if isWhole || mode == '"' && len(completions) == 0 || strings.HasSuffix(before, " ") && len(completions) > maxListed {
		return before, tab, tail
	}
	return head, completions, tail
}

// goOn has completion know what is open where the next line begins.
func (c *catalog) goOn(pending *splitter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun = splitter{mode: pending.mode, tag: pending.tag, depth: pending.depth}
}

// modeBehind is what is open behind the text that the line begins with.
func (c *catalog) modeBehind(text string) byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := splitter{mode: c.begun.mode, tag: c.begun.tag, depth: c.begun.depth}
	for i := 0; i < len(text); {
		i += s.step(text[i:], i > 0 && isWord(text[i-1]))
	}
	return s.mode
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
