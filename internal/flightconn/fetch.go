package flightconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxTriedLocations bounds how many locations of one endpoint are tried. Each
// may take Config.DialTimeout.
const maxTriedLocations = 16

// rowSource is where the rows of an endpoint are to be had. end must be called
// exactly when no more of the stream is read: the client of a location counts
// as used until then.
type rowSource struct {
	client   pb.FlightServiceClient
	location string             // as errors show it; empty: the connection's own transport
	end      context.CancelFunc // to be called when the stream has ended
}

// fetch opens the stream of one endpoint: here, or at the first of its
// locations that has it. open is given a context that ends with rowSource.end.
//
// The next location is tried only while nothing was delivered, which open
// decides by what it returns: a *reader has the schema, a *TicketStream the
// first message. A server that says that the statement itself fails ends the
// search, and so does the caller's context. Of an endpoint with one location,
// which is this connection, the error stays as it was.
//
// endpoint comes from the server and is judged as such: without a ticket it is
// a malformed reply.
func fetch[T any](ctx context.Context, r *rpcCall, endpoint *FlightEndpoint, open func(context.Context, rowSource) (T, error)) (T, error) {
	var none T
	if endpoint.ticket == nil {
		return none, malformed("an endpoint without a ticket")
	}
	uris := r.conn.endpoint.orderLocations(endpoint.locations)
	if len(uris) == 0 {
		uris = []string{""}
	}
	var failures failedLocations
	for _, uri := range uris[:min(len(uris), maxTriedLocations)] {
		got, err := fetchAt(ctx, r, uri, open)
		if err == nil {
			return got, nil
		}
		if ctx.Err() != nil || len(uris)+endpoint.dropped == 1 && r.conn.isOwnLocation(uri) || !mayTryNextLocation(err) {
			return none, withExpiry(endpoint, err)
		}
		failures.add(uri, err, r.conn.isOwnLocation(uri))
	}
	failures.untried = max(0, len(uris)-maxTriedLocations) + endpoint.dropped
	return none, withExpiry(endpoint, failures.err())
}

// fetchAt opens the stream at one location. A location that may not be asked,
// or cannot be reached, has sent nothing. Where open succeeds, its caller must
// call rowSource.end; where it fails, that has been done.
func fetchAt[T any](ctx context.Context, r *rpcCall, uri string, open func(context.Context, rowSource) (T, error)) (T, error) {
	if r.conn.isOwnLocation(uri) {
		return open(ctx, rowSource{client: r.conn.flight, end: func() {}})
	}
	var none T
	at, err := r.conn.cfg().resolveLocation(uri)
	if err != nil {
		return none, err
	}
	l, err := r.conn.endpoint.locations.acquire(ctx, at)
	if err != nil {
		return none, err
	}
	// The location counts as used until the stream has ended, or its result.
	ctx, end := context.WithCancel(ctx)
	context.AfterFunc(ctx, l.release)
	ch := &channel{cc: l.cc, id: noIdentity}
	if at.getsCredentials {
		ch.id = r.conn.id
	}
	got, err := open(ctx, rowSource{client: pb.NewFlightServiceClient(ch), location: redactLocation(uri), end: end})
	if err != nil {
		end()
		if code := status.Code(err); !at.getsCredentials && (code == codes.Unauthenticated || code == codes.PermissionDenied) {
			err = fmt.Errorf("%w (credentials do not go to other hosts; Config.Locations decides)", err)
		}
	}
	return got, err
}

// orderLocations is the order in which locations are tried: the server's, but
// those that could not be reached a short time ago come last. Nothing is left
// out, since what was down may be back. uris itself is not changed.
func (e *Endpoint) orderLocations(uris []string) []string {
	if len(uris) < 2 || !e.locations.anyDown() {
		return uris
	}
	down := func(uri string) int {
		at, err := e.cfg.resolveLocation(uri)
		if err == nil && e.locations.isDown(at) {
			return 1
		}
		return 0
	}
	uris = slices.Clone(uris)
	slices.SortStableFunc(uris, func(a, b string) int { return down(a) - down(b) })
	return uris
}

// failedLocations is what the locations of an endpoint answered. It is made for
// the error alone.
type failedLocations struct {
	n         int
	ownErr    error // the connection's own transport
	otherErrs []error
	texts     []string
	untried   int
}

// add takes note of one failure. here says that it is the connection's own
// transport that has failed.
func (f *failedLocations) add(uri string, err error, here bool) {
	f.n++
	f.texts = append(f.texts, redactLocation(uri)+": "+err.Error())
	if here {
		f.ownErr = err
	} else {
		f.otherErrs = append(f.otherErrs, err)
	}
}

// err is judged by what the connection's own transport answered, if it was
// asked: its failure is not the statement's. Its cause is the first in the
// chain then, where a status or a loss is looked for. Otherwise the error is a
// *locationError, which leaves the connection as good as before.
func (f *failedLocations) err() error {
	e := &noLocationError{text: fmt.Sprintf("none of %d locations answers: %s", f.n, strings.Join(f.texts, "; ")), causes: f.otherErrs}
	if f.untried > 0 {
		e.text += fmt.Sprintf("; %d more were not tried", f.untried)
	}
	if f.ownErr != nil {
		e.causes = append([]error{f.ownErr}, f.otherErrs...)
		return e
	}
	return &locationError{e}
}

// noLocationError says that no location had the rows. Its text names each with
// its failure, without what may be secret (redactLocation).
type noLocationError struct {
	text   string
	causes []error
}

func (e *noLocationError) Error() string   { return e.text }
func (e *noLocationError) Unwrap() []error { return e.causes }

// locationError says that rows could not be had from another server. The
// connection has no part in it. wrapError makes it the statement's fault,
// unless the connection's own transport has ended as well.
type locationError struct{ err error }

func (e *locationError) Error() string { return e.err.Error() }
func (e *locationError) Unwrap() error { return e.err }

// withLocation names the location in an error of its stream. An empty location
// is the connection's own transport.
func withLocation(location string, err error) error {
	if location == "" {
		return err
	}
	return &locationError{fmt.Errorf("location %s: %w", location, err)}
}

// mayTryNextLocation reports whether another location may do better: not when
// the server answered that the statement itself fails. An error without a
// status, such as that of a dial, says nothing of the statement.
func mayTryNextLocation(err error) bool {
	var s interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &s) {
		return true
	}
	return backend.FaultOf(s.GRPCStatus().Code(), s.GRPCStatus().Message()) != backend.FaultStatement
}

// onOwnTransport reports whether the endpoint is fetched over the connection's
// own transport. Of several locations the first decides, though another may be
// the one that answers.
func (c *Conn) onOwnTransport(endpoint *FlightEndpoint) bool {
	return len(endpoint.locations) == 0 || c.isOwnLocation(endpoint.locations[0])
}
