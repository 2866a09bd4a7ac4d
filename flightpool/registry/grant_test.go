package registry_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// used is the CPU time that the process has used.
func used(t testing.TB) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// scramble lets so many users, each with one caller all the time, work on five
// connections, and returns the CPU time of a loan, callers and fake server
// included. Nearly every loan is an open: a slot that goes from one user to another.
func scramble(b *testing.B, users, loans int) (perLoan time.Duration, opens float64) {
	g := newRig(b)
	d := define(b, g, guests)
	d.MaxSize, d.AcquireTimeout, d.UserIdleTimeout = 5, -1, -1
	require.NoError(b, g.Update(b.Context(), d))
	f := g.fake("s")
	f.dial = time.Millisecond
	ctx, cancel := context.WithCancel(b.Context())
	var served atomic.Int64
	var wg sync.WaitGroup
	for n := range users {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := work(ctx, g, "s", fmt.Sprint("guest", n), time.Millisecond); err == nil {
					served.Add(1)
				}
			}
		})
	}
	params := func(n int) (time.Duration, int64, int) {
		for served.Load() < int64(n) {
			time.Sleep(time.Millisecond)
		}
		return used(b), served.Load(), f.read(&f.made)
	}
	began, first, made := params(2 * users) // all are there, and have their pools
	ended, last, all := params(2*users + loans)
	cancel()
	wg.Wait()
	require.NoError(b, g.Close(b.Context()))
	return (ended - began) / time.Duration(last-first), float64(all-made) / float64(last-first)
}

// BenchmarkGrant compares the CPU time of a loan among ten users with that among six
// hundred, who have five connections either way, by turns in one process. It reports
// the medians of the turns.
func BenchmarkGrant(b *testing.B) {
	const turns, loans = 9, 2000
	for b.Loop() {
		var took [2][]time.Duration
		var opens [2]float64
		for range turns {
			for i, users := range []int{10, 600} {
				perLoan, o := scramble(b, users, loans)
				took[i], opens[i] = append(took[i], perLoan), o
			}
		}
		slices.Sort(took[0])
		slices.Sort(took[1])
		few, many := took[0][turns/2], took[1][turns/2]
		b.ReportMetric(float64(few), "cpu-ns/10-users")
		b.ReportMetric(float64(many), "cpu-ns/600-users")
		b.ReportMetric(opens[0], "opens/10-users")
		b.ReportMetric(opens[1], "opens/600-users")
		b.ReportMetric(float64(many)/float64(few), "ratio")
	}
}
