package reservoir_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/flightpool/flightpool/reservoir"
)

func benchPool(b *testing.B, set func(*reservoir.Config[int])) *reservoir.Reservoir[int] {
	b.Helper()
	cfg := reservoir.Config[int]{
		Open:  func(context.Context) (int, error) { return 1, nil },
		Close: func(int) error { return nil },
	}
	set(&cfg)
	r, err := reservoir.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	b.ReportAllocs()
	return r
}

func cycle(ctx context.Context, b *testing.B, r *reservoir.Reservoir[int]) {
	l, err := r.Acquire(ctx)
	if err != nil {
		b.Error(err)
		return
	}
	if err := l.Release(); err != nil {
		b.Error(err)
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	r := benchPool(b, func(c *reservoir.Config[int]) { c.MaxSize = 4 })
	for b.Loop() {
		cycle(b.Context(), b, r)
	}
}

func BenchmarkAcquireReleaseWithMinIdleAndChecks(b *testing.B) {
	r := benchPool(b, func(c *reservoir.Config[int]) {
		c.MaxSize, c.MinIdle, c.CheckOnAcquire = 4, 4, true
		c.Check = func(context.Context, int) error { return nil }
	})
	for b.Loop() {
		cycle(b.Context(), b, r)
	}
}

// BenchmarkCallers has many callers for few connections, each of whom lets
// others run while it has one: nearly every acquire waits.
func BenchmarkCallers(b *testing.B) {
	for _, cancellable := range []bool{false, true} {
		b.Run(fmt.Sprintf("cancellable=%v", cancellable), func(b *testing.B) {
			r := benchPool(b, func(c *reservoir.Config[int]) { c.MaxSize = 4 })
			ctx := context.Background()
			if cancellable {
				ctx = b.Context()
			}
			b.SetParallelism(64)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					l, err := r.Acquire(ctx)
					runtime.Gosched()
					if err != nil || l.Release() != nil {
						b.Error("acquire or release failed")
					}
				}
			})
			s := r.Stats()
			b.ReportMetric(float64(s.AcquiredWaited)/float64(s.Acquired), "waited/op")
		})
	}
}

func BenchmarkStats(b *testing.B) {
	r := benchPool(b, func(c *reservoir.Config[int]) { c.MaxSize, c.MinIdle, c.MaxConcurrentOpens = 10_000, 10_000, -1 })
	if err := r.WaitReady(b.Context(), 10_000); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		_ = r.Stats()
	}
}
