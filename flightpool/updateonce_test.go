package flightpool

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// A text that looks like a read may have an effect, by a function of the user's. Whoever runs it by Update says so.
func TestAnUpdateRunsOnceWhateverItsTextLooksLike(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 2}, func(r *rig) {
		s := r.session()
		q, err := s.PrepareQuery(r.Context(), "SELECT 42")
		require.NoError(r, err)
		for i, run := range []func() error{
			func() error { _, err := r.pool.Update(r.Context(), "SELECT 41"); return err },
			func() error {
				_, err := r.pool.QueryWithOptions(r.Context(), "SELECT 41", QueryOptions{Route: RouteUpdate})
				return err
			},
			func() error { _, err := r.pool.Update(r.Context(), "SELECT ?", 1); return err },
			func() error { _, err := q.Update(r.Context()); return err },
		} {
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnDoPut, After: true, Times: 1, Do: testserver.Kill()})
			err := run()
			require.ErrorIs(r, err, ErrSessionLost, i)
			require.False(r, SafeToRetry(err), i)
		}
		require.Zero(r, r.pool.Stats().Retries)
		require.Equal(r, 2, r.executions("SELECT 41"))
		require.NoError(r, s.Close())
	})
}
