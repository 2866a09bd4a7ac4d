package flightconn

import (
	"context"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/backoff"
	"github.com/flightpool/flightpool/internal/callback"
)

// hasOwnSession reports whether what names the session is this connection's alone, and outlives
// its transport: the token of a handshake or of a reply, a cookie or a header. A token that all
// connections show may name the session of all.
func (c *Conn) hasOwnSession() bool {
	cfg := c.cfg()
	byHandshake := cfg.Basic != nil && c.id.credential().Header != basicAuth(cfg.Basic.User, cfg.Basic.Password)
	return byHandshake || cfg.SessionHeader != "" || c.id.hasOwnNameOfSession()
}

// leaveSession ends a session that outlives the transport, which has broken, over the control channel: GizmoSQL
// keeps it for good, with the statement that it runs and with its transaction, by which it holds the rows that it has changed
// against all others. The caller does not wait for the answers, the endpoint's Close does.
//
// What has broken a transport, such as a proxy that is started again, may be in the way of the next one too: where nobody
// answers it is tried again for leaveFor, and a last time when the endpoint closes.
func (c *Conn) leaveSession() {
	limit := c.cfg().CloseTimeout
	if limit <= 0 || !c.mayHaveSession || !c.hasOwnSession() || c.endpoint.capabilities.closeSession.isMissing() || !c.endpoint.abandoned.Add() {
		return
	}
	callback.Go(func() (struct{}, error) {
		defer c.endpoint.abandoned.Done()
		for times, begun := 0, time.Now(); ; times++ {
			last := c.endpoint.isClosing()
			err := c.leaveBy(limit)
			switch status.Code(err) {
			case codes.Unavailable, codes.DeadlineExceeded: // nobody is there
			default:
				return struct{}{}, err
			}
			pause := backoff.Doubled(minLeavePause, maxLeavePause, times)
			if last || time.Since(begun)+pause > leaveFor {
				return struct{}{}, err
			}
			callback.EndsWithin(c.endpoint.closing, pause)
		}
	})
}

// leaveFor is how long it is tried to leave a session, with pauses between minLeavePause and maxLeavePause.
const (
	leaveFor      = time.Minute
	minLeavePause = 100 * time.Millisecond
	maxLeavePause = 5 * time.Second
)

// leaveBy is one attempt of leaveSession.
func (c *Conn) leaveBy(limit time.Duration) error {
	ctx, stop := detached(limit)
	defer stop()
	cc, done, err := c.endpoint.control(c.transport.peer())
	if err != nil {
		return err
	}
	defer func() {
		done()
		c.endpoint.dropControl(cc)
	}()
	client := pb.NewFlightServiceClient(&channel{cc: cc, id: c.id})
	if !c.endpoint.capabilities.cancelInfo.isMissing() { // the session's end does not stop what it runs
		if _, err := c.cancelFlightInfo(ctx, client, unnamed); status.Code(err) == codes.Unavailable {
			return err
		}
	}
	return c.rawAction(ctx, client, flight.CloseSessionActionType, &flight.CloseSessionRequest{}, &flight.CloseSessionResult{})
}

// closeSession tells the server that the session is over, once the endpoint is
// known to have that call. Servers keep a session that nobody ends for minutes
// to hours after its transport, and count it against their limits. cut says that
// statements were cut, which the end of a session that is its own does not stop (GizmoSQL): that is asked for before.
//
// It is no call of the connection's: those are refused by now. The error is
// that of the server; the transport ends in any case.
func (c *Conn) closeSession(limit time.Duration, cut bool) error {
	known := &c.endpoint.capabilities.closeSession
	if known.isMissing() {
		return nil
	}
	ctx, cancel := detached(limit)
	defer cancel()
	r := &rpcCall{conn: c, op: "Close", caller: neverCancelled{ctx}}
	if cut && c.hasOwnSession() && !c.endpoint.capabilities.cancelInfo.isMissing() {
		bounded, stop := context.WithTimeout(ctx, limit/2)
		_, _ = c.cancelFlightInfo(r.rpcContext(bounded), c.flight, unnamed) // how that ends, the end of the session tells
		stop()
	}
	// confirmedBeside, since a cut statement may still run.
	err := known.try(func(refusal error) bool { return r.confirmedBeside(ctx, refusal) }, func() error {
		return c.rawAction(r.rpcContext(ctx), c.flight, flight.CloseSessionActionType, &flight.CloseSessionRequest{}, &flight.CloseSessionResult{})
	})
	if err == nil || isUnsupported(err) {
		return nil
	}
	return r.wrapError(backend.StageClose, err)
}

// detached makes a context without a parent. Close takes no context, and its RPC
// needs one.
func detached(limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), limit)
}

// neverCancelled is a context that ends by its deadline alone: its cancel function is
// called when the call is over.
type neverCancelled struct {
	context.Context //nolint:containedctx // only its deadline is asked for
}

func (neverCancelled) Err() error { return nil }
