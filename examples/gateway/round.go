package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flightpool/flightpool/flightpool/registry"
)

// round kills a server and starts it again, under load.
func (g *gateway) round(ctx context.Context, victim string, tell bool) error {
	before := time.Now()
	if err := pause(ctx, g.span); err != nil {
		return err
	}
	if tell {
		if _, err := show(ctx, g.out, g.registry, poolsSQL); err != nil {
			return err
		}
	}
	inFlight := g.longCall(ctx, victim)
	if err := pause(ctx, 100*time.Millisecond); err != nil {
		return err
	}
	killed := time.Now()
	g.servers[victim].kill()
	if err := g.turned(ctx, false); err != nil {
		return err
	}
	down := time.Now()
	if err := g.failsFast(ctx, victim, inFlight, killed, tell); err != nil {
		return err
	}
	if err := pause(ctx, g.span); err != nil {
		return err
	}
	if tell && victim != "duck" {
		if err := g.tableTells(ctx, victim); err != nil {
			return err
		}
	}
	dead := time.Now()
	if err := g.comesBack(ctx, victim, tell); err != nil {
		return err
	}
	return g.others(victim, before, killed, down, dead)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// turned waits for the registry to say that the server has turned.
func (g *gateway) turned(ctx context.Context, healthy bool) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		select {
		case is := <-g.health:
			if is == healthy {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("the registry did not say that the server is healthy: %t: %w", healthy, ctx.Err())
		}
	}
}

// sleeps are statements that last.
var sleeps = map[string]string{"pg": "SELECT pg_sleep(60)", "maria": "SELECT SLEEP(60)", "duck": "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range + b.range = -1"}

// longCall starts a call that is under way when the server is killed.
func (g *gateway) longCall(ctx context.Context, server string) <-chan error {
	done := make(chan error, 1)
	go func() {
		c, err := g.registry.Acquire(ctx, server, "ann")
		if err != nil {
			done <- err
			return
		}
		if c.SQL() != nil {
			_, err = c.SQL().ExecContext(ctx, sleeps[server])
		} else {
			_, err = c.Session().Update(ctx, sleeps[server])
		}
		_ = c.Release() // the connection is gone
		done <- err
	}()
	return done
}

// failsFast checks that the call under way got its error, and that calls to the
// server fail at once, with the reason and since when.
func (g *gateway) failsFast(ctx context.Context, victim string, inFlight <-chan error, killed time.Time, tell bool) error {
	select {
	case err := <-inFlight:
		if err == nil || errors.Is(err, registry.ErrUnhealthy) {
			return fmt.Errorf("the call under way got %w", err)
		}
		if tell {
			fmt.Fprintf(g.out, "%s is killed; the call under way: %v\n", victim, err)
		}
	case <-time.After(10 * time.Second):
		return errors.New("the call under way has not ended")
	}
	var all []time.Duration
	for range 200 {
		began := time.Now()
		err := once(ctx, g.registry, victim, "ann")
		all = append(all, time.Since(began))
		var down *registry.UnhealthyError
		if !errors.As(err, &down) || down.Reason == nil || down.Since.IsZero() {
			return fmt.Errorf("a call got %w", err)
		}
		if tell && len(all) == 1 {
			fmt.Fprintf(g.out, "unhealthy %s after: %v\n", rounded(time.Since(killed)), err)
		}
	}
	slices.Sort(all)
	g.figures.noticed = append(g.figures.noticed, time.Since(killed))
	g.figures.failed = append(g.figures.failed, all[len(all)-1])
	if half := all[len(all)/2]; half > 5*time.Millisecond {
		return fmt.Errorf("half of the calls took more than %s to fail", half)
	}
	if tell {
		fmt.Fprintf(g.out, "200 calls failed in %s each, at most %s\n", all[len(all)/2].Round(100*time.Nanosecond), all[len(all)-1].Round(100*time.Nanosecond))
	}
	return nil
}

// tableTells checks that SQL sees what has happened.
func (g *gateway) tableTells(ctx context.Context, victim string) error {
	rows, err := show(ctx, g.out, g.registry, poolsSQL)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if down := row["server"] == victim; down != (row["healthy"] == "false") || down != (row["reason"] != "") {
			return fmt.Errorf("the view says: %v", row)
		}
	}
	if len(rows) != len(g.servers) {
		return fmt.Errorf("the view has %d servers", len(rows))
	}
	return nil
}

// comesBack starts the server and waits until it serves both users.
func (g *gateway) comesBack(ctx context.Context, victim string, tell bool) error {
	if err := g.servers[victim].start(ctx); err != nil {
		return err
	}
	up := time.Now()
	if err := g.turned(ctx, true); err != nil {
		return err
	}
	for user := range users {
		if err := once(ctx, g.registry, victim, user); err != nil {
			return fmt.Errorf("back, but: %w", err)
		}
	}
	took := time.Since(up)
	g.figures.back = append(g.figures.back, took)
	if tell {
		fmt.Fprintf(g.out, "%s is back; serves both users %s after it took connections\n", victim, rounded(took))
	}
	return g.agree(ctx, victim)
}

// agree waits until the registry and the server count the same connections: none
// that was cut is left on either side.
func (g *gateway) agree(ctx context.Context, victim string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return until(ctx, g.servers[victim], func(n int) bool {
		st, err := g.registry.ServerStats(victim)
		return err == nil && n == st.Total && n <= st.MaxSize
	})
}

// others checks that nobody else noticed, and keeps how long their calls took.
func (g *gateway) others(victim string, before, killed, down, dead time.Time) error {
	for name := range g.servers {
		if name == victim {
			continue
		}
		calm, failed := p99(g.load.between(name, before, killed))
		storm, failedLater := p99(g.load.between(name, killed, dead))
		if failed+failedLater > 0 {
			return fmt.Errorf("%d calls to %s failed", failed+failedLater, name)
		}
		g.figures.calm, g.figures.storm = append(g.figures.calm, calm), append(g.figures.storm, storm)
	}
	for _, c := range g.load.between(victim, down, dead) {
		if !errors.Is(c.err, registry.ErrUnhealthy) {
			return fmt.Errorf("a call to a dead server got %w", c.err)
		}
	}
	return nil
}
