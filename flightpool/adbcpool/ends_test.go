package adbcpool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// manual makes a table t and one uncommitted row of it.
func (r rig) manual(cn adbc.Connection) {
	r.Helper()
	_, err := r.run(cn, "CREATE TABLE t (v BIGINT)")
	require.NoError(r, err)
	require.NoError(r, cn.(adbc.PostInitOptions).SetOption(adbc.OptionKeyAutoCommit, adbc.OptionValueDisabled))
	_, err = r.run(cn, "INSERT INTO t VALUES (1)")
	require.NoError(r, err)
}

func TestADBCACommitOfWhichNothingWasSentCanBeRepeated(t *testing.T) {
	adbcKinds(t, func(r rig, pool *flightpool.FlightSQLPool, cn adbc.Connection) {
		r.manual(cn)
		st, err := cn.NewStatement()
		require.NoError(r, err)
		require.NoError(r, st.SetSqlQuery(generate(100_000)))
		rows, _, err := st.ExecuteQuery(r.Context())
		require.NoError(r, err)
		require.True(r, rows.Next())
		require.ErrorIs(r, cn.Commit(r.Context()), backend.ErrBusy)
		require.ErrorIs(r, cn.Rollback(r.Context()), backend.ErrBusy)
		rows.Release()
		require.NoError(r, st.Close())

		ended, cancel := context.WithCancel(r.Context())
		cancel()
		require.ErrorIs(r, cn.Commit(ended), context.Canceled)
		require.NoError(r, cn.Commit(r.Context()))
		require.EqualValues(r, 1, r.count(pool, "t"))
	})
}

func TestADBCARepeatedCommitIsNoSuccess(t *testing.T) {
	for _, kind := range []string{"native", "open"} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, testserver.Strict(), func(r rig) {
				pool := r.pool(kind)
				cn, err := Database(pool).Open(r.Context())
				require.NoError(r, err)
				defer func() { require.NoError(r, cn.Close()) }()
				r.manual(cn)
				r.server.Faults().Set(testserver.Fault{On: testserver.OnEnd, Times: 1, Do: testserver.Fail(codes.Aborted, "conflict")})
				for range 3 {
					require.ErrorIs(r, cn.Commit(r.Context()), flightpool.ErrTxAborted)
				}
				require.NoError(r, cn.Rollback(r.Context()))
				require.NoError(r, cn.Commit(r.Context()), "of nothing")
				_, err = r.run(cn, "INSERT INTO t VALUES (2)")
				require.NoError(r, err)
				require.NoError(r, cn.Commit(r.Context()))
				require.EqualValues(r, 1, r.count(pool, "t"))
			})
		})
	}
}

// No option forgets that a commit has failed, be it one of the option's own.
func TestADBCAnOptionForgetsNoFailedCommit(t *testing.T) {
	adbcKinds(t, func(r rig, pool *flightpool.FlightSQLPool, cn adbc.Connection) {
		r.manual(cn)
		autocommit := func(value string) error {
			return cn.(adbc.PostInitOptions).SetOption(adbc.OptionKeyAutoCommit, value)
		}
		conflict := func() {
			r.server.Faults().Set(testserver.Fault{On: testserver.OnEnd, Times: 1, Do: testserver.Fail(codes.Aborted, "conflict")})
		}
		conflict()
		require.Error(r, cn.Commit(r.Context()))
		require.NoError(r, autocommit(adbc.OptionValueDisabled))
		require.Error(r, cn.Commit(r.Context()), "the mode that is on already")
		require.NoError(r, cn.Rollback(r.Context()))
		_, err := r.run(cn, "INSERT INTO t VALUES (2)")
		if err != nil {
			return // a driver that gives its connection up after a failed commit
		}
		conflict()
		require.Error(r, autocommit(adbc.OptionValueEnabled))
		require.Error(r, autocommit(adbc.OptionValueEnabled), "repeated")
		require.NoError(r, cn.Rollback(r.Context()))
		require.NoError(r, autocommit(adbc.OptionValueEnabled))
		require.EqualValues(r, 0, r.count(pool, "t"))
	})
}

func TestADBCACommitReturnsWithItsContext(t *testing.T) {
	for _, kind := range []string{"native", "open"} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, testserver.Strict(), func(r rig) {
				pool := r.pool(kind)
				cn, err := Database(pool).Open(r.Context())
				require.NoError(r, err)
				r.manual(cn)
				r.server.Faults().Set(testserver.Fault{On: testserver.OnEnd, Times: 1, Do: testserver.Delay(4 * time.Second)})
				ctx, cancel := context.WithTimeout(r.Context(), time.Second)
				defer cancel()
				began := time.Now()
				require.ErrorIs(r, cn.Commit(ctx), flightpool.ErrCommitUnknown)
				require.Equal(r, time.Second, time.Since(began))
				require.ErrorIs(r, cn.Commit(r.Context()), flightpool.ErrCommitUnknown)
				require.NoError(r, cn.(adbc.PostInitOptions).SetOption(adbc.OptionKeyAutoCommit, adbc.OptionValueEnabled))
				_, err = r.run(cn, "INSERT INTO t VALUES (2)")
				require.NoError(r, err)
				require.NoError(r, cn.Close())
				require.EqualValues(r, 2, r.count(pool, "t"))
			})
		})
	}
}

// A server may have begun a transaction although it, or a proxy before it, answers
// that it has given up, or failed: the connection is not lent again, be the transaction the
// caller's or one of the session's own.
func TestNoTransactionIsLeftOpenByABeginThatFails(t *testing.T) {
	for _, kind := range kinds {
		for _, code := range []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Internal, codes.Unknown, codes.ResourceExhausted} {
			for skip := range 3 {
				t.Run(fmt.Sprint(kind, code, skip), func(t *testing.T) {
					inBubble(t, testserver.Strict(), func(r rig) {
						pool := r.pool(kind, func(c *flightpool.Config) { c.MaxSize = 1 })
						r.update(pool, "CREATE TABLE t (v BIGINT)")
						r.server.Faults().Set(testserver.Fault{On: testserver.OnBegin, After: true, Skip: skip, Times: 1, Do: testserver.Fail(code, "given up")})
						for range 2 {
							s, err := pool.AcquireSession(r.Context())
							require.NoError(r, err)
							if s.BeginTransaction(r.Context()) == nil {
								require.NoError(r, s.Commit(r.Context()))
							}
							require.NoError(r, ignoreLost(s.Close()))
							synctest.Wait()
							r.update(pool, "INSERT INTO t VALUES (1)")
							require.Zero(r, r.server.Ledger().Snapshot().Transactions)
						}
					})
				})
			}
		}
	}
}

func ignoreLost(err error) error {
	if errors.Is(err, flightpool.ErrSessionLost) {
		return nil
	}
	return err
}

// A transaction whose end failed is over for database/sql. What runs on the
// same connection afterwards must not become part of it.
func TestSQLNothingRunsInATransactionThatIsOver(t *testing.T) {
	for _, commit := range []bool{true, false} {
		sqlKinds(t, testserver.Strict(), func(r rig, pool *flightpool.FlightSQLPool, db *sql.DB) {
			ctx := r.Context()
			_, err := db.ExecContext(ctx, "CREATE TABLE t (v BIGINT)")
			require.NoError(r, err)
			conn, err := db.Conn(ctx)
			require.NoError(r, err)
			defer func() { _ = conn.Close() }()
			stmt, err := conn.PrepareContext(ctx, "INSERT INTO t VALUES (3)")
			require.NoError(r, err)
			for name, run := range map[string]func() error{
				"exec": func() error { _, err := conn.ExecContext(ctx, "INSERT INTO t VALUES (2)"); return err },
				"stmt": func() error { _, err := stmt.ExecContext(ctx); return err },
				"tx": func() error {
					tx, err := conn.BeginTx(ctx, nil)
					if err != nil {
						return err
					}
					_, err = tx.ExecContext(ctx, "INSERT INTO t VALUES (4)")
					require.NoError(r, err)
					return tx.Commit()
				},
			} {
				tx, err := conn.BeginTx(ctx, nil)
				require.NoError(r, err)
				_, err = tx.ExecContext(ctx, "INSERT INTO t VALUES (1)")
				require.NoError(r, err)
				rows, err := conn.QueryContext(ctx, generate(100_000)) // not of tx, for database/sql
				require.NoError(r, err)
				end := tx.Rollback
				if commit {
					end = tx.Commit
				}
				require.ErrorIs(r, end(), backend.ErrBusy)
				require.ErrorIs(r, run(), backend.ErrBusy, name)
				require.NoError(r, rows.Close())
				require.NoError(r, run(), name)
			}
			require.NoError(r, stmt.Close())
			require.NoError(r, conn.Close())
			var n int
			require.NoError(r, db.QueryRowContext(ctx, "SELECT count(*) FROM t").Scan(&n))
			require.Equal(r, 3, n, "those of run, and none of tx")
		})
	}
}

func TestSQLAStatementMayBeClosedBeforeItsRows(t *testing.T) {
	sqlKinds(t, testserver.Strict(), func(r rig, pool *flightpool.FlightSQLPool, db *sql.DB) {
		tx, err := db.BeginTx(r.Context(), nil)
		require.NoError(r, err)
		stmt, err := tx.PrepareContext(r.Context(), generate(5000))
		require.NoError(r, err)
		rows, err := stmt.QueryContext(r.Context())
		require.NoError(r, err)
		require.True(r, rows.Next())
		require.NoError(r, stmt.Close())
		n := 1
		for rows.Next() {
			n++
		}
		require.NoError(r, rows.Err())
		require.Equal(r, 5000, n)
		require.NoError(r, rows.Close())
		require.NoError(r, tx.Commit())
		synctest.Wait()
		require.Zero(r, r.server.Ledger().Snapshot().Prepared)
	})
}
