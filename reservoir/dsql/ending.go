package dsql

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxerr"
)

// queryCanceled is the SQLSTATE of a statement that the server has cancelled.
const queryCanceled = "57014"

// A cancelHandler ends the statement under way when its context ends: the server is
// asked to cancel it and has CancelGrace to answer. Its answer, whatever it is, leaves
// the connection usable; without one the connection is lost.
type cancelHandler struct {
	p    *physical
	conn *pgconn.PgConn

	request *cancelRequest // of the statement under way; nil: none
}

// A cancelRequest is one request to the server to cancel a statement.
type cancelRequest struct {
	done chan struct{} // closed when it has ended
	// mayArrive says that it may still reach the server. Set before done is
	// closed.
	mayArrive bool
	limit     time.Time // by which it has to end
}

// waitDone waits until the request has ended, and says whether it has, by its
// limit, and cannot reach the server any more. A Config.Dial that ignores its context
// may keep it from that.
func (r *cancelRequest) waitDone() bool {
	return callback.EndsWithin(r.done, time.Until(r.limit)+returnMargin) && !r.mayArrive
}

var _ ctxwatch.Handler = (*cancelHandler)(nil)

// cancelRequestKey marks the context of a cancelHandler's request, the only one for
// which a second connection is dialled.
type cancelRequestKey struct{}

// HandleCancel is called on a goroutine of its own.
func (c *cancelHandler) HandleCancel(ctx context.Context) {
	c.request = nil
	if c.p.cutOnCancel.Load() {
		_ = c.conn.Conn().SetDeadline(time.Unix(1, 0)) // an error: it is closed already
		return
	}
	limit := time.Now().Add(c.p.cancelGrace)
	_ = c.conn.Conn().SetDeadline(limit) // as above
	r := &cancelRequest{done: make(chan struct{}), mayArrive: true, limit: limit}
	c.request = r
	ask, stop := context.WithDeadline(context.WithValue(context.WithoutCancel(ctx), cancelRequestKey{}, true), limit)
	go func() {
		defer close(r.done)
		defer stop()
		defer func() { _ = recover() }() // of Config.Dial; as with its errors, nobody is there to be told
		// No error says that the request was sent; the end of ask, that the
		// server has not said that it was received.
		r.mayArrive = c.conn.CancelRequest(ask) == nil && ask.Err() != nil
	}()
}

// HandleUnwatchAfterCancel waits until the request has ended, as long as the
// statement may take.
//
// INVARIANT: a request that may still reach the server leaves no usable connection, and
// one that has arrived is followed by an empty statement (absorbCancel) before any
// other.
func (c *cancelHandler) HandleUnwatchAfterCancel() {
	if c.request != nil {
		if !c.request.waitDone() {
			c.p.abort()
		}
		c.p.cancelRequested.Store(true)
	}
	_ = c.conn.Conn().SetDeadline(time.Time{}) // an error: it is closed already
}

// absorbCancel makes sure that no request to cancel a statement hits the next one: the
// server takes note of what has arrived before it answers. Only the user of the
// connection may call it.
func (p *physical) absorbCancel(ctx context.Context) error {
	if !p.cancelRequested.Load() {
		return nil
	}
	err := p.pgx().Ping(ctx)
	if isQueryCanceled(err) {
		err = p.pgx().Ping(ctx)
	}
	if err == nil {
		p.cancelRequested.Store(false)
	}
	return err
}

// isQueryCanceled says whether the server has cancelled a statement.
func isQueryCanceled(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == queryCanceled
}

// runUncancelled runs a statement that a transaction begins or ends with. It is not
// cancelled: when ctx ends, its answer has CancelGrace more.
func (p *physical) runUncancelled(ctx context.Context, do func(context.Context) error) error {
	if err := ctxerr.Of(ctx); err != nil {
		return err
	}
	if err := p.absorbCancel(ctx); err != nil {
		return err
	}
	longer, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	stop := context.AfterFunc(ctx, func() {
		_ = callback.EndsWithin(longer.Done(), p.cancelGrace)
		cut()
	})
	defer stop()
	p.cutOnCancel.Store(true)
	defer p.cutOnCancel.Store(false)
	return withContextError(ctx, do(longer))
}

// repairable says whether a connection that comes back can be lent again after a
// repair.
func (p *physical) repairable() bool {
	conn := p.pgx()
	return !conn.IsClosed() && !conn.PgConn().IsBusy() && (conn.PgConn().TxStatus() != 'I' || p.cancelRequested.Load())
}

// repair ends the transaction that a connection came back in, and waits until
// requests to cancel a statement are over.
func (p *physical) repair(ctx context.Context) error {
	p.cutOnCancel.Store(true)
	defer p.cutOnCancel.Store(false)
	if err := p.absorbCancel(ctx); err != nil {
		return err
	}
	if p.pgx().PgConn().TxStatus() != 'I' {
		if _, err := p.pgx().Exec(ctx, "rollback", pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return p.checkReturned()
}

// withContextError adds the error of a context that has ended to that of a call that
// failed because of it.
func withContextError(ctx context.Context, err error) error {
	ended, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || ended == nil || errors.Is(err, ended) && errors.Is(err, cause) {
		return err
	}
	return &contextEndedError{ended, cause, err}
}

// A contextEndedError is the failure of a call whose context has ended. The cause of that
// end, which may be the failure of another call, is the last in its chain.
type contextEndedError struct{ ended, cause, err error }

func (e *contextEndedError) Error() string { return e.cause.Error() + ": " + e.err.Error() }

func (e *contextEndedError) Unwrap() []error { return []error{e.ended, e.err, e.cause} }
