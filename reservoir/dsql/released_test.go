package dsql_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/dsql"
)

// cleared makes a table and returns a context.
func cleared(t *testing.T, p *dsql.Pool, table string) context.Context {
	t.Helper()
	ctx := within(t, 60*time.Second)
	for _, s := range []string{"drop table if exists " + table, "create table " + table + " (n int)"} {
		_, err := p.Exec(ctx, s)
		require.NoError(t, err)
	}
	return ctx
}

// A connection that was given back is the next borrower's, and so is its
// transaction.
func TestNothingIsDoneOnAConnectionAfterItsRelease(t *testing.T) {
	p := newPool(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize = 1 })
	ctx := cleared(t, p, "released")
	const insert = "insert into released values (1)"
	batch := &pgx.Batch{}
	batch.Queue(insert)
	for how, end := range map[string]func(*dsql.Conn){"Release": (*dsql.Conn).Release, "Discard": func(c *dsql.Conn) { c.Discard(context.Canceled) }} {
		t.Run(how, func(t *testing.T) {
			before, err := p.Acquire(ctx)
			require.NoError(t, err)
			old, err := before.Begin(ctx)
			require.NoError(t, err)
			end(before)
			tx, err := p.Begin(ctx)
			require.NoError(t, err)
			_, err = tx.Exec(ctx, insert)
			require.NoError(t, err)

			_, err = before.Exec(ctx, insert)
			require.ErrorIs(t, err, dsql.ErrReleased)
			_, err = before.Query(ctx, insert)
			require.ErrorIs(t, err, dsql.ErrReleased)
			require.ErrorIs(t, before.QueryRow(ctx, insert).Scan(), dsql.ErrReleased)
			require.ErrorIs(t, before.SendBatch(ctx, batch).Close(), dsql.ErrReleased)
			_, err = before.CopyFrom(ctx, pgx.Identifier{"released"}, []string{"n"}, pgx.CopyFromRows([][]any{{1}}))
			require.ErrorIs(t, err, dsql.ErrReleased)
			_, err = before.Begin(ctx)
			require.ErrorIs(t, err, dsql.ErrReleased)
			require.ErrorIs(t, before.Ping(ctx), dsql.ErrReleased)

			_, err = old.Exec(ctx, insert)
			require.ErrorIs(t, err, pgx.ErrTxClosed)
			_, err = old.Query(ctx, insert)
			require.ErrorIs(t, err, pgx.ErrTxClosed)
			require.ErrorIs(t, old.QueryRow(ctx, insert).Scan(), pgx.ErrTxClosed)
			require.ErrorIs(t, old.SendBatch(ctx, batch).Close(), pgx.ErrTxClosed)
			_, err = old.CopyFrom(ctx, pgx.Identifier{"released"}, []string{"n"}, pgx.CopyFromRows([][]any{{1}}))
			require.ErrorIs(t, err, pgx.ErrTxClosed)
			_, err = old.Begin(ctx)
			require.ErrorIs(t, err, pgx.ErrTxClosed)
			_, err = old.Prepare(ctx, "late", insert)
			require.ErrorIs(t, err, pgx.ErrTxClosed)
			require.ErrorIs(t, old.Commit(ctx), pgx.ErrTxClosed)
			require.ErrorIs(t, old.Rollback(ctx), pgx.ErrTxClosed)

			require.NoError(t, tx.Rollback(ctx))
			require.Zero(t, count(t, p, "released"))
		})
	}
}

// The server would take a second BEGIN for the first, and the COMMIT of the batch
// for that of all.
func TestABatchThatBeginsIsRefusedInATransaction(t *testing.T) {
	p := newPool(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize = 1 })
	ctx := cleared(t, p, "begun")
	for _, commits := range []bool{false, true} {
		tx, err := p.Begin(ctx)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, "insert into begun values (1)")
		require.NoError(t, err)
		b := &pgx.Batch{}
		b.BeginTx(pgx.TxOptions{})
		b.Queue("insert into begun values (2)")
		results := tx.SendBatch(ctx, b)
		require.ErrorContains(t, results.Close(), "within a transaction")
		require.ErrorIs(t, results.Tx().Commit(ctx), pgx.ErrTxClosed)
		require.ErrorIs(t, results.Tx().Rollback(ctx), pgx.ErrTxClosed)
		if commits {
			require.NoError(t, tx.Commit(ctx))
			require.Equal(t, 1, count(t, p, "begun"), "what the transaction itself did")
		} else {
			require.NoError(t, tx.Rollback(ctx))
			require.Zero(t, count(t, p, "begun"))
		}
	}
}

// The server would take a second BEGIN for the first, too.
func TestATransactionWithinATransactionIsRefused(t *testing.T) {
	p := newPool(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize = 1 })
	ctx := cleared(t, p, "nested")
	for name, begin := range map[string]func(*dsql.Conn) error{
		"Begin": func(c *dsql.Conn) error { _, err := c.Begin(ctx); return err },
		"batch": func(c *dsql.Conn) error {
			b := &pgx.Batch{}
			b.BeginTx(pgx.TxOptions{})
			b.Queue("insert into nested values (2)")
			return c.SendBatch(ctx, b).Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, p.AcquireFunc(ctx, func(c *dsql.Conn) error {
				tx, err := c.Begin(ctx)
				require.NoError(t, err)
				_, err = tx.Exec(ctx, "insert into nested values (1)")
				require.NoError(t, err)
				require.ErrorContains(t, begin(c), "within a transaction")
				return tx.Rollback(ctx)
			}))
			require.Zero(t, count(t, p, "nested"))
		})
	}
}

// pgx does not send a COMMIT while a result is not read to its end.
func TestACommitThatWasNotSentIsNotUnknown(t *testing.T) {
	p := newPool(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize = 1 })
	ctx := cleared(t, p, "unsent")
	err := p.InTx(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into unsent values (1)")
		require.NoError(t, err)
		_, err = tx.Query(ctx, "select 1")
		return err
	})
	require.ErrorContains(t, err, "busy")
	require.NotErrorIs(t, err, dsql.ErrCommitUnknown)
	require.Zero(t, count(t, p, "unsent"))
}

// Rows that ended say what they did, whoever has their connection.
func TestRowsThatEndedAreNotThoseOfTheNextQuery(t *testing.T) {
	p := newPool(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize = 1 })
	ctx := within(t, 20*time.Second)
	rows, err := p.Query(ctx, "select 1 as mine")
	require.NoError(t, err)
	require.Equal(t, "mine", rows.FieldDescriptions()[0].Name)
	for rows.Next() { // to the end
	}
	next, err := p.Query(ctx, "select 1 as others, 2 as too")
	require.NoError(t, err)
	require.True(t, next.Next())
	require.Len(t, rows.FieldDescriptions(), 1)
	require.Equal(t, "mine", rows.FieldDescriptions()[0].Name)
	require.ErrorContains(t, rows.Scan(new(int)), "closed")
	require.NoError(t, rows.Err())
	require.Equal(t, "SELECT 1", rows.CommandTag().String())
	next.Close()
	require.NoError(t, next.Err())
}

// What a batch gave out, and the batch itself, have no part in what is run on their
// connection afterwards: pgx's own would read the next borrower's result.
func TestABatchThatWasClosedIsNotThatOfTheNextQuery(t *testing.T) {
	ctx := within(t, 60*time.Second)
	const five = "select n from generate_series(1, 5) n"
	for mode, exec := range modes {
		for name, use := range map[string]func(*testing.T, pgx.BatchResults) (late func(*testing.T)){
			"rows": func(t *testing.T, r pgx.BatchResults) func(*testing.T) {
				rows, err := r.Query()
				require.NoError(t, err)
				return func(t *testing.T) { require.False(t, rows.Next()); rows.Close() }
			},
			"row": func(_ *testing.T, r pgx.BatchResults) func(*testing.T) {
				row, n := r.QueryRow(), 0
				return func(t *testing.T) { require.ErrorContains(t, row.Scan(&n), "closed"); require.Zero(t, n) }
			},
			"batch": func(_ *testing.T, r pgx.BatchResults) func(*testing.T) {
				return func(t *testing.T) {
					_, err := r.Exec()
					require.ErrorContains(t, err, "closed")
					_, err = r.Query()
					require.ErrorContains(t, err, "closed")
					require.ErrorContains(t, r.QueryRow().Scan(), "closed")
					require.NoError(t, r.Close(), "as before")
				}
			},
		} {
			t.Run(mode+"/"+name, func(t *testing.T) {
				p := newPool(t, startGate(t, nil), func(c *dsql.Config) {
					c.MaxSize = 1
					c.Pgx = func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = exec }
				})
				b := &pgx.Batch{}
				b.Queue(five+" where n > $1", 0)
				results := p.SendBatch(ctx, b)
				late := use(t, results)
				require.NoError(t, results.Close())
				next, err := p.Query(ctx, five)
				require.NoError(t, err)
				defer next.Close()
				require.True(t, next.Next())
				late(t)
				n := 1
				for next.Next() {
					n++
				}
				require.NoError(t, next.Err())
				require.Equal(t, 5, n)
			})
		}
	}
}

// pgx empties the caches of a batch's connection at every Close of one that failed.
func TestABatchThatFailedIsClosedOnce(t *testing.T) {
	p := newPool(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize = 1 })
	ctx := within(t, 20*time.Second)
	const divide = "select 1 / $1::int"
	b := &pgx.Batch{}
	b.Queue(divide, 0)
	results := p.SendBatch(ctx, b)
	failure := results.Close()
	require.ErrorContains(t, failure, "division by zero")
	require.NoError(t, p.AcquireFunc(ctx, func(c *dsql.Conn) error {
		prepared := func() (when string) {
			_, err := c.Exec(ctx, divide, 1)
			require.NoError(t, err)
			require.NoError(t, c.QueryRow(ctx, "select prepare_time::text from pg_prepared_statements where statement = '"+divide+"'").Scan(&when))
			return when
		}
		before := prepared()
		require.Equal(t, failure, results.Close())
		require.Equal(t, before, prepared())
		return nil
	}))
}
