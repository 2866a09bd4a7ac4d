package flightconn

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Endpoint is one server as all connections of a pool see it: its
// configuration, what they have learned about it, the control channels for
// cancelling, and the clients of the locations that results are fetched from.
// It is safe for use by any goroutine.
//
// It holds no connection: Open hands those out, and their owner closes them
// before it closes the endpoint. What was learned of the server holds for all
// of them and is kept for good: a server that is replaced by another version is
// taken for the same.
type Endpoint struct {
	cfg          Config
	capabilities capabilities
	openTxs      openTxs
	locations    locations

	// rejectedAuthorization is the authorization that the server refused last.
	rejectedAuthorization atomic.Pointer[string]

	mu struct { // guards the fields below; nothing is called under it
		sync.Mutex
		control map[string]*controlChannel // by the address that it leads to
		uses    uint64                     // of them, so far
		closed  bool
	}
}

// NewEndpoint validates cfg and reports every fault joined. It does not dial.
// The caller must call Close, after the last connection's. A configuration that
// is valid but wrong, such as an address where nobody listens, shows with the
// first Open.
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
// closed by their owners, before. It waits for the dials under way, up to
// CloseTimeout. Later calls do nothing else. The error tells how many have not
// returned by then, most likely because of a Config.Dialer that does not heed
// its context. An Open that has not dialled yet fails.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	control := e.mu.control
	e.mu.control, e.mu.closed = nil, true
	e.mu.Unlock()
	for _, cc := range control {
		_ = cc.Close()
	}
	e.locations.close()
	limit := e.cfg.CloseTimeout
	if limit < 0 {
		limit = DefaultCloseTimeout
	}
	if n := e.cfg.dialTracker.close(limit); n > 0 {
		return fmt.Errorf("%d dials have not returned within %v after their contexts ended; does Config.Dialer heed its own?", n, limit)
	}
	return nil
}
