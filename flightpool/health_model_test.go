package flightpool

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// healthModel says from the whole history what health keeps in a few fields.
type healthModel struct {
	failures, recoveries int
	after                time.Duration
	history              []healthEvent
	trials               []time.Time // since the last turn to unhealthy
}

// A healthEvent is an attempt to reach the server.
type healthEvent struct {
	failed    bool
	began, at time.Time
}

func (m *healthModel) event(failed bool, took time.Duration) {
	_, before, _ := m.state()
	m.history = append(m.history, healthEvent{failed, time.Now().Add(-took), time.Now()})
	if _, now, _ := m.state(); now && !before {
		m.trials = nil
	}
}

// outage is the run of failures that ends with event i: those after the last
// success, and after the last time in which nobody has tried. apart counts those
// of them that began after the end of the one counted before; with counts, event i
// is one of these.
func (m *healthModel) outage(i int) (since time.Time, apart int, counts bool) {
	first := i
	for first > 0 && m.history[first-1].failed && (m.after <= 0 || m.history[first].began.Sub(m.history[first-1].at) <= 5*time.Second) {
		first--
	}
	var last time.Time
	for _, e := range m.history[first : i+1] {
		if counts = e.began.After(last); counts {
			apart, last = apart+1, e.at
		}
	}
	return m.history[first].at, apart, counts
}

// state replays the history: since when the row of failures lasts that made the
// server unhealthy, whether it still is, when it turned, and how often it has
// turned to either side.
func (m *healthModel) state() (since time.Time, unhealthy bool, changed time.Time) {
	since, unhealthy, changed, _ = m.replay()
	return
}

func (m *healthModel) replay() (since time.Time, unhealthy bool, changed time.Time, turns int) {
	successes := 0
	for i, e := range m.history {
		if successes++; e.failed {
			successes = 0
		}
		switch {
		case m.failures < 0:
		case !unhealthy && e.failed:
			first, apart, counts := m.outage(i)
			if counts && apart >= m.failures && e.at.Sub(first) >= m.after {
				since, unhealthy, changed = first, true, e.at
				turns++
			}
		case unhealthy && successes >= m.recoveries:
			unhealthy = false
			turns++
		}
	}
	return since, unhealthy, changed, turns
}

// admits reports whether a call may go to the server now: the trials of a server
// that stays unhealthy come after 250ms, 500ms, 1s and so on, up to 10s.
func (m *healthModel) admits() bool {
	_, unhealthy, last := m.state()
	if !unhealthy {
		return true
	}
	pause := 250 * time.Millisecond
	for _, at := range m.trials {
		last, pause = at, min(2*pause, 10*time.Second)
	}
	if time.Since(last) < pause {
		return false
	}
	m.trials = append(m.trials, time.Now())
	return true
}

func TestHealthFollowsItsModel(t *testing.T) {
	for seed := range uint64(1000) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			m := &healthModel{
				failures: 1 + random.IntN(4), recoveries: 1 + random.IntN(3),
				after: []time.Duration{0, 50 * ms, 5 * time.Second}[random.IntN(3)],
			}
			if seed%20 == 0 {
				m.failures = -1
			}
			turns, unhealthyNow := 0, false
			h := health{failures: m.failures, minOutage: m.after, recoveries: m.recoveries, onUnhealthy: func() {}, onChange: func(err error) { turns, unhealthyNow = turns+1, err != nil }}
			program := ""
			for range 60 {
				op := random.IntN(10)
				program += fmt.Sprint(op, " ")
				switch op {
				case 0, 1, 2:
					took := []time.Duration{0, ms, 5 * time.Second, 12 * time.Second}[random.IntN(4)]
					h.failed(down(), took)
					m.event(true, took)
				case 3:
					h.failed(&Error{Fault: FaultAuth, Err: errAway}, 0) // an answer, of a kind
				case 4:
					h.succeeded()
					m.event(false, 0)
				case 5, 6:
					got, err := h.allowTrial()
					require.Equal(t, m.admits(), err == nil, "seed %d: %s", seed, program)
					if got.health != nil && random.IntN(2) == 0 {
						got.returnUnused() // as if it had not been given out
						m.trials = m.trials[:len(m.trials)-1]
					}
				default:
					time.Sleep([]time.Duration{ms, 100 * ms, firstPause, time.Second, 4 * time.Second, 5 * time.Second, 11 * time.Second}[random.IntN(7)])
				}
				since, unhealthy, _, wantTurns := m.replay()
				gotSince, reason := h.unhealthySince()
				require.Equal(t, unhealthy, reason != nil, "seed %d: %s", seed, program)
				require.Equal(t, unhealthy, h.unhealthy() != nil)
				require.Equal(t, unhealthy, unhealthyNow, "what the hook was told last")
				require.Equal(t, wantTurns, turns, "seed %d: %s", seed, program)
				if unhealthy {
					require.Equal(t, since, gotSince, "seed %d: %s", seed, program)
				}
			}
		})
	}
}

func (h *health) admits() error {
	_, err := h.allowTrial()
	return err
}
