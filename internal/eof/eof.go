// Package eof decides when a stream of results has ended well.
//
// io.EOF is the word for that, and failures have it in their chains too: a
// socket that its peer has closed, a decompressor without input. So the end is
// io.EOF itself, and no error that leaves this module leads to it.
package eof

import (
	"errors"
	"io"
)

// Reached reports whether err is the regular end of a stream: io.EOF itself,
// which gRPC answers for the status OK alone.
func Reached(err error) bool { return err == io.EOF } //nolint:errorlint // an error that wraps it is a failure

// Hide is err without a way to io.EOF. The rest of its chain, and its text, are
// as they were.
func Hide(err error) error {
	if errors.Is(err, io.EOF) {
		return hiddenEOF{err}
	}
	return err
}

type hiddenEOF struct{ err error }

func (h hiddenEOF) Error() string { return h.err.Error() }

// Is finds what the chain has, but for io.EOF.
func (h hiddenEOF) Is(target error) bool {
	return target != io.EOF && errors.Is(h.err, target) // io.EOF itself is meant
}

// As finds what the chain has.
func (h hiddenEOF) As(target any) bool { return errors.As(h.err, target) }
