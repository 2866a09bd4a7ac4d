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
	history              []healthEvent // what counted: failures and successes
	trials               []time.Time   // since the last turn to unhealthy
}

type healthEvent struct {
	failed bool
	at     time.Time
}

// fails takes note of a failed attempt that began then, unless it is one with the
// last failure of the row.
func (m *healthModel) fails(began time.Time) {
	if n := len(m.history); n > 0 && m.history[n-1].failed && !began.After(m.history[n-1].at) {
		return
	}
	m.event(true)
}

func (m *healthModel) event(failed bool) {
	_, before, _ := m.state()
	m.history = append(m.history, healthEvent{failed, time.Now()})
	if _, now, _ := m.state(); now && !before {
		m.trials = nil
	}
}

// state replays the history: since when the row of failures lasts that made the
// server unhealthy, whether it still is, when it turned, and how often it has
// turned to either side.
func (m *healthModel) state() (since time.Time, unhealthy bool, turned time.Time) {
	since, unhealthy, turned, _ = m.replay()
	return
}

func (m *healthModel) replay() (since time.Time, unhealthy bool, turned time.Time, turns int) {
	for i := range m.history {
		// The longest run of one kind that ends here.
		run := i
		for run > 0 && m.history[run-1].failed == m.history[i].failed {
			run--
		}
		length := i - run + 1
		switch {
		case m.failures < 0:
		case !unhealthy && m.history[i].failed && length >= m.failures && m.history[i].at.Sub(m.history[run].at) >= m.after:
			since, unhealthy, turned = m.history[run].at, true, m.history[i].at
			turns++
		case unhealthy && !m.history[i].failed && length >= m.recoveries:
			unhealthy = false
			turns++
		}
	}
	return since, unhealthy, turned, turns
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
	for seed := range uint64(3000) {
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
			h := health{failures: m.failures, after: m.after, recoveries: m.recoveries, changed: func(err error) { turns, unhealthyNow = turns+1, err != nil }}
			program := ""
			for range 60 {
				op := random.IntN(10)
				program += fmt.Sprint(op, " ")
				switch op {
				case 0, 1, 2:
					took := []time.Duration{0, ms, 5 * time.Second}[random.IntN(3)]
					h.failed(down(), took)
					m.fails(time.Now().Add(-took))
				case 3:
					h.failed(&Error{Fault: FaultAuth, Err: errAway}, 0) // an answer, of a kind
				case 4:
					h.succeeded()
					m.event(false)
				case 5, 6:
					require.Equal(t, m.admits(), h.admit() == nil, "seed %d: %s", seed, program)
				default:
					time.Sleep([]time.Duration{ms, 100 * ms, firstPause, time.Second, 11 * time.Second}[random.IntN(5)])
				}
				since, unhealthy, _, wantTurns := m.replay()
				gotSince, reason := h.state()
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
