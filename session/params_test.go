package session

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/rowscan"
)

func TestArgumentsArriveAsOneRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		batch := int64Batch(1, 2)
		res, err := r.handle.Query(t.Context(), "SELECT 1", 7, "x", nil)
		must(t, err)
		res.Release()
		_, err = r.handle.Update(t.Context(), "INSERT 1", true)
		must(t, err)
		res, err = r.handle.Execute(t.Context(), "INSERT 1", []byte("ab"))
		must(t, err)
		res.Release()
		n, err := r.handle.Update(t.Context(), "INSERT 1", batch) // a batch alone is its rows
		must(t, err)
		require.EqualValues(t, 2, n.RowsAffected)
		q, err := r.handle.PrepareQuery(t.Context(), "INSERT 1")
		must(t, err)
		for _, args := range [][]any{nil, {1.5}, {batch}, {nil}} {
			_, err = q.Update(t.Context(), args...)
			must(t, err)
		}
		res, err = q.QueryWithOptions(t.Context(), QueryOptions{Args: []any{int8(3)}})
		must(t, err)
		res.Release()
		rows := `[{"` + batch.ColumnName(0) + `":1}` + "\n" + `,{"` + batch.ColumnName(0) + `":2}` + "\n]"
		require.Equal(t, []string{
			`[{"1":7,"2":"x","3":null}` + "\n]", `[{"1":true}` + "\n]", `[{"1":"YWI="}` + "\n]", rows,
			"none", `[{"1":1.5}` + "\n]", rows, `[{"1":null}` + "\n]", `[{"1":3}` + "\n]",
		}, r.conn.executedWith())
	})
}

// Some servers keep the parameters of an execution for the next that has none.
func TestNoExecutionHasTheParametersOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		q, err := r.handle.PrepareQuery(t.Context(), "SELECT 1")
		must(t, err)
		for _, args := range [][]any{nil, {1}} {
			res, err := q.Query(t.Context(), args...)
			must(t, err)
			res.Release()
		}
		_, err = q.Query(t.Context())
		require.ErrorContains(t, err, "with parameters before")
		require.Equal(t, backend.FaultUsage, backend.FaultIn(err))
		_, err = q.Update(t.Context())
		require.ErrorContains(t, err, "with parameters before")
		_, err = q.Query(t.Context(), make(chan int))
		require.ErrorContains(t, err, "chan int")
		require.Len(t, r.conn.params, 2)
		_, err = q.Update(t.Context(), 2)
		must(t, err)
	})
}

// Arrow's server in Java keeps the rows before the one that it cannot bind, and executes them with those of the next execution;
// DazzleDuck closes the statement.
func TestNoExecutionHasRowsOfOneThatHasFailed(t *testing.T) {
	once := []string{"Prepare", "INSERT 1", "INSERT 1", "INSERT 1"}
	anew := []string{"Prepare", "INSERT 1", "Prepare", "ClosePrepared", "INSERT 1", "INSERT 1"}
	unsent := &backend.Error{Stage: backend.StagePrepare, Fault: backend.FaultStatement, Unsent: true, Err: errors.New("not sent")}
	misuse := &backend.Error{Stage: backend.StageArgument, Fault: backend.FaultUsage, Err: errors.New("not of its type")}
	for _, c := range []struct {
		sql  string
		args []any
		err  error
		log  []string
	}{
		{"INSERT 1", nil, sqlError("not a SMALLINT"), once},
		{"INSERT 1", []any{1}, sqlError("not a SMALLINT"), anew},
		{"INSERT 1", []any{int64Batch(1)}, sqlError("not a SMALLINT"), anew},
		{"INSERT 1", []any{int64Batch(1, 70000)}, sqlError("not a SMALLINT"), anew},
		{"INSERT 1", []any{int64Batch(1, 70000)}, unsent, once},
		{"INSERT 1", []any{int64Batch(1, 70000)}, misuse, once},
		{"SELECT 1", []any{int64Batch(1)}, sqlError("not a SMALLINT"), once},
		{"SELECT 1", []any{int64Batch(1, 70000)}, sqlError("not a SMALLINT"), anew},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{failOnce: map[string][]error{c.sql: {c.err}}})
			q, err := r.handle.PrepareQuery(t.Context(), c.sql)
			must(t, err)
			require.ErrorContains(t, drained(q.Query(t.Context(), c.args...)), "not ")
			for range 2 {
				must(t, drained(q.Query(t.Context(), c.args...)))
			}
			log := slices.Clone(c.log)
			for i := range log {
				log[i] = strings.Replace(log[i], "INSERT 1", c.sql, 1)
			}
			require.Equal(t, log, r.conn.Log())
		})
	}
}

// Arguments are judged before anything is sent, and the handle goes on.
func TestArgumentsThatCannotBeSentAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		q, err := r.handle.PrepareQuery(t.Context(), "SELECT 1")
		must(t, err)
		sent := len(r.conn.Log())
		batch := int64Batch(1)
		twice := QueryOptions{Params: batch, Args: []any{1}}
		calls := []func() error{
			func() error { _, err := r.handle.Query(t.Context(), "SELECT 1", make(chan int)); return err },
			func() error { _, err := r.handle.Update(t.Context(), "INSERT 1", 1, make(chan int)); return err },
			func() error { return r.handle.QueryRow(t.Context(), "SELECT 1", arrow.RecordBatch(batch), 1).Scan(nil) },
			func() error { _, err := r.handle.QueryWithOptions(t.Context(), "SELECT 1", twice); return err },
			func() error { _, err := r.handle.UpdateWithOptions(t.Context(), "INSERT 1", twice); return err },
			func() error { _, err := r.handle.Query(t.Context(), "SELECT 1; SELECT 2", 1); return err },
			func() error { _, err := q.Query(t.Context(), make(chan int)); return err },
			func() error { _, err := q.UpdateWithOptions(t.Context(), twice); return err },
		}
		for i, call := range calls {
			err := call()
			require.Equal(t, backend.FaultUsage, backend.FaultIn(err), "%d: %v", i, err)
		}
		require.Len(t, r.conn.Log(), sent)
		must(t, r.handle.Ping(t.Context()))
	})
}

// A call that its caller has left goes on with the values of its beginning.
func TestArgumentsAreReadBeforeTheCallReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{work: map[string]time.Duration{"Prepare": time.Second}})
		text := []byte("ab")
		ctx, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer stop()
		_, err := r.handle.UpdateWithOptions(ctx, "INSERT 1", QueryOptions{Args: []any{text}, NoCancel: true})
		require.Error(t, err)
		text[0] = 'x'
		time.Sleep(time.Minute)
		require.Equal(t, []string{`[{"1":"YWI="}` + "\n]"}, r.conn.executedWith())
	})
}

func TestTheFirstRowIsScanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		var n int64
		row := r.handle.QueryRow(t.Context(), "SELECT 3")
		must(t, row.Scan(&n))
		require.ErrorIs(t, row.Scan(&n), backend.ErrHandleClosed)
		require.ErrorContains(t, r.handle.QueryRow(t.Context(), "SELECT 0").Scan(&n), "no rows")
		require.ErrorContains(t, r.handle.QueryRow(t.Context(), "INSERT 1").Scan(&n), "no rows")
		require.ErrorContains(t, r.handle.QueryRow(t.Context(), "SELECT bad").Scan(&n), "bad")
		must(t, r.handle.Ping(t.Context())) // it is free again after each
	})
}

// A server may refuse a change after its first row: INSERT … RETURNING tells it at the end.
func TestTheFirstRowOfAChangeIsTheFateOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		n := int64(-1)
		must(t, NewRow(r.change(t.Context(), "SELECT 3"), nil).Scan(&n))
		require.EqualValues(t, 2, n)
		must(t, r.handle.Ping(t.Context())) // its end was waited for

		r.conn.fail = map[string]error{"stream": sqlError("unique constraint")}
		n = -1
		err := NewRow(r.change(t.Context(), "SELECT 3"), nil).Scan(&n)
		require.ErrorContains(t, err, "unique constraint")
		require.EqualValues(t, -1, n, "after an error nothing is set")
		_, err = rowscan.CollectOne[int64](r.change(t.Context(), "SELECT 3"))
		require.ErrorContains(t, err, "unique constraint")
		require.Equal(t, 1, strings.Count(err.Error(), "unique constraint"))
		err = NewRow(r.change(t.Context(), "SELECT 3"), nil).Scan(new(bool))
		require.ErrorContains(t, err, "does not fit bool")
		require.ErrorContains(t, err, "unique constraint")
		must(t, r.handle.Ping(t.Context()))
		must(t, r.handle.Close())
		r.reused()
		r.clean()
	})
}

// telling is a statement of which the server tells the parameters, and which keeps the rows that it
// was executed with.
type telling struct {
	*fakePrepared
	schema *arrow.Schema
	rows   *arrow.RecordBatch
}

func (p telling) ParameterSchema() *arrow.Schema { return p.schema }

func (p telling) Update(_ context.Context, params arrow.RecordBatch, _ backend.Call) (int64, error) {
	*p.rows = params
	return 1, nil
}

// TestArgumentsGoAsTheServerTells, and their row is let go.
func TestArgumentsGoAsTheServerTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		var rows arrow.RecordBatch
		r.conn.prepared = func(p *fakePrepared) backend.Prepared { return telling{p, fakeSchema, &rows} }
		_, err := r.handle.Update(t.Context(), "INSERT 1", int8(7))
		must(t, err)
		require.True(t, rows.Schema().Field(0).Type == fakeSchema.Field(0).Type, "%v", rows.Schema())
		require.Empty(t, rows.Columns(), "the row is released")

		_, err = r.handle.Update(t.Context(), "INSERT 1", sql.Named("other", 1))
		require.Equal(t, backend.FaultUsage, backend.FaultIn(err), "%v", err)
		require.False(t, backend.SafeToRetry(err))
		synctest.Wait()
		must(t, r.handle.Close())
		r.clean()
		r.reused()
	})
}
