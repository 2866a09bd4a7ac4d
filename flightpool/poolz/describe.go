package poolz

import (
	"errors"
	"regexp"
	"strings"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
)

// describe says what an error is, as textOf does. An error may be of the program's own: what
// its methods do is contained, and no lock may be held.
func describe(err error, texts bool) (text string) {
	if err == nil {
		return ""
	}
	if callback.Isolate("an error", func() error { text = textOf(err, texts); return nil }) != nil {
		return "an error without a text"
	}
	return text
}

// textOf has an error's fault, stage and SQLSTATE, which hold no values, or with texts
// its text.
func textOf(err error, texts bool) string {
	if texts {
		return cut(err.Error())
	}
	words := []string{backend.FaultIn(err).String()}
	if e := (*backend.Error)(nil); errors.As(err, &e) {
		words = append(words, e.Stage.String())
		if sqlState.MatchString(e.SQLState) {
			words = append(words, e.SQLState)
		}
	}
	return strings.TrimSpace(strings.Join(words, " "))
}

// sqlState is what the standard allows: a server could send anything.
var sqlState = regexp.MustCompile(`^[0-9A-Z]{5}$`)
