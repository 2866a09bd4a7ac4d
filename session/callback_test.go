package session

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// panickyContext panics when it is asked for what name says.
type panickyContext struct {
	context.Context
	deadline, err bool
}

func (c *panickyContext) Deadline() (time.Time, bool) {
	if c.deadline {
		panic("the caller's")
	}
	return c.Context.Deadline()
}

func (c *panickyContext) Err() error {
	if c.err {
		panic("the caller's")
	}
	return c.Context.Err()
}

// A panic of what the caller has given goes on in the caller, and the handle goes
// on too.
func TestAPanicOfTheCallersOwnCostsTheCallAlone(t *testing.T) {
	batch := int64Batch(1)
	for name, call := range map[string]func(t *testing.T, r *rig) (context.Context, error){
		"a context's deadline": func(t *testing.T, r *rig) (context.Context, error) {
			_, err := r.handle.Update(&panickyContext{Context: t.Context(), deadline: true}, "INSERT 1")
			return nil, err
		},
		"a context's error": func(t *testing.T, r *rig) (context.Context, error) {
			_, err := r.handle.Update(&panickyContext{Context: t.Context(), err: true}, "INSERT 1")
			return nil, err
		},
		"parameters": func(t *testing.T, r *rig) (context.Context, error) {
			r.conn.useParams = func() { panic("the caller's") }
			_, err := r.handle.UpdateWithRecordBatch(t.Context(), "INSERT 1", batch)
			return nil, err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{})
			require.PanicsWithValue(t, "the caller's", func() { _, _ = call(t, r) }, name)
			r.conn.useParams = nil
			time.Sleep(time.Minute)
			_, err := r.handle.Update(t.Context(), "INSERT 2")
			require.NoError(t, err, name)
			must(t, r.handle.Close())
			r.clean(name)
			require.Len(t, r.returns, 1)
		})
	}
}

// exitingRows end the goroutine that retains them.
type exitingRows struct{ array.RecordReader }

func (exitingRows) Retain() { runtime.Goexit() }

// exitingBatch does so too.
type exitingBatch struct{ arrow.RecordBatch }

func (exitingBatch) Retain() { runtime.Goexit() }

// What is asked of the caller's own before anything is sent may panic or end the goroutine: the result of a call that has
// failed, which is nil, as rows for one. Nothing is sent, no connection kept, no transaction aborted.
func TestWhatOfTheCallersFailsBeforeAnythingIsSentEndsTheCall(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, s *SessionHandle){
		"the rows of a call that has failed": func(ctx context.Context, s *SessionHandle) {
			_, _ = s.Ingest(ctx, "t", (*QueryResult)(nil), backend.IngestOptions{})
		},
		"rows": func(ctx context.Context, s *SessionHandle) {
			_, _ = s.Ingest(ctx, "t", exitingRows{}, backend.IngestOptions{})
		},
		"parameters": func(ctx context.Context, s *SessionHandle) {
			_, _ = s.UpdateWithRecordBatch(ctx, "INSERT 1", exitingBatch{int64Batch(1)})
		},
	} {
		for _, of := range []string{"a single call", "a session", "a transaction"} {
			t.Run(name+" of "+of, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, &fakeConn{})
					s := r.handle
					switch of {
					case "a single call":
						s = r.stateless()
					case "a transaction":
						must(t, s.BeginTransaction(t.Context()))
					}
					sent := r.conn.Log()
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						defer func() { _ = recover() }()
						call(t.Context(), s)
						t.Error("the call has returned")
					}()
					<-ended
					time.Sleep(time.Minute)
					require.Equal(t, sent, r.conn.Log(), "nothing was sent")
					if of != "a single call" {
						_, err := s.Update(t.Context(), "INSERT 2")
						require.NoError(t, err)
					}
					if of == "a transaction" {
						must(t, s.Commit(t.Context()))
					}
					must(t, s.Close())
					r.reused()
				})
			})
		}
	}
}

// In an errgroup the cause of a context is what another call has failed with. That a result was released, or a handle
// closed, is said there of others: rows that are cut are not whole, and nobody waits on.
func TestTheCauseOfAContextIsNoWordOfOurOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := newRig(t, &fakeConn{pace: time.Second})
		must(t, other.handle.BeginTransaction(t.Context()))
		other.change(t.Context(), "SELECT 100").Release()
		_, why := other.handle.Update(t.Context(), "INSERT 1")
		require.ErrorIs(t, why, backend.ErrTxAborted)
		r := newRig(t, &fakeConn{pace: time.Second})
		ctx, end := context.WithCancelCause(t.Context())
		time.AfterFunc(2500*ms, func() { end(why) })
		res, err := r.handle.Query(ctx, "SELECT 100")
		must(t, err)
		rows := 0
		for res.Next() {
			rows++
		}
		require.Less(t, rows, 100)
		require.ErrorIs(t, res.Err(), context.Canceled, "the rows were cut")
		require.ErrorIs(t, res.Err(), why)
		res.Release()
		must(t, r.handle.Close())
		_ = other.handle.Close() // its transaction is aborted
	})
	for name, call := range map[string]func(ctx context.Context, s *SessionHandle) error{
		"Commit":           func(ctx context.Context, s *SessionHandle) error { return s.Commit(ctx) },
		"Rollback":         func(ctx context.Context, s *SessionHandle) error { return s.Rollback(ctx) },
		"BeginTransaction": func(ctx context.Context, s *SessionHandle) error { return s.BeginTransaction(ctx) },
		"SetOption":        func(ctx context.Context, s *SessionHandle) error { return s.SetOption(ctx, "a", "b") },
		"NoCancel": func(ctx context.Context, s *SessionHandle) error {
			_, err := s.UpdateWithOptions(ctx, "UPDATE SLOW 1h", QueryOptions{NoCancel: true})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &fakeConn{})
				if name == "Commit" || name == "Rollback" {
					must(t, r.handle.BeginTransaction(t.Context()))
				}
				r.conn.work = map[string]time.Duration{"Begin": time.Hour, "Commit": time.Hour, "Rollback": time.Hour, "SetOptions": time.Hour}
				ctx, end := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { end(fmt.Errorf("another session: %w", backend.ErrHandleClosed)) })
				began := time.Now()
				require.ErrorIs(t, call(ctx, r.handle), context.Canceled)
				require.LessOrEqual(t, time.Since(began), time.Second+50*ms)
				time.Sleep(3 * time.Hour)
				_ = r.handle.Close() // it may be lost
			})
		})
	}
}

// While Close cleans up, the handle takes no call and is not closed again.
func TestAHandleThatIsBeingClosedTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{work: map[string]time.Duration{"Rollback": time.Second}})
		must(t, r.handle.BeginTransaction(t.Context()))
		time.AfterFunc(500*ms, func() {
			_, err := r.handle.Update(t.Context(), "INSERT 1")
			require.ErrorIs(t, err, backend.ErrHandleClosed)
			must(t, r.handle.Close())
		})
		must(t, r.handle.Close())
		time.Sleep(time.Minute)
		r.reused()
		require.Equal(t, []string{"Begin", "Rollback"}, r.conn.Log())
	})
}

// What a result held is not the caller's any more once it has ended.
func TestAResultThatIsOverHoldsNoBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		res, err := r.handle.Query(t.Context(), "SELECT 3")
		must(t, err)
		require.True(t, res.Next())
		must(t, res.Close())
		require.Nil(t, res.RecordBatch())
		require.False(t, res.Next())
		res.Release()
		must(t, r.handle.Close())
	})
}

// A call waits for the one before it that is being ended, no longer than its own
// context; the error says what it has waited for.
func TestACallThatWaitsForTheOneBeforeSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := r.handle.UpdateWithOptions(ctx, "UPDATE SLOW 1m", QueryOptions{NoCancel: true})
		require.Error(t, err)
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		err = r.handle.Ping(short)
		require.ErrorContains(t, err, "the previous call of the session is still being ended")
		require.True(t, backend.SafeToRetry(err))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		must(t, r.handle.Ping(t.Context()))
		must(t, r.handle.Close())
		r.reused()
	})
}

// fussyMemory is an allocator that panics, or ends the goroutine, at its nth use.
type fussyMemory struct {
	memory.Allocator
	calls atomic.Int32
	nth   int32
	exit  bool
}

func (m *fussyMemory) Allocate(size int) []byte {
	if m.calls.Add(1) == m.nth {
		if m.exit {
			runtime.Goexit()
		}
		panic("the caller's")
	}
	return m.Allocator.Allocate(size)
}

// A panic while rows are read ends the result, whoever reads them, and goes on in
// the reader if there is one.
func TestAPanicInTheRowsEndsTheResult(t *testing.T) {
	for _, opts := range []QueryOptions{{}, {NoCancel: true}} {
		for _, exit := range []bool{false, true} {
			for _, reads := range []string{"read", "let go", "left"} {
				if reads == "left" && !opts.NoCancel {
					continue // the read is cut
				}
				synctest.Test(t, func(t *testing.T) {
					what := fmt.Sprintf("NoCancel %t, exit %t, %s", opts.NoCancel, exit, reads)
					mem := &fussyMemory{Allocator: memory.DefaultAllocator, exit: exit}
					r := newRig(t, &fakeConn{mem: mem, pace: 10 * ms})
					ctx, stop := context.WithCancel(t.Context())
					defer stop()
					res, err := r.handle.QueryWithOptions(ctx, "SELECT 5", opts)
					must(t, err)
					mem.nth = mem.calls.Load() + 2
					var panicked any
					returned := false
					switch reads {
					case "left":
						time.AfterFunc(5*ms, stop)
						fallthrough
					case "read":
						done := make(chan struct{})
						go func() {
							defer close(done)
							defer func() { panicked = recover() }()
							for res.Next() {
								require.NotNil(t, res.RecordBatch(), what)
							}
							returned = true
						}()
						<-done
					}
					if reads == "read" {
						require.False(t, returned, what)
						require.Error(t, res.Err(), what)
						if !exit {
							require.Equal(t, "the caller's", panicked, what)
						}
						stop()
						synctest.Wait()
					}
					res.Release()
					time.Sleep(time.Minute)
					_, err = r.handle.Update(t.Context(), "INSERT 2")
					require.NoError(t, err, what)
					must(t, r.handle.Close())
					r.clean(what)
					require.Len(t, r.returns, 1, what)
				})
			}
		}
	}
}

// A panic while a session is made clean costs its connection and nothing else, whoever
// waits for that.
func TestAPanicWhileASessionIsMadeCleanCostsItsConnection(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, s *SessionHandle) error{
		"Close":       func(_ context.Context, s *SessionHandle) error { return s.Close() },
		"CloseWithin": func(ctx context.Context, s *SessionHandle) error { s.CloseWithin(ctx); return nil },
	} {
		for _, exit := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				mem := &fussyMemory{Allocator: memory.DefaultAllocator, exit: exit}
				r := newRig(t, &fakeConn{mem: mem})
				_, err := r.handle.Update(t.Context(), "SET threads = 1")
				must(t, err)
				mem.nth = mem.calls.Load() + 1
				var told error
				go func() { told = end(t.Context(), r.handle) }()
				synctest.Wait()
				require.Equal(t, name == "Close" && !exit, told != nil, "%s: %v", name, told)
				require.Len(t, r.returns, 1, name)
				require.ErrorContains(t, r.returns[0], "the cleaning of the session", name)
				require.ErrorIs(t, r.handle.Ping(t.Context()), backend.ErrHandleClosed, name)
			})
		}
	}
}

// A hook of the owner's that is told of a lost connection's return and calls the session
// would wait for itself.
func TestAHookOfTheReturnThatCallsItsSessionIsRefused(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, s *SessionHandle) error{
		"a statement": func(ctx context.Context, s *SessionHandle) error { _, err := s.Update(ctx, "INSERT 2"); return err },
		"a rollback":  func(ctx context.Context, s *SessionHandle) error { return s.Rollback(ctx) },
		"a query":     func(ctx context.Context, s *SessionHandle) error { _, err := s.Query(ctx, "SELECT 1"); return err },
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &fakeConn{}
			var s *SessionHandle
			var took time.Duration
			var told error
			s = New(conn, &Policy{OwnerContext: t.Context()}, func(error) {
				start := time.Now()
				told = call(t.Context(), s)
				took = time.Since(start)
			})
			conn.cut()
			_, err := s.Update(t.Context(), "INSERT 1")
			require.ErrorIs(t, err, backend.ErrSessionLost, name)
			require.ErrorIs(t, told, backend.ErrSessionLost, name)
			require.LessOrEqual(t, took, s.policy.closeTimeout(), name)
			require.NoError(t, s.Close(), name)
		})
	}
}
