package flightpool

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/testserver"
)

var allocator = memory.DefaultAllocator

// The cases that every published pool of this kind fails in some part,
// numbered as they are known. Each runs against a strict server and one that
// ignores cancels, keeps dropped sessions and confirms commits that did not
// happen.
func onBoth(t *testing.T, cfg Config, f func(r *rig)) {
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake()} {
		t.Run(profile.Name, func(t *testing.T) { inBubble(t, profile, cfg, f) })
	}
}

func TestCase29_OpenTransactionIsRolledBackBeforeTheNextBorrower(t *testing.T) {
	onBoth(t, Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		s := r.session()
		require.NoError(r, s.BeginTransaction(r.Context()))
		_, err := s.Update(r.Context(), "INSERT INTO t VALUES (1)")
		require.NoError(r, err)
		require.NoError(r, s.Close())
		require.Zero(r, r.srv.Ledger().Snapshot().Transactions)
		require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM t"))
		r.exec("INSERT INTO t VALUES (2)")
		require.Equal(r, "1", r.value(r.pool, "SELECT count(*) FROM t"), "the next borrower's insert is its own")
		require.EqualValues(r, 1, r.pool.Stats().RolledBack)
	})
}

func TestCase30_TempTablesSchemasAndSettingsAreNotSeenByTheNextBorrower(t *testing.T) {
	onBoth(t, Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE here (a BIGINT)")
		r.exec("CREATE SCHEMA other")
		leave := []string{"CREATE TEMP TABLE mine (a BIGINT)", "SET colour = 'red'", "USE other"}
		clean := func(after string) {
			_, err := firstValue(r.Context(), r.pool, "SELECT * FROM mine")
			require.ErrorContains(r, err, "mine", after)
			if colour, err := firstValue(r.Context(), r.pool, "SELECT current_setting('colour')"); err == nil {
				require.NotEqual(r, "red", colour, after)
			}
			require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM here"), after)
		}
		for _, sql := range leave {
			s := r.session()
			_, err := s.Update(r.Context(), sql)
			require.NoError(r, err, sql)
			_ = s.Close() // its error says that the connection was discarded
			clean("handle: " + sql)
			r.exec(sql)
			clean("stateless: " + sql)
		}
	})
}

func TestCase31_AsManyCancelsAsConnectionsLeaveThePoolServing(t *testing.T) {
	onBoth(t, Config{MaxSize: 4, MinIdle: -1}, func(r *rig) {
		for range 4 {
			r.cancelled(r.pool, "SELECT sleep('20s')", 100*ms)
		}
		require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
		time.Sleep(61 * time.Second)
		s := r.pool.Stats()
		require.Zero(r, s.InUse+s.Opening+s.Closing+s.Waiting, "%+v", s)
		require.EqualValues(r, 4, s.CancelsConfirmed+s.CancelsUnconfirmed)
	})
}

func TestCase32_WaitersGoOnAtOnceWhenAllConnectionsDie(t *testing.T) {
	onBoth(t, Config{MaxSize: 2}, func(r *rig) {
		var busy, waiting sync.WaitGroup
		for range 2 {
			busy.Go(func() { _, _ = firstValue(r.Context(), r.pool, "SELECT sleep('1m')") })
		}
		synctest.Wait()
		start := time.Now()
		for range 8 {
			waiting.Go(func() {
				v, err := firstValue(r.Context(), r.pool, "SELECT 1")
				require.NoError(r, err)
				require.Equal(r, "1", v)
			})
		}
		synctest.Wait()
		require.Equal(r, 8, r.pool.Stats().Waiting)
		fault := r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "1m", Times: 2, Do: testserver.Fail(codes.Internal, "gone")})
		defer fault.Clear()
		require.Equal(r, 2, r.srv.Faults().KillConns())
		waiting.Wait()
		require.Less(r, time.Since(start), time.Second, "not after AcquireTimeout")
		busy.Wait() // their retry meets the fault
	})
}

func TestCase33_AfterAServerRestartTheNextCallsAllSucceed(t *testing.T) {
	onBoth(t, Config{MaxSize: 6, MinIdle: 6}, func(r *rig) {
		require.NoError(r, r.pool.WaitReady(r.Context(), 6))
		require.Equal(r, 6, r.srv.Faults().KillConns())
		for range 6 {
			require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
		}
		for i := range 6 { // changes are not repeated, so they must not meet a dead connection
			r.exec(fmt.Sprintf("CREATE TABLE t%d (a BIGINT)", i))
		}
	})
}

func TestCase34_NothingOfATransactionReachesANewTransport(t *testing.T) {
	onBoth(t, Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		s := r.session()
		require.NoError(r, s.BeginTransaction(r.Context()))
		_, err := s.Update(r.Context(), "INSERT INTO t VALUES (1)")
		require.NoError(r, err)
		require.Equal(r, 1, r.srv.Faults().KillConns())
		_, err = s.Update(r.Context(), "INSERT INTO t VALUES (2)")
		require.ErrorIs(r, err, ErrSessionLost)
		require.ErrorIs(r, s.Commit(r.Context()), ErrSessionLost)
		_, err = s.Query(r.Context(), "SELECT 1")
		require.ErrorIs(r, err, ErrSessionLost)
		require.Zero(r, r.executions("INSERT INTO t VALUES (2)"))
		require.NoError(r, s.Close())
		if r.srv.Profile().SessionTTL == 0 {
			require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM t"))
		}
		r.srv.Faults().EvictSessions() // what the dropped session still holds is the server's affair
	})
}

func TestCase37_DoubleBeginFailsHereAndLeavesTheFirstIntact(t *testing.T) {
	onBoth(t, Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		s := r.session()
		require.NoError(r, s.BeginTransaction(r.Context()))
		_, err := s.Update(r.Context(), "INSERT INTO t VALUES (1)")
		require.NoError(r, err)
		require.ErrorContains(r, s.BeginTransaction(r.Context()), "open already")
		require.NoError(r, s.Commit(r.Context()))
		require.NoError(r, s.Close())
		require.Equal(r, "1", r.value(r.pool, "SELECT count(*) FROM t"))
	})
}

func TestCase35_AnInsertWhoseReplyIsLostRunsOnce(t *testing.T) {
	onBoth(t, Config{MaxSize: 2}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnDoPut, After: true, SQL: "INSERT", Times: 1, Do: testserver.Kill()})
		_, err := r.pool.Update(r.Context(), "INSERT INTO t VALUES (1)")
		require.ErrorIs(r, err, ErrSessionLost)
		require.False(r, SafeToRetry(err), "it may have happened")
		require.Equal(r, 1, r.executions("INSERT INTO t VALUES (1)"))
		require.Zero(r, r.pool.Stats().Retries)
		require.Equal(r, "1", r.value(r.pool, "SELECT count(*) FROM t"))
	})
}

func TestCase36_CommitAfterAFailedStatementIsAnErrorAndStoresNothing(t *testing.T) {
	onBoth(t, Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT PRIMARY KEY)")
		s := r.session()
		require.NoError(r, s.BeginTransaction(r.Context()))
		_, err := s.Update(r.Context(), "INSERT INTO t VALUES (1)")
		require.NoError(r, err)
		_, err = s.Update(r.Context(), "INSERT INTO t VALUES (1)")
		require.Equal(r, FaultStatement, faultIn(err))
		_, err = s.Update(r.Context(), "INSERT INTO t VALUES (3)")
		require.ErrorIs(r, err, ErrTxAborted)
		require.ErrorIs(r, s.Commit(r.Context()), ErrTxAborted)
		require.NoError(r, s.Close())
		require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM t"))
		require.EqualValues(r, 0, r.pool.Stats().Closed[2], "the connection is kept")
	})
}

func TestCase38_ASlowQueryReturnsOnTimeAndHarmsNoLaterCall(t *testing.T) {
	onBoth(t, Config{MaxSize: 2, MinIdle: -1}, func(r *rig) {
		const slow = 3
		for range slow {
			r.cancelled(r.pool, "SELECT sleep('30s')", 200*ms)
			start := time.Now()
			require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
			require.Less(r, time.Since(start), 10*time.Second)
		}
		time.Sleep(time.Minute)
		require.LessOrEqual(r, r.srv.Ledger().Snapshot().SessionsPeak, 2+slow+1, "max size, the cancelled ones, and one for the control channel")
	})
}

func TestCase39_AFullServerGivesATypedErrorAndNoDialStorm(t *testing.T) {
	onBoth(t, Config{MaxSize: 8, MinIdle: -1, AcquireTimeout: 2 * time.Second}, func(r *rig) {
		held := []*SessionHandle{r.session(), r.session()}
		r.srv.Faults().LimitSessions(2)
		opened := r.srv.Ledger().Snapshot().ConnsOpened
		_, err := r.pool.AcquireSession(r.Context())
		require.ErrorIs(r, err, ErrExhausted)
		require.Equal(r, FaultLimit, faultIn(err))
		require.ErrorContains(r, err, "maximum number of sessions", "the error says what the server said")
		tries := r.srv.Ledger().Snapshot().ConnsOpened - opened
		require.LessOrEqual(r, tries, 16, "opens back off: 10ms doubling to 1s")
		for _, s := range held {
			require.NoError(r, s.Close())
		}
		require.Equal(r, "1", r.value(r.pool, "SELECT 1"), "a returned connection serves")
	})
}

func TestCase40_NewOnADeadServerReportsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
		require.NoError(t, err)
		require.NoError(t, srv.Close())
		start := time.Now()
		_, err = New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial})
		require.Error(t, err)
		require.LessOrEqual(t, time.Since(start), 5*time.Second)
		require.Equal(t, FaultTransport, faultIn(err))
		require.True(t, SafeToRetry(err))
	})
}

func TestCase41_ACancelActionThatAnswersInvalidArgumentIsUnsupportedAndRemembered(t *testing.T) {
	var chains []cancel.Report
	cfg := Config{MaxSize: 4, MinIdle: -1, Hooks: Hooks{Cancelled: func(_ string, r cancel.Report) { chains = append(chains, r) }}}
	profile := testserver.SwanLake()
	profile.Run = testserver.RunInDoGet // so that there is a FlightInfo to name
	inBubble(t, profile, cfg, func(r *rig) {
		for range 3 {
			r.cancelled(r.pool, "SELECT sleep('20s')", 100*ms)
			time.Sleep(30 * time.Second)
		}
		synctest.Wait()
		steps := func(r cancel.Report) (names []string) {
			for _, s := range r.Steps {
				names = append(names, s.Name+" "+s.Outcome.String())
			}
			return names
		}
		require.Len(r, chains, 3)
		require.Equal(r, []string{"CancelFlightInfo unsupported", "CancelQuery unsupported", "probe requested"}, steps(chains[0]))
		require.Equal(r, []string{"probe requested"}, steps(chains[1]), "not asked again")
		require.Equal(r, steps(chains[1]), steps(chains[2]))
	})
}

func TestCase42_AThousandSessionsNeverExceedMaxSizeOnTheServer(t *testing.T) {
	const each = 500 / 16 // a thousand on both servers together
	onBoth(t, Config{MaxSize: 8}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		var all sync.WaitGroup
		for g := range 16 {
			all.Go(func() {
				for i := range each {
					s, err := r.pool.AcquireSession(r.Context())
					if err != nil {
						r.Errorf("session %d.%d: %v", g, i, err)
						return
					}
					err = s.WithTransaction(r.Context(), func(ctx context.Context, s *SessionHandle) error {
						_, err := s.Update(ctx, "INSERT INTO t VALUES (1)")
						return err
					})
					if err != nil {
						r.Errorf("transaction %d.%d: %v", g, i, err)
					}
					if i%3 == 0 {
						if _, err := s.Update(r.Context(), "SET colour = 'red'"); err != nil {
							r.Errorf("set %d.%d: %v", g, i, err)
						}
					}
					if err := s.Close(); err != nil {
						r.Errorf("close %d.%d: %v", g, i, err)
					}
				}
			})
		}
		all.Wait()
		require.LessOrEqual(r, r.srv.Ledger().Snapshot().SessionsPeak, 8)
		require.Equal(r, strconv.Itoa(16*each), r.value(r.pool, "SELECT count(*) FROM t"))
	})
}

func TestCase43_ACommitInAnEvictedSessionIsNotASuccess(t *testing.T) {
	onBoth(t, Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		s := r.session()
		require.NoError(r, s.BeginTransaction(r.Context()))
		_, err := s.Update(r.Context(), "INSERT INTO t VALUES (1)")
		require.NoError(r, err)
		require.Positive(r, r.srv.Faults().EvictSessions())
		err = s.Commit(r.Context())
		require.Error(r, err, "the transaction has gone with the session")
		require.NotErrorIs(r, err, ErrCommitUnknown)
		_ = s.Close()
		require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM t"))
	})
}

func TestCase44_AnotherConnectionsAlterIsRecoveredFrom(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		// A server that planned with the schema of before.
		stale := arrow.NewSchema([]arrow.Field{{Name: "old", Type: arrow.BinaryTypes.String}}, nil)
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, After: true, Times: 1, Do: testserver.Rewrite(staleSchema(stale))})
		require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
	})
}

func TestCase45_ABatchOverTheMessageLimitIsSplitOrRefusedClearly(t *testing.T) {
	onBoth(t, Config{MaxSize: 1}, func(r *rig) {
		t := r.bulkTable()
		r.exec("CREATE TABLE " + t + " (a BIGINT, b VARCHAR)")
		const rows = 64
		batch := texts(rows, 128<<10) // 8 MiB in all
		defer batch.Release()
		_, err := r.pool.UpdateWithRecordBatch(r.Context(), "INSERT INTO "+t+" VALUES (?, ?)", batch)
		require.NoError(r, err)
		require.Equal(r, strconv.Itoa(rows), r.value(r.pool, "SELECT count(*) FROM "+t))

		huge := texts(1, 5<<20)
		defer huge.Release()
		_, err = r.pool.UpdateWithRecordBatch(r.Context(), "INSERT INTO "+t+" VALUES (?, ?)", huge)
		require.Equal(r, FaultUsage, faultIn(err))
		require.Equal(r, strconv.Itoa(rows), r.value(r.pool, "SELECT count(*) FROM "+t), "nothing half-done")
	})
}

func TestCase46_CloseWithHandlesOutDrainsThenCutsAndLeavesNothing(t *testing.T) {
	onBoth(t, Config{MaxSize: 4}, func(r *rig) {
		s := r.session()
		res, err := r.pool.Query(r.Context(), "SELECT * FROM generate(1000000)")
		require.NoError(r, err)
		closed := make(chan error)
		go func() {
			ctx, stop := context.WithTimeout(r.Context(), time.Second)
			defer stop()
			closed <- r.pool.Close(ctx)
		}()
		synctest.Wait()
		_, err = r.pool.Query(r.Context(), "SELECT 1")
		require.ErrorIs(r, err, ErrClosed)
		require.NoError(r, s.Close(), "a handle can still be given back")
		err = <-closed
		require.ErrorIs(r, err, context.DeadlineExceeded)
		for res.Next() { // batches that had arrived
		}
		require.Error(r, res.Err())
		res.Release()
		require.ErrorIs(r, r.pool.Close(r.Context()), ErrClosed)
		r.srv.Faults().EvictSessions()
		synctest.Wait()
		require.Zero(r, r.pool.Stats().Total)
		r.pool = emptyPool(r)
	})
}

func faultIn(err error) Fault { return backend.FaultIn(err) }

// staleSchema makes a FlightInfo tell another schema than its stream has.
func staleSchema(schema *arrow.Schema) func(*flight.FlightInfo) {
	return func(info *flight.FlightInfo) { info.Schema = flight.SerializeSchema(schema, memory.DefaultAllocator) }
}

// emptyPool stands in for one that a test has closed.
func emptyPool(r *rig) *FlightSQLPool {
	p, err := New(r.Context(), "grpc://server:1", Config{Dialer: r.srv.Dial, MinIdle: -1})
	require.NoError(r, err)
	return p
}

// texts is a batch of n rows of a number and a text of the given length.
func texts(n, length int) arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "b", Type: arrow.BinaryTypes.String, Nullable: true}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for i := range n {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.StringBuilder).Append(strings.Repeat("x", length))
	}
	return b.NewRecordBatch()
}
