package dsql_test

import (
	"context"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/dsql"
)

// A bomb is a value of the user's that panics.
type bomb struct{}

func (bomb) Value() (driver.Value, error) { panic("the user's") }

func (bomb) Scan(any) error { panic("the user's") }

func (bomb) RewriteQuery(context.Context, *pgx.Conn, string, []any) (string, []any, error) {
	panic("the user's")
}

// A panic in a value of the user's, or in a function of a batch, reaches the caller
// and costs no place in the pool.
func TestPanicsInValuesOfTheUsersLoseNothing(t *testing.T) {
	batch := func(ctx context.Context, p *dsql.Pool, fill func(*pgx.Batch)) {
		b := &pgx.Batch{}
		fill(b)
		_ = p.SendBatch(ctx, b).Close()
	}
	for name, use := range map[string]func(context.Context, *dsql.Pool){
		"Exec":  func(ctx context.Context, p *dsql.Pool) { _, _ = p.Exec(ctx, "select $1::text", bomb{}) },
		"Query": func(ctx context.Context, p *dsql.Pool) { _, _ = p.Query(ctx, "select $1::text", bomb{}) },
		"QueryRow": func(ctx context.Context, p *dsql.Pool) {
			_ = p.QueryRow(ctx, "select $1::text", bomb{}).Scan(new(string))
		},
		"rewriter": func(ctx context.Context, p *dsql.Pool) { _, _ = p.Query(ctx, "select 1", pgx.QueryRewriter(bomb{})) },
		"batch": func(ctx context.Context, p *dsql.Pool) {
			batch(ctx, p, func(b *pgx.Batch) { b.Queue("select $1::text", bomb{}) })
		},
		"function of a batch": func(ctx context.Context, p *dsql.Pool) {
			batch(ctx, p, func(b *pgx.Batch) { b.Queue("select 1").QueryRow(func(pgx.Row) error { panic("the user's") }) })
		},
		"Scan of a row": func(ctx context.Context, p *dsql.Pool) { _ = p.QueryRow(ctx, "select 'a'").Scan(&bomb{}) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t, startGate(t, nil), func(c *dsql.Config) { c.MaxOpen = 1 })
			ctx := within(t, 20*time.Second)
			require.NoError(t, p.Ping(ctx))
			require.PanicsWithValue(t, "the user's", func() { use(ctx, p) })
			require.NoError(t, p.Ping(ctx))
		})
	}
}
