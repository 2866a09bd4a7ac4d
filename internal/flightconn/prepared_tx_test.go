package flightconn

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/session"
)

// A server goes by the transaction that a statement was prepared in, as the protocol has it, and knows
// nothing of the one in which its handle is executed.
func TestAPreparedStatementRunsInTheTransactionOfItsHandle(t *testing.T) {
	srv := startSQLite(t)
	conn, err := srv.Open(t.Context())
	require.NoError(t, err)
	s := session.New(conn, &session.Policy{OwnerContext: t.Context()}, func(discard error) { require.NoError(t, discard) })
	ctx := t.Context()
	_, err = s.Update(ctx, "CREATE TABLE t (v INTEGER)")
	require.NoError(t, err)
	q, err := s.PrepareQuery(ctx, "INSERT INTO t VALUES (?)")
	require.NoError(t, err)
	value := 0
	insert := func() {
		value++
		_, err := q.Update(ctx, value)
		require.NoError(t, err, value)
	}
	for _, end := range []func() error{func() error { return s.Rollback(ctx) }, func() error { return s.Commit(ctx) }, func() error { return s.Rollback(ctx) }} {
		require.NoError(t, s.BeginTransaction(ctx))
		insert() // 1, 4 and 7
		insert()
		require.NoError(t, end())
		insert()
	}
	var values string
	require.NoError(t, s.QueryRow(ctx, "SELECT group_concat(v) FROM t").Scan(&values))
	require.Equal(t, "3,4,5,6,9", values)
	require.NoError(t, q.Close(ctx))
	require.NoError(t, s.Close())
	require.NoError(t, conn.Close())
}
