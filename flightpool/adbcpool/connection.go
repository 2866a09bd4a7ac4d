package adbcpool

import (
	"context"
	"errors"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow/array"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/driverapi"
	"github.com/flightpool/flightpool/session"
)

// connection is adbc.Connection over one session of the pool.
type connection struct {
	handle  *flightpool.SessionHandle
	baseCtx context.Context //nolint:containedctx // the values of Open's, for calls that have none

	// autocommitOff says that autocommit is off. A transaction then begins with the
	// first statement, so that a connection that only sits there holds none.
	//
	// INVARIANT: inTx only while autocommitOff.
	autocommitOff, inTx bool
	unended             driverapi.UnendedTx // of a transaction that is over for the caller
	commitErr           error               // why the last commit did, until a statement or a rollback
	switching           bool                // it was that of switching autocommit on
	headers             metadata.MD         // of its catalogue calls, and of statements made later
	omitConstraints     bool                // GetObjects leaves constraints out
	closed              bool
}

var (
	_ adbc.Connection    = (*connection)(nil)
	_ adbc.GetSetOptions = (*connection)(nil)
)

// beginStatement checks the connection before a statement and opens the transaction
// that the statement belongs to.
func (c *connection) beginStatement(ctx context.Context) error {
	if c.closed {
		return errConnectionClosed
	}
	if err := c.unended.RollBack(ctx, c.handle); err != nil {
		return toADBC(err)
	}
	if c.autocommitOff && !c.inTx {
		if err := c.handle.BeginTransaction(ctx); err != nil {
			return toADBC(err)
		}
		c.inTx = true
	}
	c.commitErr = nil
	return nil
}

var errConnectionClosed = newADBCError(adbc.StatusInvalidState, "the connection is closed")

// Commit is part of adbc.Connection. errors.Is finds
// flightpool.ErrCommitUnknown where the outcome cannot be known. A commit that
// is repeated after it has failed fails again.
func (c *connection) Commit(ctx context.Context) error {
	if c.commitErr != nil && !c.closed {
		return c.commitErr
	}
	err := c.endTx(ctx, "commit", c.handle.Commit)
	if err != nil && !c.inTx && c.autocommitOff && !c.closed {
		c.commitErr, c.switching = err, false
	}
	return err
}

// Rollback is part of adbc.Connection.
func (c *connection) Rollback(ctx context.Context) error {
	c.commitErr = nil
	return c.endTx(ctx, "rollback", c.handle.Rollback)
}

func (c *connection) endTx(ctx context.Context, what string, end func(context.Context) error) error {
	switch {
	case c.closed:
		return errConnectionClosed
	case !c.autocommitOff:
		return newADBCError(adbc.StatusInvalidState, what+" while autocommit is on")
	case !c.inTx:
		return nil
	}
	err := end(ctx)
	c.inTx = canEndAgain(err)
	if !c.inTx {
		c.unended.Record(err)
	}
	return toADBC(err)
}

// canEndAgain reports whether a commit or rollback failed before anything was
// sent, because a result is open or the context had ended, so that it can be
// called again.
func canEndAgain(err error) bool {
	var e *flightpool.Error
	return errors.As(err, &e) && e.Unsent && (driverapi.EndedByContext(err) || !errors.Is(err, session.ErrNoTx) &&
		!errors.Is(err, flightpool.ErrSessionLost) && !errors.Is(err, flightpool.ErrCommitUnknown))
}

// setAutocommit commits what is open when it switches autocommit on, as ADBC
// wants it. Where that has failed, it fails when repeated, as a commit does, until a
// statement or a rollback.
func (c *connection) setAutocommit(ctx context.Context, on bool) error {
	if on && (c.inTx || c.commitErr != nil && c.switching) {
		if err := c.Commit(ctx); err != nil {
			c.switching = true
			return err
		}
	}
	if on {
		c.commitErr = nil
	}
	c.autocommitOff = !on
	return nil
}

// NewStatement is part of adbc.Connection.
func (c *connection) NewStatement() (adbc.Statement, error) {
	if c.closed {
		return nil, errConnectionClosed
	}
	return newStatement(c), nil
}

// closePrepared frees a prepared statement on the server, within the context of the
// call that needs it no more. While another statement's result is being read it is
// left to the connection's Close.
func (c *connection) closePrepared(ctx context.Context, q *flightpool.PreparedQuery) error {
	if err := q.Close(ctx); !errors.Is(err, backend.ErrBusy) {
		return toADBC(err)
	}
	return nil
}

// Close is part of adbc.Connection. An open transaction is rolled back, the
// session is cleaned and goes back to the pool.
func (c *connection) Close() error {
	if c.closed {
		return errConnectionClosed
	}
	c.closed = true
	_ = c.handle.Close() // its error says why the connection is not used again
	return nil
}

// ReadPartition is part of adbc.Connection.
func (c *connection) ReadPartition(context.Context, []byte) (array.RecordReader, error) {
	return nil, notImplemented("ReadPartition")
}
