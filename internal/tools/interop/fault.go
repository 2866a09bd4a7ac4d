package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/cancel"
)

// Rows of the table beside the features.
const (
	rowGoroutines     = "200 queries of 32 goroutines"
	rowParallelParams = "parameters of one text, on two goroutines"
	rowDeadline       = "a deadline stops the statement"
	rowHalfRead       = "a result that is closed half read stops the statement"
	rowKilled         = "the server is killed under a result"
	rowRestart        = "the server is killed under load, and started again"
)

// runProduct runs everything on one server.
func runProduct(ctx context.Context, cfg config, p *product, report *report) (cells column, err error) {
	dir, err := os.MkdirTemp("", "interop-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &subject{p: p, cfg: cfg, dir: dir, reports: make(chan cancel.Report, 100)}
	defer func() {
		if s.server != nil {
			s.server.stop()
		}
	}()
	if err := s.start(ctx, ""); err != nil {
		return nil, err
	}
	report.heading("pool", p.name)
	if s.pool, err = s.connect(ctx); err != nil {
		return nil, err
	}
	if cells, err = s.compare(ctx, report); err != nil {
		return nil, err
	}
	for _, c := range []struct {
		name string
		run  func(context.Context) (cell, string, error)
	}{
		{rowGoroutines, s.goroutines},
		{rowParallelParams, func(ctx context.Context) (cell, string, error) { return s.parallelParams(ctx, cells[rowParams]) }},
		{rowDeadline, s.deadline},
		{rowHalfRead, s.halfRead},
		{rowKilled, s.killed},
		{rowRestart, s.restart},
		{"flightpool doctor says the same", func(ctx context.Context) (cell, string, error) { return s.doctor(ctx, cells) }},
		{"Close leaves nothing", func(ctx context.Context) (cell, string, error) { return works, "", s.pool.Close(ctx) }},
	} {
		limit, stop := context.WithTimeout(ctx, 3*time.Minute)
		if err := s.fresh(limit); err != nil {
			stop()
			return nil, err
		}
		got, note, err := c.run(limit)
		stop()
		if err != nil {
			note = err.Error()
		}
		report.add(c.name, err == nil, note)
		cells[c.name] = got
	}
	return cells, ctx.Err()
}

func (s *subject) count(ctx context.Context, sql string) (int64, error) {
	got, err := poolClient{s.pool}.query(ctx, sql, nil)
	return got.count, err
}

// parallelParams runs a query of several batches on two goroutines at once, by one text and with
// parameters of their own. Servers to which equal texts are one statement would mix them, or cut
// the rows of one in silence. alone is what came of parameters on one goroutine.
func (s *subject) parallelParams(ctx context.Context, alone cell) (cell, string, error) {
	if alone != works {
		return alone, "", nil
	}
	const calls = 20
	errs := make([]error, 2)
	var all sync.WaitGroup
	for i := range errs {
		n := int64(6 * i)
		want, err := poolClient{s.pool}.query(ctx, strings.Replace(s.p.paramRows, "?", strconv.FormatInt(n, 10), 1), nil)
		if err != nil {
			return "", "", err
		}
		all.Go(func() {
			params := numbers(n)
			defer params.Release()
			for range calls {
				got, err := poolClient{s.pool}.query(ctx, s.p.paramRows, params)
				if err == nil && got != want {
					err = fmt.Errorf("with %d %d rows, %q, not %d, %q", n, got.count, got.text, want.count, want.text)
				}
				if err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	all.Wait()
	return works, "", errors.Join(errs...)
}

func (s *subject) goroutines(ctx context.Context) (cell, string, error) {
	want, err := poolClient{s.pool}.query(ctx, s.p.values, nil)
	if err != nil {
		return "", "", err
	}
	const callers, calls = 32, 200
	var next, failed atomic.Int64
	var first sync.Once
	var fault error
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for next.Add(1) <= calls {
				got, err := poolClient{s.pool}.query(ctx, s.p.values, nil)
				if err == nil && got != want {
					err = fmt.Errorf("%q, not %q", got.text, want.text)
				}
				if err != nil {
					failed.Add(1)
					first.Do(func() { fault = err })
				}
			}
		})
	}
	all.Wait()
	if n := s.pool.Stats().Total; fault == nil && n > poolSize {
		fault = fmt.Errorf("%d connections", n)
	}
	if fault != nil {
		return "", "", fmt.Errorf("%d of %d failed: %w", failed.Load(), calls, fault)
	}
	return works, fmt.Sprintf("%d connections", s.pool.Stats().Total), nil
}

func (s *subject) deadline(ctx context.Context) (cell, string, error) {
	const given = 3 * time.Second
	limit, stop := context.WithTimeout(ctx, given)
	defer stop()
	s.forget()
	busy := s.server.watch(given - time.Second) // in its last second the statement is at work
	began := time.Now()
	_, err := s.count(limit, s.p.endless)
	took := time.Since(began)
	if !errors.Is(err, context.DeadlineExceeded) {
		return "", "", fmt.Errorf("the error is %w", err)
	}
	if late := took - given; late > 100*time.Millisecond {
		return "", "", fmt.Errorf("the call returned %v late", late)
	}
	return s.stopped(ctx, busy)
}

func (s *subject) halfRead(ctx context.Context) (cell, string, error) {
	if s.p.stream == "" {
		return s.leftEarly(ctx)
	}
	s.forget()
	result, err := s.pool.Query(ctx, s.p.stream)
	if err != nil {
		return "", "", err
	}
	busy := s.server.watch(0)
	for began := time.Now(); time.Since(began) < time.Second; {
		if !result.Next() {
			return "", "", fmt.Errorf("no batch: %w", result.Err())
		}
	}
	if err := result.Close(); err != nil {
		return "", "", err
	}
	return s.stopped(ctx, busy)
}

// leftEarly closes a result early whose statement has ended before its first
// batch: nothing is left to stop, and the pool has to serve on.
func (s *subject) leftEarly(ctx context.Context) (cell, string, error) {
	result, err := s.pool.Query(ctx, s.p.large)
	if err != nil {
		return "", "", err
	}
	if !result.Next() {
		return "", "", fmt.Errorf("no batch: %w", result.Err())
	}
	if err := result.Close(); err != nil {
		return "", "", err
	}
	return "ended by then", "the server makes the whole result before it sends a batch", s.again(ctx)
}

// forget drops the reports of earlier cancels.
func (s *subject) forget() {
	for len(s.reports) > 0 {
		<-s.reports
	}
}

// restTime is how long a server may take to come to rest after a cancel: it
// may have a batch to finish and rows to free, on a machine that does other
// work too.
const restTime = 10 * time.Second

// stopped looks whether the server does what the cancel's report says. A
// report that says confirmed, with a server that goes on, is a lie.
func (s *subject) stopped(ctx context.Context, busy <-chan load) (cell, string, error) {
	work := <-busy
	var report cancel.Report
	select {
	case report = <-s.reports:
	case <-time.After(2 * cancel.DefaultBudget):
		return "", "", errors.New("no report of the cancel")
	}
	var rest load
	began := time.Now()
	for until := time.Now().Add(restTime); time.Now().Before(until); {
		if rest = <-s.server.watch(0); rest.used <= work.used/10 {
			break
		}
	}
	if err := errors.Join(work.err, rest.err); err != nil {
		return "", "", err
	}
	if work.used < 20*time.Millisecond {
		return "", "", fmt.Errorf("the statement used %v in a second: too little to tell", work.used)
	}
	note := fmt.Sprintf("%v; processor time in a second: %d ms while it ran, %d ms %.0f s after",
		report, work.used.Milliseconds(), rest.used.Milliseconds(), time.Since(began).Seconds())
	runs := rest.used > work.used/4
	switch {
	case runs && report.Confirmed:
		return "", "", fmt.Errorf("the server goes on: %s", note)
	case runs:
		return "no, and says so", note, s.replace(ctx) // by one that has nothing left to do
	default:
		return works, note, s.again(ctx)
	}
}
