package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// atLeast is how many queries must have run on the server at one moment.
const atLeast = 8

// parallel runs all queries from concurrent goroutines through the pool.
func (d *demo) parallel(ctx context.Context) error {
	all := queries()
	start := time.Now()
	p := &progress{demo: d, total: len(all), start: start}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(connections)
	for _, q := range all {
		group.Go(func() error {
			rows, err := d.count(groupCtx, q.sql)
			if err == nil && rows == 0 {
				err = errors.New("no rows")
			}
			if err != nil {
				return fmt.Errorf("%s: %w", q.name, err)
			}
			p.done(q.name, rows)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	p.end()
	took, peak := time.Since(start), d.server.Ledger().Snapshot().RunningPeak
	fmt.Fprintf(d.out, "parallel: %d queries in %s, up to %d at once on the server\n", len(all), rounded(took), peak)
	if peak < atLeast {
		return fmt.Errorf("only %d queries ran at once, at least %d should", peak, atLeast)
	}
	return nil
}

// count runs a query and reads its rows.
func (d *demo) count(ctx context.Context, sql string) (rows int64, err error) {
	result, err := d.pool.Query(ctx, sql)
	if err != nil {
		return 0, err
	}
	for batch, err := range result.Batches() {
		if err != nil {
			return rows, err
		}
		rows += batch.NumRows()
	}
	return rows, nil
}

// progress is one line that changes on a terminal, and a line now and then
// elsewhere.
type progress struct {
	*demo
	total int
	start time.Time

	mu       sync.Mutex // guards finished and the order of the output
	finished int
}

func (p *progress) done(name string, rows int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished++
	s := p.pool.Stats()
	line := fmt.Sprintf("%3d/%d queries  %d in use  %d waiting  %s: %d rows", p.finished, p.total, s.InUse, s.Waiting, name, rows)
	switch {
	case p.live:
		fmt.Fprintf(p.out, "\r\033[K%s", line)
	case p.finished%10 == 0 || p.finished == p.total:
		fmt.Fprintln(p.out, line)
	}
}

func (p *progress) end() {
	if p.live {
		fmt.Fprint(p.out, "\r\033[K")
	}
}
