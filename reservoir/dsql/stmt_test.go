package dsql_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/dsql"
)

// prepares counts statements that are sent to be prepared.
type prepares struct{ n atomic.Int64 }

func (p *prepares) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	return ctx
}

func (p *prepares) TracePrepareEnd(_ context.Context, _ *pgx.Conn, data pgx.TracePrepareEndData) {
	if !data.AlreadyPrepared {
		p.n.Add(1)
	}
}

func (p *prepares) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (p *prepares) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestAPreparedStatementStaysPreparedUntilItFails(t *testing.T) {
	var sent prepares
	db := openDB(t, startGate(t, nil), func(c *dsql.Config) {
		c.MaxSize, c.Pgx = 1, func(c *pgx.ConnConfig) { c.Tracer = &sent }
	})
	ctx := within(t, 20*time.Second)
	for _, s := range []string{"drop table if exists kept", "create table kept (n int)", "insert into kept values (1)"} {
		_, err := db.ExecContext(ctx, s)
		require.NoError(t, err)
	}
	stmt, err := db.PrepareContext(ctx, "select * from kept where n = $1")
	require.NoError(t, err)
	use := func() error {
		rows, err := stmt.QueryContext(ctx, 1)
		if err != nil {
			return err
		}
		defer func() { require.NoError(t, rows.Close()) }()
		require.True(t, rows.Next())
		return rows.Err()
	}
	for range 5 {
		require.NoError(t, use())
	}
	require.EqualValues(t, 1, sent.n.Load(), "each use borrows anew, and finds it prepared")
	_, err = db.ExecContext(ctx, "alter table kept add column m int")
	require.NoError(t, err)
	require.ErrorContains(t, use(), "cached plan must not change result type")
	require.NoError(t, use(), "it is prepared anew after an error")
	require.EqualValues(t, 2, sent.n.Load())
	require.NoError(t, stmt.Close())
	held := func() (n int) {
		require.NoError(t, db.QueryRowContext(ctx, "select count(*) from pg_prepared_statements").Scan(&n))
		return n
	}
	require.Less(t, held(), 5)
	for i := range 300 {
		stmt, err := db.PrepareContext(ctx, fmt.Sprintf("select %d", i))
		require.NoError(t, err)
		require.NoError(t, stmt.Close())
	}
	require.InDelta(t, 256, held(), 3, "with those that pgx keeps by itself")
}
