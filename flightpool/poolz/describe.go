package poolz

import (
	"errors"
	"regexp"
	"strings"

	"github.com/flightpool/flightpool/backend"
)

// describe says what an error is: its fault, stage and SQLSTATE, which hold no values, or
// with texts its text.
func describe(err error, texts bool) string {
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
