package ormtest

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/dsql"
)

type account struct {
	Owner  string `db:"owner"`
	Amount int    `db:"amount"`
}

func TestSqlx(t *testing.T) {
	const table = "sqlx_accounts"
	w := newWorld(t, table)
	db := sqlx.NewDb(w.db, "pgx") // the name chooses $1
	_, err := db.NamedExecContext(w.ctx, "insert into "+table+" (owner, amount) values (:owner, :amount)", []account{{"ann", 100}, {"bob", 0}})
	require.NoError(t, err)
	var all []account
	require.NoError(t, db.SelectContext(w.ctx, &all, "select owner, amount from "+table+" order by owner"))
	require.Equal(t, []account{{"ann", 100}, {"bob", 0}}, all)
	query, args, err := sqlx.In("select owner, amount from "+table+" where owner in (?)", []string{"ann"})
	require.NoError(t, err)
	var one account
	require.NoError(t, db.GetContext(w.ctx, &one, db.Rebind(query), args...))
	require.Equal(t, account{"ann", 100}, one)
	named, err := db.PrepareNamedContext(w.ctx, "select owner, amount from "+table+" where owner = :owner")
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, named.GetContext(w.ctx, &one, account{Owner: "bob"}))
	}
	require.NoError(t, named.Close())

	// sqlx.DB is a SQLBeginner by the sql.DB in it.
	w.gate.FailCommits(1, "OC000")
	runs := 0
	require.NoError(t, dsql.InTx(w.ctx, db, nil, func(tx *sql.Tx) error {
		runs++
		_, err := tx.ExecContext(w.ctx, "update "+table+" set amount = amount + 1")
		return err
	}))
	require.Equal(t, 2, runs)
	require.Equal(t, 102, w.sum(t, table))

	// Its own transactions run again by RetryOCC.
	w.gate.FailCommits(1, "OC000")
	runs = 0
	require.NoError(t, dsql.RetryOCC(w.ctx, func(ctx context.Context) error {
		runs++
		tx, err := db.BeginTxx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // after Commit there is nothing to roll back
		if _, err := tx.NamedExecContext(ctx, "update "+table+" set amount = amount + :amount", account{Amount: 1}); err != nil {
			return err
		}
		return tx.Commit()
	}))
	require.Equal(t, 2, runs)
	require.Equal(t, 104, w.sum(t, table))
	w.timesOut(t, func(ctx context.Context) error { _, err := db.ExecContext(ctx, "select pg_sleep(20)"); return err })
}
