package poolz

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir"
)

// A rude error, of the program's own, does in its text what an error must not.
type rude func()

func (r rude) Error() string { r(); return "rude" }

// The page asks for texts on its own goroutine, where a panic would end the program.
func TestAnErrorCannotEndThePage(t *testing.T) {
	for name, does := range map[string]func(){"panics": func() { panic("m4rker") }, "exits": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			s := flightpool.Stats{Stats: reservoir.Stats{LastOpenError: rude(does)}, UnhealthyReason: rude(does)}
			r := readPool(&s, "server:1", true)
			require.Equal(t, "an error without a text", r.lastOpen)
			require.Equal(t, "an error without a text", r.reason)
		})
	}
}

// No method of an error is called with the page's lock held: all calls of all pools would wait.
func TestNoMethodOfAnErrorIsCalledUnderTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := New(Config{Texts: true})
		defer page.Close()
		failure := rude(func() {
			page.mu.Lock()
			page.mu.Unlock() //nolint:staticcheck // it shows that nobody holds it
		})
		w := page.Tracer("main").(flightpool.QueryTracer) //nolint:forcetypeassert // else the test fails
		ctx := w.TraceQueryStart(t.Context(), flightpool.QueryStartData{Op: "Query"})
		w.TraceQueryEnd(ctx, flightpool.QueryEndData{Outcome: flightpool.Outcome{Took: time.Minute, Err: failure}})
		s := &source{name: "main"}
		for n := range uint64(2) {
			page.record(s, readPool(&flightpool.Stats{Stats: reservoir.Stats{OpenFailures: n, LastOpenError: failure}}, "", true), time.Now())
		}
		st := page.state("", false, 0)
		require.Len(t, st.Events, 2)
		texts := []string{st.Events[0].Text, st.Events[1].Text}
		require.ElementsMatch(t, []string{"a call failed: rude", "opening a connection failed: rude"}, texts)
	})
}

// brokenLeases and brokenLimiter have Stats that do not return.
type (
	brokenLeases  struct{ lease.Leases }
	brokenLimiter struct{ lease.Limiter }
)

func (brokenLeases) Stats() lease.Stats         { panic("broken") }
func (brokenLimiter) Stats() lease.LimiterStats { runtime.Goexit(); return lease.LimiterStats{} }

func TestABudgetCannotEndThePage(t *testing.T) {
	page := New(Config{})
	defer page.Close()
	page.AddBudget("broken", brokenLeases{}, brokenLimiter{})
	page.AddBudget("sound", lease.NewLeases("sound", 7), nil)
	budgets := page.state("", false, 0).Budgets
	require.Len(t, budgets, 3)
	require.Equal(t, []string{"broken", "leases", "broken", "rate"}, []string{budgets[0].Name, budgets[0].Kind, budgets[1].Name, budgets[1].Kind})
	require.True(t, budgets[0].Degraded && budgets[1].Degraded && !budgets[2].Degraded)
	require.Equal(t, 7, budgets[2].Now["limit"])
}
