package load

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// run puts a load on a server in virtual time.
func run(t *testing.T, opts Options) *Report {
	srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Close()) }()
	pool, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{Dialer: srv.Dial, MinIdle: opts.Goroutines, MaxSize: opts.Goroutines})
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close(t.Context())) }()
	require.NoError(t, pool.WaitReady(t.Context(), opts.Goroutines))
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

func TestPercentilesTellTheSlowOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, Options{Goroutines: 1, Duration: 11 * time.Second, Statements: []string{
			"SELECT sleep('10ms')", "SELECT sleep('10ms')", "SELECT sleep('10ms')", "SELECT sleep('1s')"}})
		require.InEpsilon(t, 10_000, r.Latency[0].Micros, 0.002)
		require.InEpsilon(t, 1_000_000, r.Latency[1].Micros, 0.002)
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
