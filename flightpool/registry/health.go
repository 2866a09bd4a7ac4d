package registry

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
	"github.com/flightpool/flightpool/session"
)

// health is what is known of a server. While it is healthy, the opens, checks and
// loans of its pools are the evidence. While it is not, nothing is opened but for the
// probes of the registry, and they alone are the evidence.
type health struct {
	server   string
	down     atomic.Pointer[UnhealthyError] // nil: healthy. Read on every call
	changed  func(*UnhealthyError)          // is told, outside the lock, of every turn of down, in their order
	passed   atomic.Uint64
	failures atomic.Uint64
	row      atomic.Int64 // mu.failed, to be looked at without the lock

	mu struct {
		sync.Mutex
		check     HealthCheck
		failed    int // in a row
		succeeded int // probes in a row, while unhealthy
		since     time.Time
		healthy   time.Time // the latest success
		pause     time.Duration
		next      time.Time // of the next probe, while unhealthy
		probe     *probe    // under way; nil: none
		asking    bool      // it may be in a queue
		turns     []*UnhealthyError
		telling   bool // somebody tells of the turns
	}
}

// firstPause is the pause before the first probe of a server that turned
// unhealthy, and between those that succeed.
const firstPause = 100 * time.Millisecond

// faulty reports whether err says that the server could not be reached. A server
// that refuses a password or a statement was.
func faulty(err error) bool {
	var flight *session.Error
	if errors.As(err, &flight) {
		return flight.Fault == session.FaultTransport || flight.Fault == session.FaultContext && flight.Stage != session.StageAcquire
	}
	return sqlconn.Unreachable(err)
}

// note takes what an open or a check of a pool has shown.
func (h *health) note(err error, open bool) {
	if err != nil && faulty(err) {
		h.failures.Add(1)
		h.fault(err)
		return
	}
	h.passed.Add(1)
	h.mu.Lock()
	h.mu.healthy = time.Now()
	h.mu.Unlock()
	if !open {
		h.worked()
	}
}

// worked takes note of a check, a statement or a reset that the server has
// answered: that ends a row of faults. An open does not: a proxy opens connections
// to a database that is gone.
func (h *health) worked() {
	if h.row.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down.Load() == nil {
		h.mu.failed = 0
		h.row.Store(0)
	}
}

// lost takes note of a connection that broke under its borrower.
func (h *health) lost(cause error) {
	if cause != nil && faulty(cause) {
		h.fault(cause)
	}
}

func (h *health) fault(err error) {
	now := time.Now()
	h.mu.Lock()
	if h.mu.check.Disabled || h.down.Load() != nil {
		h.mu.Unlock()
		return
	}
	if h.mu.failed == 0 {
		h.mu.since = now
	}
	h.mu.failed++
	h.row.Store(int64(h.mu.failed))
	if h.mu.failed < h.mu.check.FailureThreshold {
		h.mu.Unlock()
		return
	}
	h.mu.succeeded, h.mu.pause = 0, firstPause
	h.mu.turns = append(h.mu.turns, h.unhealthy(err, now))
	h.mu.Unlock()
	h.tell()
}

// unhealthy says so from now on. The caller holds mu.
func (h *health) unhealthy(err error, now time.Time) *UnhealthyError {
	h.mu.next = now.Add(h.mu.pause - rand.N(h.mu.pause/4+1)) // servers that fail together are not probed together
	down := &UnhealthyError{Server: h.server, Reason: err, Since: h.mu.since, Next: h.mu.next}
	h.down.Store(down)
	return down
}

// probed takes the result of a probe of an unhealthy server.
func (h *health) probed(err error) {
	now := time.Now()
	h.mu.Lock()
	if h.down.Load() == nil {
		h.mu.Unlock()
		return
	}
	if err != nil {
		h.mu.succeeded = 0
		h.backOff(err, now)
		h.mu.Unlock()
		return
	}
	h.mu.succeeded++
	if h.mu.succeeded < h.mu.check.RecoveryThreshold {
		h.mu.next = now.Add(min(firstPause, h.mu.check.Interval))
		h.mu.Unlock()
		return
	}
	h.recover()
	h.mu.Unlock()
	h.tell()
}

// undecided ends a probe that has shown nothing: the next one is later all the
// same.
func (h *health) undecided() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if down := h.down.Load(); down != nil {
		h.backOff(down.Reason, time.Now())
	}
}

// backOff makes the pause until the next probe longer. The caller holds mu.
func (h *health) backOff(err error, now time.Time) {
	h.mu.pause = min(2*h.mu.pause, h.mu.check.Interval)
	_ = h.unhealthy(err, now)
}

// recover says that the server is healthy. The caller holds mu, and then tells.
func (h *health) recover() {
	h.mu.failed, h.mu.succeeded = 0, 0
	h.row.Store(0)
	h.down.Store(nil)
	h.mu.turns = append(h.mu.turns, nil)
}

// tell announces the turns in their order, whoever made them: of callers at the
// same time one does it for all, so that the latest word is the state.
func (h *health) tell() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.telling {
		return
	}
	h.mu.telling = true
	for len(h.mu.turns) > 0 {
		turn := h.mu.turns[0]
		h.mu.turns = h.mu.turns[1:]
		h.mu.Unlock()
		h.changed(turn)
		h.mu.Lock()
	}
	h.mu.telling = false
}

// set takes over what a definition says of health.
func (h *health) set(check HealthCheck) {
	h.mu.Lock()
	h.mu.check = check
	h.mu.pause = min(h.mu.pause, check.Interval)
	recovered := check.Disabled && h.down.Load() != nil
	if recovered {
		h.recover()
	}
	h.mu.Unlock()
	if recovered {
		h.tell()
	}
}

// due is when the next probe is, or zero.
func (h *health) due() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down.Load() == nil || h.mu.probe != nil {
		return time.Time{}
	}
	return h.mu.next
}

func (h *health) lastHealthy() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.healthy
}

// checkKind is a check of package flightpool in the words of sqlconn.
func checkKind(k flightpool.HealthKind) sqlconn.CheckKind {
	switch k {
	case flightpool.Query:
		return sqlconn.Query
	case flightpool.FullValidate:
		return sqlconn.FullValidate
	default:
		return sqlconn.Ping
	}
}
