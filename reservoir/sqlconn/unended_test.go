package sqlconn_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// lent runs f with a loan of a calm database, and gives what is stored when the loan has ended.
func lent(t *testing.T, kind sqlconn.Kind, style style, f func(t *testing.T, db *database, conn *sql.Conn)) (stored map[int]int) {
	synctest.Test(t, func(t *testing.T) {
		db := &database{t: t, rand: rand.New(rand.NewPCG(1, 1)), kind: kind, style: style, stored: map[int]int{}, calm: true}
		wrapper := sqlconn.NewWrapper()
		target, err := sqlconn.New(wrapper, sqlconn.Config{Connector: db, Kind: kind})
		require.NoError(t, err)
		c, err := target.Open(t.Context())
		require.NoError(t, err)
		conn, err := c.Lend(t.Context())
		require.NoError(t, err)
		f(t, db, conn)
		require.NoError(t, sqlconn.Return(t.Context(), conn))
		_ = target.Reset(context.WithoutCancel(t.Context()), c)
		require.NoError(t, target.Close(c))
		require.NoError(t, wrapper.Close())
		stored = db.stored
	})
	return stored
}

// The end of a transaction that fails may leave it open on the server, while to database/sql it is
// over. What follows on the loan is no part of it.
func TestWhatFollowsATransactionWhoseEndFailsIsNoPartOfIt(t *testing.T) {
	ends := map[string]func(*sql.Tx) error{"Commit": (*sql.Tx).Commit, "Rollback": (*sql.Tx).Rollback}
	for name, end := range ends {
		for _, kind := range []sqlconn.Kind{{}, sqlconn.PostgreSQL, sqlconn.SQLServer} {
			for _, strict := range []bool{false, true} {
				for _, refuses := range []bool{false, true} { // or else it cannot be sent
					say := fmt.Sprintf("%s, %q, strict: %v, refused: %v", name, kind.Name, strict, refuses)
					var after error
					stored := lent(t, kind, style{oneCall: true, strictTx: strict}, func(t *testing.T, db *database, conn *sql.Conn) {
						tx, err := conn.BeginTx(t.Context(), nil)
						require.NoError(t, err)
						_, err = tx.ExecContext(t.Context(), "INSERT 1")
						require.NoError(t, err)
						var rows *sql.Rows
						if refuses {
							db.refuseEnds = true
							require.ErrorIs(t, end(tx), errDBRefused, say)
							db.refuseEnds = false
						} else {
							rows, err = conn.QueryContext(t.Context(), "SELECT 7")
							require.NoError(t, err)
							require.ErrorContains(t, end(tx), driver.ErrBadConn.Error(), say)
							require.NoError(t, rows.Err())
							require.NoError(t, rows.Close())
						}
						_, after = conn.ExecContext(t.Context(), "INSERT 2")
					})
					require.Zero(t, stored[1], say)
					require.NoError(t, after, say)
					require.Equal(t, 1, stored[2], say)
				}
			}
		}
	}
}

// To the server two transactions of one connection are one. When the end of the first has failed,
// what is left to the second is ROLLBACK.
func TestOfTwoTransactionsThatAreOneToTheServerNoneIsCommittedOnceTheEndOfOneHasFailed(t *testing.T) {
	for name, end := range map[string]func(*sql.Tx) error{"Commit": (*sql.Tx).Commit, "Rollback": (*sql.Tx).Rollback} {
		stored := lent(t, sqlconn.Kind{}, style{}, func(t *testing.T, db *database, conn *sql.Conn) {
			first, err := conn.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			second, err := conn.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = first.ExecContext(t.Context(), "INSERT 1")
			require.NoError(t, err)
			db.refuseEnds = true
			require.ErrorIs(t, end(first), errDBRefused)
			db.refuseEnds = false
			_, err = second.ExecContext(t.Context(), "INSERT 2")
			require.ErrorContains(t, err, "while another of the same connection was open")
			require.ErrorContains(t, second.Commit(), "while another of the same connection was open")
			_, err = conn.ExecContext(t.Context(), "INSERT 3")
			require.Error(t, err)
		})
		require.Empty(t, stored, name)
	}
}

// While rows are open, a driver may not take the ROLLBACK: the call is refused, and costs nothing.
func TestACallBesideRowsAfterATransactionWhoseEndFailsIsRefused(t *testing.T) {
	stored := lent(t, sqlconn.SQLServer, style{oneCall: true}, func(t *testing.T, _ *database, conn *sql.Conn) {
		tx, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		rows, err := conn.QueryContext(t.Context(), "SELECT 7")
		require.NoError(t, err)
		require.Error(t, tx.Commit())
		_, err = conn.ExecContext(t.Context(), "INSERT 1")
		require.ErrorContains(t, err, "close them first")
		require.ErrorContains(t, sqlconn.Raw(conn, func(any) error { t.Error("Raw"); return nil }), "before Raw")
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close())
		next, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = next.ExecContext(t.Context(), "INSERT 2")
		require.NoError(t, err)
		require.NoError(t, next.Commit())
		require.NoError(t, sqlconn.Raw(conn, func(any) error { return nil }))
	})
	require.Equal(t, map[int]int{2: 1}, stored)
}

// A BEGIN that fails may have begun: what follows on the loan is no part of that.
func TestWhatFollowsATransactionWhoseBeginningFailsIsNoPartOfIt(t *testing.T) {
	for _, kind := range []sqlconn.Kind{{}, sqlconn.PostgreSQL, sqlconn.SQLServer} {
		for _, strict := range []bool{false, true} {
			stored := lent(t, kind, style{oneCall: true, strictTx: strict}, func(t *testing.T, db *database, conn *sql.Conn) {
				db.loseBegins = true
				_, err := conn.BeginTx(t.Context(), nil)
				require.ErrorIs(t, err, errDBRefused)
				db.loseBegins = false
				_, err = conn.ExecContext(t.Context(), "INSERT 1")
				require.NoError(t, err)
				db.loseBegins = true
				_, err = conn.BeginTx(t.Context(), nil)
				require.ErrorIs(t, err, errDBRefused)
				db.loseBegins = false
				tx, err := conn.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				_, err = tx.ExecContext(t.Context(), "INSERT 2")
				require.NoError(t, err)
				require.NoError(t, tx.Commit())
			})
			require.Equal(t, map[int]int{1: 1, 2: 1}, stored, "%q, strict: %v", kind.Name, strict)
		}
	}
}

// Where another transaction is open, a BEGIN that fails costs that one nothing.
func TestABeginningThatFailsBesideATransactionLeavesThat(t *testing.T) {
	stored := lent(t, sqlconn.Kind{}, style{strictTx: true}, func(t *testing.T, _ *database, conn *sql.Conn) {
		tx, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = conn.BeginTx(t.Context(), nil)
		require.ErrorIs(t, err, errDBRefused)
		_, err = tx.ExecContext(t.Context(), "INSERT 1")
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		_, err = conn.ExecContext(t.Context(), "INSERT 2")
		require.NoError(t, err)
	})
	require.Equal(t, map[int]int{1: 1, 2: 1}, stored)
}

// A transaction whose context has ended is over for its borrower before database/sql rolls it back: what
// follows on the loan is no part of it.
func TestWhatFollowsATransactionWhoseContextHasEndedIsNoPartOfIt(t *testing.T) {
	for range 100 { // database/sql may be first
		var after error
		stored := lent(t, sqlconn.Kind{}, style{}, func(t *testing.T, db *database, conn *sql.Conn) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tx, err := conn.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(ctx, "INSERT 1")
			require.NoError(t, err)
			cancel()
			require.Error(t, tx.Commit())
			after = execBesideClose(func() error { _, err := conn.ExecContext(t.Context(), "INSERT 2"); return err })
			_ = execBesideClose(func() error {
				return sqlconn.Raw(conn, func(c any) error {
					db.mu.Lock()
					defer db.mu.Unlock()
					if c.(*dbSession).inTx {
						t.Error("Raw in a transaction that is over")
					}
					return nil
				})
			})
		})
		require.Zero(t, stored[1])
		require.Equal(t, after == nil, stored[2] == 1, "%v", after)
	}
}

// execBesideClose makes a call that database/sql panics in where it closes the *sql.Conn at that moment.
func execBesideClose(call func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = sql.ErrConnDone
		}
	}()
	return call()
}
