// Package poolz drives the page of flightpool/poolz in a real Chromium.
package poolz

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/poolz"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/testserver"
)

// browser is a Chromium that has the page open.
type browser struct {
	ctx  context.Context
	srv  *testserver.Server
	pool *flightpool.FlightSQLPool
	reg  *registry.Registry

	mu       sync.Mutex
	problems []string
}

// chromium is the path of the browser.
func chromium(t *testing.T) string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	require.FailNow(t, "the page is driven in a real browser: .ci/deps chromium installs it")
	return ""
}

// axeCore is the source of axe-core, which npm brings into a folder of the test.
func axeCore(t *testing.T) string {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/axe")))
	npm := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = dir
	out, err := npm.CombinedOutput()
	require.NoError(t, err, "axe-core comes by npm: .ci/deps node npm installs that. %s", out)
	text, err := os.ReadFile(filepath.Join(dir, "node_modules/axe-core/axe.min.js"))
	require.NoError(t, err)
	return string(text)
}

// pictures is where screenshots go: POOLZ_PICTURES, or a folder of the test.
func pictures(t *testing.T) string {
	if dir := os.Getenv("POOLZ_PICTURES"); dir != "" {
		return dir
	}
	return t.TempDir()
}

// open starts a server with pools, the page and a browser on it.
func open(t *testing.T) *browser {
	path := chromium(t)
	srv, err := testserver.Start(testserver.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = srv.Close() })
	ctx := context.WithoutCancel(t.Context())
	page := poolz.New(poolz.Config{SlowerThan: 100 * time.Millisecond})
	t.Cleanup(page.Close)
	b := &browser{srv: srv}
	b.reg, err = registry.NewWith(registry.Config{Tracer: page.RegistryTracer("all")})
	require.NoError(t, err)
	leases := lease.NewLeases("warehouse", 10)
	b.pool, err = flightpool.New(ctx, srv.URI(), flightpool.Config{MaxSize: 6, Tracer: page.Tracer("warehouse"), Leases: leases, AcquireTimeout: time.Minute, LeakAfter: time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		_, _ = b.pool.Close(ctx), b.reg.Close(ctx) // with what the test still holds
	})
	page.Add("warehouse", b.pool)
	page.AddBudget("warehouse", leases, nil)
	address, err := url.Parse(srv.URI())
	require.NoError(t, err)
	require.NoError(t, b.reg.Register(ctx, registry.ServerDefinition{
		Name: "lake", Kind: "flightsql", Options: map[string]string{"host": address.Hostname(), "port": address.Port()},
		Users: map[string]registry.UserMapping{"ana": {User: "ana"}, "bo": {User: "bo"}},
	}))
	page.AddRegistry("all", b.reg)

	b.visit(t, path, page)
	return b
}

// visit starts a browser on the page.
func (b *browser) visit(t *testing.T, path string, page http.Handler) {
	ctx := context.WithoutCancel(t.Context())
	mux := http.NewServeMux()
	mux.Handle("/debug/poolz/", page)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })

	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1280, 900))
	alloc, stop := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	quiet := log.New(io.Discard, "", 0).Printf // of events that are newer than the library
	tab, stop := chromedp.NewContext(alloc, chromedp.WithErrorf(quiet), chromedp.WithLogf(quiet))
	t.Cleanup(stop)
	if end, ok := t.Deadline(); ok {
		tab, stop = context.WithDeadline(tab, end.Add(-10*time.Second)) // so that a browser that hangs is told of
		t.Cleanup(stop)
	}
	b.ctx = tab
	chromedp.ListenTarget(tab, b.listen)
	b.do(t, cdplog.Enable(), runtime.Enable(), chromedp.Navigate("http://"+listener.Addr().String()+"/debug/poolz/#warehouse"), chromedp.WaitVisible("#sources tbody tr", chromedp.ByQuery))
}

// listen notes what the console complains of.
func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			b.problems = append(b.problems, fmt.Sprint("console ", e.Type, " ", e.Args))
		}
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, e.ExceptionDetails.Error())
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.LevelError || e.Entry.Level == cdplog.LevelWarning {
			b.problems = append(b.problems, e.Entry.Text+" "+e.Entry.URL)
		}
	}
}

func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.problems
}

func (b *browser) do(t *testing.T, actions ...chromedp.Action) {
	t.Helper()
	require.NoError(t, chromedp.Run(b.ctx, actions...))
}

// eval runs a script, waits for its promise, and reads its value.
func (b *browser) eval(t *testing.T, script string, to any) {
	t.Helper()
	b.do(t, chromedp.Evaluate(script, to, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
}

// load uses the pools until the function that it returns has returned.
func (b *browser) load(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				var v any
				switch {
				case i%50 == 49:
					_ = b.pool.QueryRow(ctx, "SELECT error('no')").Scan(&v)
				case i%70 == 69:
					b.srv.Faults().Set(testserver.Fault{On: testserver.OnBatch, Times: 1, Do: testserver.Delay(120 * time.Millisecond)})
				case worker == 0 && i%40 == 39:
					short, end := context.WithTimeout(ctx, 5*time.Millisecond)
					_ = b.pool.QueryRow(short, "SELECT 1").Scan(&v)
					end()
				case worker == 1:
					_ = b.reg.QueryRow(ctx, "lake", []string{"ana", "bo"}[i%2], "SELECT 7").Scan(&v)
				default:
					_ = b.pool.QueryRow(ctx, "SELECT 1").Scan(&v)
				}
				pause(ctx, time.Duration(worker*4)*time.Millisecond)
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// hold takes n connections until the end of the test, and has a caller wait behind them if
// they are all that there are.
func (b *browser) hold(t *testing.T, n int) error {
	ctx := context.WithoutCancel(t.Context())
	var faults []error
	for range n {
		s, err := b.pool.AcquireSession(ctx)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		t.Cleanup(func() { _ = s.Close() })
	}
	if n == b.pool.Stats().MaxSize {
		waiting, stop := context.WithCancel(ctx)
		t.Cleanup(stop)
		go func() { _ = b.pool.Ping(waiting) }()
		for b.pool.Stats().Waiting == 0 && waiting.Err() == nil {
			pause(waiting, time.Millisecond)
		}
	}
	return errors.Join(faults...)
}
