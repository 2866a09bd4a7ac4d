package session

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/flightpool/flightpool/backend"
)

// Savepoint marks a point inside the transaction to roll back to. A name may be used
// again: the latest counts. The server is given another name for it, and for one that is
// no short plain word. Outside of a transaction it fails with ErrNoTx, and with
// FaultUnsupported on a server without savepoints, which leaves the transaction as it is.
// Any other failure aborts the transaction.
func (s *SessionHandle) Savepoint(ctx context.Context, name string) error {
	c, err := s.begin(ctx, "Savepoint", QueryOptions{}, finishWithinBudget)
	if err != nil {
		return err
	}
	tx := s.txState()
	if err := tx.checkUsable(); err != nil {
		return c.finish(outcome{err: usageError(err)})
	}
	if name == "" {
		return c.finish(outcome{err: usageError(errors.New("a savepoint needs a name"))})
	}
	c.beforeSend = func(ctx context.Context) error { return s.proveSession(ctx, accessState) }
	sent := s.nameSavepoint(name)
	_, err = runStep(c, func(ctx context.Context) (backend.SavepointID, error) { return s.conn.Savepoint(ctx, tx.id, sent) },
		func(id backend.SavepointID, inTime bool, err error) outcome {
			switch {
			case !inTime:
				s.abortAtSavepoint(sent, errors.New("Savepoint: "+callerLeftText)) // the caller does not know of it
			case err == nil:
				s.mu.Lock()
				s.mu.tx.savepoints = append(slices.Clip(tx.savepoints), savepoint{name, sent, id})
				s.mu.Unlock()
			case !turnedDown(err):
				s.abortAtSavepoint(sent, err) // as servers do, some of which confirm a commit then
			}
			return outcome{err: err}
		})
	return err
}

// nameSavepoint is what the server is to call a savepoint: name, or one of ours where the
// server may have one of that name.
//
// INVARIANT: no two savepoints that the server may have are of one name there. A server that
// ends them by their names means the latest, which may be one that the handle does not count: of
// a Savepoint that was cut, or one that is another's in another case, in quotes, or beyond
// the length at which the server cuts names.
func (s *SessionHandle) nameSavepoint(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	tx := &s.mu.tx
	if plainSavepoint.MatchString(name) && !strings.HasPrefix(strings.ToLower(name), ourSavepoints) && !tx.mayHaveSavepoint(name) {
		return name
	}
	tx.namedSavepoints++
	return fmt.Sprintf("%s%d", ourSavepoints, tx.namedSavepoints)
}

// plainSavepoint is a name that servers read in one way, but for its case.
var plainSavepoint = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,29}$`)

// ourSavepoints is what our names begin with. No name of a caller's that begins so is sent.
const ourSavepoints = "flightpool_sp"

func (t *transaction) mayHaveSavepoint(name string) bool {
	isOne := func(sent string) bool { return strings.EqualFold(sent, name) }
	return slices.ContainsFunc(t.unclearSavepoints, isOne) ||
		slices.ContainsFunc(t.savepoints, func(sp savepoint) bool { return isOne(sp.sent) })
}

// abortAtSavepoint aborts the transaction at a savepoint of which it is not known whether the
// server has it.
func (s *SessionHandle) abortAtSavepoint(sent string, why error) {
	s.mu.Lock()
	s.mu.tx.unclearSavepoints = append(slices.Clip(s.mu.tx.unclearSavepoints), sent)
	s.mu.tx.markAborted(why)
	s.mu.Unlock()
}

const callerLeftText = "its caller left before the server had answered"

// RollbackTo undoes what came after the savepoint, which stays. It also leads
// out of the aborted state, where the server allows it: there the session gives
// its proof afterwards, since an aborted transaction refuses every statement.
func (s *SessionHandle) RollbackTo(ctx context.Context, name string) error {
	return s.endSavepoint(ctx, "RollbackTo", name, backend.SavepointRollback)
}

// ReleaseSavepoint forgets the savepoint and those after it; what came after
// it stays done.
func (s *SessionHandle) ReleaseSavepoint(ctx context.Context, name string) error {
	return s.endSavepoint(ctx, "ReleaseSavepoint", name, backend.SavepointRelease)
}

// The handle keeps names with the ids that the server gave, and refuses those it has
// not itself: a wrong id would abort the transaction on some servers. An end that
// nobody waited for aborts the transaction, since its caller cannot tell which
// statements are in it.
func (s *SessionHandle) endSavepoint(ctx context.Context, op, name string, end backend.SavepointEnd) error {
	c, err := s.begin(ctx, op, QueryOptions{}, finishWithinBudget)
	if err != nil {
		return err
	}
	tx := s.txState()
	if err := tx.checkUsable(); err != nil && (end == backend.SavepointRelease || tx.phase == txNone || tx.endedOnServer) {
		return c.finish(outcome{err: usageError(err)})
	}
	at := -1
	for i, sp := range tx.savepoints {
		if sp.name == name {
			at = i // the latest of a name counts
		}
	}
	if at < 0 {
		return c.finish(outcome{err: usageError(fmt.Errorf("%w: %q", ErrNoSavepoint, name))})
	}
	if tx.phase == txOpen {
		c.beforeSend = func(ctx context.Context) error { return s.proveSession(ctx, accessState) }
	}
	return runStepWithoutValue(c, func(ctx context.Context) error {
		err := s.conn.EndSavepoint(ctx, tx.savepoints[at].id, end)
		if err == nil && tx.phase == txAborted {
			err = asSent(s.proveSession(ctx, accessState))
		}
		return err
	},
		func(inTime bool, err error) outcome {
			switch {
			case !inTime:
				s.abortTx(errors.New(op + ": " + callerLeftText))
			case err == nil:
				s.keepSavepoints(tx, at, end)
			case !turnedDown(err):
				s.abortTx(err)
			}
			return outcome{err: err}
		})
}

// asSent is err as that of a call of which something was sent. The rollback to the
// savepoint was, when the proof after it fails.
func asSent(err error) error {
	var e *backend.Error
	if !errors.As(err, &e) {
		return err
	}
	out := *e
	out.Unsent = false
	return &out
}

// keepSavepoints notes what is left of the savepoints after the end of one. A rollback
// keeps the savepoint itself, and its transaction is open again.
func (s *SessionHandle) keepSavepoints(tx transaction, at int, end backend.SavepointEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep := at
	if end == backend.SavepointRollback {
		keep, s.mu.tx.phase, s.mu.tx.abortedBy = at+1, txOpen, nil
		s.mu.ownObjects++ // what the session has made, altered or dropped since may be as before
	}
	s.mu.tx.savepoints = tx.savepoints[:keep]
}
