package registry_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
)

// deafConn is of a driver that does not look at contexts: it hangs until the server
// does no more.
type deafConn struct {
	hangs func()
	err   error
}

func (c deafConn) Connect(context.Context) (driver.Conn, error) { return c, nil }
func (deafConn) Driver() driver.Driver                          { return nil }
func (deafConn) Prepare(string) (driver.Stmt, error)            { return nil, errors.New("no") }
func (deafConn) Close() error                                   { return nil }
func (deafConn) Begin() (driver.Tx, error)                      { return nil, errors.New("no") }
func (c deafConn) Ping(context.Context) error                   { c.hangs(); return c.err }
func (c deafConn) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	c.hangs()
	return driver.RowsAffected(0), c.err
}

func registryOf(t *testing.T, c driver.Connector, health func(r *registry.Registry, s string, down *registry.UnhealthyError)) *registry.Registry {
	var r *registry.Registry
	r, err := registry.NewWith(registry.Config{
		Kinds: []registry.Kind{{Name: "k", Connector: func(registry.ConnectParams) (driver.Connector, error) { return c, nil }}},
		Health: func(s string, down *registry.UnhealthyError) {
			if health != nil {
				health(r, s, down)
			}
		},
	})
	require.NoError(t, err)
	return r
}

func keptBy(threshold int) registry.ServerDefinition {
	return registry.ServerDefinition{
		Name: "s", Kind: "k", Users: map[string]registry.UserMapping{"a": {}}, KeepSession: true, MinIdle: -1, WarmupConnections: -1,
		HealthCheck: registry.HealthCheck{FailureThreshold: threshold, RecoveryThreshold: 1},
	}
}

func TestADriverThatHangsHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung, release := false, make(chan struct{})
		r := registryOf(t, deafConn{hangs: func() {
			if hung {
				<-release
			}
		}}, nil)
		require.NoError(t, r.Register(t.Context(), keptBy(1)))
		c, err := r.Acquire(t.Context(), "s", "a")
		require.NoError(t, err)
		hung = true
		began := time.Now()
		require.NoError(t, c.Release(), "the reset is given up")
		require.LessOrEqual(t, time.Since(began), 5100*time.Millisecond)
		synctest.Wait()
		require.False(t, r.Healthy("s"), "and is a fault of the server")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		_ = r.Unregister(ctx, "s")
		require.LessOrEqual(t, time.Since(began), 12*time.Second)
		close(release)
		require.NoError(t, r.Close(t.Context()))
		time.Sleep(time.Minute)
	})
}

// The hook may do what it likes with the registry, and whatever it does: Unregister
// does not wait for the open or the probe that it was told of.
func TestAHealthHookMayUnregisterItsServer(t *testing.T) {
	for _, recovered := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{byUser: map[string]int{}, down: true}
			took := make(chan time.Duration, 1)
			r := registryOf(t, sqlConnector{f, "x"}, func(r *registry.Registry, s string, down *registry.UnhealthyError) {
				if (down == nil) == recovered {
					ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
					defer cancel()
					began := time.Now()
					assert.NoError(t, r.Unregister(ctx, s))
					took <- time.Since(began)
				}
			})
			d := keptBy(1)
			d.MinIdle, d.WarmupConnections = 1, 1
			require.NoError(t, r.Register(t.Context(), d))
			time.Sleep(10 * time.Millisecond)
			f.set(func() { f.down = false })
			require.LessOrEqual(t, <-took, time.Minute)
			require.NoError(t, r.Close(t.Context()))
		})
	}
}

func TestAHealthHookThatPanicsExitsOrHangsHarmsNobody(t *testing.T) {
	for name, does := range map[string]func(release chan struct{}){
		"panics": func(chan struct{}) { panic("so it does") },
		"exits":  func(chan struct{}) { runtime.Goexit() },
		"hangs":  func(release chan struct{}) { <-release },
	} {
		synctest.Test(t, func(t *testing.T) {
			f, release, told := &fake{byUser: map[string]int{}, down: true}, make(chan struct{}), new(atomic.Int64)
			r := registryOf(t, sqlConnector{f, "x"}, func(*registry.Registry, string, *registry.UnhealthyError) { told.Add(1); does(release) })
			require.NoError(t, r.Register(t.Context(), keptBy(1)))
			_, err := r.Acquire(t.Context(), "s", "a")
			require.Error(t, err)
			f.set(func() { f.down = false })
			time.Sleep(time.Minute)
			c, err := r.Acquire(t.Context(), "s", "a")
			require.NoError(t, err, name)
			require.NoError(t, c.Release())
			if name != "hangs" {
				require.Equal(t, int64(2), told.Load(), name)
			}
			require.NoError(t, r.Close(t.Context()), name)
			close(release)
		})
	}
}

// A proxy opens connections to a database that is gone: only what a connection is
// used for says whether the server works.
func TestAProxyBeforeADeadDatabaseIsUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registryOf(t, deafConn{hangs: func() {}, err: errDown}, nil)
		require.NoError(t, r.Register(t.Context(), keptBy(3)))
		failed := 0
		for range 10 {
			c, err := r.Acquire(t.Context(), "s", "a")
			if err != nil {
				require.ErrorIs(t, err, registry.ErrUnhealthy)
				break
			}
			_, err = c.SQL().ExecContext(t.Context(), "x")
			require.Error(t, err)
			failed++
			require.NoError(t, c.Release())
			time.Sleep(time.Second)
		}
		require.Equal(t, 3, failed)
		require.NoError(t, r.Close(t.Context()))
	})
}

// Faults that are far between, with work that succeeds in between, are no row.
func TestAStatementThatWorksEndsARowOfFaults(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.HealthCheck.FailureThreshold = 2 })
		f := g.fake("s")
		for range 5 {
			c := acquire(t, g, "a")
			_, err := c.SQL().ExecContext(t.Context(), "x")
			require.NoError(t, err)
			f.set(func() { f.restarts++ })
			_, err = c.SQL().ExecContext(t.Context(), "x")
			require.Error(t, err)
			require.NoError(t, c.Release())
			synctest.Wait()
		}
		require.True(t, g.Healthy("s"))
	})
}
