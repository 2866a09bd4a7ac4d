package adbcpool

import (
	"context"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/flightpool"
)

// connection is adbc.Connection over one session of the pool.
type connection struct {
	s    *flightpool.SessionHandle
	late context.Context //nolint:containedctx // the values of Open's, for calls that have none

	// manual says that autocommit is off. A transaction then begins with the
	// first statement, so that a connection that only sits there holds none.
	//
	// INVARIANT: inTx only while manual.
	manual, inTx bool
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
	if !c.manual || c.inTx {
		return nil
	}
	if err := c.s.BeginTransaction(ctx); err != nil {
		return toADBC(err)
	}
	c.inTx = true
	return nil
}

var errConnectionClosed = failure(adbc.StatusInvalidState, "the connection is closed")

// Commit is part of adbc.Connection. errors.Is finds
// flightpool.ErrCommitUnknown where the outcome cannot be known.
func (c *connection) Commit(ctx context.Context) error {
	return c.end(ctx, "commit", c.s.Commit)
}

// Rollback is part of adbc.Connection.
func (c *connection) Rollback(ctx context.Context) error {
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
	c.inTx = false
	err := end(ctx)
	if err != nil {
		// ADBC has no transaction after a failed commit. The session has, if
		// the server refused it; else this says that there is none.
		bounded, stop := c.bounded()
		defer stop()
		_ = c.s.Rollback(bounded) //nolint:contextcheck // ctx may be what ended the commit
	}
	return toADBC(err)
}

// setAutocommit commits what is open when it switches autocommit on, as ADBC
// wants it.
func (c *connection) setAutocommit(on bool) error {
	if on && c.inTx {
		ctx, stop := c.bounded()
		defer stop()
		if err := c.Commit(ctx); err != nil {
			return err
		}
	}
	c.manual = !on
	return nil
}

// NewStatement is part of adbc.Connection.
func (c *connection) NewStatement() (adbc.Statement, error) {
	if c.closed {
		return nil, errConnectionClosed
	}
	return &statement{conn: c}, nil
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
