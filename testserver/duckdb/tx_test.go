//go:build duckdb_arrow

package duckdb

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver/engine"
)

func TestATransactionIsPrivateUntilItsCommit(t *testing.T) {
	e := newEngine(t, Config{})
	a, b := openSession(t, e), openSession(t, e)
	a.mustUpdate(t, "CREATE TABLE t(i INT)")
	count := func() string { return b.mustQuery(t, "SELECT count(*) FROM t")[0][0] }

	require.NoError(t, a.Begin(t.Context()))
	a.mustUpdate(t, "INSERT INTO t VALUES (1)")
	require.Equal(t, "0", count())
	require.NoError(t, a.Rollback(t.Context()))
	require.Equal(t, "0", count())

	require.NoError(t, a.Begin(t.Context()))
	a.mustUpdate(t, "INSERT INTO t VALUES (1)")
	require.NoError(t, a.Commit(t.Context()))
	require.Equal(t, "1", count())
}

func TestTransactionCallsOutOfPlaceAreTxStateErrors(t *testing.T) {
	s := newSession(t)
	require.ErrorIs(t, s.Commit(t.Context()), engine.ErrTxState)
	require.ErrorIs(t, s.Rollback(t.Context()), engine.ErrTxState)
	require.NoError(t, s.Begin(t.Context()))
	require.ErrorIs(t, s.Begin(t.Context()), engine.ErrTxState)
	require.True(t, s.InTx())
	require.NotEmpty(t, s.mustQuery(t, "SELECT 1"), "the second Begin leaves the first alone")
}

func TestCommitOfAnAbortedTransactionFailsAndEndsIt(t *testing.T) {
	s := newSession(t)
	s.mustUpdate(t, "CREATE TABLE t(i INT PRIMARY KEY)")
	require.NoError(t, s.Begin(t.Context()))
	s.mustUpdate(t, "INSERT INTO t VALUES (1)")
	_, err := s.Update(t.Context(), "INSERT INTO t VALUES (1)", nil)
	require.Error(t, err)
	_, err = s.query(t.Context(), "SELECT 1", nil)
	require.ErrorIs(t, err, engine.ErrTxState)
	require.True(t, s.InTx())
	require.ErrorIs(t, s.Commit(t.Context()), engine.ErrTxState)
	require.False(t, s.InTx())
	require.Empty(t, s.mustQuery(t, "FROM t"))
}

func TestInTxFollowsTransactionsInSQLText(t *testing.T) {
	s := newSession(t)
	for _, c := range []struct {
		sql  string
		open bool
	}{
		{"SELECT 'BEGIN'", false},
		{"/* now */ begin transaction; SELECT 1", true},
		{"SELECT 1; COMMIT -- done", false},
		{"START TRANSACTION", true},
		{"ABORT", false},
	} {
		_, err := s.query(t.Context(), c.sql, nil)
		require.NoError(t, err, c.sql)
		require.Equal(t, c.open, s.InTx(), c.sql)
	}
}

func TestACommitThatConflictsEndsTheTransaction(t *testing.T) {
	e := newEngine(t, Config{})
	a, b := openSession(t, e), openSession(t, e)
	a.mustUpdate(t, "CREATE TABLE t(i INT PRIMARY KEY)")
	for _, s := range []*session{a, b} {
		require.NoError(t, s.Begin(t.Context()))
		s.mustUpdate(t, "INSERT INTO t VALUES (1)")
	}
	require.NoError(t, a.Commit(t.Context()))
	require.ErrorIs(t, b.Commit(t.Context()), engine.ErrTxState)
	require.False(t, b.InTx())
}

func TestClosingASessionRollsBack(t *testing.T) {
	e := newEngine(t, Config{})
	a := openSession(t, e)
	a.mustUpdate(t, "CREATE TABLE t(i INT)")
	b, err := e.Open(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.Begin(t.Context()))
	_, err = b.Update(t.Context(), "INSERT INTO t VALUES (1)", nil)
	require.NoError(t, err)
	require.NoError(t, b.Close())
	require.Empty(t, a.mustQuery(t, "FROM t"))
}

func TestSavepointsAreUnsupported(t *testing.T) {
	s := newSession(t)
	require.ErrorIs(t, s.Savepoint(t.Context(), "a"), engine.ErrUnsupported)
	require.ErrorIs(t, s.RollbackTo(t.Context(), "a"), engine.ErrUnsupported)
	require.ErrorIs(t, s.Release(t.Context(), "a"), engine.ErrUnsupported)
}
