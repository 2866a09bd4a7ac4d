package main

import (
	"bytes"
	"context"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/lease/pglease"
	"github.com/flightpool/flightpool/testserver/localdeps"
)

// heard has what is written to it, and tells of each write.
type heard struct {
	mu   sync.Mutex
	all  bytes.Buffer
	news chan struct{}
	over chan struct{} // closed when nothing more comes
	t    *testing.T
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	n, err := h.all.Write(p)
	h.mu.Unlock()
	select {
	case h.news <- struct{}{}:
	default:
	}
	return n, err
}

// await waits until text has come n times.
func (h *heard) await(text string, n int) {
	for h.count(text) < n {
		select {
		case <-h.news:
		case <-h.over:
			h.t.Fatalf("the watch has ended: %q", h.all.String())
		}
	}
}

func (h *heard) count(text string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Count(h.all.String(), text)
}

// A PostgreSQL that is restarted does not end what watches, and a change that is told to be made
// is made.
func TestARestartOfPostgreSQLEndsNoWatchAndNoChangeIsToldThatWasNotMade(t *testing.T) {
	server, err := localdeps.StartPostgres(t.Context(), localdeps.PostgresOptions{})
	require.NoError(t, err)
	defer server.Close()
	pool, err := pglease.Connect(t.Context(), server.DSN())
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, pglease.Setup(t.Context(), pool, ""))
	s, err := pglease.NewStore(pool, "")
	require.NoError(t, err)
	fill(t, s, "pg", 20, 0, process{id: "ORDERS", host: "web-1", service: "orders", pid: 1, leases: 7})

	ctl := func(ctx context.Context, out, errs io.Writer, args ...string) int {
		return run(ctx, append(args, "--postgres", server.DSN()), streams{strings.NewReader(""), out, errs}, openStore)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	over, code := make(chan struct{}), 0
	out, errs := &heard{t: t, over: over, news: make(chan struct{}, 1)}, &heard{t: t, over: over, news: make(chan struct{}, 1)}
	go func() {
		defer close(over)
		code = ctl(ctx, out, errs, "show", "--watch", "20ms", "--timeout", "1s")
	}()
	limit := func() int {
		f, err := fleet.Inspect(t.Context(), s, "pg")
		require.NoError(t, err)
		return f.Limit
	}
	made, tried := 20, 20 // told to be made last; and the change that was under way
	for turn := range 2 {
		var changing sync.WaitGroup
		changing.Go(func() { // until it meets the end of the server
			for n := 0; ; n++ {
				tried = 30 + n%2
				var said bytes.Buffer
				if c := ctl(t.Context(), &said, &said, "limit", strconv.Itoa(tried), "--timeout", "1s"); c != exitOK {
					assert.Equal(t, exitUnknown, c, said.String())
					return
				}
				made = tried
			}
		})
		out.await("of 31 leases", 10*turn+1)
		server.Kill()
		changing.Wait()
		errs.await("leasectl: ", turn+1)
		require.NoError(t, server.Start(t.Context()))
		require.Contains(t, []int{made, tried}, limit())
		out.await("budget pg: ", out.count("budget pg: ")+1)
	}
	thaw, err := server.Freeze(t.Context())
	require.NoError(t, err)
	var said bytes.Buffer
	frozen := ctl(t.Context(), &said, &said, "limit", "40", "--timeout", "500ms")
	thaw()
	require.Equal(t, exitUnknown, frozen, said.String())
	out.await("budget pg: ", out.count("budget pg: ")+1)
	interrupt()
	<-over
	require.Zero(t, code)
}
