package flightpool

import (
	"context"
	"database/sql"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// What a newcomer gets wrong is an error that says what to do, or does no harm.
func TestSlipsOfANewcomerAreNamed(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		ctx := r.Context()
		rows, err := r.pool.Query(ctx, "SELECT * FROM missing")
		rows.Release() // deferred before err is looked at
		require.NoError(r, rows.Close())
		require.ErrorContains(r, err, "missing")

		require.NoError(r, r.pool.SendBatch(ctx, nil))
		s := r.session()
		require.NoError(r, s.SendBatch(ctx, nil))
		require.NoError(r, s.Close())

		_, err = IngestRows[struct{ N int64 }](ctx, r.pool, "t", nil, IngestOptions{})
		require.EqualError(r, err, "IngestRows: argument: rows are nil")

		var n int64
		for want, failed := range map[string]error{
			"Scan was given 1 destination for 2 columns of the result":                                               r.pool.QueryRow(ctx, "SELECT 1, 2").Scan(&n),
			"Scan was given 2 destinations for 1 column of the result":                                               r.pool.QueryRow(ctx, "SELECT 1").Scan(&n, &n),
			"Scan was given 1 destination for 2 columns of the result: a row is read into a struct by CollectOneRow": r.pool.QueryRow(ctx, "SELECT 1, 2").Scan(&struct{ A, B int }{}),
			"destination 1 is of type int64: give a pointer that is not nil":                                         r.pool.QueryRow(ctx, "SELECT 1").Scan(n),
		} {
			require.EqualError(r, failed, want)
		}
		err = r.pool.QueryRow(ctx, "SELECT ?", map[string]any{"id": 7}).Scan(&n)
		require.ErrorContains(r, err, "parameter 1: a value of type map[string]interface {} cannot be sent: a named parameter is a sql.Named(name, value)")

		tx, err := r.pool.BeginTx(ctx, TxOptions{})
		require.NoError(r, err)
		require.NoError(r, tx.Rollback(ctx))
		err = tx.Commit(ctx)
		require.ErrorIs(r, err, ErrHandleClosed)
		require.ErrorContains(r, err, "the session, transaction or result has been closed")
	})
}

// The name of the package beneath is in no error of a pool's user.
func TestErrorsOfAPoolSpeakOfConnections(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{}, func(r *rig) {
		_, err := New(r.Context(), r.srv.URI(), Config{MinIdle: 5, MaxSize: 2})
		require.EqualError(r, err, "New: argument: MinIdle: 5 is more than MaxSize 2")
		_, err = New(r.Context(), r.srv.URI(), Config{Dialer: r.srv.Dial, OnConnect: func(context.Context, *SessionHandle) error { panic("oops") }})
		require.ErrorContains(r, err, "a callback panicked: oops")
		require.NotContains(r, err.Error(), "reservoir")
	})
}

// Structs that pgx and sqlx read have the tag db. It counts where there is no tag arrow.
func TestStructsWithTheTagDBAreRead(t *testing.T) {
	type row struct {
		Identifier int64            `db:"id"`
		Label      sql.Null[string] `db:"name,omitempty"`
		Renamed    int64            `arrow:"rank" db:"other"`
		Skipped    chan int         `db:"-"`
	}
	inBubble(t, testserver.Strict(), Config{}, func(r *rig) {
		ctx := context.WithoutCancel(r.Context())
		want := []row{{Identifier: 7, Renamed: 1}, {Identifier: 8, Label: sql.Null[string]{V: "b", Valid: true}, Renamed: 2}}
		n, err := IngestRows(ctx, r.pool, "tagged", slices.Values(want), IngestOptions{})
		require.NoError(r, err)
		require.EqualValues(r, 2, n)
		got, err := CollectRows[row](r.pool.Query(ctx, "SELECT * FROM tagged"))
		require.NoError(r, err)
		require.Equal(r, want, got)
		maps, err := CollectRows[map[string]any](r.pool.Query(ctx, "SELECT * FROM tagged WHERE id = 7"))
		require.NoError(r, err)
		require.Equal(r, []map[string]any{{"id": int64(7), "name": nil, "rank": int64(1)}}, maps)
	})
}
