package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/flightpool/flightpool/testserver/dsqlgate"
)

// drop lets the cluster end every connection at once, in the middle of
// requests.
func drop(ctx context.Context, f *field, s scale, r *report) error {
	const conns, workers = 10, 8
	rows := [][]string{row("pool", "requests", "dropped", "failed", "failed later", "hung", "attempts since", "53400", "p99")}
	for _, pool := range s.pools {
		g, err := f.gate(ctx, "drop-"+pool, func(o *dsqlgate.Options) { o.Rate, o.Burst = 100, 100 })
		if err != nil {
			return err
		}
		m := member{
			Pool: pool, Conns: conns, Workers: workers, Think: 20 * time.Millisecond, Work: 100 * time.Millisecond, Length: s.length,
			Patience: 10 * time.Second, Limit: 1000, Rate: 100, Burst: 80,
		}
		all := s.processes * conns
		if pool != "dsql" { // it has what its workers use
			all = s.processes * workers
		}
		filled, cancel := context.WithTimeout(ctx, s.length)
		var dropped, before int
		var cut sync.WaitGroup
		cut.Go(func() { dropped, before = dropWhenFull(filled, g, all) })
		seen, err := f.run(ctx, g, s.processes, m)
		cancel()
		cut.Wait()
		if err != nil {
			return err
		}
		gate := g.Stats()
		since := gate.Attempts - before
		if pool == "dsql" {
			r.claim(dropped > 0, "drop: there was no connection to drop")
			r.figure(s, seen.Failures > 0, "drop: no request was under way")
			r.claim(seen.Failures <= dropped, "drop: %d requests failed, more than connections were dropped", seen.Failures)
			r.claim(seen.Later == 0, "drop: %d requests begun after the drop failed too", seen.Later)
			r.claim(seen.Hung == 0, "drop: %d requests did not get their error", seen.Hung)
			r.claim(since <= dropped, "drop: %d attempts to open in place of %d connections", since, dropped)
			r.claim(len(gate.Refused) == 0, "drop: the cluster refused opens: %v", gate.Refused)
			if err := f.settled(ctx, r, "drop", g, m, seen); err != nil {
				return err
			}
		}
		rows = append(rows, row(pool, seen.Requests, dropped, seen.Failures, seen.Later, seen.Hung, since, gate.Refused["53400"], quantile(seen.Request, .99)))
		if err := g.Close(); err != nil {
			return err
		}
	}
	r.table(fmt.Sprintf("drop: %d processes with %d workers each, requests of 100 ms; every connection ends at once", s.processes, workers), rows)
	return nil
}

// dropWhenFull ends all connections a second after the last one was opened. It
// tells how many there were, and how many attempts to open until then.
func dropWhenFull(ctx context.Context, g *dsqlgate.Gate, all int) (dropped, attempts int) {
	if !full(ctx, g, all) {
		return 0, 0
	}
	time.Sleep(time.Second)
	attempts = g.Stats().Attempts
	return g.DropAll(), attempts
}

// full waits until there are that many connections.
func full(ctx context.Context, g *dsqlgate.Gate, all int) bool {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for g.Stats().Live < all {
		select {
		case <-look.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
