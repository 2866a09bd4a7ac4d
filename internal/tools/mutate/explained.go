package mutate

import (
	_ "embed"
	"slices"
	"strings"
)

//go:embed explained.txt
var explainedText string

// explained maps what a survivor is to why no test can kill it.
var explained = parseExplained(explainedText)

// parseExplained reads paragraphs of a reason, "# " before each of its lines,
// and the survivors that it explains, one a line as Key writes them.
func parseExplained(text string) map[string]string {
	reasons := map[string]string{}
	reason, fresh := "", true
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if comment, ok := strings.CutPrefix(line, "# "); ok {
			if fresh {
				reason, fresh = "", false
			}
			reason = strings.TrimSpace(reason + " " + comment)
			continue
		}
		fresh = true
		if line != "" {
			reasons[line] = reason
		}
	}
	return reasons
}

// Key names a mutant by what is changed and not by its line, so that it is
// found again when the file changes elsewhere.
func (p Point) Key(pkg string) string {
	return strings.Join([]string{pkg, p.Func, p.Text, p.What}, " | ")
}

// unmatched are the explained survivors of a package that are none of its
// mutants: the code has changed, and with it perhaps the reason.
func unmatched(pkg string, points []Point) (keys []string) {
	known := map[string]bool{}
	for _, p := range points {
		known[p.Key(pkg)] = true
	}
	for key := range explained {
		if strings.HasPrefix(key, pkg+" | ") && !known[key] {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
