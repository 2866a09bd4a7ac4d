package poolz

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/poolz"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/testserver"
)

// A simulation is a page over a pool under load, in virtual time: each request for the state
// finds that second over which the browser's clock has moved on.
type simulation struct {
	requests chan *simulated
	polls    atomic.Int64
}

// A simulated is a request from outside of the bubble, and its answer.
type simulated struct {
	query  string
	answer *httptest.ResponseRecorder
	done   chan struct{}
}

// ServeHTTP passes a request into the bubble.
func (s *simulation) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	one := &simulated{query: r.URL.RequestURI(), answer: httptest.NewRecorder(), done: make(chan struct{})}
	select {
	case s.requests <- one:
	case <-r.Context().Done():
		return
	}
	<-one.done
	for name, values := range one.answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(one.answer.Code)
	_, _ = w.Write(one.answer.Body.Bytes())
}

// run is the bubble. It ends with the requests.
func (s *simulation) run(t *testing.T) {
	srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
	require.NoError(t, err)
	defer func() { _ = srv.Close() }()
	page := poolz.New(poolz.Config{SlowerThan: 100 * time.Millisecond, Texts: true})
	defer page.Close()
	leases := lease.NewLeases("warehouse", 10)
	ctx := context.WithoutCancel(t.Context())
	pool, err := flightpool.New(ctx, "grpc://server:1", flightpool.Config{
		Dialer: srv.Dial, Tracer: page.Tracer("warehouse"), MaxSize: 8, Leases: leases, LeakAfter: 30 * time.Second,
		MaxLifetime: 5 * time.Minute, AcquireTimeout: time.Second,
	})
	require.NoError(t, err)
	page.Add("warehouse", pool)
	page.AddBudget("warehouse", leases, nil)
	defer func() {
		ctx, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		_ = pool.Close(ctx)
	}()
	for one := range s.requests {
		if len(one.query) > len("/debug/poolz/") {
			s.second(ctx, srv, pool)
		}
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, one.query, nil)
		r.RemoteAddr, r.Host = "127.0.0.1:4711", "localhost"
		page.ServeHTTP(one.answer, r)
		close(one.done)
	}
}

// second lets one pass in which calls succeed, and now and then one fails, is slow, is left by
// its caller, or the server is away, so that everything that the page shows comes and goes.
func (s *simulation) second(ctx context.Context, srv *testserver.Server, pool *flightpool.FlightSQLPool) {
	began, n := time.Now(), s.polls.Add(1)
	var v any
	for i := range 1 + n%4 {
		_ = pool.QueryRow(ctx, fmt.Sprintf("SELECT %d", i)).Scan(&v)
	}
	switch {
	case n%900 < 5:
		srv.Faults().Set(testserver.Fault{On: testserver.OnSession, Times: 3, Do: testserver.Fail(codes.Unavailable, fmt.Sprint("away ", n))})
		pool.Reset()
	case n%31 == 0:
		_ = pool.QueryRow(ctx, fmt.Sprintf("SELECT error('failure %d')", n)).Scan(&v)
	case n%7 == 0:
		srv.Faults().Set(testserver.Fault{On: testserver.OnBatch, Times: 1, Do: testserver.Delay(200 * time.Millisecond)})
		_ = pool.QueryRow(ctx, fmt.Sprintf("SELECT %d", n)).Scan(&v)
	case n%120 < 8:
		if held, err := pool.AcquireSession(ctx); err == nil {
			time.AfterFunc(time.Minute, func() { _ = held.Close() })
		}
	case n%53 == 0:
		short, end := context.WithTimeout(ctx, 5*time.Millisecond)
		srv.Faults().Set(testserver.Fault{On: testserver.OnBatch, Times: 1, Do: testserver.Delay(50 * time.Millisecond)})
		_ = pool.QueryRow(short, "SELECT 1").Scan(&v)
		end()
	}
	time.Sleep(max(0, time.Second-time.Since(began)))
}

// The page is open for POOLZ_HOURS, by its own timers and requests: its clock and the pool's are
// simulated. An hour takes about a minute and a half.
func TestADayCostsThePageNoMemory(t *testing.T) {
	path := chromium(t)
	s := &simulation{requests: make(chan *simulated)}
	ended := make(chan struct{})
	go func() { defer close(ended); synctest.Test(t, s.run) }()
	t.Cleanup(func() { close(s.requests); <-ended })
	b := &browser{}
	b.visit(t, path, s)
	b.do(t, chromedp.EmulateViewport(390, 400)) // painting all of the page takes longer than all else

	hours, err := strconv.ParseFloat(cmp.Or(os.Getenv("POOLZ_HOURS"), ".1"), 64)
	require.NoError(t, err)
	b.do(t, performance.Enable())
	began := time.Now()
	var first usage
	for _, at := range []float64{hours / 24, hours / 4, hours / 2, hours * 3 / 4, hours} {
		b.pass(t, time.Duration(at*float64(time.Hour))-time.Duration(s.polls.Load())*time.Second)
		u := b.usage(t)
		t.Logf("after %v (%d polls, %v): heap %.0f KB, nodes %.0f, listeners %.0f", time.Duration(at*float64(time.Hour)).Round(time.Second), s.polls.Load(), time.Since(began).Round(time.Second), u.heap/1024, u.nodes, u.listeners)
		if first == (usage{}) {
			first = u
		}
		require.Less(t, u.heap, first.heap+1<<20)
		require.Less(t, u.nodes, first.nodes+2000)
		require.LessOrEqual(t, u.listeners, first.listeners)
	}
	require.InDelta(t, hours*3600, s.polls.Load(), hours*3600/10+10, "one poll a second")
	require.Empty(t, b.complaints())
}

// pass lets so much time pass in the page. It stands still while the page waits for an answer.
func (b *browser) pass(t *testing.T, d time.Duration) {
	over := make(chan struct{}, 1)
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	chromedp.ListenTarget(ctx, func(event any) {
		if _, is := event.(*emulation.EventVirtualTimeBudgetExpired); is {
			over <- struct{}{}
		}
	})
	b.do(t, chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := emulation.SetVirtualTimePolicy(emulation.VirtualTimePolicyPauseIfNetworkFetchesPending).WithBudget(float64(d.Milliseconds())).Do(ctx)
		return err
	}))
	select {
	case <-over:
	case <-b.ctx.Done():
		require.NoError(t, b.ctx.Err())
	}
}

// usage is what the page takes, after a collection of garbage.
type usage struct{ heap, nodes, listeners float64 }

func (b *browser) usage(t *testing.T) (u usage) {
	b.do(t, chromedp.ActionFunc(func(ctx context.Context) error {
		if err := heapprofiler.CollectGarbage().Do(ctx); err != nil {
			return err
		}
		metrics, err := performance.GetMetrics().Do(ctx)
		for _, m := range metrics {
			switch m.Name {
			case "JSHeapUsedSize":
				u.heap = m.Value
			case "Nodes":
				u.nodes = m.Value
			case "JSEventListeners":
				u.listeners = m.Value
			}
		}
		return err
	}))
	return u
}
