package poolz

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// rig is a page with a pool on an in-process server, in virtual time.
type rig struct {
	*testing.T
	page *Page
	srv  *testserver.Server
	pool *flightpool.FlightSQLPool
}

func inBubble(t *testing.T, cfg Config, pool flightpool.Config, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		page := New(cfg)
		defer page.Close()
		pool.Dialer, pool.Tracer, pool.HealthCheck.Interval = srv.Dial, page.Tracer("main"), -1
		r := &rig{T: t, page: page, srv: srv}
		r.pool, err = flightpool.New(t.Context(), "grpc://server:1", pool)
		require.NoError(t, err)
		page.Add("main", r.pool)
		defer closePool(t, r.pool)
		f(r)
	})
}

// closePool takes back what a test that failed has not.
func closePool(t *testing.T, pool *flightpool.FlightSQLPool) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer stop()
	if err := pool.Close(ctx); !t.Failed() {
		require.NoError(t, err)
	}
}

// after lets so much time pass, and what it brings about end.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// get asks as a browser on this machine does.
func get(t testing.TB, p http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:4711", "localhost:6060"
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

// told is what the JSON has.
func (r *rig) told(query string) (st state) {
	r.Helper()
	w := get(r, r.page, "/state.json"+query)
	require.Equal(r, http.StatusOK, w.Code, w.Body)
	require.NoError(r, json.Unmarshal(w.Body.Bytes(), &st))
	return st
}

func (r *rig) query(sql string) error {
	var v any
	return r.pool.QueryRow(r.Context(), sql).Scan(&v)
}

// session takes a connection.
func (r *rig) session() *flightpool.SessionHandle {
	r.Helper()
	s, err := r.pool.AcquireSession(r.Context())
	require.NoError(r, err)
	return s
}

// UnmarshalJSON reads what MarshalJSON has written.
func (p *points) UnmarshalJSON(text []byte) error {
	var all []*float32
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	for _, v := range all {
		if v == nil {
			*p = append(*p, -1)
		} else {
			*p = append(*p, *v)
		}
	}
	return nil
}
