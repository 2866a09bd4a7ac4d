package load

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// serve starts a server in virtual time, and a pool whose connections are there.
func serve(t *testing.T, cfg flightpool.Config) (*testserver.Server, *flightpool.FlightSQLPool) {
	srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	cfg.Dialer = srv.Dial
	pool, err := flightpool.New(t.Context(), srv.URI(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close(context.WithoutCancel(t.Context()))) })
	require.NoError(t, pool.WaitReady(t.Context(), cfg.MinIdle))
	return srv, pool
}

// run puts a load on a server in virtual time.
func run(t *testing.T, opts Options) *Report {
	_, pool := serve(t, flightpool.Config{MinIdle: opts.Goroutines, MaxSize: opts.Goroutines})
	return Run(t.Context(), pool, opts)
}

func TestTheFiguresAreThoseOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, Options{Goroutines: 4, Duration: 10 * time.Second, Statements: []string{"SELECT sleep('100ms')"}})
		require.EqualValues(t, 400, r.Calls)
		require.EqualValues(t, 400, r.Rows)
		require.InDelta(t, 40, r.PerSecond, 0.1)
		for _, q := range r.Latency {
			require.InEpsilon(t, 100_000, q.Micros, 0.002, q)
		}
		require.Zero(t, r.Failures)
		require.EqualValues(t, 0, r.Pool["opens"])
	})
}

// However short a load is: its goroutines may start when its time is over.
func TestEachGoroutineRunsAStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const first, second = "SELECT sleep('1s')", "SELECT error('broken')"
		r := run(t, Options{Goroutines: 2, Duration: -time.Second, Statements: []string{first, second}})
		require.EqualValues(t, 1, r.Calls)
		require.EqualValues(t, 1, r.Failures)
	})
}

// Calls, failures and rows are those of the server's ledger; those who wait in vain for a
// connection are failures of no statement, and waits all the same.
func TestTheCountsAreThoseOfTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, pool := serve(t, flightpool.Config{MinIdle: 2, MaxSize: 2, AcquireTimeout: 45 * time.Millisecond})
		const good, slow, bad = "SELECT * FROM generate(6, 2)", "SELECT sleep('130ms')", "SELECT error('broken')"
		second := testserver.Fault{On: testserver.OnBatch, SQL: good, Skip: 4, Times: 1, Do: testserver.Fail(codes.Internal, "cut")}
		before := pool.Stats().AcquiredWaited
		srv.Faults().Set(second) // behind two rows of the second result
		r := Run(t.Context(), pool, Options{Goroutines: 5, Duration: 3 * time.Second, Statements: []string{good, slow, good, bad}})
		sent := int64(len(srv.Ledger().Executions(good)) + len(srv.Ledger().Executions(slow)))
		const cut = 1
		var waited int64
		for _, e := range r.Errors {
			switch e.Kind {
			case "limit":
				waited = e.Count
			case "statement, InvalidArgument":
				require.EqualValues(t, len(srv.Ledger().Executions(bad)), e.Count)
			default:
				require.EqualValues(t, cut, e.Count, e)
			}
		}
		require.Len(t, r.Errors, 3)
		require.Positive(t, waited)
		require.Equal(t, sent-cut, r.Calls)
		require.EqualValues(t, 6*(len(srv.Ledger().Executions(good))-cut)+len(srv.Ledger().Executions(slow)), r.Rows, "a call that failed behind its first rows has none")
		require.Equal(t, pool.Stats().AcquiredWaited-before+uint64(waited), r.Pool["waited"])
	})
}

// What is not sent now will not be sent later.
func TestAStatementThatIsNotSentEndsTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		for _, sql := range []string{"BEGIN", "FROBNICATE 1"} {
			r := run(t, Options{Goroutines: 3, Duration: time.Hour, Statements: []string{"SELECT sleep('10ms')", sql}})
			require.Error(t, r.Refused)
			require.Less(t, time.Since(began), time.Second)
		}
	})
}

// The calls take 10 ms, 20 ms, and so on to 1 s, so that each percentile is known.
func TestPercentilesAreThoseOfAKnownDistribution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const step, steps = 10 * time.Millisecond, 100
		var statements []string
		for i := range steps {
			statements = append(statements, fmt.Sprintf("SELECT sleep('%v')", step*time.Duration(i+1)))
		}
		r := run(t, Options{Goroutines: 1, Duration: step * steps * (steps + 1) / 2, Statements: statements})
		require.EqualValues(t, steps, r.Calls)
		require.InEpsilon(t, 505_000, r.Mean, 0.002)
		var found []float64
		for i, micros := range []float64{500_000, 900_000, 990_000, 1_000_000, 1_000_000} {
			require.InEpsilon(t, micros, r.Latency[i].Micros, 0.002, "%v", r.Latency[i])
			found = append(found, r.Latency[i].Percent)
		}
		require.Equal(t, []float64{50, 90, 99, 99.9, 100}, found)
	})
}

func TestFailuresAreCountedByKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, Options{Goroutines: 2, Duration: time.Second, Statements: []string{"SELECT sleep('50ms')", "SELECT error('broken')"}})
		require.Len(t, r.Errors, 1)
		require.Equal(t, "statement, InvalidArgument", r.Errors[0].Kind)
		require.Equal(t, r.Failures, r.Errors[0].Count)
		require.Contains(t, r.Errors[0].Example, "broken")
		require.InDelta(t, r.Calls, r.Failures, 2)
	})
}
