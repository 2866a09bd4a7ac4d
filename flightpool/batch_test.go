package flightpool

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

// eachSender runs f with every way to send a batch, on a pool with one connection.
func eachSender(t *testing.T, profile testserver.Profile, f func(r *rig, send func(ctx context.Context, b *Batch) error)) {
	for name, sender := range map[string]func(r *rig) (func(context.Context, *Batch) error, func()){
		"pool": func(r *rig) (func(context.Context, *Batch) error, func()) { return r.pool.SendBatch, func() {} },
		"session": func(r *rig) (func(context.Context, *Batch) error, func()) {
			s := r.session()
			return s.SendBatch, func() { _ = s.Close() }
		},
		"tx": func(r *rig) (func(context.Context, *Batch) error, func()) {
			tx := r.begin()
			return tx.SendBatch, func() { _ = tx.Rollback(r.Context()) }
		},
	} {
		t.Run(profile.Name+"/"+name, func(t *testing.T) {
			inBubble(t, profile, Config{MaxSize: 1}, func(r *rig) {
				r.exec("CREATE TABLE " + r.bulkTable() + " (a BIGINT)")
				send, end := sender(r)
				defer end()
				f(r, send)
			})
		})
	}
}

func TestABatchRunsInItsOrderOnOneConnection(t *testing.T) {
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake()} {
		eachSender(t, profile, func(r *rig, send func(context.Context, *Batch) error) {
			var before, after, affected int64
			var all []int64
			var b Batch
			args := []any{7}
			b.Queue("INSERT INTO "+r.bulkTable()+" VALUES (?)", args...)
			args[0] = 8 // what was queued stays as it was
			b.Queue("SELECT count(*) FROM " + r.bulkTable()).Scan(&before)
			b.Queue("INSERT INTO " + r.bulkTable() + " VALUES (9)").Query(func(rows *QueryResult) error {
				if affected, _ = rows.RowsAffected(); profile.Name == "swanlake" {
					affected++ // which it does not count
				}
				return nil
			})
			b.Queue("SELECT * FROM generate(100000)")                                                                  // whose rows nobody wants
			b.Queue("SELECT * FROM generate(100000)").Query(func(rows *QueryResult) error { rows.Next(); return nil }) // nor these
			b.Queue("SELECT * FROM generate(3)").Query(func(rows *QueryResult) error { rows.Release(); return nil })   // nor these
			b.QueueWithOptions("SELECT count(*) FROM "+r.bulkTable(), QueryOptions{Timeout: time.Second}).Query(func(rows *QueryResult) (err error) {
				after, err = CollectOneRow[int64](rows, nil)
				return err
			})
			b.Queue("SELECT * FROM " + r.bulkTable()).Query(func(rows *QueryResult) (err error) {
				all, err = CollectRows[int64](rows, nil)
				return err
			})
			require.Equal(r, 8, b.Len())
			require.NoError(r, send(r.Context(), &b))
			require.Equal(r, []int64{1, 2, 1}, []int64{before, after, affected})
			require.Equal(r, []int64{7, 9}, all)
			sessions := map[int]bool{}
			for _, st := range r.srv.Ledger().Executions("SELECT count(*) FROM " + r.bulkTable()) {
				sessions[st.Session] = true
			}
			require.Len(r, sessions, 1)

			require.NoError(r, send(r.Context(), &b), "it may be sent again")
			require.Equal(r, []int64{3, 4, 1}, []int64{before, after, affected})
			require.NoError(r, send(r.Context(), &Batch{}))
		})
	}
}

// What a function of a batch queues runs too.
func TestABatchRunsWhatItsFunctionsQueue(t *testing.T) {
	eachSender(t, testserver.Strict(), func(r *rig, send func(context.Context, *Batch) error) {
		var b Batch
		var n int
		b.Queue("SELECT 2").Query(func(rows *QueryResult) error {
			for range Rows[int](rows, nil) {
				b.Queue("INSERT INTO t VALUES (2)")
			}
			b.Queue("SELECT count(*) FROM t").Scan(&n)
			b.Queue("SELECT error('no')")
			return nil
		})
		b.Queue("INSERT INTO t VALUES (1)")
		var failed *BatchError
		require.ErrorAs(r, send(r.Context(), &b), &failed)
		require.Equal(r, 4, failed.Index)
		require.Equal(r, 5, failed.Len)
		require.Equal(r, 2, n)
	})
}

// What a function queues is of the send in which it does so: where a transaction runs again, or a batch that has failed is sent again, the
// function queues it again.
func TestABatchThatIsSentAgainRunsOnceWhatItsFunctionsQueue(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		var b Batch
		b.Queue("SELECT 7").Query(func(*QueryResult) error {
			b.Queue("INSERT INTO t VALUES (7)")
			return nil
		})
		for _, sql := range []string{"DELETE", "INSERT"} {
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: sql, Times: 1, Do: testserver.Fail(codes.Aborted, "conflict")})
			runs := 0
			require.NoError(r, r.pool.InTx(r.Context(), TxOptions{}, func(ctx context.Context, tx *Tx) error {
				runs++
				if err := tx.SendBatch(ctx, &b); err != nil {
					return err
				}
				_, err := tx.Update(ctx, "DELETE FROM t WHERE a = 0")
				return err
			}))
			require.Equal(r, 2, runs)
		}
		require.Equal(r, "2", r.value(r.pool, "SELECT count(*) FROM t"))
		require.Equal(r, 1, b.Len())
	})
}

var errOwn = errors.New("of its function")

// What ends a batch at its second statement of four: what ran before it is told, and what
// comes after is not sent.
func TestABatchStopsAtTheFirstFailure(t *testing.T) {
	const failing = "SELECT error('no')"
	for name, c := range map[string]struct {
		queue  func(r *rig, b *Batch, stop context.CancelFunc)
		is     error
		unsent bool // nothing of it was sent
		alive  bool // an open transaction is so still
	}{
		"a statement": {queue: func(_ *rig, b *Batch, _ context.CancelFunc) { b.Queue(failing) }},
		"a change":    {queue: func(_ *rig, b *Batch, _ context.CancelFunc) { b.Queue("INSERT INTO missing VALUES (1)") }},
		"a statement in its rows": {queue: func(r *rig, b *Batch, _ context.CancelFunc) {
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnBatch, SQL: "generate", Times: 1, Skip: 1, Do: testserver.Fail(codes.Internal, "no")})
			b.Queue("SELECT * FROM generate(10, 1)").Query(func(rows *QueryResult) error { // it does not ask what ended them
				for rows.Next() {
					continue
				}
				return nil
			})
		}},
		"its function": {is: errOwn, alive: true, queue: func(_ *rig, b *Batch, _ context.CancelFunc) {
			b.Queue("SELECT 1").Query(func(*QueryResult) error { return errOwn })
		}},
		"no row":              {is: ErrNoRows, alive: true, queue: func(_ *rig, b *Batch, _ context.CancelFunc) { var n int; b.Queue("SELECT * FROM generate(0)").Scan(&n) }},
		"a wrong destination": {alive: true, queue: func(_ *rig, b *Batch, _ context.CancelFunc) { b.Queue("SELECT 1").Scan(nil, nil) }},
		"an argument":         {unsent: true, alive: true, queue: func(_ *rig, b *Batch, _ context.CancelFunc) { b.Queue("SELECT ?", make(chan int)) }},
		"no text":             {unsent: true, alive: true, queue: func(_ *rig, b *Batch, _ context.CancelFunc) { b.Queue("") }},
		"COMMIT as text":      {unsent: true, alive: true, queue: func(_ *rig, b *Batch, _ context.CancelFunc) { b.Queue("COMMIT") }},
		"the deadline":        {is: context.DeadlineExceeded, queue: func(_ *rig, b *Batch, _ context.CancelFunc) { b.Queue("SELECT sleep('1h')") }},
		"its own deadline": {is: context.DeadlineExceeded, queue: func(_ *rig, b *Batch, _ context.CancelFunc) {
			b.QueueWithOptions("SELECT sleep('1h')", QueryOptions{Timeout: time.Second})
		}},
		"a context that ends in a function": {is: context.Canceled, queue: func(_ *rig, b *Batch, stop context.CancelFunc) {
			b.Queue("SELECT * FROM endless('1s')").Query(func(rows *QueryResult) error {
				stop()
				for rows.Next() {
					continue
				}
				return nil
			})
		}},
		"the connection": {is: ErrSessionLost, queue: func(r *rig, b *Batch, _ context.CancelFunc) {
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "SELECT 7", Times: 1, Do: testserver.Kill()})
			b.Queue("SELECT 7")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			eachSender(t, testserver.Strict(), func(r *rig, send func(context.Context, *Batch) error) {
				ctx, stop := context.WithTimeout(r.Context(), time.Minute)
				defer stop()
				var b Batch
				b.Queue("INSERT INTO t VALUES (1)")
				c.queue(r, &b, stop)
				b.Queue("INSERT INTO t VALUES (3)")
				b.Queue("INSERT INTO t VALUES (4)")
				err := send(ctx, &b)
				var failed *BatchError
				require.ErrorAs(r, err, &failed)
				require.Equal(r, 1, failed.Index)
				require.Equal(r, 4, failed.Len)
				require.ErrorContains(r, err, "statement 2 of 4 of a batch")
				require.ErrorContains(r, err, "2 not sent")
				if c.is != nil {
					require.ErrorIs(r, err, c.is)
				}
				var e *Error
				require.Equal(r, c.unsent, errors.As(err, &e) && e.Unsent)
				require.False(r, SafeToRetry(err), "the first has run")
				require.False(r, IsConflict(err))
				require.Equal(r, 1, r.executions("INSERT INTO t VALUES (1)"))
				require.Zero(r, r.executions("INSERT INTO t VALUES (3)"))
				require.Zero(r, r.executions("INSERT INTO t VALUES (4)"))

				var again Batch
				again.Queue("SELECT 5")
				err = send(r.Context(), &again)
				if c.alive {
					require.NoError(r, err, "the session and its transaction are as they were")
				} else if r.Name()[len(r.Name())-2:] == "tx" {
					require.True(r, errors.Is(err, ErrTxAborted) || errors.Is(err, ErrSessionLost), "%v", err)
				}
			})
		})
	}
}

// However a function of a batch leaves it, no result stays open, and the pool's connection
// is free.
func TestABatchGivesItsConnectionBackHoweverItIsLeft(t *testing.T) {
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake(), testserver.Dremio()} {
		for _, statement := range []string{"SELECT * FROM generate(200000)", "SELECT * FROM generate(1)"} {
			for name, leave := range badCallbacks {
				for _, read := range []bool{false, true} {
					t.Run(fmt.Sprint(profile.Name, "/", statement, "/", name, "/", read), func(t *testing.T) {
						tracer := &spanRecorder{}
						inBubble(t, profile, Config{MaxSize: 1, Tracer: tracer}, func(r *rig) {
							tracer.take(r, "")
							var b Batch
							b.Queue("SELECT 1")
							b.Queue(statement).Query(func(rows *QueryResult) error {
								if read {
									rows.Next()
								}
								leave()
								return nil
							})
							b.Queue("SELECT 3")
							done := make(chan any)
							go func() {
								defer func() { done <- recover() }()
								_ = r.pool.SendBatch(r.Context(), &b)
							}()
							what := <-done
							require.Equal(r, name == "panic", what != nil)
							synctest.Wait()
							time.Sleep(20 * time.Second) // for a cancel
							require.Zero(r, r.pool.Stats().InUse)
							require.Zero(r, r.executions("SELECT 3"))
							spans := tracer.take(r, "batch")
							require.Len(r, spans, 1)
							require.Error(r, spans[0].err)
							require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
						})
					})
				}
			}
		}
	}
}

// A change whose function does not read its rows is read to its end, where the server may
// refuse it, before the next is sent.
func TestABatchHearsOfAChangeThatFailsAtItsEnd(t *testing.T) {
	const change = "INSERT INTO t VALUES (1) RETURNING a"
	refusing := script.New()
	refusing.On(change, func(context.Context, string, arrow.RecordBatch) (array.RecordReader, error) {
		rows := ints("a", 1)
		return array.ReaderFromIter(rows.Schema(), func(yield func(arrow.RecordBatch, error) bool) {
			if yield(rows, nil) {
				yield(nil, errors.New("conflict"))
			}
		}), nil
	})
	for name, read := range map[string]func(rows *QueryResult) error{
		"nothing": func(*QueryResult) error { return nil },
		"release": func(rows *QueryResult) error { rows.Release(); return nil },
		"close":   func(rows *QueryResult) error { _ = rows.Close(); return nil },
		"a row":   func(rows *QueryResult) error { rows.Next(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleOn(t, testserver.Options{Profile: testserver.Strict(), Engine: refusing}, Config{MaxSize: 1}, func(r *rig) {
				var b Batch
				b.Queue(change).Query(read)
				b.Queue("SELECT 2")
				var failed *BatchError
				require.ErrorAs(r, r.pool.SendBatch(r.Context(), &b), &failed)
				require.ErrorContains(r, failed, "conflict")
				require.Zero(r, failed.Index)
				require.True(r, failed.PartlyDone(), "it had answered")
				require.Zero(r, r.executions("SELECT 2"))
			})
		})
	}
}

// What may be run again as a whole says so, and nothing else does.
func TestWhatABatchErrorSaysOfAnotherTry(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		var b Batch
		b.Queue("SELECT error('conflict')")
		var first, second *BatchError
		require.ErrorAs(r, r.pool.SendBatch(r.Context(), &b), &first)
		require.True(r, IsConflict(first), "nothing has run before it")
		require.False(r, first.PartlyDone())

		b = Batch{}
		b.Queue("INSERT INTO t VALUES (1)")
		b.Queue("SELECT error('conflict')")
		require.ErrorAs(r, r.pool.SendBatch(r.Context(), &b), &second)
		require.True(r, second.PartlyDone())
		require.False(r, IsConflict(fmt.Errorf("wrapped: %w", second)), "the first is stored")

		attempts := 0
		err := r.pool.InTx(r.Context(), TxOptions{Attempts: 3}, func(ctx context.Context, tx *Tx) error {
			attempts++
			return tx.SendBatch(ctx, &b)
		})
		require.True(r, IsConflict(err))
		require.Equal(r, 3, attempts)
		require.Equal(r, "1", r.value(r.pool, "SELECT count(*) FROM t"))

		s := r.session() // a function that ends the transaction of its session
		require.NoError(r, s.BeginTransaction(r.Context()))
		b = Batch{}
		b.Queue("INSERT INTO t VALUES (2)").Query(func(rows *QueryResult) error { return s.Commit(r.Context()) })
		b.Queue("SELECT error('conflict')")
		require.False(r, IsConflict(s.SendBatch(r.Context(), &b)))
		require.NoError(r, s.Close())

		r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "SELECT 7", Times: 1, Do: testserver.Kill()})
		b = Batch{}
		b.Queue("SELECT 7")
		err = r.pool.SendBatch(r.Context(), &b)
		require.True(r, SafeToRetry(err), "a read, and nothing before it: %v", err)
		require.Zero(r, r.executions("SELECT 7"), "and it is not repeated here")
		require.NoError(r, r.pool.SendBatch(r.Context(), &b))

		b = Batch{}
		b.Queue("SELECT 8").Query(func(*QueryResult) error {
			return &Error{Op: "elsewhere", Stage: backend.StageDial, Fault: FaultTransport, Unsent: true, Err: errOwn}
		})
		require.False(r, SafeToRetry(r.pool.SendBatch(r.Context(), &b)), "what its function has met is not of the batch")
	})
}

// Without a connection nothing is sent, and the error is no BatchError.
func TestABatchThatGetsNoConnection(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		s := r.session()
		var b Batch
		b.Queue("SELECT 1")
		ctx, stop := context.WithTimeout(r.Context(), time.Second)
		defer stop()
		err := r.pool.SendBatch(ctx, &b)
		require.ErrorIs(r, err, ErrExhausted)
		require.ErrorContains(r, err, "SendBatch")
		var failed *BatchError
		require.False(r, errors.As(err, &failed))
		require.True(r, SafeToRetry(err))
		require.NoError(r, r.pool.SendBatch(ctx, &Batch{}), "nothing to send")

		res, err := s.Query(r.Context(), "SELECT * FROM generate(100000)")
		require.NoError(r, err)
		require.ErrorIs(r, s.SendBatch(r.Context(), &b), ErrBusy)
		res.Release()
		require.NoError(r, s.Close())
		require.ErrorIs(r, s.SendBatch(r.Context(), &b), ErrHandleClosed)
	})
}

// The batch is seen once, and each of its statements once, within it.
func TestATracerSeesTheBatchAndItsStatements(t *testing.T) {
	tracer := &spanRecorder{}
	inBubble(t, testserver.Strict(), Config{MaxSize: 1, Tracer: tracer}, func(r *rig) {
		tracer.take(r, "")
		var b Batch
		b.Queue("SELECT 1")
		b.Queue("SELECT error('no')")
		b.Queue("SELECT 3")
		err := r.pool.SendBatch(r.Context(), &b)
		spans := tracer.take(r, "batch query")
		require.Len(r, spans, 3)
		batch := spans[2]
		require.Equal(r, "batch 3", batch.kind+" "+batch.op)
		require.ErrorIs(r, batch.err, err)
		for i, s := range spans[:2] {
			require.Same(r, batch, s.parent, i)
			require.Equal(r, "SendBatch", s.op)
		}
		require.NoError(r, spans[0].err)
		require.Error(r, spans[1].err)
	})
}

func TestABatchPrintsNothingOfItsStatements(t *testing.T) {
	var b Batch
	q := b.Queue("SELECT 's3cret', ?", "s3cret")
	for _, v := range []any{b, &b, *q, q} {
		require.NotContains(t, fmt.Sprintf("%v %+v %#v %s %d", v, v, v, v, v), "s3cret")
	}
	inBubble(t, testserver.Strict(), Config{}, func(r *rig) {
		b.Queue("SELECT 's3cret', error('no') FROM account")
		require.NotContains(r, r.pool.SendBatch(r.Context(), &b).Error(), "s3cret")
	})
}
