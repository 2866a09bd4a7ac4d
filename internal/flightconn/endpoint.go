package flightconn

import (
	"context"

	"github.com/flightpool/flightpool/session"
)

// Endpoint is one server as all connections of a pool see it: its
// configuration and what they have learned about it. It is safe for use by
// any goroutine.
type Endpoint struct{ cfg Config }

// NewEndpoint validates cfg and reports every fault joined. It does not dial.
func NewEndpoint(cfg Config) (*Endpoint, error) {
	cfg, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	return &Endpoint{cfg: cfg}, nil
}

// Open makes a connection and proves it: it dials, presents the credentials
// and makes a first round trip, within ctx and Config.DialTimeout. The caller
// must close what it returns. Errors are *session.Error with StageDial,
// StageAuth or StageProbe.
func (e *Endpoint) Open(ctx context.Context) (session.Conn, error) {
	return nil, &session.Error{Op: "Open", Stage: session.StageDial, Fault: session.FaultUnsupported, Target: e.cfg.Address}
}

// Close ends what the endpoint itself holds: the control channel and the
// clients of locations, with the streams that still use them. Connections are
// closed by their owners, before.
func (e *Endpoint) Close() error { return nil }
