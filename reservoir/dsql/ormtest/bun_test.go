package ormtest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/flightpool/flightpool/reservoir/dsql"
)

type bunAccount struct {
	bun.BaseModel `bun:"table:bun_accounts"`
	ID            string `bun:"type:uuid,pk,default:gen_random_uuid()"` // no sequences
	Owner         string
	Amount        int
	Tags          []string `bun:",array"`
}

func TestBun(t *testing.T) {
	w := newWorld(t, "")
	db := bun.NewDB(w.db, pgdialect.New())
	_, err := db.NewDropTable().Model((*bunAccount)(nil)).IfExists().Exec(w.ctx)
	require.NoError(t, err)
	_, err = db.NewCreateTable().Model((*bunAccount)(nil)).Exec(w.ctx)
	require.NoError(t, err)
	rows := []bunAccount{{Owner: "ann", Amount: 100, Tags: []string{"a", "b"}}, {Owner: "bob"}}
	_, err = db.NewInsert().Model(&rows).Exec(w.ctx)
	require.NoError(t, err)
	require.Len(t, rows[0].ID, 36, "by RETURNING")
	var ann bunAccount
	require.NoError(t, db.NewSelect().Model(&ann).Where("owner = ?", "ann").Scan(w.ctx))
	require.Equal(t, []string{"a", "b"}, ann.Tags)

	w.gate.FailCommits(1, "OC001")
	runs := 0
	require.NoError(t, dsql.RetryOCC(w.ctx, func(ctx context.Context) error {
		return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			runs++
			_, err := tx.NewUpdate().Model((*bunAccount)(nil)).Set("amount = amount + 1").Where("TRUE").Exec(ctx)
			return err
		})
	}))
	require.Equal(t, 2, runs)
	require.Equal(t, 102, w.sum(t, "bun_accounts"))
	err = db.RunInTx(w.ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.BeginTx(ctx, nil) // a savepoint
		return err
	})
	require.ErrorContains(t, err, "not supported", "DSQL has no savepoints")
	w.timesOut(t, func(ctx context.Context) error { _, err := db.NewRaw("select pg_sleep(20)").Exec(ctx); return err })
}
