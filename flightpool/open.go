package flightpool

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxvalues"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/flightconn"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/session"
)

// verifiedOpen is open, with the session verified, the failure classified and the
// server's health updated, all before the outcome is reported: a caller that fails
// finds the server as unhealthy as that failure made it. The context that it is called
// with ends after DialTimeout, and when the pool closes, never with a caller's; open gets
// the values of New's besides.
func (p *FlightSQLPool) verifiedOpen(open func(context.Context) (backend.Conn, error)) func(context.Context) (backend.Conn, error) {
	return func(ctx context.Context) (c backend.Conn, err error) {
		ctx, traced := p.tracing.startConnect(ctxvalues.From(ctx, p.policy.OwnerContext), p.target)
		err = errOpenExited
		defer func() { traced(err) }()
		start := time.Now()
		c, err = open(ctx)
		if err == nil {
			err = p.verifyNew(ctx, c)
		}
		if err != nil {
			closed := flightconn.StillClosing(err)
			err = p.openError(ctx, err)
			if isPermanent(err) || reservoir.IsPermanent(err) {
				p.readyWaits.fail(start, &uselessError{p, err})
			}
			p.health.failed(err, time.Since(start))
			if err = p.markPermanent(err); closed != nil {
				err = reservoir.StillClosing(err, closed)
			}
			return nil, err
		}
		p.times.open.Add(time.Since(start))
		return c, nil
	}
}

var errOpenExited = errors.New("what opens connections has panicked or ended its goroutine")

// verifyNew verifies the session of a new connection, which it closes if that fails:
// also by a panic or runtime.Goexit in what the user has put there, the connection, the
// Logger or a hook.
func (p *FlightSQLPool) verifyNew(ctx context.Context, c backend.Conn) error {
	kept := false
	defer func() {
		if !kept {
			_ = p.closeConn(c) // what went wrong before matters more
		}
	}()
	if err := p.checkNew(ctx, c); err != nil {
		return err
	}
	if err := p.prepareNew(ctx, c); err != nil {
		return err
	}
	p.health.succeeded()
	kept = true
	return nil
}

func (p *FlightSQLPool) closeConn(c backend.Conn) error {
	p.policy.Kept.Forget(c)
	p.policy.Statements.Forget(c)
	return c.Close()
}

// prepareNew runs OnConnect. After an error the connection is closed by the caller. First
// what OnConnect has left under way is ended, and its transaction rolled back, as far as
// CloseTimeout allows: some servers keep that of a connection which is closed.
func (p *FlightSQLPool) prepareNew(ctx context.Context, c backend.Conn) error {
	if p.cfg.OnConnect == nil {
		return nil
	}
	ended := make(chan struct{})
	s, err := session.NewKeeping(ctx, c, p.policy, func() { close(ended) })
	if err != nil {
		return err
	}
	defer func() { // after CloseKeeping there is nothing to do
		_ = s.Discard(errOpenExited)
		callback.EndsWithin(ended, p.cfg.CloseTimeout)
	}()
	if err = p.cfg.OnConnect(ctx, s); err == nil {
		err = s.CloseKeeping(ctx)
	}
	if err != nil {
		return &Error{Stage: backend.StageDial, Fault: backend.FaultIn(err), Err: &onConnectError{err}}
	}
	return nil
}

// openError is the error of a failed open. An open that took all of DialTimeout is a
// transport fault, whichever step failed, but for the wait for a token; so is one whose fault is not known. OnConnect's own is neither.
func (p *FlightSQLPool) openError(ctx context.Context, err error) error {
	e := &Error{Stage: backend.StageDial, Fault: backend.FaultIn(err), Err: err}
	var inner *Error
	if errors.As(err, &inner) {
		copied := *inner
		e = &copied
	}
	e.Op = "Open"
	if e.Target == "" {
		e.Target = p.target
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(e.Ctx, context.DeadlineExceeded): // the server's timer may be first
		e.Fault, e.Ctx, e.Err = FaultTransport, nil, &noAnswerError{ownTimeError{e.Err}, p.cfg.DialTimeout}
		if source := (*tokenError)(nil); errors.As(err, &source) {
			e.Fault = FaultAuth
		} else if isOwnOfOnConnect(err) {
			e.Fault = FaultUnknown
		}
	case isOwnOfOnConnect(err):
		e.Fault = FaultUnknown
	case ctx.Err() == nil && e.Fault == FaultContext && errors.As(err, new(*onConnectError)):
		e.Fault = FaultUnknown
	case e.Fault == FaultUnknown, e.Fault == FaultSession, ctx.Err() == nil && e.Fault == FaultContext:
		e.Fault = FaultTransport
	}
	if ctx.Err() == nil && (errors.Is(e.Err, context.DeadlineExceeded) || errors.Is(e.Err, context.Canceled)) {
		e.Err = &ownTimeError{e.Err}
	}
	return e
}

// markPermanent marks the error of a failed open as Permanent where nobody is to wait for
// the next open: no repetition cures it, or the server is unhealthy, as the error
// says then.
func (p *FlightSQLPool) markPermanent(err error) error {
	if isPermanent(err) {
		return reservoir.Permanent(err)
	}
	if down := p.health.unhealthy(); down != nil && p.cfg.OpenRetry != OpenRetryAlways {
		down.Reason = err
		return reservoir.Permanent(down)
	}
	return err
}

// isPermanent reports whether err, of a failed open, stays as long as nobody
// changes the configuration of pool or server. A TokenSource that fails may work
// the next time.
func isPermanent(err error) bool {
	var source *tokenError
	var certificate *tls.CertificateVerificationError
	var notTLS tls.RecordHeaderError
	switch {
	case errors.As(err, &source):
		return false // what is marked Permanent stays so
	case errors.As(err, &certificate), errors.As(err, &notTLS), refusesCertificate(err):
		return true
	}
	if fault := backend.FaultIn(err); fault == FaultAuth || fault == FaultUsage || fault == FaultUnsupported {
		return true
	}
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument, codes.Unimplemented:
		return true
	default:
		return false
	}
}

// refusesCertificate reports whether a TLS alert of the server's refuses the client's
// certificate, or the lack of one. Package tls does not export the type of an alert.
func refusesCertificate(err error) bool {
	var alert *net.OpError
	if !errors.As(err, &alert) || alert.Op != "remote error" {
		return false
	}
	switch strings.TrimPrefix(alert.Err.Error(), "tls: ") {
	case "bad certificate", "unsupported certificate", "revoked certificate", "expired certificate", "unknown certificate",
		"unknown certificate authority", "certificate required", "access denied",
		"handshake failure": // TLS 1.2 has no other word for the lack of one
		return true
	default:
		return false
	}
}

// ping asks whether c's session works: the cheap way, and by HealthCheck.SQL
// where the server refuses that.
func (p *FlightSQLPool) ping(ctx context.Context, c backend.Conn) error {
	err := c.Ping(ctx)
	if backend.FaultIn(err) == FaultStatement {
		return session.Probe(ctx, c, p.cfg.HealthCheck.SQL)
	}
	return err
}

// verify makes sure that a prepared session is still that, and pings a connection before
// a call is repeated on it.
func (p *FlightSQLPool) verify(ctx context.Context, c backend.Conn, repeated bool) error {
	ctx, stop := context.WithTimeout(ctx, p.cfg.HealthCheck.Timeout)
	defer stop()
	if repeated {
		if err := p.ping(ctx, c); err != nil {
			return err
		}
	}
	return p.policy.Kept.Prove(ctx, c)
}

// releaseUntil gives a loan of New's back, and goes on behind its caller when ctx
// ends: ValidateOnRelease may have to wait for the server.
func (p *FlightSQLPool) releaseUntil(ctx context.Context, loan reservoir.Loan[backend.Conn]) error {
	released := make(chan error, 1)
	p.background.Go(func() {
		var err error
		defer func() { released <- err }() // also when Hooks.Connections.Released ends the goroutine
		err = loan.Release()
	})
	select {
	case err := <-released:
		return err
	case <-ctx.Done():
		return nil // the connection was opened, which is what New waits for
	}
}

// Layer puts connections of another kind on top of those that a pool opens:
// another client on the same transport, or one that watches what goes by.
type Layer interface {
	// Wrap takes over a new connection and returns what the pool uses in its
	// place, or closes it and fails. It is called from several goroutines at
	// once. What it returns must pass package backendtest.
	Wrap(ctx context.Context, c backend.Conn) (backend.Conn, error)

	// Close is called after the last connection's, and may be called again. The
	// pool waits for it up to CloseTimeout.
	Close() error
}

// wrapOpen wraps open and release in a layer, whose Close may take up to limit.
func wrapOpen(l Layer, limit time.Duration, open func(context.Context) (backend.Conn, error), release func() error) (func(context.Context) (backend.Conn, error), func() error) {
	wrapped := func(ctx context.Context) (backend.Conn, error) {
		c, err := open(ctx)
		if err != nil {
			return nil, err
		}
		returned := false
		defer func() {
			if !returned { // a panic or runtime.Goexit
				_ = c.Close()
			}
		}()
		c, err = l.Wrap(ctx, c)
		returned = true
		return c, err
	}
	return wrapped, func() error { return errjoin.Join(closeLayer(l, limit), release()) }
}

func closeLayer(l Layer, limit time.Duration) error {
	closing := callback.Go(callback.NoValue(l.Close))
	if !callback.EndsWithin(closing.Done, limit) {
		return fmt.Errorf("the Layer has not closed within CloseTimeout %v", limit)
	}
	return closing.Failure(userCode)
}
