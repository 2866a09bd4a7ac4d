// Package errjoin joins errors on one line.
package errjoin

import "strings"

// Join is errors.Join with the texts on one line, since a log has one line for
// an error: "; " stands between them, also between those of errors that
// errors.Join has joined before.
func Join(errs ...error) error {
	var all []error
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		if inner := joinedParts(all[0]); inner == nil {
			return all[0]
		}
	}
	return &joinedError{text: joinTexts(all), errs: all}
}

type joinedError struct {
	text string
	errs []error
}

func (e *joinedError) Error() string   { return e.text }
func (e *joinedError) Unwrap() []error { return e.errs }

func joinTexts(errs []error) string {
	texts := make([]string, len(errs))
	for i, err := range errs {
		if inner := joinedParts(err); inner != nil {
			texts[i] = joinTexts(inner)
		} else {
			texts[i] = err.Error()
		}
	}
	return strings.Join(texts, "; ")
}

// joinedParts are the errors that errors.Join has put into err, or nil if it has not
// made err. Line breaks within the text of one error are its own.
func joinedParts(err error) []error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	inner := several.Unwrap()
	texts := make([]string, len(inner))
	for i, one := range inner {
		texts[i] = one.Error()
	}
	if len(inner) < 2 || err.Error() != strings.Join(texts, "\n") {
		return nil
	}
	return inner
}
