package registry

import (
	"context"
	"fmt"
	"slices"

	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/reservoir"
)

// A drain is the end of a user's pool that was removed, or has a successor: it waits for
// its loans, until somebody forces it or the server's life ends. Who ends more than one
// pool, or the server, waits for all of them, whoever has begun them.
type drain struct {
	user  string
	ctx   context.Context         //nolint:containedctx // the drain's own, which force ends
	force context.CancelCauseFunc // has what is still on loan taken back
	done  chan struct{}
	err   error // before done
}

// addDrain takes note of a drain, which the caller then runs. The caller holds mu.
func (s *server) addDrain(user string) *drain {
	d := &drain{user: user, done: make(chan struct{})}
	d.ctx, d.force = context.WithCancelCause(s.life)
	s.drains = append(s.drains, d)
	s.backgroundTasks.Add()
	return d
}

func (s *server) runDrain(d *drain, end func(ctx context.Context) error) {
	defer s.backgroundTasks.Done()
	defer func() {
		s.mu.Lock()
		s.drains = slices.DeleteFunc(slices.Clone(s.drains), func(other *drain) bool { return other == d })
		s.mu.Unlock()
		d.force(nil)
		close(d.done)
	}()
	d.err = end(d.ctx)
}

// drainInBackground runs a drain on a goroutine that close waits for, or, when the server is closed
// already, at once.
func (s *server) drainInBackground(user string, end func(ctx context.Context) error) {
	s.mu.Lock()
	d, open := s.addDrain(user), !s.closed
	s.mu.Unlock()
	if !open {
		s.runDrain(d, end)
		return
	}
	go s.runDrain(d, end)
}

// underWay are the drains that there are, which nobody writes to.
func (s *server) underWay() []*drain {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drains
}

func forceAll(ended context.Context, drains []*drain) {
	for _, d := range drains {
		d.force(ctxerr.Of(ended))
	}
}

// awaitDrains waits for the drains that there are until ctx ends, and then forces them. The
// error tells of loans that were taken back, whoever has done so.
func (s *server) awaitDrains(ctx context.Context) error {
	drains := s.underWay()
	defer context.AfterFunc(ctx, func() { forceAll(ctx, drains) })()
	var faults []error
	for _, d := range drains {
		<-d.done
		if d.err != nil && !reservoir.ClosedBefore(d.err) {
			faults = append(faults, fmt.Errorf("user %q: %w", d.user, d.err))
		}
	}
	if err := errjoin.Join(faults...); err != nil {
		return &DrainError{Server: s.name, Err: err}
	}
	return nil
}
