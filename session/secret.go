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
		head := statementHead(sql)
		err = hideQuoted(err, strings.TrimPrefix(sql, head))
		if head == "" {
			return err
		}
		return fmt.Errorf("%s: %w", head, err)
	}
	return nil
}

// statementHead is the verb of sql and, where a name follows it by the verb's grammar,
// the name. It is empty for a text that begins with something else than a word.
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
	return strings.TrimRight(sql[:len(sql)-len(rest)], " \t\r\n")
}

const wordBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."

// hideQuoted is err without its text if that repeats a part of secret. What it is by
// errors.Is, its fault and its status code stay; errors.As finds no error of a driver
// in it any more, since that has the text.
func hideQuoted(err error, secret string) error {
	hidden := &hiddenError{code: status.Code(err), is: func(target error) bool { return errors.Is(err, target) }}
	var e *backend.Error
	said := err.Error()
	if errors.As(err, &e) && e.Err != nil {
		said = e.Err.Error()
	}
	switch {
	case !quotes(strings.ReplaceAll(said, hidden.code.String(), ""), secret):
		return err
	case e == nil:
		return hidden
	}
	shown := *e
	shown.Err = hidden
	return &shown
}

// hideValues is hideQuoted for an error of options being set; err may be nil.
func hideValues(err error, options map[string]any) error {
	for _, value := range options {
		if err != nil {
			err = hideQuoted(err, fmt.Sprintf("'%v'", value))
		}
	}
	return err
}

// secretPart is how many bytes of a secret in a row count as a part of it. Less occurs
// in any message by chance.
const secretPart = 4

// quotes reports whether text has a part of one of secret's words, or, as a word, a
// shorter one that stands in quotes. It may say so where the two are alike by chance,
// which costs a message, not a secret.
func quotes(text, secret string) bool {
	text = strings.ToLower(text)
	words := strings.FieldsFunc(text, func(r rune) bool { return r < 0x80 && !strings.ContainsRune(wordBytes, r) })
	for word := range strings.FieldsSeq(strings.ToLower(secret)) {
		quoted := strings.ContainsAny(word, `'"`)
		word = strings.Trim(word, `'"=,;()`)
		for i := secretPart; i <= len(word); i++ {
			if strings.Contains(text, word[i-secretPart:i]) {
				return true
			}
		}
		for _, w := range words {
			if quoted && len(word) < secretPart && w == word {
				return true
			}
		}
	}
	return false
}

// hiddenError stands for an error whose text is not shown. It keeps that behind a
// function, so that no print by reflection finds it.
type hiddenError struct {
	code codes.Code
	is   func(target error) bool
}

func (e *hiddenError) Error() string {
	return fmt.Sprintf("%v, in words that repeat the statement, which are not shown since secrets may stand in it", e.code)
}

// Is reports whether the hidden error is target.
func (e *hiddenError) Is(target error) bool { return e.is(target) }

// GRPCStatus is the status without the server's message and details.
func (e *hiddenError) GRPCStatus() *status.Status { return status.New(e.code, e.Error()) }
