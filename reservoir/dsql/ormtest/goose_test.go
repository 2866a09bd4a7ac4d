package ormtest

import (
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"
)

// DSQL has one DDL statement in a transaction and no DML beside it. So migrations
// with DDL say NO TRANSACTION, and have one statement each if they are to be
// whole or not at all; goose's own table, which it would make and fill in one
// transaction, is there before.
const gooseTable = `create table if not exists goose_db_version (
	id bigint primary key default (extract(epoch from clock_timestamp()) * 1000000)::bigint, -- no sequences
	version_id bigint not null, is_applied boolean not null, tstamp timestamp not null default now())`

func TestGoose(t *testing.T) {
	w := newWorld(t, "")
	for _, s := range []string{"drop table if exists goose_accounts", "drop table if exists goose_db_version"} {
		w.exec(t, s)
	}
	migrations := fstest.MapFS{
		"1_accounts.sql": {Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\ncreate table goose_accounts (owner text primary key, amount int not null);\n-- +goose Down\ndrop table goose_accounts;\n")},
		"2_data.sql":     {Data: []byte("-- +goose Up\ninsert into goose_accounts values ('ann', 100), ('bob', 0);\n-- +goose Down\ndelete from goose_accounts;\n")},
		"3_column.sql":   {Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\nalter table goose_accounts add column note text;\n-- +goose Down\nalter table goose_accounts drop column note;\n")},
	}
	provider := func() *goose.Provider {
		p, err := goose.NewProvider(goose.DialectPostgres, w.db, migrations)
		require.NoError(t, err)
		return p
	}
	_, err := provider().Up(w.ctx)
	require.ErrorContains(t, err, "ddl and dml", "without its table")

	w.exec(t, gooseTable)
	w.exec(t, "insert into goose_db_version (version_id, is_applied) values (0, true)")
	applied, err := provider().Up(w.ctx)
	require.NoError(t, err)
	require.Len(t, applied, 3)
	applied, err = provider().Up(w.ctx)
	require.NoError(t, err)
	require.Empty(t, applied)
	require.Equal(t, 100, w.sum(t, "goose_accounts"))
	w.exec(t, "select note from goose_accounts")
	version, err := provider().GetDBVersion(w.ctx)
	require.NoError(t, err)
	require.EqualValues(t, 3, version)
	down, err := provider().DownTo(w.ctx, 0)
	require.NoError(t, err)
	require.Len(t, down, 3)
}
