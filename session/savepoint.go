package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Savepoint marks a point inside the transaction to roll back to.
func (s *SessionHandle) Savepoint(ctx context.Context, name string) error {
	c, err := s.begin(ctx, "Savepoint", QueryOptions{}, true)
	if err != nil {
		return err
	}
	tx := s.txState()
	if err := tx.usable(); err != nil {
		return c.end(usage(err))
	}
	if name == "" {
		return c.end(usage(errors.New("a savepoint needs a name")))
	}
	id, err := do(c, func(ctx context.Context) (SavepointID, error) { return s.conn.Savepoint(ctx, tx.id, name) },
		func(_ SavepointID, err error) {
			s.abort() // the caller does not know of it
			_ = c.end(err)
		})
	if err == nil {
		s.mu.Lock()
		s.mu.tx.savepoints = append(slices.Clip(tx.savepoints), savepoint{name, id})
		s.mu.Unlock()
	}
	return c.end(err)
}

// RollbackTo undoes what came after the savepoint, which stays. It also leads
// out of the aborted state, where the server allows it.
func (s *SessionHandle) RollbackTo(ctx context.Context, name string) error {
	return s.endSavepoint(ctx, "RollbackTo", name, SavepointRollback)
}

// ReleaseSavepoint forgets the savepoint and those after it; what came after
// it stays done.
func (s *SessionHandle) ReleaseSavepoint(ctx context.Context, name string) error {
	return s.endSavepoint(ctx, "ReleaseSavepoint", name, SavepointRelease)
}

func (s *SessionHandle) endSavepoint(ctx context.Context, op, name string, end SavepointEnd) error {
	c, err := s.begin(ctx, op, QueryOptions{}, true)
	if err != nil {
		return err
	}
	tx := s.txState()
	if err := tx.usable(); err != nil && (end == SavepointRelease || tx.phase == txNone || tx.ended) {
		return c.end(usage(err))
	}
	at := -1
	for i, sp := range tx.savepoints {
		if sp.name == name {
			at = i // the latest of a name counts
		}
	}
	if at < 0 {
		return c.end(usage(fmt.Errorf("%w: %q", ErrNoSavepoint, name)))
	}
	_, err = do(c, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.conn.EndSavepoint(ctx, tx.savepoints[at].id, end)
	}, func(_ struct{}, err error) {
		s.abort()
		_ = c.end(err)
	})
	switch {
	case err == nil:
		s.mu.Lock()
		keep := at
		if end == SavepointRollback {
			keep, s.mu.tx.phase = at+1, txOpen
		}
		s.mu.tx.savepoints = tx.savepoints[:keep]
		s.mu.Unlock()
	case FaultIn(err) != FaultUnsupported && FaultIn(err) != FaultUsage:
		s.abort()
	}
	return c.end(err)
}
