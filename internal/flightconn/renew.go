package flightconn

import (
	"container/heap"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/backoff"
	"github.com/flightpool/flightpool/internal/callback"
)

const (
	// renewalLead is how long before its expiry an endpoint that still waits
	// is renewed, or a third of the time that it has left when that is less.
	renewalLead = 30 * time.Second

	// minRenewalDelay is the least time before a renewal, whatever the server, or
	// a clock that differs from its, says of expiry.
	minRenewalDelay = time.Second

	// renewableEndpoints bounds how many endpoints of a result are renewed, one
	// after the other: the first of those that expire.
	renewableEndpoints = 1 << 16
)

// renewal renews the endpoints of a result that wait to be fetched and would
// expire before.
//
// A result that is read slowly keeps endpoints waiting for longer than servers
// promise to keep them. One goroutine for each result renews them one after
// another (loop); it ends when nothing is left to renew, or with the result.
//
// An endpoint waits in pending until it is taken. It is taken exactly once, by
// the part that fetches it; a renewal under way is waited for.
type renewal struct {
	call *rpcCall
	info *Info
	mu   struct { // guards the fields below and those of each pendingEndpoint; nothing is called under it
		sync.Mutex
		pending   map[int]*pendingEndpoint // by the endpoint's number; nil: nothing is renewed
		due       renewalHeap              // of these, and of some that were taken since
		bytesLeft int                      // bytes that renewed endpoints may still take
	}
}

// pendingEndpoint is an endpoint that waits to be fetched. All but its number
// may change with a renewal.
type pendingEndpoint struct {
	number   int
	encoded  []byte
	renewed  bool // encoded is no part of the Info but counts in bytesLeft
	taken    bool
	expires  time.Time
	due      time.Time
	renewing chan struct{} // closed at the end of the renewal under way
}

// renew renews until ctx ends or nothing that waits can be renewed. Where the
// server is known to lack the action, or no endpoint expires, there is no
// goroutine, and takeEndpoint gives out what it is given.
func (r *rpcCall) renew(ctx context.Context, info *Info) *renewal {
	s := &renewal{call: r, info: info}
	if r.conn.endpoint.capabilities.renew.isMissing() {
		return s
	}
	c := info.cursor()
	for i := 0; len(s.mu.due) < renewableEndpoints; i++ {
		encoded, ok := c.next()
		if !ok {
			break
		}
		if at := expiryOf(encoded); !at.IsZero() {
			s.mu.due = append(s.mu.due, &pendingEndpoint{number: i, encoded: encoded, expires: at, due: renewalDue(at)})
		}
	}
	if len(s.mu.due) == 0 {
		return s
	}
	heap.Init(&s.mu.due)
	s.mu.bytesLeft = r.conn.cfg().MaxMessage
	s.mu.pending = make(map[int]*pendingEndpoint, len(s.mu.due))
	for _, w := range s.mu.due {
		s.mu.pending[w.number] = w
	}
	go s.loop(ctx)
	return s
}

// renewalDue is when an endpoint that expires then is renewed. A clock that is
// ahead of the server's, or an expiry in the past, makes it minRenewalDelay
// from now and no less.
func renewalDue(expires time.Time) time.Time {
	left := time.Until(expires)
	return time.Now().Add(max(left-min(renewalLead, left/3), minRenewalDelay))
}

// takeEndpoint gives out an endpoint for good, as it was renewed last. It waits for a
// renewal under way, after which the old ticket may be worth nothing.
func (s *renewal) takeEndpoint(ctx context.Context, number int, original *FlightEndpoint) (*FlightEndpoint, error) {
	for {
		s.mu.Lock()
		w := s.mu.pending[number]
		if w == nil {
			s.mu.Unlock()
			return original, nil
		}
		renewing := w.renewing
		if renewing == nil {
			s.remove(w)
		}
		s.mu.Unlock()
		switch {
		case renewing == nil && w.renewed:
			return decodeEndpoint(w.encoded)
		case renewing == nil:
			return original, nil
		}
		select {
		case <-renewing:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// remove says that w is not to be renewed any more. The lock is held.
func (s *renewal) remove(w *pendingEndpoint) {
	w.taken = true
	delete(s.mu.pending, w.number)
	if w.renewed {
		s.mu.bytesLeft += len(w.encoded)
	}
}

// next is what is due first, nil if nothing ever is, and when. What was taken
// meanwhile leaves the heap here.
func (s *renewal) next() (w *pendingEndpoint, due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.mu.due) > 0 && s.mu.due[0].taken {
		heap.Pop(&s.mu.due)
	}
	if len(s.mu.due) == 0 {
		return nil, time.Time{}
	}
	return s.mu.due[0], s.mu.due[0].due
}

// startRenewing keeps a waiting endpoint from being taken until finishRenewing. It is
// false when the endpoint was taken already.
func (s *renewal) startRenewing(w *pendingEndpoint) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.taken {
		return false
	}
	w.renewing = make(chan struct{})
	return true
}

// finishRenewing ends what startRenewing has begun. renewed replaces the
// endpoint unless it is nil or takes more memory than there are bytes left. The
// endpoint is renewed again when due, never if that is zero.
func (s *renewal) finishRenewing(w *pendingEndpoint, renewed []byte, expires, due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(w.renewing)
	w.renewing = nil
	old := 0
	if w.renewed {
		old = len(w.encoded)
	}
	if renewed != nil && len(renewed) <= s.mu.bytesLeft+old {
		s.mu.bytesLeft += old - len(renewed)
		w.encoded, w.renewed, w.expires = renewed, true, expires
	}
	heap.Pop(&s.mu.due) // it is the first: nobody but the loop changes the order
	if !due.IsZero() {
		w.due = due
		heap.Push(&s.mu.due, w)
	}
}

// loop renews what is due. What the server does not renew is tried again
// half-way to its expiry, and then let expire. A server without the action ends
// it. An answer without a ticket, or that is no endpoint, counts as a refusal:
// the endpoint stays as it was.
func (s *renewal) loop(ctx context.Context) {
	for {
		w, due := s.next()
		if w == nil || backoff.Sleep(ctx, time.Until(due)) != nil {
			return
		}
		if !s.startRenewing(w) {
			continue // it was taken meanwhile
		}
		var renewed []byte
		known := &s.call.conn.endpoint.capabilities.renew
		err := callback.Isolate("DialOptions: an interceptor", func() error {
			return known.try(func(refusal error) bool { return s.call.confirmedBeside(ctx, refusal) }, func() (err error) {
				renewed, err = s.requestRenewal(ctx, w)
				return err
			})
		})
		if isUnsupported(err) && known.isMissing() {
			s.finishRenewing(w, nil, time.Time{}, time.Time{})
			return
		}
		if err == nil {
			if endpoint, err := decodeEndpoint(renewed); err == nil && endpoint.ticket != nil {
				again := time.Time{}
				if !endpoint.expires.IsZero() {
					again = renewalDue(endpoint.expires)
				}
				s.info.renewed.Store(true)
				s.finishRenewing(w, renewed, endpoint.expires, again)
				continue
			}
		}
		again := time.Time{}
		if left := time.Until(w.expires); left > 2*minRenewalDelay {
			again = time.Now().Add(left / 2)
		}
		s.finishRenewing(w, nil, time.Time{}, again)
	}
}

// requestRenewal makes the RPC on the connection's own transport. A server that
// runs one call of a session at a time may answer too late; then the endpoint
// expires as it would have. An answer after the expiry is of no use, so the RPC
// ends then.
func (s *renewal) requestRenewal(ctx context.Context, w *pendingEndpoint) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, max(time.Until(w.expires), minRenewalDelay))
	defer stop()
	return doAction(s.call.rpcContext(ctx), s.call.conn.flight, flight.RenewFlightEndpointActionType, submessage(fieldRenewEndpoint, w.encoded))
}

// renewalHeap is a heap of what waits by the time at which it is to be renewed.
type renewalHeap []*pendingEndpoint

func (h renewalHeap) Len() int           { return len(h) }
func (h renewalHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h renewalHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is part of heap.Interface.
func (h *renewalHeap) Push(w any) { *h = append(*h, w.(*pendingEndpoint)) }

// Pop is part of heap.Interface.
func (h *renewalHeap) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return w
}

// withExpiry says of a failed fetch that it came after the endpoint's expiry.
// Whether an endpoint has expired is for the server's clock to tell, so it is
// asked all the same.
func withExpiry(e *FlightEndpoint, err error) error {
	if e.expires.IsZero() || time.Now().Before(e.expires) {
		return err
	}
	return &expiredError{late: time.Since(e.expires), err: err}
}

// expiredError keeps what the server said in its chain.
type expiredError struct {
	late time.Duration
	err  error
}

func (e *expiredError) Error() string {
	return fmt.Sprintf("%v: %v late: %v", backend.ErrEndpointExpired, e.late.Round(time.Millisecond), e.err)
}

func (e *expiredError) Unwrap() []error { return []error{backend.ErrEndpointExpired, e.err} }
