package main

import (
	"context"
	"fmt"
	"time"

	"github.com/flightpool/flightpool/testserver/dsqlgate"
)

// burst lets all processes want all their connections at once, and replaces
// them so fast that the demand for opens never ends.
func burst(ctx context.Context, f *field, s scale, r *report) error {
	// 100 for the full fleet. Connections live 2.5s, which would be 160 opens.
	rate := float64(s.processes*s.conns) / 4
	atOnce := int(rate)
	rows := [][]string{row("pool", "requests", "failed", "p50", "p99", "opened", "of admissible", "53400", "53300", "writes/open", "late")}
	for _, pool := range s.pools {
		g, err := f.gate(ctx, "burst-"+pool, func(o *dsqlgate.Options) { o.Rate, o.Burst = rate, atOnce })
		if err != nil {
			return err
		}
		m := member{
			Pool: pool, Conns: s.conns, Workers: s.conns, Think: time.Second, Length: s.length, Patience: 5 * time.Second,
			Lifetime: 2 * time.Second, Jitter: time.Second, Guard: 100 * time.Millisecond, Limit: 1000, Rate: rate, Burst: atOnce * 4 / 5,
		}
		seen, err := f.run(ctx, g, s.processes, m)
		if err != nil {
			return err
		}
		gate, times := g.Stats(), g.Admissions()
		span := times[len(times)-1].Sub(times[0])
		used := float64(len(times)) / (float64(atOnce) + rate*span.Seconds())
		cost := float64(seen.Writes) / float64(max(1, seen.Opens))
		spent, late := "-", "-"
		if pool == "dsql" {
			spent, late = fmt.Sprintf("%.2f", cost), fmt.Sprint(seen.Dropped)
			r.claim(gate.Refused["53400"] == 0, "burst: %d opens were refused as too fast", gate.Refused["53400"])
			r.claim(gate.Refused["53300"] == 0, "burst: %d opens were refused as too many", gate.Refused["53300"])
			r.figure(s, seen.Failures == 0, "burst: %d requests failed", seen.Failures)
			r.figure(s, used >= .95, "burst: only %.1f %% of the admissible opens were used", 100*used)
			r.figure(s, cost <= .3, "burst: %.2f writes of the limiter per open", cost)
			if err := f.settled(ctx, r, "burst", g, m, seen); err != nil {
				return err
			}
		}
		rows = append(rows, row(pool, seen.Requests, seen.Failures, quantile(seen.Request, .5), quantile(seen.Request, .99),
			len(times), fmt.Sprintf("%.1f%%", 100*used), gate.Refused["53400"], gate.Refused["53300"], spent, late))
		if err := g.Close(); err != nil {
			return err
		}
	}
	r.table(fmt.Sprintf("burst: %d processes want %d connections each at once, and replace them every 2 to 3 s, for %v; the cluster admits %.0f opens per second, %d at once",
		s.processes, s.conns, s.length, rate, atOnce), rows)
	return nil
}
