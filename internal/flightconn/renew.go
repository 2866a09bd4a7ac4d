package flightconn

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"

	"github.com/flightpool/flightpool/session"
)

const (
	// renewalLead is how long before its expiry an endpoint that still waits
	// is renewed, or a third of the time that it has left when that is less.
	renewalLead = 30 * time.Second

	// renewalGap is the least time before a renewal, whatever the server, or
	// a clock that differs from its, says of expiry.
	renewalGap = time.Second
)

// shelf holds the endpoints of a result until each is fetched, and renews
// those that would expire before.
type shelf struct {
	run *run
	mu  struct { // guards the field below; nothing is called under it
		sync.Mutex
		waiting []waiting
	}
}

// waiting is an endpoint on a shelf.
type waiting struct {
	endpoint *pb.FlightEndpoint // nil once taken
	due      time.Time          // for renewal; zero: never
	renewing chan struct{}      // closed at the end of the renewal under way
}

// newShelf renews until ctx ends or nothing that waits can be renewed.
func (r *run) newShelf(ctx context.Context, endpoints []*pb.FlightEndpoint) *shelf {
	s := &shelf{run: r}
	s.mu.waiting = make([]waiting, len(endpoints))
	expire := false
	for i, e := range endpoints {
		s.mu.waiting[i] = waiting{endpoint: e, due: renewalDue(e)}
		expire = expire || e.GetExpirationTime() != nil
	}
	if expire && !r.conn.endpoint.support.renew.isRefused() {
		go s.keepFresh(ctx)
	}
	return s
}

func renewalDue(e *pb.FlightEndpoint) time.Time {
	if e.GetExpirationTime() == nil {
		return time.Time{}
	}
	left := time.Until(e.GetExpirationTime().AsTime())
	return time.Now().Add(max(left-min(renewalLead, left/3), renewalGap))
}

// take gives out an endpoint for good. It waits for a renewal under way, after
// which the old ticket may be worth nothing.
func (s *shelf) take(ctx context.Context, i int) (*pb.FlightEndpoint, error) {
	for {
		s.mu.Lock()
		w := s.mu.waiting[i]
		if w.renewing == nil {
			s.mu.waiting[i] = waiting{}
		}
		s.mu.Unlock()
		if w.renewing == nil {
			return w.endpoint, nil
		}
		select {
		case <-w.renewing:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// next is what is due first, with a nil endpoint if nothing ever is.
func (s *shelf) next() (i int, first waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, w := range s.mu.waiting {
		if w.endpoint != nil && !w.due.IsZero() && (first.endpoint == nil || w.due.Before(first.due)) {
			i, first = n, w
		}
	}
	return i, first
}

// hold keeps a waiting endpoint from being taken until put, unless it is gone.
func (s *shelf) hold(i int, w waiting) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.waiting[i].endpoint != w.endpoint {
		return false
	}
	s.mu.waiting[i].renewing = make(chan struct{})
	return true
}

// put ends hold with the endpoint to take from now on.
func (s *shelf) put(i int, w waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.mu.waiting[i].renewing)
	s.mu.waiting[i] = w
}

// keepFresh renews what is due. What the server does not renew is tried again
// half-way to its expiry, and then let expire.
func (s *shelf) keepFresh(ctx context.Context) {
	for {
		i, w := s.next()
		if w.endpoint == nil || pause(ctx, time.Until(w.due)) != nil {
			return
		}
		if !s.hold(i, w) {
			continue // it was taken meanwhile
		}
		renewed, err := s.renew(ctx, w.endpoint)
		if unsupported(err) {
			s.run.conn.endpoint.support.renew.refuse()
			s.put(i, waiting{endpoint: w.endpoint})
			return
		}
		if err == nil && renewed.GetTicket() != nil {
			s.put(i, waiting{endpoint: renewed, due: renewalDue(renewed)})
			continue
		}
		w.due = time.Time{}
		if left := time.Until(w.endpoint.GetExpirationTime().AsTime()); left > 2*renewalGap {
			w.due = time.Now().Add(left / 2)
		}
		s.put(i, w)
	}
}

// renew asks on the connection's own transport. A server that runs one call
// of a session at a time may answer too late; then the endpoint expires as it
// would have.
func (s *shelf) renew(ctx context.Context, e *pb.FlightEndpoint) (*pb.FlightEndpoint, error) {
	ctx, stop := context.WithTimeout(ctx, max(time.Until(e.GetExpirationTime().AsTime()), renewalGap))
	defer stop()
	var renewed pb.FlightEndpoint
	c := s.run.conn
	err := c.rawAction(s.run.rpc(ctx), c.flight, flight.RenewFlightEndpointActionType, &pb.RenewFlightEndpointRequest{Endpoint: e}, &renewed)
	return &renewed, err
}

// expired says of a failed fetch that it came after the endpoint's expiry.
// Whether an endpoint has expired is for the server's clock to tell, so it is
// asked all the same.
func expired(e *pb.FlightEndpoint, err error) error {
	at := e.GetExpirationTime()
	if err == nil || at == nil || time.Now().Before(at.AsTime()) {
		return err
	}
	return &expiredError{late: time.Since(at.AsTime()), err: err}
}

// expiredError keeps what the server said in its chain.
type expiredError struct {
	late time.Duration
	err  error
}

func (e *expiredError) Error() string {
	return fmt.Sprintf("%v: %v late: %v", session.ErrEndpointExpired, e.late.Round(time.Millisecond), e.err)
}

func (e *expiredError) Unwrap() []error { return []error{session.ErrEndpointExpired, e.err} }
