package dsql

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// tx is a transaction that knows when its commit's outcome is not known, and
// releases its connection when it ends, if it has one to release.
type tx struct {
	pgx.Tx
	conn *Conn
}

func (t *tx) release() {
	if t.conn != nil {
		t.conn.Release()
	}
}

func (t *tx) Commit(ctx context.Context) error {
	defer t.release()
	return commit(t.Conn(), ctx.Err() != nil, func() error { return t.Tx.Commit(ctx) })
}

func (t *tx) Rollback(ctx context.Context) error {
	defer t.release()
	return t.Tx.Rollback(ctx)
}
