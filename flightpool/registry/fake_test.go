package registry_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
)

// A fake is a database server whose manners a test sets, and a ledger of what it
// saw.
type fake struct {
	mu       sync.Mutex
	dial     time.Duration
	slow     time.Duration // how long a close takes
	lasts    time.Duration // how long a connection says that it does; 0: it says nothing
	reclaims []*func(n int) int
	down     bool          // refuses connections and breaks the open ones
	noCreds  string        // the remote user who has no credentials to ask the server with
	stuck    bool          // accepts nothing and refuses nothing
	wild     bool          // its driver panics
	ping     time.Duration // how long one takes

	restarts int // connections from before are broken
	pings    int
	asked    map[string]int // by statement

	opens, made, live, mostLive, twice int
	opening, mostOpening               int
	byUser                             map[string]int
}

var errDown = fmt.Errorf("connection refused: %w", io.ErrUnexpectedEOF)

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

func (f *fake) users(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byUser[name]
}

// sqlConnector is what a user dials with.
type sqlConnector struct {
	f    *fake
	user string
}

func (c sqlConnector) Driver() driver.Driver { return nil }

func (c sqlConnector) Connect(ctx context.Context) (driver.Conn, error) {
	f := c.f
	f.mu.Lock()
	f.opens++
	f.opening++
	f.mostOpening = max(f.mostOpening, f.opening)
	dial, stuck := f.dial, f.stuck
	f.mu.Unlock()
	if stuck {
		dial = time.Hour
	}
	err := sleep(ctx, dial)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opening--
	switch {
	case err != nil:
		return nil, err
	case f.down:
		return nil, errDown
	case f.noCreds != "" && c.user == f.noCreds:
		return nil, notAskedErr{}
	case c.user == "locked out":
		return nil, errors.New("password authentication failed")
	}
	f.made++
	f.live++
	f.byUser[c.user]++
	f.mostLive = max(f.mostLive, f.live)
	made := &conn{f: f, user: c.user, since: f.restarts}
	if f.lasts > 0 {
		made.until = time.Now().Add(f.lasts)
	}
	return made, nil
}

// OnReclaim is Reclaimer's. The budget is the server's.
func (c sqlConnector) OnReclaim(f func(n int) int) func() {
	c.f.set(func() { c.f.reclaims = append(c.f.reclaims, &f) })
	return func() {
		c.f.set(func() {
			c.f.reclaims = slices.DeleteFunc(c.f.reclaims, func(other *func(int) int) bool { return other == &f })
		})
	}
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

type conn struct {
	f      *fake
	user   string
	since  int
	until  time.Time
	mu     sync.Mutex
	closed bool
}

func (c *conn) ExpiresAt() time.Time { return c.until }

func (c *conn) broken() error {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if c.f.down || c.since < c.f.restarts {
		return errDown
	}
	return nil
}

func (c *conn) ask(query string) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if c.f.asked != nil {
		c.f.asked[query]++
	}
}

func (c *conn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("no statements here") }
func (c *conn) Begin() (driver.Tx, error)           { return nil, errors.New("no transactions here") }

func (c *conn) ResetSession(context.Context) error { c.ask("reset session"); return nil }

// panics does, if the server is said to.
func (c *conn) panics() {
	c.f.mu.Lock()
	wild := c.f.wild
	c.f.mu.Unlock()
	if wild {
		panic("the driver's")
	}
}

func (c *conn) Ping(ctx context.Context) error {
	c.panics()
	c.f.mu.Lock()
	takes := c.f.ping
	c.f.pings++
	c.f.mu.Unlock()
	if err := sleep(ctx, takes); err != nil {
		return err
	}
	return c.broken()
}

// ExecContext of a duration takes that long.
func (c *conn) ExecContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	c.panics()
	c.ask(query)
	if d, err := time.ParseDuration(query); err == nil {
		if err := sleep(ctx, d); err != nil {
			return nil, err
		}
	}
	return driver.RowsAffected(1), c.broken()
}

// QueryContext answers with the user that the connection belongs to.
func (c *conn) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	c.panics()
	c.ask(query)
	if err := c.broken(); err != nil {
		return nil, err
	}
	return &rows{user: c.user}, nil
}

func (c *conn) Close() error {
	c.mu.Lock()
	again := c.closed
	c.closed = true
	c.mu.Unlock()
	c.f.mu.Lock()
	slow := c.f.slow
	c.f.mu.Unlock()
	time.Sleep(slow)
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if again {
		c.f.twice++
		return nil
	}
	c.f.live--
	c.f.byUser[c.user]--
	return nil
}

type rows struct {
	user string
	done bool
}

func (*rows) Columns() []string { return []string{"user"} }
func (*rows) Close() error      { return nil }
func (r *rows) Next(dest []driver.Value) error {
	if r.done {
		return io.EOF
	}
	r.done = true
	dest[0] = r.user
	return nil
}

// A rig is a registry of fake servers in virtual time.
type rig struct {
	*registry.Registry
	mu      sync.Mutex
	servers map[string]*fake
	turns   []string // what the health hook was told

	connecting func() // is called when a pool is made; may be nil
}

func (g *rig) fake(server string) *fake {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.servers[server]
	if f == nil {
		f = &fake{byUser: map[string]int{}}
		g.servers[server] = f
	}
	return f
}

// all are the servers that there are.
func (g *rig) all() (fakes []*fake) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range g.servers {
		fakes = append(fakes, f)
	}
	return fakes
}

func (g *rig) told() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.turns...)
}

func newRig(t testing.TB) *rig {
	g := &rig{servers: map[string]*fake{}}
	r, err := registry.NewWith(registry.Config{
		Kinds: []registry.Kind{{Name: "fake", Connector: func(r registry.ConnectParams) (driver.Connector, error) {
			at := r.Server
			if r.Target != "" {
				at = r.Target
			}
			if g.connecting != nil {
				g.connecting()
			}
			if r.Options["impossible"] != "" {
				return nil, errors.New("impossible")
			}
			return sqlConnector{g.fake(at), r.User}, nil
		}}},
		Health: func(server string, down *registry.UnhealthyError) {
			g.mu.Lock()
			defer g.mu.Unlock()
			turn := server + " up"
			if down != nil {
				turn = server + " down"
			}
			g.turns = append(g.turns, turn)
		},
	})
	require.NoError(t, err)
	g.Registry = r
	return g
}

// bubble runs a test in virtual time and closes the servers' account: all that
// was opened was closed, once, and never more was open than may be.
func bubble(t *testing.T, test func(t *testing.T, g *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		defer func() { // also after a failure: a bubble must not leave goroutines
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // loans may be out then
			defer cancel()
			if err := g.Close(ctx); err != nil {
				require.ErrorIs(t, err, registry.ErrClosed)
			}
			synctest.Wait()
			for name, f := range g.servers {
				assert.Zero(t, f.live, "connections of %s left open", name)
				assert.Zero(t, f.twice, "connections of %s closed twice", name)
				assert.Empty(t, f.reclaims, "who is closed is asked no more")
			}
		}()
		test(t, g)
	})
}

// define registers a fake server with the users a, b and c.
func define(t testing.TB, g *rig, set func(*registry.ServerDefinition)) registry.ServerDefinition {
	t.Helper()
	d := registry.ServerDefinition{
		Name: "s", Kind: "fake", MinIdle: -1, WarmupConnections: -1, MaxLifetime: -1, KeepSession: true,
		Users: map[string]registry.UserMapping{"a": {User: "remote a"}, "b": {User: "remote b"}, "c": {User: "remote c"}},
	}
	if set != nil {
		set(&d)
	}
	require.NoError(t, g.Register(t.Context(), d))
	return d
}

func acquire(t testing.TB, g *rig, user string) *registry.Conn {
	t.Helper()
	c, err := g.Acquire(t.Context(), "s", user)
	require.NoError(t, err)
	return c
}

// whoami asks the server whose connection c is.
func whoami(t testing.TB, c *registry.Conn) (user string) {
	t.Helper()
	require.NoError(t, c.SQL().QueryRowContext(t.Context(), "whoami").Scan(&user))
	return user
}

// work borrows, holds for a while and gives back, and tells how long the wait was.
func work(ctx context.Context, g *rig, server, user string, hold time.Duration) (waited time.Duration, err error) {
	began := time.Now()
	c, err := g.Acquire(ctx, server, user)
	waited = time.Since(began)
	if err != nil {
		return waited, err
	}
	_, err = c.SQL().ExecContext(ctx, hold.String())
	return waited, errors.Join(err, c.Release())
}
