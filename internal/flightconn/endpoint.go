package flightconn

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/effect"
	"github.com/flightpool/flightpool/internal/taskgroup"
)

// Endpoint is one server as all connections of a pool see it: its
// configuration, what they have learned about it, the control channels for
// cancelling, and the clients of the locations that results are fetched from.
// It is safe for use by any goroutine.
//
// It holds no connection: Open hands those out, and their owner closes them
// before it closes the endpoint. What was learned of the server holds for all
// of them: for good how it treats transactions and runs statements, so that a server
// that is replaced by another version is taken for the same, and for lackHolds what
// it lacks.
type Endpoint struct {
	cfg          Config
	capabilities capabilities
	openTxs      openTxs
	locations    locations
	schemas      schemaCache
	firstPrepare chan struct{}   // has an element while somebody finds out what capabilities.handles says
	abandoned    taskgroup.Group // connections of opens that have failed, sessions of those that broke, and unused statements, while they are closed

	closing     chan struct{} // closed when Close begins
	closingOnce sync.Once

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
	e := &Endpoint{cfg: cfg, firstPrepare: make(chan struct{}, 1), closing: make(chan struct{})}
	e.locations.cfg = &e.cfg
	return e, nil
}

// Close ends what the endpoint itself holds: the control channels and the
// clients of locations, with the streams that still use them. Connections are
// closed by their owners, before. It waits for the dials under way, and for the ends of
// sessions whose opens have failed, or whose connections have broken, up to CloseTimeout, and for dials that end
// with these dialEndsWithin longer. Later calls do nothing else. The error tells how many dials have not
// returned by then, most likely because of a Config.Dialer that does not heed
// its context. An Open that has not dialled yet fails.
//
// INVARIANT: the control channels outlast the ends of sessions, which are asked for on them.
func (e *Endpoint) Close() error {
	e.closingOnce.Do(func() { close(e.closing) })
	e.locations.close()
	limit, start := e.closeLimit(), time.Now()
	e.abandoned.Close()
	ctx, cancel := detached(limit)
	defer cancel()
	e.abandoned.Wait(ctx) // each takes CloseTimeout at most
	e.mu.Lock()
	control := e.mu.control
	e.mu.control, e.mu.closed = nil, true
	e.mu.Unlock()
	for _, cc := range control {
		_ = cc.Close()
	}
	limit = max(limit-time.Since(start), min(limit, dialEndsWithin)) // those of control channels have ended just now
	if n := e.cfg.dialTracker.close(limit); n > 0 {
		return fmt.Errorf("%d dials have not returned within %v after their contexts ended; does Config.Dialer heed its own?", n, limit)
	}
	return nil
}

// isClosing reports whether Close has begun.
func (e *Endpoint) isClosing() bool {
	select {
	case <-e.closing:
		return true
	default:
		return false
	}
}

// dialEndsWithin is how long a dial may take at least to return when its context has ended.
const dialEndsWithin = 250 * time.Millisecond

// closeLimit bounds what is closed behind its users, where CloseTimeout is off too.
func (e *Endpoint) closeLimit() time.Duration {
	if e.cfg.CloseTimeout < 0 {
		return DefaultCloseTimeout
	}
	return e.cfg.CloseTimeout
}

// capabilities is what the connections of an endpoint have learned of the server
// from its answers. ListActions is not asked: servers of the common libraries
// answer it with a constant.
//
// It is safe for use by any goroutine, and its zero value knows nothing.
// txIDs and order stay for the life of the endpoint, so that what is
// learned of transactions is confirmed before (rpcCall.confirmed). handles stays,
// too, which does no harm where it is not so any more. actions has,
// beside the user's own cancel actions, PollFlightInfo by the kind of the
// command.
type capabilities struct {
	closeSession capability
	renew        capability
	cancelInfo   capability
	cancelQuery  capability
	transactions capability
	actions      sync.Map // name of the call -> *capability
	txIDs        atomic.Int32
	txIDsCut     atomic.Bool // a caller has cut the question: the next Open asks it
	order        backend.StatementOrder
	handles      atomic.Int32           // see handlesUnknown
	nulls        atomic.Int32           // see nullsUnknown
	texts        atomic.Int32           // see textsUnknown
	database     atomic.Pointer[string] // by the SqlInfo of the server's version; nil: not asked yet
}

// Values of capabilities.txIDs: what the server does with the end of a
// transaction whose id it does not know. It refuses it (checked) or confirms it
// (ignored).
const (
	txIDsUnknown int32 = iota
	txIDsChecked
	txIDsIgnored
)

// lackHolds is how long a call that the server lacks is not tried again. A server of several
// replicas, one of which is newer, or whose proxy has lost one, may have it all the same.
const lackHolds = 10 * time.Minute

// capability is whether the server has a call. Until the contrary is known it
// is tried.
type capability struct{ missingSince atomic.Pointer[time.Time] }

func (l *capability) isMissing() bool {
	since := l.missingSince.Load()
	return since != nil && time.Since(*since) < lackHolds
}

func (l *capability) markMissing() {
	now := time.Now()
	l.missingSince.Store(&now)
}

// markPresent takes back what was learned by mistake.
func (l *capability) markPresent() {
	if l.missingSince.Load() != nil {
		l.missingSince.Store(nil)
	}
}

// try makes a call that the server may lack. One refusal teaches nothing: the call is
// missing if it is refused again after confirmed has reported that the server does not
// refuse everything for a while. A page of a proxy's, which may come for every other
// RPC, never teaches a lack.
func (l *capability) try(confirmed func(refusal error) bool, do func() error) error {
	err := do()
	if isLack(err) && confirmed(err) {
		if err = do(); isLack(err) {
			l.markMissing()
		}
	}
	return err
}

// isLack reports whether err is the server's word that it lacks the call.
func isLack(err error) bool { return isUnsupported(err) && !effect.IsPage(err) }

// forAction is what is known of a call that has a name of its own. All who ask
// by one name share one.
func (s *capabilities) forAction(name string) *capability {
	l, _ := s.actions.LoadOrStore(name, &capability{})
	return l.(*capability)
}

// harmlessTimeout bounds a question beside a call, which may have to wait for the very
// statement of the call.
const harmlessTimeout = 250 * time.Millisecond

// confirmed reports whether the server answers a harmless question otherwise than
// with err: then what is refused once more is refused for its own sake, and not since
// the server or what is before it refuses everything for a while. The question costs
// one round trip, and is put only where something is about to be recorded for all
// connections.
func (r *rpcCall) confirmed(ctx context.Context, err error) bool {
	return confirms(ctx, r.askHarmless(ctx), err)
}

// confirms reports whether other is an answer, and another one than err. The server, which
// is told of a deadline, may say that it is over before ctx does.
func confirms(ctx context.Context, other, err error) bool {
	return ctx.Err() == nil && isReply(other) && !sameStatus(other, err)
}

// confirmedBeside is confirmed while the session is at work on a call.
func (r *rpcCall) confirmedBeside(ctx context.Context, err error) bool {
	ctx, stop := context.WithTimeout(ctx, harmlessTimeout)
	defer stop()
	return r.confirmed(ctx, err)
}

func sameStatus(a, b error) bool {
	one, other := status.Convert(a), status.Convert(b)
	return one.Code() == other.Code() && one.Message() == other.Message()
}
