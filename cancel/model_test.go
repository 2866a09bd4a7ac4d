package cancel

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errRefused = errors.New("refused")

// plan is what a step of a random chain will do: after a time, in one of four
// ways.
type plan struct {
	way     string // "obeys" and "ignores" its context; "panics" and "exits" after its time, whatever its context does
	after   time.Duration
	timeout time.Duration
	out     Outcome
	err     error
}

func randomPlan(r *rand.Rand) plan {
	p := plan{
		way:     []string{"obeys", "obeys", "obeys", "ignores", "panics", "exits"}[r.IntN(6)],
		after:   randomTime(r),
		timeout: randomTime(r),
		out:     Outcome(r.IntN(5)),
	}
	if p.out == Failed {
		p.err = errRefused
	}
	return p
}

// randomTime is one of 10⁹ times up to a second, mostly short, so that no two
// events of a chain fall on the same instant.
func randomTime(r *rand.Rand) time.Duration {
	return time.Duration(1 + r.Int64N(int64(time.Second)>>(2*r.IntN(5))))
}

func (p plan) step() Step {
	return Step{Name: p.way, Timeout: p.timeout, Do: func(ctx context.Context) (Outcome, error) {
		if p.way == "obeys" {
			select {
			case <-time.After(p.after):
				return p.out, p.err
			case <-ctx.Done():
				return Failed, ctx.Err()
			}
		}
		time.Sleep(p.after)
		switch p.way {
		case "panics":
			panic(p.way)
		case "exits":
			runtime.Goexit()
		}
		return p.out, p.err
	}}
}

// expect is what a chain of these plans reports, by reckoning alone. ended < 0
// means that Chain.Ended is nil.
func expect(plans []plan, budget, ended time.Duration) (by string, elapsed time.Duration, outs []Outcome) {
	now := time.Duration(0)
	for _, p := range plans {
		if now >= budget || ended >= 0 && now >= ended {
			break
		}
		limit := min(now+p.timeout, budget)
		end, out := now+p.after, p.out
		switch {
		case p.way == "obeys" && end > limit:
			end, out = limit, Unanswered
		case end > limit+returnGrace:
			outs, now = append(outs, Unanswered), limit+returnGrace
			return endBy(outs, now, budget, ended)
		case p.way == "panics", p.way == "exits", out == Failed && end > limit:
			out = Unanswered
		}
		outs, now = append(outs, out), end
		if out == Confirmed {
			return p.way, now, outs
		}
	}
	return endBy(outs, now, budget, ended)
}

func endBy(outs []Outcome, now, budget, ended time.Duration) (string, time.Duration, []Outcome) {
	if ended < 0 {
		return "", now, outs
	}
	if ended <= max(now, budget) {
		return endedByItself, max(now, ended), outs
	}
	return "", max(now, budget), outs
}

func TestRandomChainsReportWhatTheirStepsDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(3000) {
			r := rand.New(rand.NewPCG(seed, 1))
			budget, ended := randomTime(r), time.Duration(-1)
			c := Chain{Budget: budget}
			if r.IntN(2) == 0 {
				ended = randomTime(r)
				sign := make(chan struct{})
				c.Ended = sign
				time.AfterFunc(ended, func() { close(sign) })
			}
			var plans []plan
			for range r.IntN(5) {
				p := randomPlan(r)
				plans = append(plans, p)
				c.Steps = append(c.Steps, p.step())
			}
			report := c.Run(t.Context())
			time.Sleep(2 * time.Second) // what was abandoned ends

			by, elapsed, outs := expect(plans, budget, ended)
			var got []Outcome
			for _, s := range report.Steps {
				got = append(got, s.Outcome)
			}
			require.Equal(t, outs, got, "seed %d: %+v, budget %s, ended %s", seed, plans, budget, ended)
			require.Equal(t, by, report.ConfirmedBy, "seed %d: %+v, budget %s, ended %s", seed, plans, budget, ended)
			require.Equal(t, elapsed, report.Elapsed, "seed %d: %+v, budget %s, ended %s", seed, plans, budget, ended)
			require.Equal(t, by != "", report.Confirmed)
			require.LessOrEqual(t, report.Elapsed, budget+returnGrace)
		}
	})
}
