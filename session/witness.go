package session

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/backend"
)

// That an INSERT leaves the session where it was is learned for all sessions of the server, from
// a look before it and one behind it. A driver that has dialled again in between, or a server
// that has evicted the session, has another one answer the second look: it is where sessions
// begin, whatever the INSERT has done. So nothing is learned of a first INSERT that seems to have
// stayed, and of a later one only if a statement that was prepared before it is known behind the
// second look. On a server whose INSERTs move sessions that costs nothing.

// updatePrepared runs a prepared change, and mends what a bulk load does beside it: after a
// panic of an interceptor or driver too, whose caller may go on.
func (s *SessionHandle) updatePrepared(ctx context.Context, c *call, stmt backend.Prepared, params arrow.RecordBatch) (int64, error) {
	if asQuery, err := s.insertsAsQuery(ctx, c, stmt, params); err != nil {
		return 0, err
	} else if asQuery {
		return s.insertAsQuery(ctx, c, stmt, params)
	}
	if err := s.requireStored(ctx, c, stmt, params); err != nil {
		return 0, err
	}
	if err := s.prepareWitness(ctx, c); err != nil {
		return 0, err
	}
	c.loadsInBulk.Store(c.script.Statements[0].InsertInto != "" && params != nil && isCounted(backend.TxID(handleOf(stmt))))
	returned := false
	defer func() {
		if !returned {
			s.leaveUnverified(c.insert)
		}
	}()
	n, err := stmt.Update(ctx, params, c.backendCall)
	s.afterInsert(ctx, c, err)
	returned = true
	return n, err
}

// leaveUnverified leaves to the next statement, and to the end of the handle, what was not
// done behind an INSERT.
func (s *SessionHandle) leaveUnverified(in *insertion) {
	if in == nil || in.namespace == nil {
		return
	}
	s.mu.Lock()
	s.mu.sideEffects.unverifiedInsert = in
	s.mu.Unlock()
	if in.witness != nil {
		s.registerUnclosed(in.witness.stmt)
	}
}

// prepareWitness prepares that statement, where there is something to learn. After an error of
// it the INSERT must not be sent.
func (s *SessionHandle) prepareWitness(ctx context.Context, c *call) error {
	in := c.insert
	if in == nil || in.namespace == nil || !in.teaches() || !s.policy.stayedInserts.has(in.qualifier) {
		return nil
	}
	w := &proof{nonce: rand.Text()}
	stmt, err := s.prepare(ctx, "SELECT '"+w.nonce+"'", c.ownStatement(), backend.Call{Tx: c.backendCall.Tx})
	if err != nil {
		if c.backendCall.Tx == "" && backend.FaultIn(err).KeepsConn() {
			return nil
		}
		return err
	}
	w.stmt, in.witness = stmt, w
	return nil
}

// teaches reports whether what is true of the INSERT is true of others: the session was where it
// began.
func (in *insertion) teaches() bool { return in.qualifier != "-" && !in.movedBefore }

// learnNonMoving takes note that the session is where it was before an INSERT. An error of it
// is that of a statement of the transaction, which it may have aborted.
func (s *SessionHandle) learnNonMoving(ctx context.Context, in *insertion, tx backend.TxID) error {
	switch {
	case !in.teaches():
	case in.witness == nil:
		s.policy.stayedInserts.add(in.qualifier)
	default:
		if err := in.witness.compare(ctx, tx); err != nil {
			return err
		}
		s.policy.nonMovingInserts.add(in.qualifier)
	}
	return nil
}

// closeWitness closes the statement.
func (s *SessionHandle) closeWitness(ctx context.Context, in *insertion) {
	if in.witness == nil {
		return
	}
	if err := in.witness.stmt.Close(ctx); err != nil {
		s.markDiscard(fmt.Errorf("close prepared statement: %w", err))
	}
}
