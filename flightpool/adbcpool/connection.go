package adbcpool

import (
	"context"
	"errors"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow/array"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/leftover"
	"github.com/flightpool/flightpool/session"
)

// lateTimeout bounds what ADBC asks for without a context.
const lateTimeout = 30 * time.Second

// connection is adbc.Connection over one session of the pool.
type connection struct {
	s    *flightpool.SessionHandle
	late context.Context //nolint:containedctx // the values of Open's, for calls that have none

	// manual says that autocommit is off. A transaction then begins with the
	// first statement, so that a connection that only sits there holds none.
	//
	// INVARIANT: inTx only while manual.
	manual, inTx bool
	left         leftover.Tx // of a transaction that is over for the caller
	failed       error       // why the last commit did, until a statement or a rollback
	switching    bool        // it was that of switching autocommit on
	headers      metadata.MD // of its catalogue calls, and of statements made later
	noKeys       bool        // GetObjects leaves constraints out
	closed       bool
}

var (
	_ adbc.Connection    = (*connection)(nil)
	_ adbc.GetSetOptions = (*connection)(nil)
)

// bounded is the context of what ADBC asks for without one.
func (c *connection) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.late, lateTimeout)
}

// ready checks the connection before a statement and opens the transaction
// that the statement belongs to.
func (c *connection) ready(ctx context.Context) error {
	if c.closed {
		return errConnectionClosed
	}
	if err := c.left.End(ctx, c.s); err != nil {
		return toADBC(err)
	}
	if c.manual && !c.inTx {
		if err := c.s.BeginTransaction(ctx); err != nil {
			return toADBC(err)
		}
		c.inTx = true
	}
	c.failed = nil
	return nil
}

var errConnectionClosed = failure(adbc.StatusInvalidState, "the connection is closed")

// Commit is part of adbc.Connection. errors.Is finds
// flightpool.ErrCommitUnknown where the outcome cannot be known. A commit that
// is repeated after it has failed fails again.
func (c *connection) Commit(ctx context.Context) error {
	if c.failed != nil && !c.closed {
		return c.failed
	}
	err := c.end(ctx, "commit", c.s.Commit)
	if err != nil && !c.inTx && c.manual && !c.closed {
		c.failed, c.switching = err, false
	}
	return err
}

// Rollback is part of adbc.Connection.
func (c *connection) Rollback(ctx context.Context) error {
	c.failed = nil
	return c.end(ctx, "rollback", c.s.Rollback)
}

func (c *connection) end(ctx context.Context, what string, end func(context.Context) error) error {
	switch {
	case c.closed:
		return errConnectionClosed
	case !c.manual:
		return failure(adbc.StatusInvalidState, what+" while autocommit is on")
	case !c.inTx:
		return nil
	}
	err := end(ctx)
	c.inTx = stillOpen(err)
	if !c.inTx {
		c.left.Note(err)
	}
	return toADBC(err)
}

// stillOpen reports whether a commit or rollback failed before anything was
// sent, because a result is open or the context had ended, so that it can be
// called again.
func stillOpen(err error) bool {
	var e *flightpool.Error
	return errors.As(err, &e) && e.Unsent && !errors.Is(err, session.ErrNoTx) &&
		!errors.Is(err, flightpool.ErrSessionLost) && !errors.Is(err, flightpool.ErrCommitUnknown)
}

// setAutocommit commits what is open when it switches autocommit on, as ADBC
// wants it. Where that has failed, it fails when repeated, as a commit does, until a
// statement or a rollback.
func (c *connection) setAutocommit(ctx context.Context, on bool) error {
	if on && (c.inTx || c.failed != nil && c.switching) {
		if err := c.Commit(ctx); err != nil {
			c.switching = true
			return err
		}
	}
	if on {
		c.failed = nil
	}
	c.manual = !on
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
	if err := q.Close(ctx); !errors.Is(err, session.ErrBusy) {
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
	_ = c.s.Close() // its error says why the connection is not used again
	return nil
}

// ReadPartition is part of adbc.Connection.
func (c *connection) ReadPartition(context.Context, []byte) (array.RecordReader, error) {
	return nil, notImplemented("ReadPartition")
}
