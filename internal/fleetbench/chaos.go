package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/flightpool/flightpool/lease/dynamolease"
	"github.com/flightpool/flightpool/testserver/dsqlgate"
	"github.com/flightpool/flightpool/testserver/localdeps"
)

// chaos kills and pauses members at random while DynamoDB misbehaves. The fleet
// wants more connections than its limit; the gateway, which would take all of
// them, counts.
func chaos(ctx context.Context, f *field, length time.Duration) error {
	const limit, want = 60, 12
	g, err := f.gate(ctx, "chaos", func(o *dsqlgate.Options) { o.MaxConns = 10 * limit })
	if err != nil {
		return err
	}
	f.proxy.Set(localdeps.Faults{LoseRequest: .02, LoseReply: .02, Duplicate: .05, DuplicateAfter: 500 * time.Millisecond, Throttle: .02, Conflict: .02, Delay: 20 * time.Millisecond})
	m := member{
		Pool: "dsql", Conns: want, Workers: 4, Think: 20 * time.Millisecond, Length: 24 * time.Hour, Patience: 5 * time.Second,
		Lifetime: 20 * time.Second, Jitter: 5 * time.Second, Guard: time.Second, Limit: limit, Rate: 100, Burst: 500,
	}
	members := make([]*process, processes)
	for i := range members {
		if members[i], err = f.spawn(ctx, g, m); err != nil {
			return err
		}
	}
	kills, pauses, highest := 0, 0, 0
	every := max(length/200, 100*time.Millisecond)
	for end := time.Now().Add(length); time.Now().Before(end); {
		time.Sleep(every/2 + rand.N(every))
		highest = max(highest, g.Stats().Live)
		i := rand.IntN(len(members))
		if rand.IntN(2) == 0 {
			kills++
			_ = members[i].cmd.Process.Kill() // it may be paused
			_ = members[i].cmd.Wait()         // an error says that it was killed
			if members[i], err = f.spawn(ctx, g, m); err != nil {
				return err
			}
			continue
		}
		pauses++
		process := members[i].cmd.Process
		if err := process.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		time.AfterFunc(rand.N(10*time.Second), func() { _ = process.Signal(syscall.SIGCONT) }) // it may be dead by then
	}
	for _, p := range members {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
	died := time.Now()
	f.proxy.Set(localdeps.Faults{})
	leases, err := dynamolease.New(ctx, localdeps.ClientFor(f.proxy.URL), dynamolease.Config{Table: table, Budget: g.Host(), Limit: limit})
	if err != nil {
		return err
	}
	back, err := takeAll(ctx, leases, limit)
	if err != nil {
		return err
	}
	line("chaos kills=%d pauses=%d peak=%d limit=%d highest-seen=%d all-slots-back-after=%v", kills, pauses, g.Stats().Peak, limit, highest, back.Sub(died).Round(time.Second))
	if peak := g.Stats().Peak; peak > limit {
		return fmt.Errorf("%d connections, more than %d", peak, limit)
	}
	return g.Close()
}

// takeAll takes every lease there is: the dead must have lost theirs for that,
// and no more can be had.
func takeAll(ctx context.Context, leases *dynamolease.Leases, limit int) (time.Time, error) {
	patience, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	var releases []func()
	for range limit {
		release, err := leases.Acquire(patience)
		if err != nil {
			return time.Time{}, fmt.Errorf("%d of %d slots came back: %w", len(releases), limit, err)
		}
		releases = append(releases, release)
	}
	done := time.Now()
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := leases.Acquire(brief); err == nil {
		return done, fmt.Errorf("more than %d slots", limit)
	}
	for _, release := range releases {
		release()
	}
	return done, leases.Close(patience)
}
