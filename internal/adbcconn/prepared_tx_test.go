package adbcconn

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/flightconn"
	"github.com/flightpool/flightpool/session"
)

// A server goes by the transaction that a statement was prepared in, as the protocol has it.
func TestAPreparedStatementRunsInTheTransactionOfItsHandle(t *testing.T) {
	for kind, open := range map[string]func(t *testing.T, addr string) func(context.Context) (backend.Conn, error){
		"ours": func(t *testing.T, addr string) func(context.Context) (backend.Conn, error) {
			return newOurs(t, flightconn.Config{Address: addr}).open
		},
		"foreign": func(t *testing.T, addr string) func(context.Context) (backend.Conn, error) {
			return openForeign(flightDatabase(t, addr))
		},
	} {
		t.Run(kind, func(t *testing.T) {
			addr, _ := startSQLite(t)
			conn, err := open(t, addr)(t.Context())
			require.NoError(t, err)
			s := session.New(conn, &session.Policy{OwnerContext: t.Context()}, func(error) {})
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
			for _, end := range []func(context.Context) error{s.Rollback, s.Commit, s.Rollback} {
				require.NoError(t, s.BeginTransaction(ctx))
				insert() // 1, 4 and 7
				insert()
				require.NoError(t, end(ctx))
				insert()
			}
			var values string
			require.NoError(t, s.QueryRow(ctx, "SELECT group_concat(v) FROM t").Scan(&values))
			require.Equal(t, "3,4,5,6,9", values)
			require.NoError(t, q.Close(ctx))
			require.NoError(t, s.Close())
			require.NoError(t, conn.Close())
		})
	}
}
