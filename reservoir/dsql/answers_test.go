package dsql_test

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/dsql"
	"github.com/flightpool/flightpool/testserver/dsqlgate"
)

// A falseAnswer stands in the place of the answer to what was done.
type falseAnswer struct {
	tag   string // of the answer that it replaces; of a row: "row"
	code  string
	fatal bool // and the session ends
}

// A relay stands between the gateway and PostgreSQL, and replaces an answer.
type relay struct {
	net.Listener
	next atomic.Pointer[falseAnswer]
}

func startRelay(t *testing.T) *relay {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{Listener: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(client)
		}
	}()
	return r
}

func (r *relay) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := new(net.Dialer).Dial("tcp", dsql.Postgres.Addr())
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	head := make([]byte, 5)
	for {
		if _, err := io.ReadFull(server, head); err != nil {
			return
		}
		message := make([]byte, 1+binary.BigEndian.Uint32(head[1:]))
		copy(message, head)
		if _, err := io.ReadFull(server, message[5:]); err != nil {
			return
		}
		a := r.next.Load()
		replaced := a != nil && (head[0] == 'C' && strings.HasPrefix(string(message[5:]), a.tag) || head[0] == 'D' && a.tag == "row") && r.next.CompareAndSwap(a, nil)
		if replaced {
			e := pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: a.code, Message: "of the test"}
			if a.fatal {
				e.Severity, e.SeverityUnlocalized = "FATAL", "FATAL"
			}
			message, _ = e.Encode(nil)
		}
		if _, err := client.Write(message); err != nil || replaced && a.fatal {
			return
		}
	}
}

// Whatever the server answers after it has done what it was told, or with which error
// it ends the session: nothing is done twice, no row less is given without an error,
// and a transaction that was committed is never called refused, but by a code that
// says so.
func TestAnErrorAfterTheEffectIsNeverTakenForNone(t *testing.T) {
	r := startRelay(t)
	g := startGate(t, func(o *dsqlgate.Options) {
		o.Upstream = fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", r.Addr())
	})
	const plain, with = "insert into answers values (1)", "insert into answers values ($1)"
	for mode, exec := range modes {
		c := newCluster(t, g, func(c *dsql.Config) {
			c.MaxSize, c.CheckInterval = 2, -1
			c.Pgx = func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = exec }
		})
		ctx := within(t, 60*time.Second)
		pool, err := c.NewPool(dsql.View{})
		require.NoError(t, err)
		db, err := c.OpenDB(dsql.View{})
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		_, err = pool.Exec(ctx, "create table if not exists answers (n int)")
		require.NoError(t, err)
		inTx := func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, with, 1); return err }
		runs := map[string]struct {
			tag string
			run func() error
		}{
			"exec":     {"INSERT", func() error { _, err := pool.Exec(ctx, plain); return err }},
			"exec arg": {"INSERT", func() error { _, err := pool.Exec(ctx, with, 1); return err }},
			"query":    {"INSERT", func() error { rows, _ := pool.Query(ctx, with+" returning n", 1); return drain(rows) }},
			"queryrow": {"INSERT", func() error { var n int; return pool.QueryRow(ctx, with+" returning n", 1).Scan(&n) }},
			"batch": {"INSERT", func() error {
				return inBatch(ctx, pool, with, 1, func(b pgx.BatchResults) error { _, err := b.Exec(); return err })
			}},
			"copy": {"COPY", func() error {
				_, err := pool.CopyFrom(ctx, pgx.Identifier{"answers"}, []string{"n"}, pgx.CopyFromRows([][]any{{1}}))
				return err
			}},
			"sql exec":  {"INSERT", func() error { _, err := db.ExecContext(ctx, with, 1); return err }},
			"sql query": {"INSERT", func() error { var n int; return db.QueryRowContext(ctx, with+" returning n", 1).Scan(&n) }},
			"commit": {"COMMIT", func() error {
				tx, err := pool.Begin(ctx)
				if err != nil {
					return err
				}
				if err := inTx(ctx, tx); err != nil {
					return err
				}
				return tx.Commit(ctx)
			}},
			"InTx": {"COMMIT", func() error { return pool.InTx(ctx, func(tx pgx.Tx) error { return inTx(ctx, tx) }) }},
			"sql InTx": {"COMMIT", func() error {
				return dsql.InTx(ctx, db, nil, func(tx *sql.Tx) error { _, err := tx.ExecContext(ctx, with, 1); return err })
			}},
		}
		for name, what := range runs {
			for i, code := range uncertain {
				if what.tag != "COMMIT" && (i+len(name))%len(uncertain) != 0 {
					continue // one code will do
				}
				for _, fatal := range []bool{false, true} {
					if fatal && i > 0 && what.tag == "COMMIT" {
						continue
					}
					for _, err := pool.Exec(ctx, "delete from answers"); err != nil; { // on a connection that ends with it
						_, err = pool.Exec(ctx, "delete from answers")
					}
					r.next.Store(&falseAnswer{tag: what.tag, code: code, fatal: fatal})
					err := what.run()
					at := fmt.Sprintf("%s/%s %s fatal %v: %v", mode, name, code, fatal, err)
					assert.Nil(t, r.next.Swap(nil), at)
					assertNotRepeatable(t, err, at)
					stored := count(t, pool, "answers")
					assert.LessOrEqual(t, stored, 1, at)
					if what.tag == "COMMIT" {
						assert.Equal(t, 1, stored, at)
						assert.ErrorIs(t, err, dsql.ErrCommitUnknown, at)
					}
				}
			}
		}
		for name, read := range readers(pool, db) {
			for _, fatal := range []bool{false, true} {
				r.next.Store(&falseAnswer{tag: "row", code: "57P01", fatal: fatal})
				n, err := read(ctx)
				assert.Nil(t, r.next.Swap(nil))
				assertNotRepeatable(t, err, fmt.Sprintf("%s/%s fatal %v: %d rows", mode, name, fatal, n))
			}
		}
	}
}

var uncertain = []string{"53400", "53300", "57014", "57P01", "57P05", "08006", "58030", "XX000", "40003"}

// assertNotRepeatable asserts an error after which nothing is done again.
func assertNotRepeatable(t *testing.T, err error, at string) {
	t.Helper()
	assert.Error(t, err, at)
	assert.NotErrorIs(t, err, driver.ErrBadConn, at)
	assert.False(t, pgconn.SafeToRetry(err), at)
	assert.False(t, dsql.IsConflict(err), at)
}

// readers read three rows and say how many they got.
func readers(pool *dsql.Pool, db *sql.DB) map[string]func(context.Context) (int, error) {
	const three = "select generate_series(1, 3)"
	each := func(rows pgx.Rows) (n int, err error) {
		for rows.Next() {
			n++
		}
		return n, rows.Err()
	}
	return map[string]func(context.Context) (int, error){
		"pgx": func(ctx context.Context) (int, error) {
			rows, _ := pool.Query(ctx, three) // the rows have its error too
			return each(rows)
		},
		"batch": func(ctx context.Context) (int, error) {
			b := &pgx.Batch{}
			b.Queue(three)
			results := pool.SendBatch(ctx, b)
			rows, _ := results.Query() // as above
			n, err := each(rows)
			return n, cmp.Or(err, results.Close())
		},
		"sql": func(ctx context.Context) (n int, err error) {
			rows, err := db.QueryContext(ctx, three)
			if err != nil {
				return 0, err
			}
			defer func() { err = cmp.Or(err, rows.Close()) }()
			for rows.Next() {
				n++
			}
			return n, rows.Err()
		},
	}
}
