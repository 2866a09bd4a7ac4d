package flightpool

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// An update has no FlightInfo by which a request to cancel could name it, and servers made with Arrow's library for C++
// refuse one without a descriptor.
func TestADeadlineStopsAnUpdateOnGizmoSQL(t *testing.T) {
	for name, update := range map[string]func(ctx context.Context, s *SessionHandle) error{
		"alone": func(ctx context.Context, s *SessionHandle) error {
			_, err := s.Update(ctx, "SELECT sleep('2m')")
			return err
		},
		"in a transaction": func(ctx context.Context, s *SessionHandle) error {
			if err := s.BeginTransaction(ctx); err != nil {
				return err
			}
			_, err := s.Update(ctx, "SELECT sleep('2m')")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testserver.GizmoSQL(), Config{MaxSize: 1, Auth: BasicAuth("u", "p")}, func(r *rig) {
				s := r.session()
				ctx, stop := context.WithTimeout(r.Context(), 200*ms)
				defer stop()
				require.ErrorIs(r, update(ctx, s), context.DeadlineExceeded)
				soon, stop := context.WithTimeout(r.Context(), 2*time.Second)
				defer stop()
				require.NoError(r, r.srv.Ledger().Wait(soon, func(s testserver.Snapshot) bool { return s.Running == 0 }), "it is stopped, and not by the end of its session")
				require.NoError(r, s.Close())
				time.Sleep(time.Second) // the report comes behind the caller
				require.EqualValues(r, 1, r.pool.Stats().CancelsConfirmed)
				require.EqualValues(r, 1, r.pool.Stats().Opens, "the connection is as good as before")
			})
		})
	}
}
