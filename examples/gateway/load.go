package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/rowscan"
)

// pace is how often each worker calls; workers is how many each user has on each
// server.
const (
	pace    = 20 * time.Millisecond
	workers = 2
)

// users are the gateway's, and who they are on the servers.
var users = map[string]string{"ann": "app", "bob": "report"}

// call is one that was made.
type call struct {
	began time.Time
	took  time.Duration
	err   error
}

// load is calls of all users on all servers, at a steady pace.
type load struct {
	registry *registry.Registry
	stop     context.CancelFunc
	wg       sync.WaitGroup

	mu    sync.Mutex
	calls map[string][]call // by server
}

func startLoad(ctx context.Context, r *registry.Registry) *load {
	ctx, stop := context.WithCancel(ctx)
	l := &load{registry: r, stop: stop, calls: map[string][]call{}}
	for _, server := range r.Servers() {
		for user := range users {
			for range workers {
				l.wg.Go(func() { l.work(ctx, server, user) })
			}
		}
	}
	return l
}

func (l *load) work(ctx context.Context, server, user string) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		err := once(ctx, l.registry, server, user)
		if ctx.Err() != nil {
			return
		}
		l.mu.Lock()
		l.calls[server] = append(l.calls[server], call{began, time.Since(began), err})
		l.mu.Unlock()
	}
}

func (l *load) end() {
	l.stop()
	l.wg.Wait()
}

// between are the calls of a server that were made in a span of time.
func (l *load) between(server string, from, to time.Time) []call {
	l.mu.Lock()
	defer l.mu.Unlock()
	var some []call
	for _, c := range l.calls[server] {
		if !c.began.Before(from) && c.began.Before(to) {
			some = append(some, c)
		}
	}
	return some
}

// p99 of the calls, and how many failed.
func p99(calls []call) (took time.Duration, failed int) {
	if len(calls) == 0 {
		return 0, 0
	}
	var all []time.Duration
	for _, c := range calls {
		all = append(all, c.took)
		if c.err != nil {
			failed++
		}
	}
	slices.Sort(all)
	return all[len(all)*99/100], failed
}

// whoAmI asks a server of database/sql for the user; DuckDB has none to tell, and
// is asked for something else. The server checks the credentials there.
var whoAmI = map[string]string{"pg": "SELECT current_user", "maria": "SELECT SUBSTRING_INDEX(CURRENT_USER(), '@', 1)"}

// once makes one call, which nobody but the user himself may answer.
func once(ctx context.Context, r *registry.Registry, server, user string) (err error) {
	if server == "duck" {
		return one(ctx, r, user)
	}
	c, err := r.Acquire(ctx, server, user)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Release()) }()
	var is string
	if err := c.SQL().QueryRowContext(ctx, whoAmI[server]).Scan(&is); err != nil {
		return err
	}
	if is != users[user] {
		return fmt.Errorf("%w: %s is %q on %s", errStranger, user, is, server)
	}
	return nil
}

var errStranger = errors.New("a connection of somebody else")

func one(ctx context.Context, r *registry.Registry, user string) error {
	result, err := r.Query(ctx, "duck", user, "SELECT 42 AS n")
	if err != nil {
		return err
	}
	for row, err := range rowscan.Rows[struct{ N int32 }](result) {
		if err != nil {
			return err
		}
		if row.N != 42 {
			return fmt.Errorf("42 is %d", row.N)
		}
	}
	return nil
}
