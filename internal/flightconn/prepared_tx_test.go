package flightconn

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
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

// lockedOnce is a connection whose server has refused once to tell how it treats transactions that it does
// not know.
type lockedOnce struct {
	*Conn
	asked bool
}

func (c *lockedOnce) RejectsUnknownTx(ctx context.Context) (bool, error) {
	if !c.asked {
		c.asked = true
		return false, &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: errors.New("failed to begin transaction: database is locked")}
	}
	return c.Conn.RejectsUnknownTx(ctx)
}

// So it does where the server has not said how it treats others.
func TestAPreparedStatementRunsInItsTransactionWhereTheServerIsNotKnown(t *testing.T) {
	srv := startSQLite(t)
	conn, err := srv.Open(t.Context())
	require.NoError(t, err)
	policy := &session.Policy{OwnerContext: t.Context()}
	ctx := t.Context()
	for i, c := range []backend.Conn{&lockedOnce{Conn: conn.(*Conn)}, conn} { // what the first is told is none of the second's
		s := session.New(c, policy, func(discard error) { require.NoError(t, discard) })
		_, err = s.Update(ctx, "CREATE TABLE IF NOT EXISTS t (v INTEGER)")
		require.NoError(t, err)
		q, err := s.PrepareQuery(ctx, "INSERT INTO t VALUES (?)")
		require.NoError(t, err)
		require.NoError(t, s.BeginTransaction(ctx))
		_, err = q.Update(ctx, i)
		require.NoError(t, err)
		require.NoError(t, s.Rollback(ctx))
		var n int
		require.NoError(t, s.QueryRow(ctx, "SELECT count(*) FROM t").Scan(&n))
		require.Zero(t, n)
		require.NoError(t, q.Close(ctx))
		require.NoError(t, s.Close())
	}
	require.NoError(t, conn.Close())
}
