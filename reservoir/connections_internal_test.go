package reservoir

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// While some are described, others leave, and the last takes the place of each.
func TestConnectionsTellsWhatStaysOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Config[int]{Open: func(context.Context) (int, error) { return 0, nil }, Close: func(int) error { return nil }, MaxSize: 3 * infoBatch})
		require.NoError(t, err)
		byPlace := map[int]Loan[int]{}
		for range 3 * infoBatch {
			l, err := r.Acquire(t.Context())
			require.NoError(t, err)
			byPlace[l.entry.index] = l
		}
		leave := func(place int) {
			require.NoError(t, byPlace[place].Discard(nil))
			delete(byPlace, place)
			synctest.Wait()
		}
		var all []Info[int]
		for at, next := 4*infoBatch, 0; at > 0; next++ {
			all, at = r.describe(all, at)
			switch next {
			case 0:
				leave(1) // one that was told takes its place
				leave(2*infoBatch + 5)
			case 1:
				leave(2) // likewise
				leave(infoBatch + 7)
				leave(infoBatch - 1)
			}
		}
		told := map[uint64]int{}
		for _, c := range eachOnce(all) {
			told[c.ID]++
		}
		for place, l := range byPlace {
			require.Equal(t, 1, told[l.ConnectionID()], "at first at %d", place)
			require.NoError(t, l.Release())
		}
		require.Len(t, r.Connections(), len(byPlace))
		require.NoError(t, r.Close(t.Context()))
	})
}
