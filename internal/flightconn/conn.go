package flightconn

import (
	"errors"
	"fmt"
	"sync"
	"time"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/printing"
)

// Conn is backend.Conn over one HTTP/2 transport to a Flight SQL server.
// Endpoint.Open makes it, once a first round trip has succeeded.
//
// It lives until Close, and is of no use from the moment that its transport
// ends: every later call fails with ErrSessionLost before anything is sent.
// Nothing here dials again.
//
// Calls may run side by side, each with RPCs of its own; what is allowed beside
// what is for the session to say (backend.Conn). Close may be called at any
// time.
type Conn struct {
	endpoint  *Endpoint
	transport *transport
	id        *identity
	channel   *channel
	flight    pb.FlightServiceClient // over channel
	closing   sync.Once
	closeErr  error
	trips     roundTrips

	mayHaveSession bool // set by Open alone

	mu struct { // guards the fields below; nothing is called under it
		sync.Mutex
		running map[*rpcCall]struct{}
	}
}

var (
	_ backend.Conn              = (*Conn)(nil)
	_ backend.LossNotifier      = (*Conn)(nil)
	_ backend.Expirer           = (*Conn)(nil)
	_ backend.CredentialDoubter = (*Conn)(nil)
)

// cfg is the endpoint's configuration, with its defaults. It is never changed.
func (c *Conn) cfg() *Config   { return &c.endpoint.cfg }
func (c *Conn) target() string { return c.endpoint.cfg.Address }

// Lost is part of backend.Conn. It is set the moment that the socket ends, and
// by Close.
func (c *Conn) Lost() error { return c.transport.Lost() }

// ExpiresAt is part of backend.Expirer. It is the time that came with the
// credential, or that a token of the server's, by a handshake or in a reply, names as its
// own end. The pool asks when the connection is open: for what later replies bring there is
// CredentialInDoubt.
func (c *Conn) ExpiresAt() time.Time { return c.id.credential().Expires }

// CredentialInDoubt is part of backend.CredentialDoubter. While no credential was refused, and
// none replaced by a reply, it looks at two words of memory.
func (c *Conn) CredentialInDoubt() bool {
	if p := c.endpoint.rejectedAuthorization.Load(); p != nil && *p == c.id.credential().Header {
		return true
	}
	ends := c.id.replacementEnds.Load()
	return ends != 0 && time.Now().Unix() >= ends
}

// credentialAccepted takes note of an answer of the server's to a credential that it has refused
// before: the refusal was of something else.
func (c *Conn) credentialAccepted(header string) {
	if p := c.endpoint.rejectedAuthorization.Load(); p != nil && *p == header {
		c.endpoint.rejectedAuthorization.CompareAndSwap(p, nil)
	}
}

// OnLost is part of backend.LossNotifier. f runs on the goroutine that sees the
// end, which may be gRPC's reader: it must not wait.
func (c *Conn) OnLost(f func(reason error)) { c.transport.setOnLost(f) }

// markLost records why the transport ended. Only the first reason counts. It
// may be called from any goroutine, any number of times.
func (e *transport) markLost(err error) {
	e.lost.CompareAndSwap(nil, &err)
	e.callOnLost()
}

// recordReplaced is markLost for a session that the server has replaced. It is added to
// another reason that came before: a reply may tell it after the GOAWAY. It is called
// under a lock of the transport's, so that callOnLost is for others to call.
func (e *transport) recordReplaced() {
	for {
		p, reason := e.lost.Load(), backend.ErrSessionReplaced
		if p != nil && errors.Is(*p, backend.ErrSessionReplaced) {
			return
		}
		if p != nil {
			reason = fmt.Errorf("%w; %w", reason, *p)
		}
		if e.lost.CompareAndSwap(p, &reason) {
			return
		}
	}
}

// setOnLost has f called once the transport has ended. The second look is for
// an end that has come between the caller's own look and the store. A later f
// replaces one that was not called yet.
func (e *transport) setOnLost(f func(error)) {
	e.onLost.Store(&f)
	if e.Lost() != nil {
		e.callOnLost()
	}
}

// callOnLost calls the function of setOnLost, if it was not called yet. Two
// goroutines may come here at once: who swaps it out calls it.
func (e *transport) callOnLost() {
	if f := e.onLost.Swap(nil); f != nil {
		(*f)(e.Lost())
	}
}

// Lost is nil until the transport has ended. The reason changes after that by
// recordReplaced alone.
func (e *transport) Lost() error {
	if p := e.lost.Load(); p != nil {
		return *p
	}
	return nil
}

// Close is part of backend.Conn. It returns within Config.CloseTimeout.
func (c *Conn) Close() error {
	c.closing.Do(func() { c.closeErr = c.close() })
	return c.closeErr
}

// close ends the calls under way first, and then asks the server to end the
// session: a server that runs one statement at a time would queue the request
// behind them. A transport that is dead already is not asked: leaveSession
// asks beside it, and beside one that gives no answer. It is asked where
// only the session was replaced, since the session that took its place is ours
// to end too.
//
// Within the one limit come the answer of the server and the GOAWAY; when the
// server takes all of it, the socket is closed at once.
func (c *Conn) close() error {
	lost := c.transport.Lost()
	alive := lost == nil || errors.Is(lost, backend.ErrSessionReplaced)
	c.endpoint.openTxs.release(c)
	c.transport.markLost(errClosed)
	c.mu.Lock()
	running := c.mu.running
	c.mu.running = nil
	c.mu.Unlock()
	for r := range running {
		r.cancel()
	}
	limit := c.cfg().CloseTimeout
	if !alive || limit <= 0 {
		c.transport.closeWithin(errClosed, 0)
		c.leaveSession()
		return nil
	}
	start := time.Now()
	defer func() { c.transport.closeWithin(errClosed, limit-time.Since(start)) }() // also when an interceptor of the user's panics
	err := c.closeSession(limit, len(running) > 0)
	if fault := backend.FaultIn(err); fault == backend.FaultTransport || fault == backend.FaultContext {
		c.leaveSession() // the transport may be dead, and nothing has told so
	}
	return err
}

// abandon closes a connection that did not come about. Servers that tie a session to a
// token, a cookie or a header keep it for minutes to hours after its transport, so that opens
// which take longer than they may would leave one each. The caller does not wait for the server's
// answer, the endpoint's Close does. Until closed is closed there is a connection; nil: there is none.
func (c *Conn) abandon() (closed <-chan struct{}) {
	if !c.mayHaveSession || !c.hasOwnSession() || c.Lost() != nil || !c.transport.hasSocket() || !c.endpoint.abandoned.Add() {
		c.transport.closeWithin(errClosed, 0)
		return nil
	}
	closing := callback.Go(func() (struct{}, error) {
		defer c.endpoint.abandoned.Done()
		return struct{}{}, c.Close()
	})
	return closing.Done
}

// unclosedError is the error of an open whose connection is being closed behind its caller.
type unclosedError struct {
	err    error
	closed <-chan struct{}
}

func (e *unclosedError) Error() string { return e.err.Error() }
func (e *unclosedError) Unwrap() error { return e.err }

// StillClosing tells the end of the connection of an Open that has failed in err, which counts until then; nil: there
// is none.
func StillClosing(err error) (closed <-chan struct{}) {
	if unclosed := (*unclosedError)(nil); errors.As(err, &unclosed) {
		return unclosed.closed
	}
	return nil
}

// String names the server; the connection's credentials are not shown.
func (c *Conn) String() string { return "connection to " + c.target() }

// Format prints String under every verb, where fmt would walk into the fields.
func (c *Conn) Format(f fmt.State, _ rune) { printing.Format(f, c.String()) }
