package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/flightpool"
)

// killed kills the server while a result is read, several times. Each time the
// result has to end with an error, or whole.
func (s *subject) killed(ctx context.Context) (cell, string, error) {
	whole, err := s.count(ctx, s.p.large)
	if err != nil {
		return "", "", err
	}
	const rounds = 3
	cut := 0
	for range rounds {
		result, err := s.pool.QueryWithOptions(ctx, s.p.large, flightpool.QueryOptions{Retry: flightpool.RetryNever})
		if err != nil {
			return "", "", err
		}
		addr := s.server.addr
		var read int64
		for result.Next() {
			if read == 0 {
				s.server.kill()
			}
			read += result.RecordBatch().NumRows()
		}
		err = result.Err()
		result.Release()
		if err == nil && read != whole {
			return "", "", fmt.Errorf("%d of %d rows, and no error", read, whole)
		}
		if err != nil {
			cut++
		}
		if err := s.start(ctx, addr); err != nil {
			return "", "", err
		}
		if err := s.serves(ctx); err != nil {
			return "", "", err
		}
	}
	return "an error, always", fmt.Sprintf("%d of %d cut off, each with an error", cut, rounds), nil
}

// serves waits until the pool serves again.
func (s *subject) serves(ctx context.Context) error {
	err := s.again(ctx)
	for err != nil && ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
		err = s.again(ctx)
	}
	return err
}

// restart kills the server while 16 callers use it. No call may give a wrong
// result, and all serve again after the restart.
func (s *subject) restart(ctx context.Context) (cell, string, error) {
	want, err := poolClient{s.pool}.query(ctx, s.p.values, nil)
	if err != nil {
		return "", "", err
	}
	limit, stop := context.WithCancel(ctx)
	defer stop()
	var served, failed, wrong atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for limit.Err() == nil {
				switch got, err := (poolClient{s.pool}).query(limit, s.p.values, nil); {
				case err != nil:
					failed.Add(1)
					time.Sleep(10 * time.Millisecond)
				case got != want:
					wrong.Add(1)
				default:
					served.Add(1)
				}
			}
		})
	}
	time.Sleep(time.Second)
	addr := s.server.addr
	s.server.kill()
	err = s.start(ctx, addr)
	began := time.Now()
	if err == nil {
		err = s.serves(ctx)
	}
	back := time.Since(began)
	stop()
	all.Wait()
	if err == nil && wrong.Load() > 0 {
		err = fmt.Errorf("%d wrong results", wrong.Load())
	}
	if err != nil {
		err = fmt.Errorf("%v after its start: %w", back, err)
	}
	note := fmt.Sprintf("%d served, %d failed while it was away, back %d ms after its start", served.Load(), failed.Load(), back.Milliseconds())
	return works, note, err
}
