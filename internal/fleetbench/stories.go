package main

import (
	"context"
	"slices"
	"time"

	"github.com/flightpool/flightpool/testserver/dsqlgate"
)

const (
	processes = 8
	perMember = 50
)

// quantile of durations in microseconds.
func quantile(us []int, q float64) time.Duration {
	if len(us) == 0 {
		return 0
	}
	slices.Sort(us)
	return time.Duration(us[min(len(us)-1, int(q*float64(len(us))))]) * time.Microsecond
}

// burst lets all processes want all their connections at once, and replaces
// them so fast that the demand for opens never ends.
func burst(ctx context.Context, f *field, length time.Duration) error {
	for _, pool := range pools() {
		g, err := f.gate(ctx, "burst-"+pool, func(o *dsqlgate.Options) { o.Rate, o.Burst = 100, 100 })
		if err != nil {
			return err
		}
		r, err := f.run(ctx, g, processes, member{
			Pool: pool, Conns: perMember, Workers: perMember, Think: time.Second, Length: length, Patience: 5 * time.Second,
			// 400 connections that live 2.5s would be 160 opens a second.
			Lifetime: 2 * time.Second, Jitter: time.Second, Guard: 100 * time.Millisecond, Limit: 1000, Rate: 100, Burst: 80,
		})
		if err != nil {
			return err
		}
		s := g.Stats()
		times := g.Admissions()
		span := times[len(times)-1].Sub(times[0])
		line("burst %-12s requests=%d failed=%d p50=%v p99=%v admitted=%d of-admissible=%.1f%% refused-53400=%d refused-53300=%d limiter-writes-per-open=%.2f permits-late=%d permits-unwanted=%d",
			pool, r.Requests, r.Failures, quantile(r.Request, .5), quantile(r.Request, .99), len(times),
			100*float64(len(times))/(100+100*span.Seconds()), s.Refused["53400"], s.Refused["53300"], float64(r.Writes)/float64(max(1, r.Opens)), r.Dropped, r.Elided)
		if err := g.Close(); err != nil {
			return err
		}
	}
	return nil
}

// steady replaces every connection several times under a moderate load: an hour
// and the lives within it are 1/100 as long.
func steady(ctx context.Context, f *field, length time.Duration) error {
	const conns, settle = 10, 5 * time.Second
	for _, pool := range pools() {
		g, err := f.gate(ctx, "steady-"+pool, func(o *dsqlgate.Options) { o.SessionLimit, o.TxLimit = 36*time.Second, 3*time.Second })
		if err != nil {
			return err
		}
		m := member{
			Pool: pool, Conns: conns, Workers: 4, Think: 20 * time.Millisecond, Length: length, Settle: settle, Patience: 5 * time.Second,
			Lifetime: 6600 * time.Millisecond, Jitter: 1200 * time.Millisecond, Guard: 450 * time.Millisecond, Limit: 1000, Rate: 100, Burst: 500,
		}
		if pool == "aws-settings" {
			m.Lifetime = 33 * time.Second
		}
		r, err := f.run(ctx, g, processes, m)
		if err != nil {
			return err
		}
		s := g.Stats()
		line("steady %-12s requests=%d failed=%d checkout-p50=%v checkout-p99=%v request-p99=%v replaced=%.1f-times lowest-ready=%d/%d cut-by-server=%d",
			pool, r.Requests, r.Failures, quantile(r.Checkout, .5), quantile(r.Checkout, .99), quantile(r.Request, .99),
			float64(s.Admitted)/(processes*conns)-1, r.Ready, conns, s.Expired)
		if err := g.Close(); err != nil {
			return err
		}
	}
	return nil
}
