// Package accounts is what sqlc writes for pgx/v5 from a few queries: it knows
// nothing of the pool, only DBTX, which *dsql.Pool, *dsql.Conn and pgx.Tx all are.
package accounts

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DBTX is what queries run on.
type DBTX interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	Query(context.Context, string, ...any) (pgx.Rows, error)
	QueryRow(context.Context, string, ...any) pgx.Row
	CopyFrom(ctx context.Context, tableName pgx.Identifier, columnNames []string, rowSrc pgx.CopyFromSource) (int64, error)
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}

// New makes queries that run on db.
func New(db DBTX) *Queries { return &Queries{db: db} }

// Queries run on what New was given.
type Queries struct{ db DBTX }

// WithTx makes the same queries run in a transaction.
func (q *Queries) WithTx(tx pgx.Tx) *Queries { return &Queries{db: tx} }
