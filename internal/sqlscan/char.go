package sqlscan

import "unicode"

// widthless are further characters that DuckDB takes for white space.
func widthless(r rune) bool { return r >= '\u200b' && r <= '\u200d' || r == '\u2060' || r == '\ufeff' }

// isWord reports whether r can stand in a word: beyond ASCII, whatever is no
// white space can.
func isWord(r rune) bool {
	if r > unicode.MaxASCII {
		return !unicode.IsSpace(r) && !widthless(r)
	}
	return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

func run(s string, in func(rune) bool) int {
	for i, r := range s {
		if i > 0 && !in(r) {
			return i
		}
	}
	return len(s)
}
