package sqldriver

import (
	"context"
	"database/sql"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// database/sql asks for one connection more than it has callers, where two come back at once while one
// waits, and keeps it as an idle one, of which it does not ask whether it is valid.
func TestDatabaseSQLKeepsNoSessionThatItHasOpenedForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, db, _ := dbOver(t, flightpool.Config{MaxSize: 2})
		db.SetMaxOpenConns(2)
		first, second := connOf(t, db), connOf(t, db)
		third := make(chan *sql.Conn, 1)
		go func() {
			c, err := db.Conn(t.Context())
			if err != nil {
				t.Error(err)
			}
			third <- c
		}()
		synctest.Wait() // it waits in database/sql
		direct := make(chan *flightpool.SessionHandle, 2)
		for range 2 {
			go func() {
				h, err := p.AcquireSession(t.Context())
				if err != nil {
					t.Error(err)
				}
				direct <- h
			}()
		}
		synctest.Wait() // they wait in the pool
		require.NoError(t, first.Close())
		require.NoError(t, second.Close())
		synctest.Wait() // database/sql opens two connections for the one who waits
		require.NoError(t, (<-direct).Close())
		require.NoError(t, (<-direct).Close())
		require.NoError(t, (<-third).Close())
		synctest.Wait()
		require.Equal(t, 1, db.Stats().OpenConnections, "the test has not brought it about")
		time.Sleep(unusedFor)
		synctest.Wait()
		require.Zero(t, p.Stats().OnLoan, "nobody uses the DB")
		_, err := db.ExecContext(t.Context(), "SELECT 1") // it takes another
		require.NoError(t, err)
		require.Zero(t, p.Stats().OnLoan)
		require.Zero(t, db.Stats().OpenConnections)
	})
}

// Nor one for a caller who has left.
func TestDatabaseSQLKeepsNoSessionForWhomHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, db, _ := dbOver(t, flightpool.Config{MaxSize: 1})
		db.SetMaxOpenConns(1)
		first := connOf(t, db)
		waiting, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { _, err := db.Conn(waiting); left <- err }()
		synctest.Wait()
		direct := make(chan *flightpool.SessionHandle, 1)
		go func() {
			h, err := p.AcquireSession(t.Context())
			if err != nil {
				t.Error(err)
			}
			direct <- h
		}()
		synctest.Wait()
		require.NoError(t, first.Close())
		h := <-direct
		synctest.Wait() // database/sql waits in the pool
		leave()
		require.Error(t, <-left)
		require.NoError(t, h.Close())
		synctest.Wait()
		require.Equal(t, 1, db.Stats().OpenConnections, "the test has not brought it about")
		h, err := p.AcquireSession(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Close())
	})
}

// A connection whose session went back takes another at its first call, and waits for one as any call does.
func TestTheFirstCallOfAConnTakesASession(t *testing.T) {
	calls := map[string]func(ctx context.Context, c *sql.Conn) error{
		"Exec": func(ctx context.Context, c *sql.Conn) error { _, err := c.ExecContext(ctx, "SELECT 1"); return err },
		"Query": func(ctx context.Context, c *sql.Conn) error {
			var n int
			return c.QueryRowContext(ctx, "SELECT 1").Scan(&n)
		},
		"Prepare": func(ctx context.Context, c *sql.Conn) error {
			s, err := c.PrepareContext(ctx, "SELECT 1")
			if err != nil {
				return err
			}
			return s.Close()
		},
		"Ping": func(ctx context.Context, c *sql.Conn) error { return c.PingContext(ctx) },
		"Begin": func(ctx context.Context, c *sql.Conn) error {
			tx, err := c.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			return tx.Commit()
		},
	}
	for name, call := range calls {
		synctest.Test(t, func(t *testing.T) {
			p, db, _ := dbOver(t, flightpool.Config{MaxSize: 1, AcquireTimeout: 3 * time.Second})
			c := connOf(t, db)
			time.Sleep(unusedFor)
			synctest.Wait()
			require.Zero(t, p.Stats().OnLoan, name)
			h, err := p.AcquireSession(t.Context())
			require.NoError(t, err, name)
			start := time.Now()
			require.ErrorIs(t, call(t.Context(), c), flightpool.ErrExhausted, name)
			require.Equal(t, 3*time.Second, time.Since(start), name)
			require.NoError(t, h.Close(), name)
			require.NoError(t, call(t.Context(), c), name)
			require.Equal(t, 1, p.Stats().OnLoan, name)
			time.Sleep(time.Hour)
			require.Equal(t, 1, p.Stats().OnLoan, "%s: a session that was used is its user's", name)
			require.NoError(t, c.Close(), name)
			require.Zero(t, p.Stats().OnLoan, name)
		})
	}
}

// Where there is no place for it, database/sql closes what it has opened for nobody with its lock held.
func TestTheCloseOfAConnThatNobodyHasUsedDoesNotWaitForTheServer(t *testing.T) {
	for name, after := range map[string]time.Duration{"at once": 0, "while its session goes back": unusedFor, "without a session": time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			p, _, s := dbOver(t, flightpool.Config{MaxSize: 1, OnReturn: flightpool.ResetSQL("SELECT 1")})
			c, err := NewConnector(p).Connect(context.Background())
			require.NoError(t, err)
			s.Faults().FreezeConns()
			time.Sleep(after)
			start := time.Now()
			require.NoError(t, c.Close())
			require.Zero(t, time.Since(start), name)
			time.Sleep(time.Minute) // CloseTimeout, and more
			require.Zero(t, p.Stats().OnLoan, name)
		})
	}
}

// dbOver is a pool over a server, as database/sql sees it.
func dbOver(t *testing.T, cfg flightpool.Config) (*flightpool.FlightSQLPool, *sql.DB, *testserver.Server) {
	t.Helper()
	s, err := testserver.Start(testserver.Options{Profile: testserver.Strict(), Listen: testserver.InMemory})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	cfg.Dialer = s.Dial
	p, err := flightpool.New(t.Context(), "grpc://127.0.0.1:1", cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		require.NoError(t, p.Close(ctx))
	})
	db := OpenDB(p)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return p, db, s
}

func connOf(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	c, err := db.Conn(t.Context())
	require.NoError(t, err)
	return c
}
