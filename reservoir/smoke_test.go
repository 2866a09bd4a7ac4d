package reservoir

import (
	"context"
	"testing"
)

func BenchmarkAcquireRelease(b *testing.B) {
	r, _ := New(Config[int]{Open: func(context.Context) (int, error) { return 1, nil }, Close: func(int) error { return nil }, MaxSize: 4})
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		l, err := r.Acquire(ctx)
		if err != nil {
			b.Fatal(err)
		}
		_ = l.Release()
	}
	_ = r.Close(ctx)
}
func BenchmarkStarved(b *testing.B) {
	r, _ := New(Config[int]{Open: func(context.Context) (int, error) { return 1, nil }, Close: func(int) error { return nil }, MaxSize: 4})
	ctx := context.Background()
	b.ReportAllocs()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l, err := r.Acquire(ctx)
			if err != nil {
				b.Fatal(err)
			}
			_ = l.Release()
		}
	})
	_ = r.Close(ctx)
}
