package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/flightpool/flightpool/testserver/dsqlgate"
)

// steady replaces every connection several times under a moderate load: an hour
// and the lives within it are 1/100 as long. All fleets run at once, each on a
// cluster of its own, so that the machine is the same for all.
func steady(ctx context.Context, f *field, s scale, r *report) error {
	const conns, spare, low, settle = 10, 10, 8, 5 * time.Second
	processes := max(2, s.processes/2)
	seen, stats := make([]result, len(s.pools)), make([]dsqlgate.Stats, len(s.pools))
	fleets, running := errgroup.WithContext(ctx)
	for i, pool := range s.pools {
		fleets.Go(func() error {
			g, err := f.gate(ctx, "steady-"+pool, func(o *dsqlgate.Options) { o.SessionLimit, o.TxLimit = 36*time.Second, 3*time.Second })
			if err != nil {
				return err
			}
			m := member{
				Pool: pool, Conns: conns, Spare: spare, Low: low, Workers: 4, Think: 50 * time.Millisecond, Length: s.length, Settle: settle,
				Patience: 5 * time.Second, Lifetime: 6600 * time.Millisecond, Jitter: 1200 * time.Millisecond, Guard: 450 * time.Millisecond,
				Limit: 1000, Rate: 100, Burst: 500,
			}
			switch pool {
			case "pgxpool": // an hour
				m.Lifetime, m.Jitter, m.Spare = 36*time.Second, 0, 0
			case "aws-settings": // 55 minutes
				m.Lifetime, m.Jitter, m.Spare = 33*time.Second, 0, 0
			}
			if seen[i], err = f.run(running, g, processes, m); err != nil {
				return err
			}
			if stats[i] = g.Stats(); pool == "dsql" {
				if err := f.settled(ctx, r, "steady", g, m, seen[i]); err != nil {
					return err
				}
			}
			return g.Close()
		})
	}
	if err := fleets.Wait(); err != nil {
		return err
	}
	rows := [][]string{row("pool", "requests", "failed", "checkout p50", "p99", "p99.9", "request p50", "p99", "p99.9", "replaced", "lowest ready", "cut by server")}
	for i, pool := range s.pools {
		replaced := max(0, float64(stats[i].Admitted)/float64(stats[i].Peak)-1)
		p99 := quantile(seen[i].Checkout, .99)
		if pool == "dsql" {
			r.claim(len(stats[i].Refused) == 0, "steady: the cluster refused opens: %v", stats[i].Refused)
			r.claim(stats[i].Expired == 0, "steady: the server ended %d connections for their age", stats[i].Expired)
			r.figure(s, seen[i].Failures == 0, "steady: %d requests failed", seen[i].Failures)
			r.figure(s, p99 <= time.Millisecond, "steady: the checkout's p99 is %v", p99)
			r.figure(s, replaced >= 3, "steady: connections were replaced %.1f times only", replaced)
			r.figure(s, seen[i].Ready >= low, "steady: only %d connections were ready, the low watermark is %d", seen[i].Ready, low)
		}
		rows = append(rows, row(pool, seen[i].Requests, seen[i].Failures, quantile(seen[i].Checkout, .5), p99, quantile(seen[i].Checkout, .999),
			quantile(seen[i].Request, .5), quantile(seen[i].Request, .99), quantile(seen[i].Request, .999), fmt.Sprintf("%.1fx", replaced),
			seen[i].Ready, stats[i].Expired))
	}
	r.table(fmt.Sprintf("steady: %d processes of each pool, all at once, for %v; time runs 100 times as fast: sessions end after 36 s, ours live 6.6 to 7.8 s",
		processes, s.length), rows)
	return nil
}
