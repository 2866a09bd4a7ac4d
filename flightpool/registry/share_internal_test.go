package registry

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A connection that closes of itself while another is asked for in vain: with more
// loans asked for than connections coming, settle asked for one more for ever.
func TestWhatIsComingIsNeverLessThanNothing(t *testing.T) {
	s := newShare(&ServerDefinition{MaxConnections: 2})
	m := &member{held: 3}
	s.held, s.peak = 3, 3
	s.join(m)
	s.mu.Lock()
	s.expect(m, 2, 1)
	s.given(m) // one closes
	s.account(step{from: m}, false, false)
	require.Equal(t, []int{0, 0}, []int{m.yielding, m.asks})
	s.relax(time.Now(), true)
	require.Zero(t, s.coming)
	s.mu.Unlock()
}

// An open's failure may reach those who wait before the news of what it has made of
// the server.
func TestWhoFailsWithAnUnhealthyServerIsToldSo(t *testing.T) {
	u := &userPool{server: &server{name: "s"}, name: "a"}
	gone := fmt.Errorf("open: %w", io.ErrUnexpectedEOF)
	require.NotErrorIs(t, u.explain(t.Context(), gone), ErrUnhealthy)
	u.server.health.down.Store(&UnhealthyError{Server: "s", Reason: gone})
	require.ErrorIs(t, u.explain(t.Context(), gone), ErrUnhealthy)
	require.NotErrorIs(t, u.explain(t.Context(), errors.New("syntax error")), ErrUnhealthy)
}

func TestTurnsOfHealthAreToldInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h health
		var told []bool
		slow := make(chan struct{})
		h.changed = func(down *UnhealthyError) {
			if down != nil {
				<-slow
			}
			told = append(told, down == nil)
		}
		h.set(HealthCheck{FailureThreshold: 1, RecoveryThreshold: 1, Interval: 1})
		go h.fault(errors.New("gone"))
		synctest.Wait()
		h.probed(nil) // while the bad news is still being told
		close(slow)
		synctest.Wait()
		require.Equal(t, []bool{false, true}, told)
	})
}
