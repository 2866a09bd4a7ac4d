package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/flightpool/flightpool/cmd/flightpool/internal/output"
	"github.com/flightpool/flightpool/flightpool"
)

// txState is what the prompt shows of the transaction.
type txState byte

const (
	txNone    txState = '='
	txOpen    txState = '*'
	txAborted txState = '!'
)

// control carries out what begins and ends transactions.
func (s *shell) control(ctx context.Context, session *flightpool.SessionHandle, sql string) (done bool, err error) {
	switch sql = withoutComments(sql); {
	case beginText.MatchString(sql):
		if err = session.BeginTransaction(ctx); err == nil {
			s.tx = txOpen
		}
	case commitText.MatchString(sql):
		if err = session.Commit(ctx); !unsent(err) {
			s.tx = txNone
		}
	case rollbackText.MatchString(sql):
		if err = session.Rollback(ctx); err == nil {
			s.tx = txNone
		}
	default:
		parts := savepointText.FindStringSubmatch(sql)
		if parts == nil {
			return false, nil
		}
		switch verb := strings.ToUpper(parts[1]); {
		case verb == "SAVEPOINT":
			err = session.Savepoint(ctx, parts[2])
		case strings.HasPrefix(verb, "RELEASE"):
			err = session.ReleaseSavepoint(ctx, parts[2])
		default:
			if err = session.RollbackTo(ctx, parts[2]); err == nil {
				s.tx = txOpen
			}
		}
	}
	if err == nil && s.format == output.Table {
		s.tell("OK")
	}
	return true, err
}

// abortsTx reports whether what has failed in a transaction has aborted it: one that was not sent has not, nor what could not be
// printed or is not there on this server. Nor has the end of a question that is no statement (sql is empty): where the server has
// ended the transaction with it, the next statement says so.
func abortsTx(sql string, err error) bool {
	var e *flightpool.Error
	if errors.Is(err, flightpool.ErrTxAborted) {
		return true
	}
	return errors.As(err, &e) && !e.Unsent && e.Fault != flightpool.FaultUnsupported && (sql != "" || e.Fault != flightpool.FaultContext)
}

// A halt is why nothing is run until ROLLBACK. What follows was meant for another transaction than the session has, and may have been
// entered already.
type halt struct {
	cause     error
	isOpen    bool   // the session has the transaction still, with what was to be rolled back
	savepoint string // to which a rollback may be tried again; empty: to none
}

// String is why a statement is not run.
func (h *halt) String() string {
	if h.isOpen {
		return "as what was to be rolled back is not"
	}
	return "as it would be outside of the transaction, which has ended or could not begin"
}

// halts is what the statement that has failed leaves its user with, or nil. By its BEGIN, in whatever form, or as one within a
// transaction with which the session has ended, it leaves them in a transaction that no session has; as one that was to undo the
// transaction or a part of it, in one that is not what they take it for.
func halts(sql string, had txState, ended bool, cause error) *halt {
	sql = withoutComments(sql)
	isWhole := commitText.MatchString(sql) || rollbackText.MatchString(sql)
	switch {
	case had == txNone && beginsTx.MatchString(sql), had != txNone && ended && !isWhole:
		return &halt{cause: cause}
	case had != txNone && !ended && undoesTx.MatchString(sql):
		return &halt{cause, true, rolledBackTo(sql)}
	}
	return nil
}

// rolledBackTo is the savepoint that a statement rolls back to, or empty.
func rolledBackTo(sql string) string {
	if parts := savepointText.FindStringSubmatch(sql); parts != nil && undoesTx.MatchString(sql) {
		return parts[2]
	}
	return ""
}

// whileHalted answers a statement where nothing is run but COMMIT and ROLLBACK, which end the transaction, and the ROLLBACK TO that
// has failed, once more. One to another savepoint may leave what was to be rolled back: its savepoint may be newer. So may one to the
// same name behind a statement that was not run, but for reads, or a COMMIT that has failed: the name was to mean another by then.
func (s *shell) whileHalted(ctx context.Context, sql string) error {
	why, text := s.halted, withoutComments(sql)
	isCommit := commitText.MatchString(text)
	again := why.savepoint != "" && rolledBackTo(text) == why.savepoint
	if !again && mayChange(sql) {
		why.savepoint = ""
	}
	switch {
	case isCommit, rollbackText.MatchString(text):
	case again:
		if _, err := s.control(ctx, s.session, sql); err != nil {
			return s.failed(ctx, sql, err, false)
		}
		s.halted = nil
		return nil
	default:
		return fmt.Errorf("not run, %s; ROLLBACK ends this", why)
	}
	if s.session != nil { // which may have one still, also where a BEGIN has failed
		if err := s.session.RollbackOpen(ctx); err != nil {
			return s.failed(ctx, sql, err, false)
		}
	}
	s.tx, s.halted = txNone, nil
	if isCommit {
		return fmt.Errorf("nothing was committed: %w", why.cause)
	}
	if s.format == output.Table {
		s.tell("OK")
	}
	return nil
}
