package sqldriver

import (
	"context"
	"database/sql"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// tx.Exec has no context but that of the transaction.
func TestTheContextOfATransactionEndsWhatRunsInIt(t *testing.T) {
	for _, run := range []func(tx *sql.Tx) error{
		func(tx *sql.Tx) error { _, err := tx.Exec("SELECT sleep('1h')"); return err },
		func(tx *sql.Tx) error { _, err := tx.Query("SELECT sleep('1h')"); return err },
		func(tx *sql.Tx) error {
			stmt, err := tx.Prepare("SELECT sleep('1h')")
			if err == nil {
				_, err = stmt.Exec()
			}
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, open := inMemory(t, 0)
			p, err := open(t.Context())
			require.NoError(t, err)
			db := OpenDB(p)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			require.ErrorIs(t, run(tx), context.DeadlineExceeded)
			require.LessOrEqual(t, time.Since(began), time.Second+50*time.Millisecond)
			synctest.Wait()
			require.NoError(t, db.Close())
			require.NoError(t, p.Close(context.Background()))
		})
	}
}

// database/sql closes statements and connections before a call returns.
func TestNobodyWaitsPastTheContextForWhatIsCleanedUp(t *testing.T) {
	for name, run := range map[string]func(ctx context.Context, db *sql.DB, stmt *sql.Stmt) error{
		"a setting is taken back": func(ctx context.Context, db *sql.DB, _ *sql.Stmt) error {
			_, err := db.ExecContext(ctx, "SET a = 1")
			return err
		},
		"a statement is closed": func(ctx context.Context, _ *sql.DB, stmt *sql.Stmt) error {
			_, err := stmt.ExecContext(ctx)
			return err
		},
		"a statement is prepared and closed": func(ctx context.Context, db *sql.DB, _ *sql.Stmt) error {
			stmt, err := db.PrepareContext(ctx, "SELECT 2")
			if err == nil {
				err = stmt.Close()
			}
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, err := testserver.Start(testserver.Options{Profile: testserver.Strict(), Listen: testserver.InMemory})
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			p, err := flightpool.New(t.Context(), "grpc://127.0.0.1:1", flightpool.Config{MaxSize: 1, CloseTimeout: time.Minute, Dialer: s.Dial})
			require.NoError(t, err)
			db := OpenDB(p)
			stmt, err := db.PrepareContext(t.Context(), "SELECT 1")
			require.NoError(t, err)
			s.Faults().Set(testserver.Fault{On: "ClosePreparedStatement", Do: testserver.Hang()})
			s.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "RESET", Do: testserver.Hang()})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			require.NoError(t, run(ctx, db, stmt), name)
			require.LessOrEqual(t, time.Since(began), time.Second+50*time.Millisecond, name)
			s.Faults().Clear()
			require.NoError(t, stmt.Close())
			require.NoError(t, db.Close())
			require.NoError(t, p.Close(context.Background()))
		})
	}
}

// A connection that is used for long keeps no statements on the server.
func TestAStatementIsClosedByTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := testserver.Start(testserver.Options{Profile: testserver.Strict(), Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		p, err := flightpool.New(t.Context(), "grpc://127.0.0.1:1", flightpool.Config{MaxSize: 1, Dialer: s.Dial})
		require.NoError(t, err)
		db := OpenDB(p)
		cn, err := db.Conn(t.Context())
		require.NoError(t, err)
		for range 20 {
			stmt, err := cn.PrepareContext(t.Context(), "SELECT 1")
			require.NoError(t, err)
			var one int
			require.NoError(t, stmt.QueryRowContext(t.Context()).Scan(&one))
			require.NoError(t, stmt.Close())
			require.LessOrEqual(t, s.Ledger().Snapshot().Prepared, 2)
		}
		require.NoError(t, cn.PingContext(t.Context()))
		require.NoError(t, cn.Close())
		require.NoError(t, db.PingContext(t.Context()))
		require.Zero(t, s.Ledger().Snapshot().Prepared)
		require.NoError(t, db.Close())
		require.NoError(t, p.Close(context.Background()))
	})
}

// A server that may leave a transaction by itself tells so in its answer to the
// rollback. Without one, what was changed may be stored; a server that refuses unknown
// transactions has undone it with the session.
func TestARollbackWithoutAnAnswerSaysWhatMayBeStored(t *testing.T) {
	for _, tc := range []struct {
		profile testserver.Profile
		changes string
		told    bool
	}{
		{testserver.SwanLake(), "INSERT INTO memory.t VALUES (1)", true},
		{testserver.SwanLake(), "SELECT 1", false},
		{testserver.Strict(), "INSERT INTO memory.t VALUES (1)", false},
	} {
		for _, when := range []string{"before it", "during it"} {
			synctest.Test(t, func(t *testing.T) {
				s, err := testserver.Start(testserver.Options{Profile: tc.profile, Listen: testserver.InMemory})
				require.NoError(t, err)
				defer func() { require.NoError(t, s.Close()) }()
				p, err := flightpool.New(t.Context(), "grpc://127.0.0.1:1", flightpool.Config{MaxSize: 1, MinIdle: -1, Dialer: s.Dial})
				require.NoError(t, err)
				db := OpenDB(p)
				_, err = db.ExecContext(t.Context(), "CREATE TABLE memory.t (v BIGINT)")
				require.NoError(t, err)
				tx, err := db.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				_, err = tx.ExecContext(t.Context(), tc.changes)
				require.NoError(t, err)
				if when == "before it" {
					s.Faults().KillConns()
					synctest.Wait()
				} else {
					s.Faults().Set(testserver.Fault{On: "EndTransaction", Times: 1, Do: testserver.Kill()})
				}
				err = tx.Rollback()
				require.Equal(t, tc.told, err != nil, "%s, %s, %s: %v", tc.profile.Name, tc.changes, when, err)
				require.NoError(t, db.Close())
				require.NoError(t, p.Close(context.Background()))
			})
		}
	}
}

// The rollback of a transaction whose context has ended runs on a goroutine of the driver's,
// on which a panic of the owner's interceptor would end the process.
func TestAPanicInARollbackBehindItsCallerCostsItsConnectionAlone(t *testing.T) {
	for name, ends := range map[string]func(){"panic": func() { panic("interceptor") }, "Goexit": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			s, err := testserver.Start(testserver.Options{Profile: testserver.Strict(), Listen: testserver.InMemory})
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			var armed atomic.Bool
			interceptor := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				if armed.CompareAndSwap(true, false) {
					ends()
				}
				return next(ctx, desc, cc, method, opts...)
			}
			p, err := flightpool.New(t.Context(), "grpc://127.0.0.1:1", flightpool.Config{
				MaxSize: 1, Dialer: s.Dial, DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(interceptor)},
			})
			require.NoError(t, err)
			db := OpenDB(p)
			ctx, cancel := context.WithCancel(t.Context())
			_, err = db.BeginTx(ctx, nil) //nolint:sqlclosecheck // by the end of its context
			require.NoError(t, err)
			armed.Store(true)
			cancel()
			synctest.Wait()
			require.False(t, armed.Load(), name)
			require.NoError(t, db.PingContext(t.Context()), name)
			require.NoError(t, db.Close())
			require.NoError(t, p.Close(context.Background()))
		})
	}
}
