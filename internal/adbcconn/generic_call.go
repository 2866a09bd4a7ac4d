package adbcconn

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/effect"
	"github.com/flightpool/flightpool/internal/flightconn"
)

// returnGrace is how long after the end of a context the driver may take to
// return. Then the call is abandoned and the connection lost. Callers of package
// backend allow 50 ms.
const returnGrace = 30 * time.Millisecond

// driverCall is one call of backend.Conn over a generic driver. It lasts until
// end; one that returns a stream lasts as long as that, and enters the driver
// once for each batch.
type driverCall struct {
	conn          *GenericConn
	op            string
	callerCtx     context.Context //nolint:containedctx // whose end the error must name
	ctx           context.Context //nolint:containedctx // the driver's: it ends with the caller's and the connection
	end           context.CancelFunc
	enteredDriver atomic.Bool // the driver was entered
}

// begin starts a call. It fails, with nothing sent, when ctx or the connection
// has ended. The caller must call end. The driver is not entered yet:
// driverLock is taken by runInDriver.
func (c *GenericConn) begin(ctx context.Context, op string) (*driverCall, error) {
	t := &driverCall{conn: c, op: op, callerCtx: ctx}
	if err := ctx.Err(); err != nil {
		return nil, t.wrapError(backend.StageNone, err)
	}
	if c.Lost() != nil {
		return nil, t.lostError(backend.StageNone, nil)
	}
	var stop context.CancelFunc
	t.ctx, stop = context.WithCancel(ctx)
	unhook := context.AfterFunc(c.life, stop) // the call ends with either
	t.end = func() { unhook(); stop() }
	return t, nil
}

// runInDriver runs f while it holds driverLock. It waits until f returns, or until
// the call's context has ended and returnGrace is over: a later result goes to late,
// and the connection is lost, since the state of the driver is unknown. A panic or
// Goexit in f, which may run a reader of the caller's, goes on in the caller, and the
// connection is lost likewise.
//
// stage is that of the error. f must use the context that it is given, and what
// it returns beside an error is dropped. late may be nil where nothing has to
// be released. driverLock is given back when f returns, however late that is.
func runInDriver[T any](t *driverCall, stage backend.Stage, f func(context.Context) (T, error), late func(T)) (T, error) {
	var none T
	c := t.conn
	select {
	case c.driverLock <- struct{}{}:
	case <-t.ctx.Done():
		return none, t.wrapError(stage, t.ctx.Err())
	}
	if c.Lost() != nil { // Close held driverLock before
		<-c.driverLock
		return none, t.lostError(stage, nil)
	}
	t.enteredDriver.Store(true)
	a, inTime := callback.Within(t.ctx, returnGrace, func() (T, error) { return f(t.ctx) }, late, func() { <-c.driverLock })
	if inTime && !a.Returned {
		c.markLost(fmt.Errorf("a callback or reader of the caller's has ended %s by a panic or Goexit", t.op))
		a.Resume()
	}
	switch {
	case !inTime:
		cause := t.ctx.Err()
		c.markLost(fmt.Errorf("the driver does not return from %s, whose context has ended", t.op))
		return none, t.wrapError(stage, cause)
	case a.Err != nil:
		c.failedInTx.Store(true)
		return none, t.wrapError(stage, a.Err)
	}
	return a.Value, nil
}

// doInDriver is runInDriver for what makes nothing.
func doInDriver(t *driverCall, stage backend.Stage, f func(context.Context) error) error {
	_, err := runInDriver(t, stage, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) }, nil)
	return err
}

// enterInBackground runs f in the driver, at once if the driver is free,
// without waiting for it. f runs even where the connection is lost: it releases
// what the driver holds. It may wait for a driver that never returns; its
// goroutine waits with it then.
func (c *GenericConn) enterInBackground(f func()) {
	run := func() {
		defer func() { <-c.driverLock }()
		c.containDriver(f)
	}
	select {
	case c.driverLock <- struct{}{}: // taken before any later call can
		go run()
	default:
		go func() {
			c.driverLock <- struct{}{}
			run()
		}()
	}
}

// containDriver calls what enters the driver where no caller is: a panic or Goexit in it
// loses the connection, and goes no further.
func (c *GenericConn) containDriver(f func()) {
	if err := callback.Isolate(theDriver, func() error { f(); return nil }); err != nil {
		c.markLost(err)
	}
}

const theDriver = "the driver" // in errors

// usageError is a fault of the caller's, found before the driver was entered.
func (t *driverCall) usageError(err error) error {
	e := t.conn.newError(t.op, backend.StageArgument, backend.FaultUsage, err)
	e.Unsent = !t.enteredDriver.Load()
	return e
}

// wrapError makes the call's error of what the driver returned.
//
// What is decided, in this order: a session that was replaced; the driver's own
// code, or the gRPC status in it; the caller's context; a connection that is
// lost; an end of a context that is nobody's here, which is the server's; a
// transport that has failed, which loses the connection. Before the connection
// is open, the last two are as the driver says.
func (t *driverCall) wrapError(stage backend.Stage, err error) error {
	c := t.conn
	e := c.newError(t.op, stage, backend.FaultUnknown, WithCause(err, localCause(err)))
	e.Unsent = !t.enteredDriver.Load()
	if replaced := errors.Is(err, errSessionReplaced); replaced || errors.Is(err, errTxEndUnknown) {
		e.Fault, e.Unsent = backend.FaultSession, replaced
		return e
	}
	if driver, ok := adbcError(err); ok {
		e.Fault = c.faultOf(driver)
		if s, ok := statusOf(driver); ok {
			e.Err = WithCause(err, s.Err())
			switch refused := backend.RefusesToken(s.Code(), s.Message()); {
			case refused && !c.opened.Load():
				e.Fault = backend.FaultAuth // which there was no session by
			case refused && t.op == "Update" && !effect.IsPage(e.Err):
				e.Unsent = true // who asks is looked at before anything is done; a proxy's page may stand in place of another answer
			}
		}
		e.SQLState = stateOf(driver)
	} else if cause := localCause(err); cause != nil {
		e.Fault = backend.FaultStatement // a schema that has changed
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		e.Fault = backend.FaultContext
	}
	ended := ctxerr.Ended(t.callerCtx.Err, t.callerCtx.Deadline, e.Fault == backend.FaultContext)
	switch {
	case e.Fault == backend.FaultStatement || e.Fault == backend.FaultUnsupported:
	case ended != nil:
		e.Fault, e.Ctx = backend.FaultContext, ended
	case c.Lost() != nil:
		return t.lostError(stage, e.Err)
	case e.Fault == backend.FaultContext && c.opened.Load():
		e.Fault, e.Err, e.Running = backend.FaultStatement, endedByServer(e.Err), true // a limit of the driver's own ends the RPC alone
	case e.Fault == backend.FaultTransport && c.opened.Load():
		c.markLost(e.Err)
		return t.lostError(stage, nil)
	}
	return e
}

// endedByServer is err, the end of a context that is nobody's here, with the status that a server would
// give: what was asked for may have been done (effect.Of).
func endedByServer(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	code := codes.Canceled
	if errors.Is(err, context.DeadlineExceeded) {
		code = codes.DeadlineExceeded
	}
	return WithCause(err, status.Error(code, err.Error()))
}

// lostError is the error of a call whose connection has ended.
func (t *driverCall) lostError(stage backend.Stage, cause error) error {
	e := t.conn.newError(t.op, stage, backend.FaultTransport, flightconn.LostError(t.conn.Lost(), cause))
	e.Unsent = !t.enteredDriver.Load()
	return e
}

// headerOption is followed by a header's name.
const headerOption = "adbc.flight.sql.rpc.call_header."

// setHeaders asks the driver to send headers with a statement. Only Flight SQL
// drivers can. A driver that cannot fails the call, which is better than a
// statement without them.
func setHeaders(stmt adbc.Statement, call backend.Call) error {
	for key, values := range call.Headers {
		for _, value := range values {
			if err := stmt.SetOption(headerOption+key, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendHeaders asks the driver to send headers with the calls of its connection, until restore is
// called. Of a header the driver tells one value, and a database has no more. A driver that cannot
// fails the call, as in setHeaders.
func sendHeaders(cn adbc.Connection, headers metadata.MD) (restore func(), err error) {
	options, ok := cn.(adbc.GetSetOptions)
	if len(headers) > 0 && !ok {
		return nil, adbc.Error{Msg: "the driver's connections have no options, by which to send headers", Code: adbc.StatusNotImplemented}
	}
	var undo []func()
	restore = func() {
		for _, f := range undo {
			f()
		}
	}
	for name, values := range headers {
		key := headerOption + name
		before, unset := options.GetOption(key)
		undo = append(undo, func() {
			_ = options.SetOption(key, "")
			if unset == nil {
				_ = options.SetOption(key, before)
			}
		})
		for _, value := range values {
			if err := options.SetOption(key, value); err != nil {
				restore()
				return nil, err
			}
		}
	}
	return restore, nil
}
