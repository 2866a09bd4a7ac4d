package fleet

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A round that cannot be begun, since writes of the budget's record are
// refused, is tried again with pauses: a table in trouble is not flooded.
func TestARoundThatCannotBeginIsNotTriedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var ls []*Leases
		for i := range 3 {
			l, p := join(t, w, uint64(i), Config{Limit: 30})
			take(t, l, 3)
			p.set(func(p *process) {
				p.refuse = func(c Change) bool { return c.Key == budgetKey("b") }
			})
			ls = append(ls, l)
		}
		time.Sleep(time.Minute)
		before := ls[0].Stats().Traffic
		time.Sleep(5 * time.Minute)
		after := ls[0].Stats().Traffic
		reads, writes := after.Reads-before.Reads, after.Writes-before.Writes
		t.Logf("%d reads and %d writes in 5 minutes", reads, writes)
		for _, l := range ls {
			l.stopGoroutines()
		}
		require.Less(t, reads, uint64(600))
		require.Less(t, writes, uint64(600))
	})
}
