package dynamolease

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// household is a fleet whose connections live for about twelve minutes.
type household struct {
	members, shards, conns int
	restarts               bool // each process lives no longer than one of its connections
	lasts                  time.Duration
}

// bill is what a household wrote.
type bill struct {
	lives     int
	processes float64 // seconds of all of them together
	started   int
	db        *fakeDB
}

func (h household) run(t *testing.T) (b bill) {
	synctest.Test(t, func(t *testing.T) {
		b.db = newFakeDB()
		ctx, cancel := context.WithTimeout(t.Context(), h.lasts)
		defer cancel()
		var mu sync.Mutex
		var members sync.WaitGroup
		for i := range h.members {
			members.Go(func() {
				for turn := 0; ctx.Err() == nil; turn++ {
					start := time.Now()
					lives := h.process(ctx, t, b.db, uint64(1000*turn+i))
					mu.Lock()
					b.started++
					b.lives += lives
					b.processes += time.Since(start).Seconds()
					mu.Unlock()
				}
			})
		}
		members.Wait()
	})
	return b
}

// process is the life of one, to its Close.
func (h household) process(ctx context.Context, t *testing.T, db *fakeDB, seed uint64) (lives int) {
	l, _ := join(t, db, Config{Limit: 10_000, Shards: h.shards})
	ends := make(chan int)
	for j := range h.conns {
		rng := seeded(seed*100 + uint64(j))
		go func() {
			n := 0
			for once := true; ctx.Err() == nil && (once || !h.restarts); once = false {
				release, err := l.Acquire(ctx)
				if err != nil {
					break
				}
				n++
				pause(ctx, 11*time.Minute+upTo(rng, 2*time.Minute), nil)
				release()
				pause(ctx, time.Second, nil) // until the next one is opened
			}
			ends <- n
		}()
	}
	for range h.conns {
		lives += <-ends
	}
	if err := l.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
	return lives
}

// The price: at most 0.2 write units for the life of a connection, and at most
// 0.11 per second for a process. The latter is its heartbeats alone; all else
// (joining, growth, returns, setting up, leaving) is laid on the connections.
func TestLeasesCostLittle(t *testing.T) {
	for _, v := range []struct {
		what string
		household
	}{
		{"16 processes", household{16, 1, 40, false, time.Hour}},
		{"50 processes, 10,000 connections", household{50, 5, 200, false, 20 * time.Minute}},
		{"16 processes that restart with every connection", household{16, 1, 40, true, 30 * time.Minute}},
	} {
		t.Run(v.what, func(t *testing.T) {
			b := v.run(t)
			beats := float64(b.db.bill["sess"] - 2*b.started) // less the registration and the tombstone
			perSecond := beats / b.processes
			perLife := (float64(b.db.bill["alloc"]+b.db.bill["sess"]) - beats) / float64(b.lives)
			t.Logf("%d lives: %.4f write units per life, %.3f per second and process; allocation items up to %d bytes",
				b.lives, perLife, perSecond, b.db.bulk)
			require.LessOrEqual(t, perLife, 0.2)
			require.LessOrEqual(t, perSecond, 0.11)
			require.Greater(t, perSecond, 0.09, "every write is counted")
		})
	}
}
