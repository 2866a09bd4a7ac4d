package reservoir_test

import (
	"math"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

// Every duration of Config at its largest, alone and together: a caller still
// gets a connection, its own timeout still works, and nothing is checked, closed
// or opened for it.
func TestTheLongestDurationsNeverCome(t *testing.T) {
	durations := []string{"all"}
	fields := reflect.TypeOf(config{})
	for i := range fields.NumField() {
		if fields.Field(i).Type == reflect.TypeFor[time.Duration]() {
			durations = append(durations, fields.Field(i).Name)
		}
	}
	require.Greater(t, len(durations), 10)
	for _, name := range durations {
		for _, long := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, f *fake) {
					f.dial = 10 * time.Millisecond
					r := f.pool(t, func(c *config) {
						c.MinIdle, c.MaxSize, c.Check, c.CheckInterval, c.AcquireTimeout = 1, 1, f.check, -1, time.Second
						c.Hooks.Leaked = func(reservoir.Leak) { t.Error("a leak") }
						for _, d := range durations[1:] {
							if field := reflect.ValueOf(c).Elem().FieldByName(d); d == name || name == "all" && d != "AcquireTimeout" {
								field.SetInt(int64(long))
							}
						}
						switch name {
						case "GuardWindow":
							c.MaxLifetime, c.GuardWindow = long, long-1
						case "ReplaceAfter":
							c.MaxLifetime, c.LifetimeJitter = long, -1
						case "LifetimeJitter":
							c.MaxLifetime = time.Minute
							c.LifetimeJitter = long - time.Minute
						case "all":
							c.LifetimeJitter, c.GuardWindow = -1, -1
						}
					})
					time.Sleep(time.Second)
					if name == "GuardWindow" {
						shut(t, r)
						return
					}
					l := acquire(t, r)
					if name != "AcquireTimeout" {
						got := <-call(t.Context(), r)
						require.ErrorIs(t, got.err, reservoir.ErrExhausted)
						require.Equal(t, time.Second, got.took)
					}
					require.NoError(t, l.Discard(errRefused))
					l = acquire(t, r)
					release(t, l)
					if name != "IdleBeforeCheck" {
						time.Sleep(24 * time.Hour)
						synctest.Wait()
						require.Zero(t, r.Stats().Checks)
						require.Equal(t, 2, f.read(&f.opens))
					}
					shut(t, r)
				})
			})
		}
	}
}

func TestADurationWithoutItsUnitIsRefused(t *testing.T) {
	f := &fake{}
	for name, set := range map[string]func(*config){
		"MaxLifetime": func(c *config) { c.MaxLifetime = 30 }, "IdleTTL": func(c *config) { c.IdleTTL = 300 },
		"CheckInterval": func(c *config) { c.CheckInterval = 30 }, "LeakAfter": func(c *config) { c.LeakAfter = 60 },
	} {
		_, err := reservoir.New(f.config(func(c *config) { c.Check = f.check; set(c) }))
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, err, "unit")
	}
}

func TestTheDefaultOfMaxSizeHasRoomForMinIdle(t *testing.T) {
	f := &fake{}
	r, err := reservoir.New(reservoir.Config[*conn]{Open: f.open, Close: f.close, MinIdle: 50})
	require.NoError(t, err)
	require.Equal(t, 50, r.Stats().MaxSize)
	shut(t, r)
}
