package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/fairshare"
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

// Between the moment at which nobody finds a server any more and the one at which its pools are
// closed, a caller who has found it may open a connection.
func TestAServerThatIsAboutToCloseGrantsNothingBesideItsSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounds := fairshare.Bounds{Max: 1, MaxOpening: 1}
		old, next := &server{name: "s", allocator: fairshare.New(bounds)}, &server{name: "s", allocator: fairshare.New(bounds)}
		defer old.allocator.Stop()
		m := old.allocator.NewMember("a", nil, 1)
		m.Join()
		var draining drainingServers
		draining.add(old)
		draining.countAgainst(next)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.Admit(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		old.allocator.Stop()
		draining.prune("s")
		require.Empty(t, draining.byName)
	})
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
