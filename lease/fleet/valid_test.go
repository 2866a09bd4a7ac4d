package fleet

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Leases that wait for a permit are lost, and go to others. With the store within reach
// again they cover no connection, until others have given some back.
func TestALostLeaseCoversNoLaterConnection(t *testing.T) {
	for _, strict := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			a, pa := join(t, w, 1, Config{Limit: 4, Strict: strict})
			waiting := take(t, a, 2)
			b, _ := join(t, w, 2, Config{Limit: 4, Strict: strict})
			defer b.stopGoroutines()
			defer a.stopGoroutines()
			open := take(t, b, 2)
			require.NoError(t, a.Valid())
			pa.set(func(p *process) { p.outage = time.Now().Add(200 * time.Second) })
			time.Sleep(100 * time.Second)
			open = append(open, take(t, b, 2)...)
			valid := 0
			for end := time.Now().Add(200 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if a.Stats().Losses > 0 && a.Valid() == nil {
					valid++
				}
			}
			require.Zero(t, valid, "strict %v: it could have opened for so many tenths of a second", strict)
			for _, release := range open[:2] {
				release()
			}
			time.Sleep(time.Minute)
			require.NoError(t, a.Valid())
			for _, release := range append(waiting, open[2:]...) {
				release()
			}
			require.NoError(t, a.Close(t.Context()))
		})
	}
}
