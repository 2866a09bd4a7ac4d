package flightconn

import (
	"context"
	"net/url"
)

// Turns are the order in which the endpoints of one result are opened at each place where they may be.
// The zero value is that of a result of which none was begun.
//
// INVARIANT: at one place an endpoint is opened only after those before it that may be there have sent
// their schema, from wherever. A server, or a connection to it, that serves a few at a time, and one
// until its stream ends, would otherwise serve those that wait to be read, and not the one that is read.
type Turns struct{ last map[string]<-chan struct{} }

// Before is what an endpoint waits for at the places where it may be opened, nothing at others.
type Before []turn

type turn struct {
	place      string
	prevOpened <-chan struct{}
}

// take is for the next endpoint. opened is closed when it has sent its schema, or has failed.
func (t *Turns) take(c *Conn, endpoint *FlightEndpoint, opened <-chan struct{}) (before Before) {
	if t.last == nil {
		t.last = map[string]<-chan struct{}{}
	}
	uris := endpoint.locations
	if len(uris) == 0 {
		uris = []string{""}
	}
	for _, uri := range uris {
		place := c.placeOf(uri)
		if prev := t.last[place]; prev != nil && prev != opened {
			before = append(before, turn{place, prev})
		}
		t.last[place] = opened
	}
	return before
}

// await waits until the endpoint may be opened at a place.
func (b Before) await(ctx context.Context, place string) error {
	for _, t := range b {
		if t.place == place {
			return awaitTurn(ctx, t.prevOpened)
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
