package sqldriver

import (
	"context"
	"database/sql/driver"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// ended is a context that has ended with what another call has failed with, as in an errgroup.
func ended(t *testing.T, after time.Duration, with error) context.Context {
	ctx, end := context.WithCancelCause(t.Context())
	if after == 0 {
		end(fmt.Errorf("another call: %w", with))
	} else {
		time.AfterFunc(after, func() { end(fmt.Errorf("another call: %w", with)) })
	}
	return ctx
}

func TestAChangeThatWasCutIsNotToldAsUnsentForAnotherCall(t *testing.T) {
	for _, cause := range []error{flightpool.ErrAmbiguousRoute, flightpool.ErrSessionLost, flightpool.ErrBusy} {
		synctest.Test(t, func(t *testing.T) {
			s, db := openedOn(t, testserver.Strict())
			_, err := db.ExecContext(t.Context(), "CREATE TABLE t (a BIGINT)")
			require.NoError(t, err)
			s.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "INSERT", After: true, Times: 1, Do: testserver.Delay(time.Minute)})
			_, err = db.ExecContext(ended(t, time.Second, cause), "INSERT INTO t VALUES (1)")
			require.ErrorIs(t, err, cause)
			require.False(t, flightpool.SafeToRetry(err), "%v", err)
			time.Sleep(2 * time.Minute)
		})
	}
}

func TestAConnOutlivesACallThatEndsForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db := openedOn(t, testserver.Strict())
		cn, err := db.Conn(t.Context())
		require.NoError(t, err)
		_, err = cn.ExecContext(ended(t, 0, flightpool.ErrSessionLost), "SELECT 1")
		require.ErrorIs(t, err, flightpool.ErrSessionLost)
		require.NoError(t, cn.PingContext(t.Context()), "it has not been closed")
		require.NoError(t, cn.Close())
	})
}

func TestATransactionThatIsOverForItsCallerTakesInNothingAfterAnothersFailure(t *testing.T) {
	for _, cause := range []error{flightpool.ErrSessionLost, flightpool.ErrNoTx} {
		synctest.Test(t, func(t *testing.T) {
			_, db := openedOn(t, testserver.Strict())
			_, err := db.ExecContext(t.Context(), "CREATE TABLE t (a BIGINT)")
			require.NoError(t, err)
			cn, err := NewConnector(Pool(db)).Connect(t.Context())
			require.NoError(t, err)
			c := cn.(*conn)
			ctx, end := context.WithCancelCause(t.Context())
			tx, err := c.BeginTx(ctx, driver.TxOptions{})
			require.NoError(t, err)
			_, err = c.ExecContext(ctx, "INSERT INTO t VALUES (1)", nil)
			require.NoError(t, err)
			end(fmt.Errorf("another call: %w", cause))
			require.ErrorIs(t, tx.Commit(), cause)
			_, err = c.ExecContext(ctx, "INSERT INTO t VALUES (2)", nil)
			require.Error(t, err)
			_, err = c.ExecContext(t.Context(), "INSERT INTO t VALUES (3)", nil)
			require.NoError(t, err)
			require.NoError(t, c.Close())
			var rows int
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM t").Scan(&rows))
			require.Equal(t, 1, rows, "that was told to be stored")
		})
	}
}

// At driver.ErrBadConn database/sql closes a *sql.Conn, and waits for what is open on it for ever.
func TestABadConnectionOfAnotherCallIsNotThisOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db := openedOn(t, testserver.Strict())
		_, err := db.ExecContext(t.Context(), "CREATE TABLE t (a BIGINT)")
		require.NoError(t, err)
		cn, err := db.Conn(t.Context())
		require.NoError(t, err)
		for _, call := range []func(ctx context.Context) error{
			func(ctx context.Context) error { _, err := cn.ExecContext(ctx, "INSERT INTO t VALUES (1)"); return err },
			func(ctx context.Context) error { _, err := cn.QueryContext(ctx, "SELECT 1"); return err },
			func(ctx context.Context) error { _, err := cn.PrepareContext(ctx, "SELECT 1"); return err },
			func(ctx context.Context) error { return cn.PingContext(ctx) },
		} {
			bad := badConnError{&flightpool.Error{Op: "Query", Fault: flightpool.FaultSession, Unsent: true, Err: flightpool.ErrSessionLost}}
			require.Error(t, call(ended(t, 0, bad)))
			require.NoError(t, cn.PingContext(t.Context()), "it has not been closed")
			tx, err := cn.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			require.Error(t, call(ended(t, 0, bad)))
			_, err = tx.ExecContext(t.Context(), "INSERT INTO t VALUES (2)")
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
		}
		require.NoError(t, cn.Close())
	})
}
