package flightpool

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/flightpool/flightpool/reservoir"
)

// WaitReady waits until n connections are open, opening what is missing, over opens that
// fail until ctx ends. It ends before where no repetition cures what an open has failed with: see
// Config.OpenRetry. More than MaxSize are an error at once.
func (p *FlightSQLPool) WaitReady(ctx context.Context, n int) error {
	bounded, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer p.readyWaits.add(end)()
	err := p.conns.WaitReady(bounded, n)
	var useless *uselessError
	if err != nil && errors.As(context.Cause(bounded), &useless) && useless.pool == p {
		err = &reservoir.OpenError{Err: useless.err}
	}
	if err != nil {
		return p.acquireError(ctx, "WaitReady", err)
	}
	return nil
}

// uselessError ends calls of WaitReady of a pool: no open can succeed.
type uselessError struct {
	pool *FlightSQLPool
	err  error
}

func (e *uselessError) Error() string { return e.err.Error() }

// readyWaits are the calls of WaitReady that wait.
type readyWaits struct {
	mu  sync.Mutex // guards all; nothing is called under it
	all map[*readyWait]struct{}
}

type readyWait struct {
	began time.Time
	end   context.CancelCauseFunc
}

// add is for a call that begins to wait. The function is for its end.
func (w *readyWaits) add(end context.CancelCauseFunc) (remove func()) {
	call := &readyWait{time.Now(), end}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = make(map[*readyWait]struct{})
	}
	w.all[call] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.all, call)
	}
}

// fail ends the calls that were there when an open began.
func (w *readyWaits) fail(began time.Time, err error) {
	w.mu.Lock()
	var ended []*readyWait
	for call := range w.all {
		if !began.Before(call.began) {
			ended = append(ended, call)
		}
	}
	w.mu.Unlock()
	for _, call := range ended {
		call.end(err)
	}
}
