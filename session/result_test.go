package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
)

// scriptRig is a rig whose "SELECT SCRIPT" has as many batches of a number, each
// after pace, and then end.
func scriptRig(t *testing.T, pace time.Duration, batches int, end error) (*rig, *scriptStream) {
	conn := &scriptConn{fakeConn: &fakeConn{}}
	stream := &scriptStream{}
	conn.script = func(context.Context, backend.Call) *scriptStream {
		stream.asked = 0
		stream.next = func(n int) (arrow.RecordBatch, error) {
			time.Sleep(pace) // whatever becomes of the context
			if n > batches {
				return nil, end
			}
			return numbers(1), nil
		}
		return stream
	}
	r := newRig(t, conn.fakeConn)
	r.handle = New(conn, r.policy, r.returned)
	return r, stream
}

// A reader whose context ends while it reads is told so at once where the
// statement goes on, and when the batch has come where it does not.
func TestAReadThatIsInterruptedEndsAsItsStatementDoes(t *testing.T) {
	for name, tc := range map[string]struct {
		uncut   bool
		end     error
		batches int
		took    time.Duration // by the reader
		free    time.Duration // when the session takes the next call
		chains  int
		aborts  bool
		asked   int // of the stream
	}{
		"NoCancel, in the midst":    {uncut: true, end: io.EOF, batches: 5, took: 150 * ms, free: 600 * ms, aborts: true, asked: 6},
		"NoCancel, before its end":  {uncut: true, end: io.EOF, batches: 1, took: 150 * ms, free: 200 * ms, aborts: true, asked: 2},
		"NoCancel, before it fails": {uncut: true, end: sqlError("division by zero"), batches: 1, took: 150 * ms, free: 200 * ms, aborts: true, asked: 2},
		"in the midst":              {end: io.EOF, batches: 5, took: 200 * ms, free: 200 * ms, chains: 1, aborts: true, asked: 2},
		"before its end":            {end: io.EOF, batches: 1, took: 200 * ms, free: 200 * ms, aborts: true, asked: 2},
		"before it fails":           {end: sqlError("division by zero"), batches: 1, took: 200 * ms, free: 200 * ms, chains: 1, aborts: true, asked: 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, stream := scriptRig(t, 100*ms, tc.batches, tc.end)
			stream.affected = 7
			must(t, r.handle.BeginTransaction(t.Context()))
			ctx, stop := context.WithTimeout(t.Context(), 150*ms)
			defer stop()
			start := time.Now()
			res, err := r.handle.QueryWithOptions(ctx, "SELECT SCRIPT", QueryOptions{NoCancel: tc.uncut})
			must(t, err)
			require.True(t, res.Next())
			require.False(t, res.Next(), name)
			require.Equal(t, tc.took, time.Since(start), name)
			require.ErrorIs(t, res.Err(), context.DeadlineExceeded, name)
			_, err = r.handle.Update(t.Context(), "INSERT 1")
			require.Equal(t, tc.aborts, errors.Is(err, backend.ErrTxAborted), "%s: %v", name, err)
			require.Equal(t, tc.free, time.Since(start), name)
			_, counted := res.RowsAffected()
			require.False(t, counted, name)
			require.Equal(t, tc.asked, stream.asked, name)
			require.Len(t, r.chains(), tc.chains, name)
			res.Release()
			_ = r.handle.Rollback(t.Context())
			must(t, r.handle.Close())
			r.reused()
		})
	}
}

// One result is for one goroutine. A second that reads or closes it ends it: nothing
// reads the stream beside the first, whose memory would go to two results.
func TestAResultThatTwoGoroutinesUseEnds(t *testing.T) {
	for name, second := range map[string]func(res *QueryResult) error{
		"Next":    func(res *QueryResult) error { _ = res.Next(); return res.Err() },
		"Close":   func(res *QueryResult) error { return res.Close() },
		"Release": func(res *QueryResult) error { res.Release(); return nil },
	} {
		for _, uncut := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r, stream := scriptRig(t, 100*ms, 20, io.EOF)
				res, err := r.handle.QueryWithOptions(t.Context(), "SELECT SCRIPT", QueryOptions{NoCancel: uncut})
				must(t, err)
				require.True(t, res.Next())
				time.AfterFunc(50*ms, func() {
					err := second(res)
					require.Equal(t, name == "Next", errors.Is(err, backend.ErrBusy), "%s: %v", name, err)
				})
				require.False(t, res.Next(), name)
				require.Equal(t, name == "Next", errors.Is(res.Err(), backend.ErrBusy), "%s: %v", name, res.Err())
				require.Nil(t, res.RecordBatch(), name)
				must(t, r.handle.Ping(t.Context()))
				require.False(t, stream.beside.Load(), name)
				must(t, r.handle.Close())
				r.reused()
			})
		}
	}
}

// How many rows a result has touched is told at its end and not after a failure.
func TestTheRowsAffectedAreToldAtTheEndOnly(t *testing.T) {
	for _, end := range []error{io.EOF, sqlError("no")} {
		synctest.Test(t, func(t *testing.T) {
			r, stream := scriptRig(t, 0, 1, end)
			stream.affected = 7
			res, err := r.handle.Query(t.Context(), "SELECT SCRIPT")
			must(t, err)
			for res.Next() {
				continue
			}
			n, counted := res.RowsAffected()
			require.Equal(t, errors.Is(end, io.EOF), counted)
			if counted {
				require.EqualValues(t, 7, n)
			}
			asked := stream.asked
			must(t, r.handle.Ping(t.Context()))
			other, err := r.handle.Query(t.Context(), "SELECT 2")
			must(t, err)
			require.False(t, res.Next(), "it has ended")
			require.Equal(t, asked, stream.asked)
			require.ErrorIs(t, r.handle.Ping(t.Context()), backend.ErrBusy, "the other result is open still")
			res.Release()
			other.Release()
			must(t, r.handle.Close())
		})
	}
}

// A result without rows is closed like any other.
func TestAResultWithoutRowsIsClosedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		res, err := r.handle.Query(t.Context(), "INSERT 1")
		must(t, err)
		require.False(t, res.Next())
		must(t, res.Close())
		_, err = res.ReadAll(t.Context())
		require.ErrorIs(t, err, backend.ErrHandleClosed)

		res, err = r.handle.Query(t.Context(), "INSERT 1")
		must(t, err)
		res.Release()
		_, err = res.ReadAll(t.Context())
		require.ErrorIs(t, err, backend.ErrHandleClosed)
		must(t, r.handle.Close())
	})
}

// To close a result that only reads takes no time.
func TestCloseReadsOnOnlyWhereSomethingMayChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := scriptRig(t, 10*ms, 5, io.EOF)
		for name, open := range map[string]func() (*QueryResult, error){
			"a query":     func() (*QueryResult, error) { return r.handle.Query(t.Context(), "SELECT SCRIPT") },
			"a catalogue": func() (*QueryResult, error) { return r.handle.Metadata(t.Context(), backend.MetadataRequest{}) },
		} {
			res, err := open()
			must(t, err)
			start := time.Now()
			must(t, res.Close())
			require.Zero(t, time.Since(start), name)
			must(t, r.handle.Ping(t.Context()))
			require.Equal(t, 50*ms, time.Since(start), name)
		}
		require.Empty(t, r.chains())
		must(t, r.handle.Close())
	})
}

// The failure of a result is one pair of its loop, also when it was closed before.
func TestAFailureIsTheLastPairOfALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, closed := range []bool{false, true} {
			r, _ := scriptRig(t, 0, 1, sqlError("division by zero"))
			res, err := r.handle.Query(t.Context(), "SELECT SCRIPT")
			must(t, err)
			if closed {
				for res.Next() {
					continue
				}
				require.Error(t, res.Close())
			}
			var errs []error
			pairs := 0
			for _, err := range res.Batches() {
				if pairs++; err != nil {
					errs = append(errs, err)
				}
			}
			require.Len(t, errs, 1)
			require.ErrorContains(t, errs[0], "division by zero")
			require.Equal(t, closed, pairs == 1)
			must(t, r.handle.Close())
		}
	})
}

// A result hears of an end of its context that came while it was made.
func TestAResultHearsOfAnEndThatCameWhileItWasMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stream := scriptRig(t, 0, 5, io.EOF)
		ctx, stop := context.WithCancel(t.Context())
		stream.schema = func() {
			stop()
			synctest.Wait()
		}
		res, err := r.handle.Query(ctx, "SELECT SCRIPT")
		must(t, err)
		require.False(t, res.Next())
		require.ErrorIs(t, res.Err(), context.Canceled)
		must(t, r.handle.Ping(t.Context()))
		require.Equal(t, 1, stream.asked)
		res.Release()
		must(t, r.handle.Close())
		r.reused()
	})
}

// An answer of another session is no answer for who has something to lose in
// this one, also when it is the end of the rows.
func TestAnAnswerOfAnotherSessionIsNoAnswer(t *testing.T) {
	for _, atRisk := range []bool{false, true} {
		for read := range 2 {
			synctest.Test(t, func(t *testing.T) {
				r, _ := scriptRig(t, 0, 2, io.EOF)
				if atRisk {
					must(t, r.handle.BeginTransaction(t.Context()))
				}
				replace := func() {
					r.conn.mu.Lock()
					defer r.conn.mu.Unlock()
					r.conn.lost = fmt.Errorf("cookie: %w", backend.ErrSessionReplaced)
				}
				res, err := r.handle.Query(t.Context(), "SELECT SCRIPT")
				must(t, err)
				for range read + 1 {
					require.True(t, res.Next())
				}
				replace()
				rows := 0
				for res.Next() {
					rows++
				}
				if atRisk {
					require.Zero(t, rows)
					require.ErrorIs(t, res.Err(), backend.ErrSessionReplaced)
					require.ErrorIs(t, res.Err(), backend.ErrSessionLost)
				} else {
					require.Equal(t, 1-read, rows)
					require.NoError(t, res.Err())
				}
				res.Release()
				_ = r.handle.Close()
				if atRisk {
					_ = r.discarded()
				}
			})
		}
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{})
			if atRisk {
				must(t, r.handle.BeginTransaction(t.Context()))
			}
			r.conn.useParams = func() {
				r.conn.mu.Lock()
				defer r.conn.mu.Unlock()
				r.conn.lost = fmt.Errorf("cookie: %w", backend.ErrSessionReplaced)
			}
			batch := int64Batch(1)
			defer batch.Release()
			_, err := r.handle.UpdateWithRecordBatch(t.Context(), "UPDATE t SET a = ?", batch)
			if atRisk {
				require.ErrorIs(t, err, backend.ErrSessionReplaced)
				require.ErrorIs(t, err, backend.ErrSessionLost)
			} else {
				require.NoError(t, err)
			}
			_ = r.handle.Close()
		})
	}
}

// How far a result is read on that was let go, and that its RPC is ended before
// its stream is closed where that was not to its end.
func TestHowFarAResultIsReadOnThatWasLetGo(t *testing.T) {
	const mib = 1 << 17 // numbers
	for name, tc := range map[string]struct {
		inTx, uncut bool
		batches     int // the first one is let go with
		size        int
		pace        time.Duration
		end         error
		whole       bool
		why         string // of ErrTxAborted; none: the transaction goes on
	}{
		"1 MiB":                   {batches: 2, size: mib, whole: true},
		"more than 1 MiB":         {batches: 2, size: mib + 1},
		"NoCancel, 40 MiB":        {batches: 41, size: mib, uncut: true, whole: true},
		"32 MiB in a transaction": {inTx: true, batches: 5, size: 8 * mib, whole: true},
		"more in a transaction":   {inTx: true, batches: 5, size: 8*mib + 1},
		"100 ms":                  {batches: 4, size: 1, pace: 24 * ms, whole: true},
		"more than 100 ms":        {batches: 4, size: 1, pace: 26 * ms},
		"250 ms in a transaction": {inTx: true, batches: 4, size: 1, pace: 62 * ms, whole: true},
		"more time in one":        {inTx: true, batches: 4, size: 1, pace: 63 * ms},
		"its end fails after the time": {
			inTx: true, batches: 2, size: 1, pace: 200 * ms, end: sqlError("division by zero"), whole: true, why: "division by zero",
		},
		"its end is cut by the server": {
			inTx: true, batches: 2, size: 1, end: &backend.Error{Stage: backend.StageFetch, Fault: backend.FaultContext, Err: status.Error(codes.Canceled, "the server's")}, why: "the server's",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &scriptConn{fakeConn: &fakeConn{}}
			closed, finished := 0, false
			var stream *scriptStream
			conn.script = func(ctx context.Context, _ backend.Call) *scriptStream {
				stream = &scriptStream{}
				deaf := tc.end != nil
				stream.next = func(n int) (arrow.RecordBatch, error) {
					ended := deaf && ctx.Err() == nil
					select {
					case <-time.After(tc.pace):
					case <-ctx.Done():
					}
					switch {
					case ctx.Err() != nil && !ended:
						return nil, &backend.Error{Stage: backend.StageFetch, Fault: backend.FaultContext, Err: status.FromContextError(ctx.Err()).Err()}
					case n <= tc.batches:
						return numbers(tc.size), nil
					case tc.end != nil:
						finished = true
						return nil, tc.end
					default:
						finished = true
						return nil, io.EOF
					}
				}
				stream.closed = func() {
					closed++
					require.Equal(t, tc.whole || tc.why == "the server's", finished, name)
					require.True(t, finished || ctx.Err() != nil, "%s: the RPC is ended before the stream is closed", name)
				}
				return stream
			}
			r := newRig(t, conn.fakeConn)
			r.handle = New(conn, r.policy, r.returned)
			if tc.inTx {
				must(t, r.handle.BeginTransaction(t.Context()))
			}
			res, err := r.handle.QueryWithOptions(t.Context(), "SELECT SCRIPT", QueryOptions{NoCancel: tc.uncut})
			must(t, err)
			require.True(t, res.Next())
			res.Release()
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, 1, closed, name)
			require.Equal(t, tc.whole, len(r.chains()) == 0, name)
			if tc.inTx {
				err := r.handle.Commit(t.Context())
				if tc.why == "" {
					require.NoError(t, err, name)
				} else {
					require.ErrorIs(t, err, backend.ErrTxAborted, name)
					require.ErrorContains(t, err, tc.why, name)
				}
			}
			must(t, r.handle.Close())
			r.reused()
		})
	}
}

// Where the server's own word shows that a cancel has worked, nothing is read on
// for longer because its statements run side by side.
func TestAResultLetGoIsNotReadOnWhereTheServerCanBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &orderConn{fakeConn: &fakeConn{pace: 10 * ms}, order: &backend.StatementOrder{}}
		conn.order.SetConcurrent()
		conn.steps = func(*backend.Operation) []cancel.Step {
			return []cancel.Step{{Name: "CancelFlightInfo", Timeout: time.Second, Do: func(context.Context) (cancel.Outcome, error) {
				return cancel.Confirmed, nil
			}}}
		}
		r := newRig(t, conn.fakeConn)
		res, err := NewStateless(conn, r.policy, r.returned).Query(t.Context(), "SELECT 400")
		must(t, err)
		res.Release()
		time.Sleep(drainTime + 50*ms)
		r.reused()
		require.Equal(t, "CancelFlightInfo", r.chains()[0].ConfirmedBy)
	})
}

// A catalogue call is a read, to which of its options Timeout, Headers and
// NoCancel apply.
func TestACatalogueCallIsAReadWithFewOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := scriptRig(t, 0, 2, io.EOF)
		conn := r.handle.conn.(*scriptConn)
		script := conn.script
		conn.script = func(ctx context.Context, call backend.Call) *scriptStream {
			require.Nil(t, call.Progress)
			require.Equal(t, []string{"v"}, call.Headers.Get("k"))
			return script(ctx, call)
		}
		res, err := r.handle.MetadataWithOptions(t.Context(), backend.MetadataRequest{}, QueryOptions{
			Headers: map[string][]string{"k": {"v"}}, Progress: func(float64, bool) {},
		})
		must(t, err)
		res.Release()
		must(t, r.handle.Close())

		f := &fakeConn{fail: map[string]error{"Metadata": transportError()}}
		r = newRig(t, f)
		_, err = r.handle.Metadata(t.Context(), backend.MetadataRequest{})
		require.True(t, backend.SafeToRetry(err), "it is a read: %v", err)
		_ = r.handle.Close()
	})
}

// A statement of parameters that failed is closed with its call, not with the
// handle.
func TestTheStatementOfParametersThatFailedIsClosedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		batch := int64Batch(1)
		defer batch.Release()
		_, err := r.handle.UpdateWithRecordBatch(t.Context(), "UPDATE bad SET a = ?", batch)
		require.Error(t, err)
		synctest.Wait()
		r.clean("the handle is open still")
		must(t, r.handle.Close())
		r.reused()
	})
}
