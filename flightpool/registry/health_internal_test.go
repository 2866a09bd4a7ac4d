package registry

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// An open's failure may reach those who wait before the news of what it has made of
// the server.
func TestWhoFailsWithAnUnhealthyServerIsToldSo(t *testing.T) {
	u := &userPool{server: &server{name: "s"}, name: "a"}
	gone := fmt.Errorf("open: %w", io.ErrUnexpectedEOF)
	require.NotErrorIs(t, u.wrapError(t.Context(), gone), ErrUnhealthy)
	u.server.health.down.Store(&UnhealthyError{Server: "s", Reason: gone})
	require.ErrorIs(t, u.wrapError(t.Context(), gone), ErrUnhealthy)
	require.NotErrorIs(t, u.wrapError(t.Context(), errors.New("syntax error")), ErrUnhealthy)
}

func TestTurnsOfHealthAreToldInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h health
		var told []bool
		slow := make(chan struct{})
		h.onTransition = func(down *UnhealthyError) {
			if down != nil {
				<-slow
			}
			told = append(told, down == nil)
		}
		h.applyDefinition(HealthCheck{FailureThreshold: 1, RecoveryThreshold: 1, Interval: 1})
		go h.recordFault(errors.New("gone"))
		synctest.Wait()
		h.recordProbe(nil) // while the bad news is still being told
		close(slow)
		synctest.Wait()
		require.Equal(t, []bool{false, true}, told)
	})
}
