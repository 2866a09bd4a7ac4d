package flightpool

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// rowByRow makes a table of 40 rows on a server of SwanLake's kind, of which the pool has learned by so many statements
// that were cut that it runs one of a session at a time, and has each row that a DELETE is given take its time.
func rowByRow(t *testing.T, cuts int, each time.Duration, f func(r *rig, deleteAll QueryOptions)) {
	inBubble(t, testserver.SwanLake(), Config{MaxSize: 1}, func(r *rig) {
		var all []int64
		r.exec("CREATE TABLE swanlake.t (a BIGINT)")
		for i := range int64(40) {
			all = append(all, i)
		}
		rows := ints("a", all...)
		defer rows.Release()
		_, err := r.pool.UpdateWithRecordBatch(r.Context(), "INSERT INTO swanlake.t VALUES (?)", rows)
		require.NoError(r, err)
		for range cuts {
			r.cancelled(r.pool, "SELECT sleep('2s')", 100*ms)
			time.Sleep(time.Minute)
		}
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "DELETE", Do: testserver.Delay(each)})
		f(r, QueryOptions{Params: rows})
	})
}

const deleteRow = "DELETE FROM swanlake.t WHERE a = ?"

// SwanLake runs a change once for each row of its parameters, and takes the session's other statements in between. A
// ROLLBACK that is answered there has not ended the change: the rows that are left are stored by themselves. One
// that ends within the cancel budget is rolled back, so that others can change its rows; of one that does not, the
// server forgets the session.
func TestARollbackBetweenTheRowsOfAChangeStoresNoneOfThem(t *testing.T) {
	changes := map[string]func(ctx context.Context, tx *Tx, all QueryOptions) error{
		"update": func(ctx context.Context, tx *Tx, all QueryOptions) error {
			_, err := tx.UpdateWithOptions(ctx, deleteRow, all)
			return err
		},
		"execute": func(ctx context.Context, tx *Tx, all QueryOptions) error {
			r, err := tx.QueryWithOptions(ctx, deleteRow, all)
			if err == nil {
				r.Release()
			}
			return err
		},
		"prepared": func(ctx context.Context, tx *Tx, all QueryOptions) error {
			q, err := tx.PrepareQuery(ctx, deleteRow)
			if err == nil {
				_, err = q.UpdateWithOptions(ctx, all)
			}
			return err
		},
	}
	for what, change := range changes {
		for _, cuts := range []int{0, 5} {
			for _, each := range []time.Duration{100 * ms, 300 * ms} {
				rowByRow(t, cuts, each, func(r *rig, all QueryOptions) {
					ctx, stop := context.WithTimeout(r.Context(), time.Second)
					defer stop()
					start := time.Now()
					err := r.pool.InTx(ctx, TxOptions{}, func(ctx context.Context, tx *Tx) error { return change(ctx, tx, all) })
					require.ErrorIs(r, err, context.DeadlineExceeded)
					require.ErrorIs(r, err, ErrCommitUnknown, "%s, %d cuts before: such a server may leave a transaction in the middle, and says so to the ROLLBACK", what, cuts)
					require.LessOrEqual(r, time.Since(start), 1100*ms, "%s, %d cuts before: the caller returns at its deadline", what, cuts)
					time.Sleep(time.Minute)
					r.srv.Faults().Clear()
					require.Equal(r, "40", r.value(r.pool, "SELECT count(*) FROM swanlake.t"), "%s, %d cuts before, %s a row: %v", what, cuts, each, err)
					if each == 300*ms {
						require.Equal(r, 1, r.srv.Ledger().Snapshot().Transactions, "no ROLLBACK was sent")
						time.Sleep(30 * time.Minute)
					}
					require.Zero(r, r.srv.Ledger().Snapshot().Transactions, "%s, %d cuts before: others can change the rows", what, cuts)
					require.Equal(r, "40", r.value(r.pool, "SELECT count(*) FROM swanlake.t"))
				})
			}
		}
	}
}

// Nor is the end of such a change what a probe is answered by between two of its rows: the next borrower's transaction
// would take in the others.
func TestAChangeThatRunsRowByRowIsInNobodysTransaction(t *testing.T) {
	rowByRow(t, 5, 100*ms, func(r *rig, all QueryOptions) {
		ctx, stop := context.WithTimeout(r.Context(), time.Second)
		defer stop()
		_, err := r.pool.UpdateWithOptions(ctx, deleteRow, all)
		require.ErrorIs(r, err, context.DeadlineExceeded)
		tx, err := r.pool.BeginTx(r.Context(), TxOptions{})
		require.NoError(r, err)
		time.Sleep(time.Minute)
		require.NoError(r, tx.Rollback(r.Context()))
		require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM swanlake.t"), "whoever began it was not told of the rollback")
		require.Equal(r, uint64(6), r.pool.Stats().CancelsUnconfirmed+r.pool.Stats().CancelsConfirmed)
	})
}

// A read may be several statements as well, and a ROLLBACK between them stores nothing.
func TestAReadOfSeveralRowsThatIsCutKeepsNoTransaction(t *testing.T) {
	for _, cuts := range []int{0, 5} {
		rowByRow(t, cuts, 0, func(r *rig, all QueryOptions) {
			ctx, stop := context.WithTimeout(r.Context(), time.Second)
			defer stop()
			err := r.pool.InTx(ctx, TxOptions{}, func(ctx context.Context, tx *Tx) error {
				if _, err := tx.Update(ctx, "DELETE FROM swanlake.t WHERE a = 1"); err != nil {
					return err
				}
				r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "SELECT a", Do: testserver.Delay(3 * time.Second)})
				return drained(tx.QueryWithOptions(ctx, "SELECT a FROM swanlake.t WHERE a = ?", all))
			})
			require.ErrorIs(r, err, context.DeadlineExceeded)
			time.Sleep(time.Minute)
			require.Zero(r, r.srv.Ledger().Snapshot().Transactions, "%d cuts before: others can change the row", cuts)
		})
	}
}

// What the caller was told that nothing of it was sent is not sent behind the caller.
func TestAChangeWhoseCallerLeavesBeforeItIsNotSent(t *testing.T) {
	rowByRow(t, 5, 0, func(r *rig, all QueryOptions) {
		ctx, stop := context.WithTimeout(r.Context(), time.Second)
		defer stop()
		opens := uint64(0)
		err := r.pool.InTx(ctx, TxOptions{}, func(ctx context.Context, tx *Tx) error {
			opens = r.pool.Stats().Opens
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "SELECT '", Times: 1, Do: testserver.Delay(3 * time.Second)}) // the proof
			_, err := tx.UpdateWithOptions(ctx, deleteRow, all)
			return err
		})
		require.ErrorIs(r, err, context.DeadlineExceeded)
		require.NotErrorIs(r, err, ErrCommitUnknown)
		time.Sleep(time.Minute)
		require.Empty(r, r.srv.Ledger().Executions(deleteRow))
		require.Zero(r, r.srv.Ledger().Snapshot().Transactions)
		require.Equal(r, opens, r.pool.Stats().Opens, "nor does it cost the connection")
	})
}

// The rows that are left of a change run under the settings that it began with.
func TestNoSettingIsPutBackBetweenTheRowsOfAChange(t *testing.T) {
	rowByRow(t, 5, 100*ms, func(r *rig, all QueryOptions) {
		ctx, stop := context.WithTimeout(r.Context(), time.Second)
		defer stop()
		s := r.session()
		_, err := s.Update(ctx, "SET a = 7")
		require.NoError(r, err)
		_, err = s.UpdateWithOptions(ctx, deleteRow, all)
		require.ErrorIs(r, err, context.DeadlineExceeded)
		_ = s.Close()
		time.Sleep(time.Minute)
		rows := r.srv.Ledger().Executions(deleteRow)
		require.Len(r, rows, 40)
		for _, st := range r.srv.Ledger().Statements() {
			require.False(r, strings.Contains(st.SQL, "SET a") && st.Began.After(rows[0].Began), "%s behind the first row", st.SQL)
		}
	})
}
