package flightconn

import (
	"sync"
	"sync/atomic"
)

// Endpoint is one server as all connections of a pool see it: its
// configuration, what they have learned about it, the control channels for
// cancelling, and the clients of the locations that results are fetched from.
// It is safe for use by any goroutine.
type Endpoint struct {
	cfg       Config
	support   support
	live      liveTxs
	locations locations

	// refused is the authorization that the server refused last.
	refused atomic.Pointer[string]

	mu struct { // guards the fields below; nothing is called under it
		sync.Mutex
		control map[string]*client // by the address that it leads to
		closed  bool
	}
}

// NewEndpoint validates cfg and reports every fault joined. It does not dial.
// The caller must call Close, after the last connection's.
func NewEndpoint(cfg Config) (*Endpoint, error) {
	cfg, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	e := &Endpoint{cfg: cfg}
	e.locations.cfg = &e.cfg
	return e, nil
}

// Close ends what the endpoint itself holds: the control channels and the
// clients of locations, with the streams that still use them. Connections are
// closed by their owners, before. Later calls do nothing.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	control := e.mu.control
	e.mu.control, e.mu.closed = nil, true
	e.mu.Unlock()
	for _, cc := range control {
		_ = cc.Close()
	}
	e.locations.close()
	return nil
}
