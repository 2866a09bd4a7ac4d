package sqlscan

import "unicode"

// blanks tells the characters beyond ASCII that are white space from those that
// stand in words.
type blanks uint8

const (
	blanksAll    blanks = iota // all that any server takes for white space
	blanksDuckDB               // without line and paragraph separators
	blanksNone
)

// has reports whether r is white space.
func (b blanks) has(r rune) bool {
	switch {
	case r <= unicode.MaxASCII:
		return unicode.IsSpace(r)
	case b == blanksNone:
		return false
	case b == blanksDuckDB && (r == '\u0085' || r == '\u1680' || r == '\u2028' || r == '\u2029'):
		return false
	default:
		return unicode.IsSpace(r) || widthless(r)
	}
}

// widthless are further characters that DuckDB takes for white space.
func widthless(r rune) bool { return r >= '\u200b' && r <= '\u200d' || r == '\u2060' || r == '\ufeff' }

// word reports whether r can stand in a word: beyond ASCII, whatever is no white
// space can.
func (b blanks) word(r rune) bool {
	if r > unicode.MaxASCII {
		return !b.has(r)
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
