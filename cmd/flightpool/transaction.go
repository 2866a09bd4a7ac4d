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
		if err = session.Rollback(ctx); !unsent(err) {
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

// abortsTx reports whether a statement that has failed in a transaction has aborted it: one that was not sent has not, nor what
// could not be printed or is not there on this server.
func abortsTx(err error) bool {
	var e *flightpool.Error
	return errors.Is(err, flightpool.ErrTxAborted) || errors.As(err, &e) && !e.Unsent && e.Fault != flightpool.FaultUnsupported
}

// missesTx reports whether the statement that has failed leaves its user in a transaction that no session has: its BEGIN, in whatever
// form, or one within a transaction with which the session has ended. What follows was meant for that transaction, and may have been
// entered already.
func missesTx(sql string, had txState, ended bool) bool {
	sql = withoutComments(sql)
	if had == txNone {
		return beginsTx.MatchString(sql)
	}
	return ended && !commitText.MatchString(sql) && !rollbackText.MatchString(sql)
}

// withoutTx answers a statement in a transaction that no session has: it is not run outside of one.
func (s *shell) withoutTx(sql string) error {
	why := s.txLost
	switch sql = withoutComments(sql); {
	case rollbackText.MatchString(sql):
		s.tx, s.txLost = txNone, nil
		if s.format == output.Table {
			s.tell("OK")
		}
		return nil
	case commitText.MatchString(sql):
		s.tx, s.txLost = txNone, nil
		return fmt.Errorf("nothing was committed: %w", why)
	default:
		return errors.New("not run, as it would be outside of the transaction, which has ended or could not begin; ROLLBACK ends this")
	}
}
