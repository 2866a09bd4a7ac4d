package ormtest

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/dsql"
)

// stdDBTX and pgxDBTX are the interfaces that sqlc writes for database/sql, and for
// pgx/v5 with batches and copies.
type (
	stdDBTX interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}
	pgxDBTX interface {
		Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
		Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
		QueryRow(ctx context.Context, query string, args ...any) pgx.Row
		CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error)
		SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	}
)

var (
	_ pgxDBTX = (*dsql.Pool)(nil)
	_ pgxDBTX = (*dsql.Conn)(nil)
	_ pgxDBTX = (pgx.Tx)(nil)
	_ stdDBTX = (*sql.DB)(nil)
)

// Queries that sqlc writes run on the pool and in a transaction; the example in
// examples/dsql has a whole package of them.
func TestSqlc(t *testing.T) {
	const table = "sqlc_accounts"
	w := newWorld(t, table)
	pool, err := w.cluster.NewPool(dsql.View{})
	require.NoError(t, err)
	onPgx := func(db pgxDBTX) error {
		n, err := db.CopyFrom(w.ctx, pgx.Identifier{table}, []string{"owner", "amount"}, pgx.CopyFromRows([][]any{{"ann", 1}, {"bob", 2}}))
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
		b := &pgx.Batch{}
		b.Queue("update "+table+" set amount = amount + $1 where owner = $2", 10, "ann")
		return db.SendBatch(w.ctx, b).Close()
	}
	onStd := func(db stdDBTX) error {
		stmt, err := db.PrepareContext(w.ctx, "insert into "+table+" (owner, amount) values ($1, $2)")
		require.NoError(t, err)
		defer func() { require.NoError(t, stmt.Close()) }()
		_, err = stmt.ExecContext(w.ctx, "cas", 5)
		return err
	}
	require.NoError(t, onPgx(pool))
	require.Equal(t, 13, w.sum(t, table))
	w.gate.FailCommits(1, "OC000")
	require.NoError(t, pool.InTx(w.ctx, func(tx pgx.Tx) error { return onPgx(tx) }))
	require.Equal(t, 13+23, w.sum(t, table), "both anns were changed")
	require.NoError(t, onStd(w.db))
	w.gate.FailCommits(1, "OC000")
	require.NoError(t, dsql.InTx(w.ctx, w.db, nil, func(tx *sql.Tx) error { return onStd(tx) }))
	require.Equal(t, 46, w.sum(t, table))
}
