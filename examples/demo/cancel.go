package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	deadline = time.Second            // of the long query
	grace    = 100 * time.Millisecond // in which the caller must be free
	minute   = time.Minute            // that the long query would take
)

// long compares every flight with the first n others: work proportional to n.
func long(n int) string {
	return fmt.Sprintf("SELECT sum(hash(a.delay * b.distance) %% 1000) FROM flights a, (FROM flights LIMIT %d) b", n)
}

// cancel runs a query of a minute under a deadline of a second.
func (d *demo) cancel(ctx context.Context) error {
	// How long a minute is depends on the machine: measure a small one.
	const sample = 200
	start := time.Now()
	if _, err := d.count(ctx, long(sample)); err != nil {
		return err
	}
	n := int(sample * float64(minute) / float64(time.Since(start)))

	queryCtx, stop := context.WithTimeout(ctx, deadline)
	defer stop()
	due, _ := queryCtx.Deadline()
	_, err := d.count(queryCtx, long(n))
	late := time.Since(due)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the long query should run into its deadline, but ended with: %w", err)
	}

	idleCtx, stopIdle := context.WithTimeout(ctx, 5*time.Second)
	defer stopIdle()
	if err := d.server.Ledger().WaitIdle(idleCtx); err != nil {
		return fmt.Errorf("the server still works on the cancelled query: %w", err)
	}
	fmt.Fprintf(d.out, "cancel: a query of an estimated %.0f s was given %.0f s; the caller was free %s after its deadline, the server %s after it\n",
		minute.Seconds(), deadline.Seconds(), rounded(late), rounded(time.Since(due)))
	if late > grace {
		return fmt.Errorf("the caller returned %s after its deadline, more than %s", late, grace)
	}
	return nil
}
