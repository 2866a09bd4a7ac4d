package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// Statements of our own go through here. Secrets may stand in those of ResetSQL and in
// values that settings are put back to. Their errors reach hooks, logs and callers other
// than the one who wrote the statement, so neither our text nor what a server repeats of
// it may show them.

// exec runs a statement of ours that has names and no values. Its error has the
// statement's text, since several are sent one after the other.
func (s *SessionHandle) exec(ctx context.Context, sql string, call backend.Call) error {
	if _, err := s.conn.Update(ctx, sql, call); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// execSecret runs a statement of ours that may have secrets in it. Its error shows
// the words before the first value.
func (s *SessionHandle) execSecret(ctx context.Context, sql string, call backend.Call) error {
	if _, err := s.conn.Update(ctx, sql, call); err != nil {
		return fmt.Errorf("%s: %w", statementHead(sql), withoutText(err))
	}
	return nil
}

// statementHead is the verb of sql and, where a name follows it by the verb's grammar,
// the name. It is "statement" for a text that begins with something else than a word.
func statementHead(sql string) string {
	rest, words := sql, 1
	for i := 0; i < words; i++ {
		word := rest[:len(rest)-len(strings.TrimLeft(rest, " \t\r\n"))]
		name := strings.TrimLeft(rest[len(word):], wordBytes)
		word = rest[:len(rest)-len(name)]
		switch strings.ToUpper(strings.TrimSpace(word)) {
		case "SET", "RESET", "PRAGMA", "SESSION", "LOCAL", "GLOBAL":
			words++
		}
		rest = name
	}
	if head := strings.TrimRight(sql[:len(sql)-len(rest)], " \t\r\n"); head != "" {
		return head
	}
	return "statement"
}

const wordBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."

// withoutText is err without the words in which the server, or a driver, refused a
// statement: they may repeat it. What it is by errors.Is, its fault and its status code
// stay; errors.As finds no error of a driver in it any more, since that has the text.
func withoutText(err error) error {
	if err == nil {
		return nil
	}
	hidden := &hiddenError{code: status.Code(err), is: func(target error) bool { return errors.Is(err, target) }}
	var e *backend.Error
	if !errors.As(err, &e) {
		return hidden
	}
	shown := *e
	shown.Err = hidden
	return &shown
}

// hiddenError stands for an error whose text is not shown. It keeps that behind a
// function, so that no print by reflection finds it.
type hiddenError struct {
	code codes.Code
	is   func(target error) bool
}

func (e *hiddenError) Error() string {
	return fmt.Sprintf("%v; the server's words are not shown, since they may repeat a secret of the statement", e.code)
}

// Is reports whether the hidden error is target.
func (e *hiddenError) Is(target error) bool { return e.is(target) }

// GRPCStatus is the status without the server's message and details.
func (e *hiddenError) GRPCStatus() *status.Status { return status.New(e.code, e.Error()) }
