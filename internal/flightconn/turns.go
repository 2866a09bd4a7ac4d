package flightconn

import (
	"context"
	"net/url"
	"slices"
	"sync"
)

// Turns are the order in which the endpoints of one result are opened at each place where they may be.
// The zero value is that of a result of which none was begun. It is safe for use by any goroutine.
//
// INVARIANT: at one place an endpoint is opened only after all those before it that may be there have sent
// their schema, from wherever, or have failed. A server, or a connection to it, that serves a few at a time, and one
// until its stream ends, would otherwise serve those that wait to be read, and not the one that is read.
//
// INVARIANT: a queue has those of a place that have not, in their order, and at least one. The first has its turn.
type Turns struct {
	mu struct { // guards the fields below; nothing is called under it
		sync.Mutex
		queues map[string][]*turnAt // by the place
	}
}

// Turn is that of one endpoint, at the places where it may be opened. At others, and where it is nil, it waits for
// nothing. It belongs to the goroutine that opens the endpoint, but for what the lock of all guards.
type Turn struct {
	of  *Turns
	all []*turnAt
}

type turnAt struct {
	place string
	come  chan struct{} // closed when all before it are done; nil while nobody waits for that
}

// take is for the next endpoint. Its Done must be called.
func (t *Turns) take(c *Conn, endpoint *FlightEndpoint) *Turn {
	uris := endpoint.locations
	if len(uris) == 0 {
		uris = []string{""}
	}
	turn := &Turn{of: t}
	for _, uri := range uris {
		if place := c.placeOf(uri); turn.at(place) == nil {
			turn.all = append(turn.all, &turnAt{place: place})
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.queues == nil {
		t.mu.queues = map[string][]*turnAt{}
	}
	for _, at := range turn.all {
		t.mu.queues[at.place] = append(t.mu.queues[at.place], at)
	}
	return turn
}

// Done says that the endpoint has sent its schema, or has failed. It is called once.
func (w *Turn) Done() {
	if w == nil {
		return
	}
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	queues := w.of.mu.queues
	for _, at := range w.all {
		queue := queues[at.place]
		i := slices.Index(queue, at)
		switch queue = slices.Delete(queue, i, i+1); {
		case len(queue) == 0:
			delete(queues, at.place)
			continue
		case i == 0 && queue[0].come != nil:
			close(queue[0].come)
		}
		queues[at.place] = queue
	}
}

// await waits until the endpoint may be opened at a place.
func (w *Turn) await(ctx context.Context, place string) error {
	return awaitTurn(ctx, w.comes(place))
}

// comes is closed when the turn at a place has come, nil if it has.
func (w *Turn) comes(place string) <-chan struct{} {
	if w == nil {
		return nil
	}
	at := w.at(place)
	if at == nil {
		return nil
	}
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	if w.of.mu.queues[place][0] == at {
		return nil
	}
	at.come = make(chan struct{})
	return at.come
}

func (w *Turn) at(place string) *turnAt {
	for _, at := range w.all {
		if at.place == place {
			return at
		}
	}
	return nil
}

// placeOf is the server of a location; empty: the one that the connection's own transport leads to.
func (c *Conn) placeOf(uri string) string {
	if c.isOwnLocation(uri) {
		return ""
	}
	u, err := url.Parse(uri)
	if err != nil {
		return uri // it is refused when it is asked
	}
	at, err := parseLocation(u)
	if err != nil {
		return uri
	}
	return at.network + " " + at.addr
}

// firstPlace is where an endpoint is tried first.
func (c *Conn) firstPlace(endpoint *FlightEndpoint) string {
	if len(endpoint.locations) == 0 {
		return ""
	}
	return c.placeOf(endpoint.locations[0])
}

// awaitTurn waits until done is closed, if it is not nil.
func awaitTurn(ctx context.Context, done <-chan struct{}) error {
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
