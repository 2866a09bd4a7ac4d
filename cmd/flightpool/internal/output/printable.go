package output

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable makes one line of a text that comes from a server, and keeps it
// from controlling the terminal.
func Printable(text string) string { return printable(text, isControl) }

// printable is text with what is hidden, and bytes that are no UTF-8, as escapes of Go.
func printable(text string, hidden func(rune) bool) string {
	if strings.IndexFunc(text, hidden) < 0 && utf8.ValidString(text) {
		return text
	}
	var out strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			out.WriteString(strings.Trim(strconv.QuoteToASCII(text[i:i+1]), `"`))
		case hidden(r):
			out.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

func isControl(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }

// Visible is w for a terminal, which texts of a server must not control: all but the ends
// of lines and tabs that Printable replaces is replaced in the same way.
func Visible(w io.Writer) io.Writer { return &visibleWriter{w: w} }

type visibleWriter struct {
	w    io.Writer
	rest []byte // the beginning of a character
}

// Write is io.Writer's. It keeps what a later call completes.
func (v *visibleWriter) Write(p []byte) (int, error) {
	text := append(v.rest, p...)
	end := len(text)
	for i := max(0, end-utf8.UTFMax+1); i < end; i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			end = i
		}
	}
	v.rest = append([]byte(nil), text[end:]...)
	safe := printable(string(text[:end]), func(r rune) bool { return r != '\n' && r != '\t' && isControl(r) })
	if _, err := io.WriteString(v.w, safe); err != nil {
		return 0, err
	}
	return len(p), nil
}
