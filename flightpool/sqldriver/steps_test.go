package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// ender ends a context at an RPC: as it comes, or when the server has handled it.
type ender struct {
	mu    sync.Mutex
	end   context.CancelFunc // nil: not armed
	at, n int
	after bool
}

// hit counts an RPC, and does what is to be done at it.
func (e *ender) hit() (behind func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.end == nil {
		return func() {}
	}
	if e.n++; e.n != e.at+1 {
		return func() {}
	}
	if e.after {
		return e.end
	}
	e.end()
	return func() {}
}

func (e *ender) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			defer e.hit()()
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			defer e.hit()()
			return handle(srv, stream)
		}),
	}
}

// told is what database/sql has said of rows that are stored together, or not at all.
type told struct {
	rows []int
	err  error
	tx   bool
}

// usage is what an application does with one context.
type usage func(ctx context.Context, db *sql.DB, table string) told

func insertOf(table string, row int) string {
	return fmt.Sprintf("INSERT INTO %s VALUES (%d)", table, row)
}

// commit does what f does in a transaction, and commits it.
func commit(ctx context.Context, db *sql.DB, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

var usages = map[string]usage{
	"exec": func(ctx context.Context, db *sql.DB, table string) told {
		_, err := db.ExecContext(ctx, insertOf(table, 1))
		return told{[]int{1}, err, false}
	},
	"arguments": func(ctx context.Context, db *sql.DB, table string) told {
		_, err := db.ExecContext(ctx, "INSERT INTO "+table+" VALUES (?)", 1)
		return told{[]int{1}, err, false}
	},
	"statement": func(ctx context.Context, db *sql.DB, table string) told {
		stmt, err := db.PrepareContext(ctx, insertOf(table, 1))
		if err == nil {
			_, err = stmt.ExecContext(ctx)
			_ = stmt.Close()
		}
		return told{[]int{1}, err, false}
	},
	"returning": func(ctx context.Context, db *sql.DB, table string) told {
		var k int
		err := db.QueryRowContext(ctx, insertOf(table, 1)+" RETURNING k").Scan(&k)
		return told{[]int{1}, err, false}
	},
	"transaction": func(ctx context.Context, db *sql.DB, table string) told {
		return told{[]int{1, 2}, commit(ctx, db, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, insertOf(table, 1)); err != nil {
				return err
			}
			_, err := tx.Exec(insertOf(table, 2))
			return err
		}), true}
	},
	"transaction with rows left open": func(ctx context.Context, db *sql.DB, table string) told {
		return told{[]int{1, 2}, commit(ctx, db, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, insertOf(table, 1)); err != nil {
				return err
			}
			rows, err := tx.QueryContext(ctx, "SELECT * FROM generate(1000, 10)") //nolint:sqlclosecheck // that is the test
			if err != nil {
				return err
			}
			rows.Next()
			if err := rows.Err(); err != nil {
				return err
			}
			_ = rows.Close()
			_, err = tx.ExecContext(ctx, insertOf(table, 2))
			if err != nil {
				return err
			}
			_, err = tx.QueryContext(ctx, "SELECT * FROM generate(1000, 10)") //nolint:sqlclosecheck,rowserrcheck // likewise
			return err
		}), true}
	},
	"statements of a transaction": func(ctx context.Context, db *sql.DB, table string) told {
		outside, err := db.PrepareContext(ctx, insertOf(table, 1))
		if err != nil {
			return told{[]int{1, 2}, err, true}
		}
		defer func() { _ = outside.Close() }()
		return told{[]int{1, 2}, commit(ctx, db, func(tx *sql.Tx) error {
			if _, err := tx.StmtContext(ctx, outside).ExecContext(ctx); err != nil {
				return err
			}
			inside, err := tx.PrepareContext(ctx, insertOf(table, 2))
			if err != nil {
				return err
			}
			_, err = inside.ExecContext(ctx)
			return err
		}), true}
	},
	"connection": func(ctx context.Context, db *sql.DB, table string) told {
		cn, err := db.Conn(ctx)
		if err != nil {
			return told{[]int{1}, err, false}
		}
		defer func() { _ = cn.Close() }()
		if _, err = cn.ExecContext(ctx, "SET colour = 'red'"); err == nil {
			_, err = cn.ExecContext(ctx, insertOf(table, 1))
		}
		return told{[]int{1}, err, false}
	},
	"connection whose Raw panics": func(ctx context.Context, db *sql.DB, table string) told {
		cn, err := db.Conn(ctx)
		if err != nil {
			return told{[]int{1}, err, false}
		}
		defer func() { _ = cn.Close() }()
		_, err = cn.ExecContext(ctx, insertOf(table, 1))
		func() {
			defer func() { _ = recover() }()
			_ = cn.Raw(func(any) error { panic("the program's") })
		}()
		return told{[]int{1}, err, false}
	},
	"rollback": func(ctx context.Context, db *sql.DB, table string) told {
		tx, err := db.BeginTx(ctx, nil)
		if err == nil {
			_, _ = tx.ExecContext(ctx, insertOf(table, 1))
			_ = tx.Rollback()
		}
		return told{[]int{1}, errors.New("rolled back"), true}
	},
}

// Whenever the context of what an application does ends: what it was told of its rows is so,
// nothing has run twice, and nothing is left of it.
func TestWhereverAContextEndsWhatWasToldIsSo(t *testing.T) {
	inParts := testserver.Strict()
	inParts.Name, inParts.Endpoints, inParts.Run = "in parts", 3, testserver.RunInInfo
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake(), inParts} {
		for name, use := range usages {
			for _, after := range []bool{false, true} {
				for at, more := 0, true; more; at++ {
					say := fmt.Sprintf("%s on %s, its context ended at RPC %d, after it: %v", name, profile.Name, at, after)
					synctest.Test(t, func(t *testing.T) { more = endAt(t, profile, use, at, after, say) })
				}
			}
		}
	}
}

// endAt reports whether there was such an RPC.
func endAt(t *testing.T, profile testserver.Profile, use usage, at int, after bool, say string) bool {
	e := &ender{at: at, after: after}
	s, err := testserver.Start(testserver.Options{Profile: profile, Listen: testserver.InMemory, GRPC: e.options()})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	p, err := flightpool.New(t.Context(), "grpc://127.0.0.1:1", flightpool.Config{MaxSize: 2, Dialer: s.Dial})
	require.NoError(t, err)
	db := OpenDB(p)
	const table = "memory.t"
	_, err = db.ExecContext(t.Context(), "CREATE TABLE "+table+" (k BIGINT)")
	require.NoError(t, err)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	e.mu.Lock()
	e.end = end
	e.mu.Unlock()
	began := time.Now()
	said := use(ctx, db, table)
	require.LessOrEqual(t, time.Since(began), 50*time.Millisecond, say)
	e.mu.Lock()
	e.end = nil
	more := e.n > at
	e.mu.Unlock()
	time.Sleep(70 * time.Second) // what goes on behind it
	require.Zero(t, db.Stats().InUse, "db: %s", say)
	require.Zero(t, p.Stats().OnLoan, "%s: %+v %s", say, p.Stats(), s.Ledger().Snapshot())
	var stored int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&stored))
	say = fmt.Sprintf("%s: told %v", say, said.err)
	switch {
	case said.err == nil:
		require.Equal(t, len(said.rows), stored, say)
	case said.tx && !errors.Is(said.err, flightpool.ErrCommitUnknown), flightpool.SafeToRetry(said.err):
		require.Zero(t, stored, say)
	default:
		require.Contains(t, []int{0, len(said.rows)}, stored, say)
	}
	for _, row := range said.rows {
		require.LessOrEqual(t, len(s.Ledger().Executions(insertOf(table, row))), 1, say)
	}
	synctest.Wait()              // a connection that is being opened may ask how the server treats transactions
	if profile.SessionTTL == 0 { // else what a cut call of the pool's own has begun ends with its session
		require.Zero(t, s.Ledger().Snapshot().Transactions, "%s: %s", say, s.Ledger().Snapshot())
	}
	require.NoError(t, db.Close())
	require.NoError(t, p.Close(context.WithoutCancel(t.Context())))
	gone, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	require.NoError(t, s.Ledger().Wait(gone, func(s testserver.Snapshot) bool {
		return s.Conns == 0 && s.Sessions == 0 && s.Transactions == 0 && s.Prepared == 0 && s.Running == 0
	}), "%s: %s", say, s.Ledger().Snapshot())
	return more
}
