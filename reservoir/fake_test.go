package reservoir_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

// A conn is a connection of a fake server.
type conn struct {
	id     int
	born   time.Time
	broken bool
	closed atomic.Bool
}

// A fake is a server whose manners a test sets, and a ledger of what it saw.
type fake struct {
	mu       sync.Mutex
	dial     time.Duration // how long an open takes
	closes   time.Duration // how long a close takes
	refuse   error         // what opens fail with
	sessions int           // how many connections it takes; 0: any number

	opens, failures      int // calls that began; that failed
	opening, mostOpening int
	live, mostLive       int // not closed
	leases, mostLeases   int // of admit
	leasesTaken          int
	twice                int // closes of what was closed
	log                  []*conn
}

var errRefused = errors.New("connection refused")

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) read(count *int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *count
}

func (f *fake) connections() []*conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log)
}

func (f *fake) open(ctx context.Context) (*conn, error) {
	f.mu.Lock()
	f.opens++
	f.opening++
	f.mostOpening = max(f.mostOpening, f.opening)
	dial := f.dial
	f.mu.Unlock()
	err := sleep(ctx, dial)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opening--
	if err == nil {
		err = f.refuse
	}
	if err == nil && f.sessions > 0 && f.live >= f.sessions {
		err = errRefused
	}
	if err != nil {
		f.failures++
		return nil, err
	}
	c := &conn{id: len(f.log) + 1, born: time.Now()}
	f.log = append(f.log, c)
	f.live++
	f.mostLive = max(f.mostLive, f.live)
	return c, nil
}

func (f *fake) close(c *conn) error {
	f.mu.Lock()
	closes := f.closes
	f.mu.Unlock()
	time.Sleep(closes)
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.closed.Swap(true) {
		f.twice++
	}
	f.live--
	return nil
}

func (f *fake) check(_ context.Context, c *conn) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.broken {
		return errRefused
	}
	return nil
}

func (f *fake) admit(context.Context) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leasesTaken++
	f.leases++
	f.mostLeases = max(f.mostLeases, f.leases)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.leases--
	}, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type (
	config = reservoir.Config[*conn]
	pool   = reservoir.Reservoir[*conn]
	loan   = reservoir.Loan[*conn]
)

// admitFrom is admit once it is allowed.
func (f *fake) admitFrom(allow <-chan struct{}) func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		select {
		case <-allow:
			return f.admit(ctx)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// config is a configuration of which a test sets what it is about: nothing
// expires, nothing idles out.
func (f *fake) config(set func(*config)) config {
	cfg := config{Open: f.open, Close: f.close, MaxSize: 4, MaxLifetime: -1, IdleTTL: -1}
	if set != nil {
		set(&cfg)
	}
	return cfg
}

func (f *fake) pool(t *testing.T, set func(*config)) *pool {
	t.Helper()
	r, err := reservoir.New(f.config(set))
	require.NoError(t, err)
	return r
}

// bubble runs a test in virtual time and closes its reservoirs' server account:
// all that was opened was closed, once, and every lease came back.
func bubble(t *testing.T, test func(t *testing.T, f *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		test(t, f)
		synctest.Wait()
		require.Zero(t, f.live, "connections left open")
		require.Zero(t, f.leases, "leases not given back")
		require.Zero(t, f.twice, "connections closed twice")
	})
}

func acquire(t *testing.T, r *pool) loan {
	t.Helper()
	l, err := r.Acquire(t.Context())
	require.NoError(t, err)
	require.False(t, l.Value().closed.Load(), "a closed connection was lent")
	return l
}

func release(t *testing.T, loans ...loan) {
	t.Helper()
	for _, l := range loans {
		require.NoError(t, l.Release())
	}
}

func shut(t *testing.T, r *pool) {
	t.Helper()
	require.NoError(t, r.Close(t.Context()))
	s := r.Stats()
	require.Zero(t, s.Total)
	require.Zero(t, s.Waiting)
}

// An outcome is what a caller in the background got.
type outcome struct {
	loan loan
	err  error
	took time.Duration
}

// call acquires in the background.
func call(ctx context.Context, r *pool) <-chan outcome {
	done := make(chan outcome, 1)
	began := time.Now()
	go func() {
		l, err := r.Acquire(ctx)
		done <- outcome{l, err, time.Since(began)}
	}()
	return done
}
