package flightpool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/rowscan"
	"github.com/flightpool/flightpool/testserver"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestQueriesOfManyGoroutinesRunInParallel(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 8}, func(r *rig) {
		start := time.Now()
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() {
				v, err := firstValue(r.Context(), r.pool, "SELECT sleep('1s')")
				require.NoError(r, err)
				require.NotEmpty(r, v)
			})
		}
		all.Wait()
		require.Equal(r, 5*time.Second, time.Since(start), "40 queries of a second on 8 connections")
		require.Equal(r, 8, r.srv.Ledger().Snapshot().RunningPeak)
		s := r.pool.Stats()
		require.EqualValues(r, 40, s.Calls)
		require.Zero(r, s.InUse+s.Waiting)
	})
}

func TestAReadIsRepeatedOnceOnAConnectionThatHasJustAnswered(t *testing.T) {
	var retried atomic.Int32
	cfg := Config{MaxSize: 3, MinIdle: 3, Hooks: Hooks{Retried: func(op string, err error) { retried.Add(1) }}}
	for name, on := range map[string]testserver.Fault{
		"while planning":     {On: testserver.OnGetFlightInfo, SQL: "FROM generate"},
		"before the stream":  {On: testserver.OnDoGet, SQL: "FROM generate"},
		"at the first batch": {On: testserver.OnBatch, SQL: "FROM generate"},
	} {
		retried.Store(0)
		inBubble(t, testserver.Strict(), cfg, func(r *rig) {
			require.NoError(r, r.pool.WaitReady(r.Context(), 3))
			on.Do, on.Times = testserver.Kill(), 1
			r.srv.Faults().Set(on)
			require.Equal(r, "0", r.value(r.pool, "SELECT * FROM generate(3)"), name)
			require.EqualValues(r, 1, r.pool.Stats().Retries, name)
			require.EqualValues(r, 1, retried.Load(), name)

			on.Times = 2
			r.srv.Faults().Set(on)
			_, err := firstValue(r.Context(), r.pool, "SELECT * FROM generate(3)")
			require.ErrorIs(r, err, ErrSessionLost, "once is once: "+name)
			require.EqualValues(r, 2, r.pool.Stats().Retries, name)
		})
	}
}

func TestNothingIsRepeatedAfterTheFirstBatch(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 2}, func(r *rig) {
		res, err := r.pool.Query(r.Context(), "SELECT * FROM generate(1000000)")
		require.NoError(r, err)
		require.True(r, res.Next())
		r.srv.Faults().KillConns()
		rows := res.RecordBatch().NumRows()
		for res.Next() {
			rows += res.RecordBatch().NumRows()
		}
		require.ErrorIs(r, res.Err(), ErrSessionLost, "a truncated result is never taken for a whole one")
		require.False(r, SafeToRetry(res.Err()))
		require.Less(r, rows, int64(1000000))
		res.Release()
		require.Zero(r, r.pool.Stats().Retries)
		require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
	})
}

func TestRetryPolicies(t *testing.T) {
	for _, tc := range []struct {
		name    string
		cfg     Config
		opts    QueryOptions
		change  bool
		retries uint64
	}{
		{"reads by default", Config{}, QueryOptions{}, false, 1},
		{"changes never by default", Config{}, QueryOptions{}, true, 0},
		{"never", Config{}, QueryOptions{Retry: RetryNever}, false, 0},
		{"disabled", Config{DisableRetry: true}, QueryOptions{Retry: RetryAlways}, false, 0},
		{"always", Config{}, QueryOptions{Retry: RetryAlways}, true, 1},
	} {
		tc.cfg.MaxSize = 2
		inBubble(t, testserver.Strict(), tc.cfg, func(r *rig) {
			r.exec("CREATE TABLE t (a BIGINT)")
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnDoPut, After: true, SQL: "INSERT", Times: 1, Do: testserver.Kill()})
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnDoGet, SQL: "SELECT 7", Times: 1, Do: testserver.Kill()})
			var err error
			if tc.change {
				_, err = r.pool.UpdateWithOptions(r.Context(), "INSERT INTO t VALUES (1)", tc.opts)
				require.Equal(r, int(1+tc.retries), r.executions("INSERT INTO t VALUES (1)"), tc.name)
			} else {
				var res *QueryResult
				if res, err = r.pool.QueryWithOptions(r.Context(), "SELECT 7", tc.opts); err == nil {
					res.Release()
				}
			}
			require.Equal(r, tc.retries > 0, err == nil, "%s: %v", tc.name, err)
			require.Equal(r, tc.retries, r.pool.Stats().Retries, tc.name)
		})
	}
}

func TestSQLErrorsAreNotRepeatedAndKeepTheConnection(t *testing.T) {
	onBoth(t, Config{MaxSize: 1}, func(r *rig) {
		for range 5 {
			_, err := firstValue(r.Context(), r.pool, "SELECT error('boom')")
			require.ErrorContains(r, err, "boom")
			require.Equal(r, FaultStatement, faultIn(err))
			_, err = r.pool.Update(r.Context(), "INSERT INTO nowhere VALUES (1)")
			require.Equal(r, FaultStatement, faultIn(err))
			st, ok := status.FromError(err)
			require.True(r, ok)
			require.NotEqual(r, codes.OK, st.Code())
		}
		s := r.pool.Stats()
		require.Zero(r, s.Retries)
		require.EqualValues(r, 1, s.Opens)
	})
}

func TestFiftyCancelsInARowOnAServerThatIgnoresThem(t *testing.T) {
	inBubble(t, testserver.SwanLake(), Config{MaxSize: 8}, func(r *rig) {
		for i := range 50 {
			r.cancelled(r.pool, "SELECT sleep('8s')", 50*ms)
			if i%10 == 0 {
				require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
			}
		}
		require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
		require.LessOrEqual(r, r.srv.Ledger().Snapshot().SessionsPeak, 100)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		s := r.pool.Stats()
		require.EqualValues(r, r.executions("SELECT sleep('8s')"), s.CancelsConfirmed+s.CancelsUnconfirmed, "those that reached the server; the others were still waiting for a connection")
		require.Zero(r, s.InUse)
	})
}

func TestExhaustionPoliciesAndWaiterCap(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1, OnExhausted: FailFast}, func(r *rig) {
		s := r.session()
		_, err := r.pool.Query(r.Context(), "SELECT 1")
		require.ErrorIs(r, err, ErrExhausted)
		require.NoError(r, s.Close())
	})
	inBubble(t, testserver.Strict(), Config{MaxSize: 1, OnExhausted: Overflow(1)}, func(r *rig) {
		s := r.session()
		require.Equal(r, "1", r.value(r.pool, "SELECT 1"), "on a connection beyond MaxSize")
		require.NoError(r, s.Close())
		time.Sleep(time.Second) // for the next burst
		synctest.Wait()
		require.LessOrEqual(r, r.pool.Stats().Total, 1)
	})
	inBubble(t, testserver.Strict(), Config{MaxSize: 1, MaxWaiters: 1, AcquireTimeout: 2 * time.Second}, func(r *rig) {
		s := r.session()
		var one sync.WaitGroup
		one.Go(func() {
			_, err := r.pool.Query(r.Context(), "SELECT 1")
			var full *reservoir.ExhaustedError
			require.ErrorAs(r, err, &full)
			require.Equal(r, 2*time.Second, full.Waited)
			require.Equal(r, 1, full.InUse)
			require.True(r, SafeToRetry(err))
		})
		synctest.Wait()
		start := time.Now()
		_, err := r.pool.Query(r.Context(), "SELECT 1")
		require.ErrorIs(r, err, ErrExhausted)
		require.Zero(r, time.Since(start))
		one.Wait()
		require.NoError(r, s.Close())
	})
}

func TestTimeoutsCountTheWaitForAConnection(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1, DefaultQueryTimeout: 3 * time.Second}, func(r *rig) {
		var first sync.WaitGroup
		first.Go(func() { _ = r.value(r.pool, "SELECT sleep('2s')") })
		synctest.Wait()
		start := time.Now()
		_, err := firstValue(r.Context(), r.pool, "SELECT sleep('2s')")
		require.ErrorIs(r, err, context.DeadlineExceeded)
		require.Equal(r, 3*time.Second, time.Since(start))
		first.Wait()
	})
}

// TestTimeoutsOfCallsWithoutOptionsCountTheWaitToo: they have the pool's, once.
func TestTimeoutsOfCallsWithoutOptionsCountTheWaitToo(t *testing.T) {
	batch := ints("a", 1, 2)
	defer batch.Release()
	for name, call := range map[string]func(ctx context.Context, p *FlightSQLPool) error{
		"Ping":    func(ctx context.Context, p *FlightSQLPool) error { return p.Ping(ctx) },
		"Tables":  func(ctx context.Context, p *FlightSQLPool) error { return drained(p.Tables(ctx, TableFilter{})) },
		"SQLInfo": func(ctx context.Context, p *FlightSQLPool) error { return drained(p.SQLInfo(ctx)) },
		"Ingest": func(ctx context.Context, p *FlightSQLPool) error {
			rows, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
			if err != nil {
				return err
			}
			defer rows.Release()
			_, err = p.Ingest(ctx, "t", rows, IngestOptions{})
			return err
		},
		"IngestRows": func(ctx context.Context, p *FlightSQLPool) error {
			_, err := IngestRows(ctx, p, "t", slices.Values([]struct{ A int64 }{{1}}), IngestOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testserver.Strict(), Config{MaxSize: 1, DefaultQueryTimeout: 3 * time.Second, HealthCheck: HealthCheck{SQL: "SELECT 5"}}, func(r *rig) {
				var first sync.WaitGroup
				first.Go(func() { _ = r.value(r.pool, "SELECT sleep('2s')") })
				synctest.Wait()
				for _, on := range []testserver.Point{testserver.OnGetFlightInfo, testserver.OnDoPut} {
					r.srv.Faults().Set(testserver.Fault{On: on, Do: testserver.Delay(2 * time.Second)})
				}
				start := time.Now()
				require.ErrorIs(r, call(r.Context(), r.pool), context.DeadlineExceeded)
				require.Equal(r, 3*time.Second, time.Since(start))
				first.Wait()
				r.srv.Faults().Clear()
			})
		})
	}
}

func TestResizeResetEvictAndWaitReady(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 4}, func(r *rig) {
		require.NoError(r, r.pool.WaitReady(r.Context(), 4))
		require.Equal(r, 4, r.pool.Stats().Idle)
		require.Equal(r, 3, r.pool.EvictIdle())
		synctest.Wait()
		require.Equal(r, 1, r.pool.Stats().Total)
		require.Error(r, r.pool.Resize(0))
		require.NoError(r, r.pool.Resize(2))
		ctx, stop := context.WithTimeout(r.Context(), time.Second)
		defer stop()
		require.Error(r, r.pool.WaitReady(ctx, 3), "more than MaxSize")
		opened := r.srv.Ledger().Snapshot().ConnsOpened
		s := r.session()
		r.pool.Reset()
		require.NoError(r, s.Ping(r.Context()), "a session on loan is not disturbed")
		require.NoError(r, s.Close())
		require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
		synctest.Wait()
		require.Greater(r, r.srv.Ledger().Snapshot().ConnsOpened, opened)
		require.Equal(r, r.pool.Stats().Total, r.srv.Ledger().Snapshot().Conns)
	})
}

func TestALeakedResultIsReportedWithItsBorrower(t *testing.T) {
	var leaks []reservoir.Leak
	cfg := Config{MaxSize: 2, LeakAfter: time.Minute, Hooks: Hooks{Connections: reservoir.Hooks{Leaked: func(l reservoir.Leak) { leaks = append(leaks, l) }}}}
	inBubble(t, testserver.Strict(), cfg, func(r *rig) {
		res, err := r.pool.Query(r.Context(), "SELECT * FROM generate(100, 10)")
		require.NoError(r, err)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		require.Len(r, leaks, 1)
		require.Contains(r, leaks[0].Stack, "TestALeakedResultIsReportedWithItsBorrower")
		require.Regexp(r, `^\S+TestALeakedResultIsReportedWithItsBorrower`, leaks[0].Stack, "it begins with the borrower, not with the library")
		res.Release()
	})
}

func TestParametersAndPreparedStatements(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 2}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		batch := ints("a", 1, 2, 3)
		defer batch.Release()
		done, err := r.pool.UpdateWithRecordBatch(r.Context(), "INSERT INTO t VALUES (?)", batch)
		require.NoError(r, err)
		require.EqualValues(r, 3, done.RowsAffected)
		one := ints("a", 2)
		defer one.Release()
		res, err := r.pool.QueryWithParams(r.Context(), "SELECT * FROM t WHERE a = ?", one)
		require.NoError(r, err)
		table, err := res.ReadAll(r.Context())
		require.NoError(r, err)
		require.EqualValues(r, 1, table.NumRows())
		table.Release()

		wrong := texts(1, 1) // two columns for one parameter
		defer wrong.Release()
		_, err = r.pool.UpdateWithRecordBatch(r.Context(), "INSERT INTO t VALUES (?)", wrong)
		require.Equal(r, FaultUsage, faultIn(err), "%v", err)
		require.Equal(r, "3", r.value(r.pool, "SELECT count(*) FROM t"))

		s := r.session()
		q, err := s.PrepareQuery(r.Context(), "SELECT * FROM t WHERE a = ?")
		require.NoError(r, err)
		for range 3 {
			res, err := q.Query(r.Context(), one)
			require.NoError(r, err)
			n := 0
			for range rowscan.Rows[struct{ A int64 }](res) {
				n++
			}
			require.Equal(r, 1, n)
		}
		require.NoError(r, s.Close())
		synctest.Wait() // a call's own statement is closed behind its caller
		require.Zero(r, r.srv.Ledger().Snapshot().Prepared)
	})
}

func TestIngestAndMetadata(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 2}, func(r *rig) {
		batch := ints("a", 1, 2, 3)
		defer batch.Release()
		rows, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch, batch})
		require.NoError(r, err)
		defer rows.Release()
		n, err := r.pool.Ingest(r.Context(), "loaded", rows, IngestOptions{Mode: backend.IngestCreate, Compression: backend.IngestLZ4})
		require.NoError(r, err)
		require.EqualValues(r, 6, n)
		require.Equal(r, "6", r.value(r.pool, "SELECT count(*) FROM loaded"))
		for name, call := range map[string]func() (*QueryResult, error){
			"catalogs": func() (*QueryResult, error) { return r.pool.Catalogs(r.Context()) },
			"schemas":  func() (*QueryResult, error) { return r.pool.Schemas(r.Context(), nil, nil) },
			"tables": func() (*QueryResult, error) {
				return r.pool.Tables(r.Context(), TableFilter{IncludeColumns: true, Types: []string{"TABLE"}})
			},
			"types": func() (*QueryResult, error) { return r.pool.TableTypes(r.Context()) },
			"keys":  func() (*QueryResult, error) { return r.pool.PrimaryKeys(r.Context(), TableRef{Table: "loaded"}) },
			"info":  func() (*QueryResult, error) { return r.pool.SQLInfo(r.Context(), 0) },
		} {
			res, err := call()
			require.NoError(r, err, name)
			for res.Next() {
			}
			require.NoError(r, res.Err(), name)
			require.Positive(r, res.Schema().NumFields(), name)
			res.Release()
		}
		_, err = r.pool.PrimaryKeys(r.Context(), TableRef{})
		require.Equal(r, FaultUsage, faultIn(err))
	})
}

func TestUseAfterCloseIsAClearError(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{}, func(r *rig) {
		s := r.session()
		require.NoError(r, s.Close())
		require.NoError(r, s.Close(), "closing a handle twice is fine")
		_, err := s.Update(r.Context(), "SELECT 1")
		require.ErrorIs(r, err, backend.ErrHandleClosed)
		require.NoError(r, r.pool.Close(r.Context()))
		require.ErrorIs(r, r.pool.Close(r.Context()), ErrClosed)
		_, err = r.pool.Update(r.Context(), "SELECT 1")
		require.ErrorIs(r, err, ErrClosed)
		require.Equal(r, FaultUsage, faultIn(err))
		require.ErrorIs(r, r.pool.Ping(r.Context()), ErrClosed)
		_, err = r.pool.AcquireSession(r.Context())
		require.ErrorIs(r, err, ErrClosed)
		require.ErrorIs(r, r.pool.WaitReady(r.Context(), 1), ErrClosed)
		r.pool = emptyPool(r)
	})
}

func TestCloseWakesThoseWhoWait(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		s := r.session()
		woken := make(chan error)
		go func() {
			_, err := r.pool.Query(r.Context(), "SELECT 1")
			woken <- err
		}()
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- r.pool.Close(r.Context()) }()
		require.ErrorIs(r, <-woken, ErrClosed, "before the session comes back")
		require.NoError(r, s.Close())
		require.NoError(r, <-closed)
		r.pool = emptyPool(r)
	})
}

func TestNewWithPoolsConnectionsOfYourOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("no such thing")
		_, err := NewWith(t.Context(), func(context.Context) (backend.Conn, error) { return nil, boom }, Config{})
		require.ErrorIs(t, err, boom)
		require.Equal(t, "New: dial: no such thing", err.Error())
		p, err := NewWith(t.Context(), func(context.Context) (backend.Conn, error) { return nil, boom }, Config{MinIdle: -1})
		require.NoError(t, err, "nothing is opened before it is needed")
		require.ErrorIs(t, p.Ping(t.Context()), boom)
		require.NoError(t, p.Close(t.Context()))
	})
}

func TestAnIdleConnectionWhoseTransportEndsIsReplacedBeforeAnybodyAsks(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MinIdle: 3, MaxSize: 3, HealthCheck: HealthCheck{Interval: -1}}, func(r *rig) {
		require.NoError(r, r.pool.WaitReady(r.Context(), 3))
		time.Sleep(time.Minute)
		began, opens := time.Now(), r.pool.Stats().Opens
		require.Equal(r, 3, r.srv.Faults().KillConns())
		synctest.Wait()
		s := r.pool.Stats()
		require.Equal(r, 3, s.Idle)
		require.Equal(r, opens+3, s.Opens)
		require.Zero(r, time.Since(began))
		require.NoError(r, r.pool.Ping(r.Context()))
	})
}

func TestGoAwayAndDeadConnectionsAreReplacedUnseen(t *testing.T) {
	onBoth(t, Config{MaxSize: 4, MinIdle: 4}, func(r *rig) {
		require.NoError(r, r.pool.WaitReady(r.Context(), 4))
		for i := range 5 {
			r.srv.Faults().GoAway()
			synctest.Wait()
			require.Equal(r, fmt.Sprint(i), r.value(r.pool, fmt.Sprintf("SELECT %d", i)))
		}
	})
}

func TestABlackHoleIsLeftWithinItsTimeouts(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 2, MinIdle: -1}, func(r *rig) {
		require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
		r.srv.Faults().FreezeConns()
		r.cancelled(r.pool, "SELECT 2", time.Second)
		require.Equal(r, "3", r.value(r.pool, "SELECT 3"), "on a new connection")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(r, r.pool.Stats().InUse+r.pool.Stats().Closing)
		r.srv.Faults().ThawConns() // lets the server notice
	})
}
