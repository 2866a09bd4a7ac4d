package adbcconn

// Like reports whether name matches a LIKE pattern: "_" stands for one
// character, "%" for any number of them, and a backslash before either or before
// another backslash takes it literally. Letters match as they are written.
//
// It goes over name once, and back only to the last "%", so that no pattern
// takes longer than the product of the two lengths.
func Like(pattern, name string) bool {
	tokens, runes := likeTokens(pattern), []rune(name)
	t, n := 0, 0
	backT, backN := -1, 0 // where to go on when the last "%" takes one more
	for n < len(runes) {
		switch {
		case t < len(tokens) && tokens[t].many:
			backT, backN = t, n
			t++
		case t < len(tokens) && (tokens[t].one || tokens[t].literal == runes[n]):
			t++
			n++
		case backT >= 0:
			backN++
			t, n = backT+1, backN
		default:
			return false
		}
	}
	for t < len(tokens) && tokens[t].many {
		t++
	}
	return t == len(tokens)
}

// likeToken is one step of a pattern: any number of characters, any one, or
// this one.
type likeToken struct {
	many, one bool
	literal   rune
}

// likeTokens reads a pattern. A backslash before any other character, or at the
// end, stands for itself.
func likeTokens(pattern string) []likeToken {
	runes := []rune(pattern)
	tokens := make([]likeToken, 0, len(runes))
	for i := 0; i < len(runes); i++ {
		switch c := runes[i]; {
		case c == '%':
			tokens = append(tokens, likeToken{many: true})
		case c == '_':
			tokens = append(tokens, likeToken{one: true})
		case c == '\\' && i+1 < len(runes) && (runes[i+1] == '%' || runes[i+1] == '_' || runes[i+1] == '\\'):
			i++
			tokens = append(tokens, likeToken{literal: runes[i]})
		default:
			tokens = append(tokens, likeToken{literal: c})
		}
	}
	return tokens
}
