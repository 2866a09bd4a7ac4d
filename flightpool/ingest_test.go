package flightpool

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

type account struct {
	ID    int64
	Owner *string
}

// numbered are n accounts, after which end says what the iterator does.
func numbered(n int, end func()) iter.Seq[account] {
	return func(yield func(account) bool) {
		for i := range n {
			if !yield(account{ID: int64(i)}) {
				return
			}
		}
		end()
	}
}

func TestStructsAreIngestedThroughPoolSessionAndTx(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		ended := 0
		store := func(q Querier) {
			r.Helper()
			n, err := IngestRows(r.Context(), q, "t", numbered(100_000, func() { ended++ }), IngestOptions{})
			require.NoError(r, err)
			require.EqualValues(r, 100_000, n)
		}
		r.exec("CREATE TABLE t (id BIGINT, owner VARCHAR)")
		store(r.pool)
		s := r.session()
		store(s)
		require.NoError(r, s.Close())
		tx := r.begin()
		store(tx)
		require.NoError(r, tx.Rollback(r.Context()))
		require.Equal(r, 3, ended)
		require.Equal(r, "200000", r.value(r.pool, "SELECT count(*) FROM t"))

		me := "me"
		_, err := IngestRows(r.Context(), r.pool, "u", slices.Values([]*account{{7, &me}}), IngestOptions{})
		require.NoError(r, err)
		one, err := CollectOneRow[account](r.pool.Query(r.Context(), "SELECT * FROM u"))
		require.NoError(r, err)
		require.Equal(r, account{7, &me}, one)
		_, err = IngestRows(r.Context(), r.pool, "t", slices.Values([]int{1}), IngestOptions{})
		require.ErrorContains(r, err, "rows are structs")
	})
}

// However the iterator ends, the call does too, keeps no connection, and has the iterator
// end as well.
func TestIteratorsThatFailEndTheirIngest(t *testing.T) {
	type loose struct{ ID any }
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (id BIGINT, owner VARCHAR)")
		for _, rows := range []int{0, 200_000} { // in the first batch, and later
			require.PanicsWithValue(r, "x", func() {
				_, _ = IngestRows(r.Context(), r.pool, "t", numbered(rows, func() { panic("x") }), IngestOptions{})
			})
			time.Sleep(10 * time.Second) // the call is ended behind its caller
			require.Zero(r, r.pool.Stats().InUse)

			left := make(chan struct{})
			ctx, stop := context.WithTimeout(r.Context(), time.Second)
			begun := time.Now()
			_, err := IngestRows(ctx, r.pool, "t", numbered(rows, func() { <-left }), IngestOptions{})
			require.ErrorIs(r, err, context.DeadlineExceeded)
			require.LessOrEqual(r, time.Since(begun), time.Second+50*ms)
			close(left)
			stop()
			synctest.Wait()
		}
		// What fails in the first batch is not sent: a transaction goes on.
		tx := r.begin()
		_, err := IngestRows(r.Context(), tx, "t", slices.Values([]loose{{1}, {make(chan int)}}), IngestOptions{})
		require.ErrorContains(r, err, "row 1: field ID: a value of type chan int cannot be sent")
		var e *Error
		require.True(r, errors.As(err, &e) && e.Fault == FaultUsage && e.Unsent)
		_, err = tx.Update(r.Context(), "CREATE TABLE v (a BIGINT)")
		require.NoError(r, err)
		// What fails later ends it, and nothing of it is stored.
		before := r.value(tx, "SELECT count(*) FROM t")
		_, err = IngestRows(r.Context(), tx, "t", func(yield func(loose) bool) {
			for i := range 200_000 {
				if !yield(loose{i}) {
					return
				}
			}
			yield(loose{"text"})
		}, IngestOptions{})
		require.ErrorContains(r, err, "row 200000: field ID: is utf8, the rows before are int64")
		require.Error(r, tx.Commit(r.Context()))
		require.Equal(r, before, r.value(r.pool, "SELECT count(*) FROM t"))
	})
}

// What an iterator does when it is asked to end is bounded by the context as well, and
// its panic goes on in the caller who waits for it.
func TestAnIteratorThatDoesNotEndIsLeft(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (id BIGINT, owner VARCHAR)")
		ingest := func(ctx context.Context, end func()) error {
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnDoPut, Times: 1, Do: testserver.Fail(codes.Internal, "no")})
			_, err := IngestRows(ctx, r.pool, "t", func(yield func(account) bool) {
				defer end()
				numbered(200_000, func() {})(yield)
			}, IngestOptions{})
			return err
		}
		left := make(chan struct{})
		ctx, stop := context.WithTimeout(r.Context(), time.Second)
		defer stop()
		begun := time.Now()
		require.ErrorContains(r, ingest(ctx, func() { <-left }), ": no")
		require.LessOrEqual(r, time.Since(begun), time.Second+50*ms)
		close(left)
		ended := false
		require.ErrorContains(r, ingest(r.Context(), func() { time.Sleep(time.Minute); ended = true }), ": no")
		require.True(r, ended)
		require.PanicsWithValue(r, "x", func() { _ = ingest(r.Context(), func() { panic("x") }) })
		exited := make(chan struct{})
		go func() {
			defer close(exited)
			_ = ingest(r.Context(), runtime.Goexit)
			r.Error("it returned")
		}()
		<-exited
		synctest.Wait()
		require.Zero(r, r.pool.Stats().InUse)
	})
}

// A Close that has cut the connection off ends the call, whatever its iterator does.
func TestAnIteratorOutlivesNoPool(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (id BIGINT, owner VARCHAR)")
		for _, rows := range []int{0, 200_000} { // in the first batch, and later
			pool, err := New(r.Context(), "grpc://server:1", Config{MaxSize: 1, Dialer: r.srv.Dial})
			require.NoError(r, err)
			left := make(chan struct{})
			told := make(chan error, 1)
			hour, end := context.WithTimeout(r.Context(), time.Hour)
			defer end()
			go func() {
				_, err := IngestRows(hour, pool, "t", numbered(rows, func() { <-left }), IngestOptions{})
				told <- err
			}()
			synctest.Wait()
			ctx, stop := context.WithTimeout(r.Context(), time.Second)
			begun := time.Now()
			require.Error(r, pool.Close(ctx))
			stop()
			require.ErrorIs(r, <-told, ErrSessionLost)
			require.LessOrEqual(r, time.Since(begun), time.Second+300*ms)
			close(left)
			synctest.Wait()
		}
	})
}

// A pool that is closed by force while rows are awaited keeps no caller past the end of its
// context, whatever the rows do.
func TestACloseByForceKeepsNoCallerPastItsContext(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{Cancel: CancelPolicy{Grace: 4 * time.Second}}, func(r *rig) {
		left := make(chan struct{})
		defer close(left)
		r.exec("CREATE TABLE t (a BIGINT)")
		began := time.Now()
		done := make(chan error)
		go func() {
			ctx, stop := context.WithTimeout(r.Context(), 2*time.Second)
			defer stop()
			_, err := IngestRows(ctx, r.pool, "t", func(yield func(struct{ A int64 }) bool) {
				yield(struct{ A int64 }{1})
				<-left
			}, IngestOptions{})
			done <- err
		}()
		synctest.Wait()
		ctx, stop := context.WithTimeout(r.Context(), time.Second)
		defer stop()
		require.Error(t, r.pool.Close(ctx))
		require.ErrorIs(t, <-done, context.DeadlineExceeded)
		require.Equal(t, 2*time.Second, time.Since(began))
	})
}

// The first batch of rows may take longer than a server keeps a session in which nothing is done (GizmoSQL): in the one that
// comes in its place there is neither what OnConnect has set nor what the session has.
func TestRowsThatComeLateAreNotStoredInAnotherSession(t *testing.T) {
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.GizmoSQL()} {
		t.Run(profile.Name, func(t *testing.T) {
			inBubble(t, profile, Config{MaxSize: 2, Auth: BasicAuth("user", "password"), OnConnect: paint}, func(r *rig) {
				ingest := func(q Querier, evicts bool) error {
					_, err := IngestRows(r.Context(), q, "mine", func(yield func(account) bool) {
						if evicts {
							r.srv.Faults().EvictSessions()
						}
						time.Sleep(time.Minute)
						yield(account{ID: 1})
					}, IngestOptions{})
					return err
				}
				own := r.session()
				_, err := own.Update(r.Context(), "SET colour = 'red'")
				require.NoError(r, err)
				for _, q := range []Querier{own, r.pool} {
					err := ingest(q, true)
					require.ErrorIs(r, err, ErrSessionLost)
					require.True(r, SafeToRetry(err), "%v", err)
				}
				require.NoError(r, own.Close())
				_, err = firstValue(r.Context(), r.pool, "SELECT * FROM mine")
				require.Error(r, err, "there is no such table")
				own = r.session()
				_, err = own.Update(r.Context(), "SET colour = 'red'")
				require.NoError(r, err)
				require.NoError(r, ingest(own, false))
				require.NoError(r, own.Close())
				require.NoError(r, ingest(r.pool, false))
				require.Equal(r, "2", r.value(r.pool, "SELECT count(*) FROM mine"))
			})
		})
	}
}

// disturbedRows has something happen before its first batch.
type disturbedRows struct {
	array.RecordReader
	first func()
}

func (d *disturbedRows) Next() bool {
	if f := d.first; f != nil {
		d.first = nil
		f()
	}
	return d.RecordReader.Next()
}

// Whoever made the call again, with the same reader, would store what is left of the rows, and be told that this has succeeded.
func TestAnIngestionThatHasTakenRowsIsNotSafeToRetry(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		one, two := ints("a", 1), ints("a", 2)
		defer one.Release()
		defer two.Release()
		rows, err := array.NewRecordReader(one.Schema(), []arrow.RecordBatch{one, two})
		require.NoError(r, err)
		defer rows.Release()
		_, err = r.pool.Ingest(r.Context(), "t", &disturbedRows{rows, func() { r.srv.Faults().KillConns(); time.Sleep(100 * ms) }}, IngestOptions{})
		var e *Error
		require.ErrorAs(r, err, &e)
		require.True(r, e.Unsent, "%v", err)
		require.False(r, SafeToRetry(err), "%v", err)
	})
}
