package sqlscan

import "unicode"

// whitespace tells the characters beyond ASCII that are white space from those that
// stand in words.
type whitespace uint8

const (
	whitespaceAll    whitespace = iota // all that any server takes for white space
	whitespaceDuckDB                   // without line and paragraph separators
	whitespaceASCII
)

// isSpace reports whether r is white space.
func (b whitespace) isSpace(r rune) bool {
	switch {
	case r <= unicode.MaxASCII:
		return unicode.IsSpace(r)
	case b == whitespaceASCII:
		return false
	case b == whitespaceDuckDB && (r == '\u0085' || r == '\u1680' || r == '\u2028' || r == '\u2029'):
		return false
	default:
		return unicode.IsSpace(r) || isZeroWidth(r)
	}
}

// isZeroWidth are further characters that DuckDB takes for white space.
func isZeroWidth(r rune) bool {
	return r >= '\u200b' && r <= '\u200d' || r == '\u2060' || r == '\ufeff'
}

// isWordRune reports whether r can stand in a word: beyond ASCII, whatever is no white
// space can.
func (b whitespace) isWordRune(r rune) bool {
	if r > unicode.MaxASCII {
		return !b.isSpace(r)
	}
	return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

func prefixLen(s string, in func(rune) bool) int {
	for i, r := range s {
		if i > 0 && !in(r) {
			return i
		}
	}
	return len(s)
}
