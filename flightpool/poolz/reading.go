package poolz

import (
	"time"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/reservoir"
)

// A source is a pool or a server of a registry.
type source struct {
	name  string
	added string // the name of the pool or registry
	pool  *flightpool.FlightSQLPool

	registry *registry.Registry
	server   string

	history *history // guarded by the page's mu, like what follows
	was     *reading // the latest
}

// A reading is a source at one moment.
type reading struct {
	kind, target string
	now          map[string]int    // connections and callers
	counts       map[string]uint64 // of events, since the source began
	closed       map[string]uint64 // connections, by reason
	times        *flightpool.Times // nil: not known
	unhealthy    time.Time         // since then; zero: it is healthy
	reason       string            // why it is not
	lastOpen     string            // why the latest open failed
}

// read asks a source. It waits for nobody; false: the source is gone.
func (s *source) read(texts bool) (*reading, bool) {
	if s.pool != nil {
		st := s.pool.Stats()
		return readPool(&st, s.pool.Target(), texts), true
	}
	st, err := s.registry.ServerStats(s.server)
	return readServer(&st, texts), err == nil
}

func readPool(s *flightpool.Stats, target string, texts bool) *reading {
	r := &reading{
		kind: "pool", target: target,
		now: map[string]int{"in_use": s.InUse, "on_loan": s.OnLoan, "idle": s.Idle, "opening": s.Opening, "closing": s.Closing, "total": s.Total, "waiting": s.Waiting, "max": s.MaxSize, "min_idle": s.MinIdle},
		counts: map[string]uint64{
			"calls": s.Calls, "failures": s.Failures, "retries": s.Retries, "sessions": s.Sessions,
			"acquired": s.Acquired, "waited": s.AcquiredWaited, "timeouts": s.Timeouts, "canceled": s.Canceled, "failed_waits": s.Failed, "rejected": s.Rejected,
			"opens": s.Opens, "open_failures": s.OpenFailures, "opens_skipped": s.OpensSkipped, "checks": s.Checks, "check_failures": s.CheckFailures,
			"cancels_confirmed": s.CancelsConfirmed, "cancels_unconfirmed": s.CancelsUnconfirmed, "resets": s.Resets, "reset_failures": s.ResetFailures,
			"rolled_back": s.RolledBack, "close_stalls": s.CloseStalls, "leaks": s.Leaks, "hook_failures": s.HookFailures,
		},
		closed: map[string]uint64{}, times: &s.Times, unhealthy: s.UnhealthySince,
		reason: describe(s.UnhealthyReason, texts), lastOpen: describe(s.LastOpenError, texts),
	}
	for reason, n := range s.Closed {
		r.closed[reservoir.Reason(reason).String()] = n //nolint:gosec // a few
	}
	return r
}

func readServer(s *registry.ServerStats, texts bool) *reading {
	r := &reading{
		kind: s.Kind,
		now:  map[string]int{"in_use": s.Active, "idle": s.Idle, "opening": s.Opening, "closing": s.Closing, "total": s.Total, "waiting": s.Waiting, "max": s.MaxSize, "users": s.UserPools},
		counts: map[string]uint64{
			"calls": s.Queries, "failures": s.QueryFailures, "acquired": s.Acquires, "timeouts": s.AcquireTimeouts, "rejected": s.Rejected,
			"opens": s.Created + s.ConnectionErrors, "open_failures": s.ConnectionErrors, "check_failures": s.ValidationFailures, "reset_failures": s.ResetFailures, "leaks": s.Leaks,
			"cancels_confirmed": s.CancelsConfirmed, "cancels_unconfirmed": s.CancelsUnconfirmed,
		},
		closed: map[string]uint64{"all": s.Destroyed}, unhealthy: s.UnhealthySince,
	}
	if texts {
		r.reason = s.UnhealthyReason
	}
	return r
}

// sum is the sum of all counts in a map.
func sum(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
