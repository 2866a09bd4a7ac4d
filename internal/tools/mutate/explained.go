package mutate

import (
	_ "embed"
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
