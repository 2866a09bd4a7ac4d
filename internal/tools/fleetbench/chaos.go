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

// badNetwork is what DynamoDB is like in the chaos story.
var badNetwork = localdeps.Faults{
	LoseRequest: .02, LoseReply: .02, Duplicate: .05, DuplicateAfter: 500 * time.Millisecond,
	Throttle: .02, Conflict: .02, Delay: 20 * time.Millisecond,
}

// chaos kills and pauses members at random while DynamoDB misbehaves. The fleet
// wants more connections than its limit; the gateway, which would take all of
// them, counts.
func chaos(ctx context.Context, f *field, s scale, r *report) error {
	const want = 12
	limit := s.processes * want * 5 / 8
	g, err := f.gate(ctx, "chaos", func(o *dsqlgate.Options) { o.MaxConns = 10 * limit })
	if err != nil {
		return err
	}
	m := member{
		Host: g.Host(), Pool: "dsql", Conns: want, Workers: 4, Think: 20 * time.Millisecond, Length: 24 * time.Hour, Patience: 5 * time.Second,
		Lifetime: 20 * time.Second, Jitter: 5 * time.Second, Guard: time.Second, Limit: limit, Rate: 100, Burst: 500,
	}
	lease, grace, longest := time.Minute, 20*time.Second, 10*time.Second // dynamolease's own, and of a pause
	if s.brief {
		lease, grace, longest = 12*time.Second, 4*time.Second, time.Second
		m.Lease, m.Grace = lease, grace
	}
	f.proxy.Set(badNetwork)
	defer f.proxy.Set(localdeps.Faults{})
	kills, pauses, err := f.storm(ctx, g, s, m, longest)
	if err != nil {
		return err
	}
	died, counts := time.Now(), f.proxy.Counts()
	f.proxy.Set(localdeps.Faults{})
	leases, err := dynamolease.New(ctx, f.dynamo.Client(), m.budget(lease/12))
	if err != nil {
		return err
	}
	free, err := takeAll(ctx, leases, limit, r)
	if err != nil {
		return err
	}
	back, peak := free.Sub(died).Round(time.Second), g.Stats().Peak
	r.claim(peak <= limit, "chaos: %d connections at a limit of %d", peak, limit)
	r.figure(s, back <= lease+grace, "chaos: the slots of the dead were back after %v, later than %v and %v", back, lease, grace)
	r.figure(s, kills+pauses >= 200, "chaos: only %d kills and %d pauses", kills, pauses)
	r.table(fmt.Sprintf("chaos: %d processes want %d connections each, the fleet's limit is %d; %v of kill -9 and SIGSTOP up to %v", s.processes, want, limit, s.length, longest),
		[][]string{
			row("kills", "pauses", "most connections", "limit", "slots back after", "lease+grace", "requests to DynamoDB lost", "unanswered", "doubled", "refused"),
			row(kills, pauses, peak, limit, back, lease+grace, counts["lost"], counts["unanswered"], counts["duplicated"], counts["throttled"]+counts["conflicting"]),
		})
	return g.Close()
}

// storm kills and pauses members for the length of the story, and kills all of
// them at its end.
func (f *field) storm(ctx context.Context, g *dsqlgate.Gate, s scale, m member, longest time.Duration) (kills, pauses int, err error) {
	members := make([]*process, s.processes)
	for i := range members {
		if members[i], err = f.spawn(ctx, g, m); err != nil {
			return 0, 0, err
		}
	}
	filled, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if !full(filled, g, m.Limit) {
		return 0, 0, fmt.Errorf("the fleet has only %d of %d connections after a minute", g.Stats().Live, m.Limit)
	}
	every := max(s.length/240, 300*time.Millisecond)
	for end := time.Now().Add(s.length); time.Now().Before(end); {
		time.Sleep(every/2 + rand.N(every))
		i := rand.IntN(len(members))
		if rand.IntN(2) == 0 {
			kills++
			members[i].kill()
			if members[i], err = f.spawn(ctx, g, m); err != nil {
				return kills, pauses, err
			}
			continue
		}
		pauses++
		process := members[i].cmd.Process
		if err := process.Signal(syscall.SIGSTOP); err != nil {
			return kills, pauses, err
		}
		time.AfterFunc(rand.N(longest), func() { _ = process.Signal(syscall.SIGCONT) }) // it may be dead by then
	}
	for _, p := range members {
		p.kill()
	}
	return kills, pauses, nil
}

// takeAll takes every lease there is: the dead must have lost theirs for that,
// and no more can be had.
func takeAll(ctx context.Context, leases *dynamolease.Leases, limit int, r *report) (done time.Time, err error) {
	patience, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	var releases []func()
	for range limit {
		release, err := leases.Acquire(patience)
		if err != nil {
			r.claim(false, "chaos: %d of %d slots came back: %w", len(releases), limit, err)
			break
		}
		releases = append(releases, release)
	}
	done = time.Now()
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err = leases.Acquire(brief)
	r.claim(err != nil, "chaos: more than %d slots could be had", limit)
	r.claim(leases.Stats().Used == limit, "chaos: the table counts %d leases of %d in use", leases.Stats().Used, limit)
	for _, release := range releases {
		release()
	}
	return done, leases.Close(patience)
}
