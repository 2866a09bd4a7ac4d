package flightconn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// redialingClient is a gRPC client that holds no session and may dial again as it needs:
// that of a location or a control channel. Of a failed attempt gRPC keeps only
// the text; client keeps the error, and calls that fail for it lead there.
//
// It is safe for use by any goroutine. Once an attempt to connect has failed,
// RPCs fail at once until the next, for which redialBackoff sets the time.
type redialingClient struct {
	*grpc.ClientConn
	failure atomic.Pointer[connectError] // of the latest attempt
}

// newClient makes a client of addr, which dials by dial. Nothing is dialled
// yet. dial is called for each attempt, and counted by the endpoint
// (dialTracker). more is appended last.
func (cfg *Config) newClient(addr string, tlsConfig *tls.Config, dial func(context.Context) (net.Conn, error), more ...grpc.DialOption) (*redialingClient, error) {
	c := &redialingClient{}
	opts := cfg.transportOptions(addr, tlsConfig, func(ctx context.Context, _ string) (net.Conn, error) {
		raw, err := cfg.dialTracker.dial(ctx, func() (net.Conn, error) { return dial(ctx) })
		if err != nil {
			c.recordFailure(dialError(addr, err))
			return nil, err
		}
		return &dialledConn{Conn: raw, client: c}, nil
	})
	cc, err := grpc.NewClient("passthrough:///redialled", append(opts, more...)...)
	if err != nil {
		return nil, err
	}
	c.ClientConn = cc
	return c, nil
}

// dialledConn is a transport that a client has dialled. The handshake finds its
// client by it (reportingCredentials).
type dialledConn struct {
	net.Conn
	client *redialingClient
}

// recordFailure takes note of a failed attempt; nil: it has succeeded. The end of a
// context is not kept in the chain: it is that of an attempt, not of a call.
func (c *redialingClient) recordFailure(err error) {
	var why *connectError
	if errors.As(err, &why) && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		why = &connectError{text: why.text}
	}
	c.failure.Store(why)
}

// Invoke is part of grpc.ClientConnInterface.
func (c *redialingClient) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.withDialError(c.ClientConn.Invoke(ctx, method, args, reply, opts...))
}

// NewStream is part of grpc.ClientConnInterface.
func (c *redialingClient) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := c.ClientConn.NewStream(ctx, desc, method, opts...)
	return stream, c.withDialError(err)
}

// withDialError gives an RPC that failed for want of a transport the reason of that.
//
// gRPC marks such an RPC by UNAVAILABLE and a text; other failures, UNAVAILABLE
// from the server among them, stay as they are, since a failed attempt of
// before has nothing to do with them.
func (c *redialingClient) withDialError(err error) error {
	if s, ok := status.FromError(err); !ok || s.Code() != codes.Unavailable || !strings.Contains(s.Message(), "connection error") {
		return err
	}
	if why := c.failure.Load(); why != nil {
		return &unconnectedError{why, err}
	}
	return err
}

// unconnectedError says why there is no transport. The text of gRPC's own error
// says the same in more words.
type unconnectedError struct {
	reason *connectError
	cause  error
}

func (e *unconnectedError) Error() string   { return e.reason.Error() }
func (e *unconnectedError) Unwrap() []error { return []error{e.reason, e.cause} }
