package sqlconn_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// A driver takes no call beside its Close, and none after it: database/sql may be about to roll back
// for a borrower whose context has ended, and who has given the connection back to be closed.
func TestNoCallReachesADriverBesideItsCloseOrAfterIt(t *testing.T) {
	for _, takes := range []time.Duration{10 * time.Millisecond, time.Second} {
		bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
			c := open(t, target)
			conn, err := c.Lend(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err = conn.BeginTx(ctx, nil)
			require.NoError(t, err)
			s.stuckEnds = make(chan struct{})
			cancel()
			synctest.Wait() // in the rollback
			began, closed := time.Now(), make(chan time.Duration, 1)
			go func() {
				_ = target.Close(c)
				closed <- time.Since(began)
			}()
			time.Sleep(takes)
			close(s.stuckEnds)
			require.Equal(t, min(takes, 50*time.Millisecond), <-closed)
			synctest.Wait()
		})
	}
	bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		c := open(t, target)
		conn, err := c.Lend(t.Context())
		require.NoError(t, err)
		tx, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		sqlconn.Abandon(conn)
		require.NoError(t, target.Close(c))
		_, err = tx.ExecContext(t.Context(), "X")
		require.Error(t, err)
		require.Error(t, tx.Rollback())
		synctest.Wait()
		require.Equal(t, []string{"BEGIN"}, s.session(0).seen())
	})
}

// Nor is it asked whether its connection is valid while it is at work: it would read what the call writes.
func TestADriverIsNotAskedWhetherItsConnectionIsValidWhileItIsAtWork(t *testing.T) {
	bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		c := open(t, target)
		conn, err := c.Lend(t.Context())
		require.NoError(t, err)
		_, err = conn.ExecContext(t.Context(), "X")
		require.NoError(t, err)
		tx, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		s.stuckEnds = make(chan struct{})
		go func() { _ = tx.Commit() }()
		synctest.Wait()
		asked := s.session(0).asked()
		require.NoError(t, c.Lost())
		require.NoError(t, target.Close(c))
		require.Equal(t, asked, s.session(0).asked(), "the COMMIT is under way")
		close(s.stuckEnds)
		synctest.Wait()
	})
}

// A reset that was given up, and that the driver comes to the end of later, sends nothing more.
func TestAResetThatWasGivenUpDoesNotGoOn(t *testing.T) {
	bubble(t, sqlconn.Config{Kind: sqlconn.PostgreSQL}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		c := open(t, target)
		s.stuckRollback = make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, target.Reset(ctx, c), context.DeadlineExceeded)
		require.NoError(t, target.Close(c)) // after 5s
		close(s.stuckRollback)
		synctest.Wait()
		require.Equal(t, []string{"ROLLBACK"}, s.session(0).seen())
	})
}
