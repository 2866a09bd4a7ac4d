package flightconn

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/session"
)

// reuseScheme is the location that means "this connection".
const reuseScheme = "arrow-flight-reuse-connection"

// fetch opens the stream of one endpoint: here, or from the first of its
// locations that has it.
func (r *run) fetch(ctx context.Context, endpoint *pb.FlightEndpoint) (*reader, error) {
	rd, err := r.fetchAnywhere(ctx, endpoint)
	return rd, expired(endpoint, err)
}

func (r *run) fetchAnywhere(ctx context.Context, endpoint *pb.FlightEndpoint) (*reader, error) {
	ticket := endpoint.GetTicket()
	if ticket == nil {
		return nil, malformed("an endpoint without a ticket")
	}
	locations := endpoint.GetLocation()
	if len(locations) == 0 {
		return openReader(r.rpc(ctx), r.conn.flight, ticket, r.conn.cfg())
	}
	var errs []error
	for _, l := range locations {
		rd, err := r.fetchFrom(ctx, l.GetUri(), ticket)
		if err == nil {
			return rd, nil
		}
		if ctx.Err() != nil || !elsewhere(err) {
			return nil, err
		}
		errs = append(errs, fmt.Errorf("%q: %w", l.GetUri(), err))
	}
	return nil, &locationError{fmt.Errorf("none of %d locations answers: %w", len(locations), errors.Join(errs...))}
}

// locationError says that rows could not be had from another server. The
// connection has no part in it.
type locationError struct{ err error }

func (e *locationError) Error() string { return e.err.Error() }
func (e *locationError) Unwrap() error { return e.err }

// fetchFrom opens the stream at one location.
func (r *run) fetchFrom(ctx context.Context, uri string, ticket *pb.Ticket) (*reader, error) {
	if r.conn.isHere(uri) {
		return openReader(r.rpc(ctx), r.conn.flight, ticket, r.conn.cfg())
	}
	l, err := r.conn.endpoint.locations.use(ctx, uri)
	if err != nil {
		return nil, err
	}
	// The location counts as used until the stream's context ends, which
	// Close and the end of the result see to.
	context.AfterFunc(ctx, l.done)
	client := pb.NewFlightServiceClient(&channel{cc: l.cc, id: r.conn.id})
	rd, err := openReader(r.rpc(ctx), client, ticket, r.conn.cfg())
	if err != nil {
		return nil, err
	}
	rd.location = uri
	return rd, nil
}

// elsewhere reports whether another location may do better: not when the
// server answered that the statement itself fails.
func elsewhere(err error) bool {
	s, ok := status.FromError(err)
	return !ok || session.FaultOf(s.Code(), s.Message()) != session.FaultStatement
}

// servedHere reports whether the endpoint is fetched over the connection's own
// transport.
func (c *Conn) servedHere(endpoint *pb.FlightEndpoint) bool {
	locations := endpoint.GetLocation()
	return len(locations) == 0 || c.isHere(locations[0].GetUri())
}

// isHere recognises our own transport in a location. The server's own address
// is one: there the session's cookies and temporary tables are at hand.
func (c *Conn) isHere(uri string) bool {
	if uri == "" {
		return true
	}
	u, err := url.Parse(uri)
	if err != nil {
		return false
	}
	if u.Scheme == reuseScheme {
		return true
	}
	at, err := parseLocation(u)
	return err == nil && at.network == c.cfg().Network && at.addr == c.cfg().Address && at.secure == (c.cfg().TLS != nil)
}
