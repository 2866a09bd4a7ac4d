package flightpool

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// SwanLake leaves a transaction that changes a second catalogue, and says so to its end alone. Where
// the session breaks before that, neither the read that has failed so nor what follows it makes the
// transaction safe to repeat.
func TestATransactionWhoseSessionBreaksIsNotSafeToRepeatWhereTheServerMayHaveLeftIt(t *testing.T) {
	inBubble(t, testserver.SwanLake(), Config{MaxSize: 2}, func(r *rig) {
		r.exec("CREATE TABLE memory.t (a BIGINT)")
		r.exec("CREATE TABLE swanlake.t (a BIGINT)")
		body := func(ctx context.Context, s updater) error {
			for _, table := range []string{"memory.t", "swanlake.t"} {
				_, err := s.Update(ctx, "INSERT INTO "+table+" VALUES (1)")
				require.NoError(r, err)
			}
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "SELECT 2", Times: 1, Do: testserver.Kill()})
			return drained(s.Query(ctx, "SELECT 2"))
		}
		for name, run := range map[string]func() error{
			"InTx": func() error {
				return r.pool.InTx(r.Context(), TxOptions{}, func(ctx context.Context, tx *Tx) error { return body(ctx, tx) })
			},
			"WithTransaction": func() error {
				return r.pool.WithSession(r.Context(), func(ctx context.Context, s *SessionHandle) error {
					return s.WithTransaction(ctx, func(ctx context.Context, s *SessionHandle) error { return body(ctx, s) })
				})
			},
			"Rollback": func() error {
				tx := r.begin()
				require.ErrorIs(r, body(r.Context(), tx), ErrSessionLost)
				return tx.Rollback(r.Context())
			},
			"Commit": func() error {
				tx := r.begin()
				require.ErrorIs(r, body(r.Context(), tx), ErrSessionLost)
				return tx.Commit(r.Context())
			},
		} {
			before := r.value(r.pool, "SELECT count(*) FROM swanlake.t")
			err := run()
			require.ErrorIs(r, err, ErrSessionLost, name)
			require.NotEqual(r, before, r.value(r.pool, "SELECT count(*) FROM swanlake.t"), name)
			require.False(r, SafeToRetry(err) || IsConflict(err), "%s: %v", name, err)
		}
		r.srv.Faults().EvictSessions()
	})
}
