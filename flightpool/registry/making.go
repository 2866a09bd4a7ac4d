package registry

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/taskgroup"
)

// The functions of a Kind may ignore contexts. A wait for one ends with the caller's
// context or OpenTimeout; a result that comes later is closed.

// theKind names it in the errors of package callback.
const theKind = "the Kind"

// callKind makes a call into a Kind, and gives it up with ctx; a result that comes
// later is given to late. pending counts the call until it returns. A call that was
// given up goes on in its goroutine, and the end of the server waits for it.
func callKind[T any](ctx context.Context, pending *taskgroup.Group, call func() (T, error), late func(T)) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, kindTimeoutError(ctx)
	}
	pending.Add()
	a, inTime := callback.Within(ctx, 0, call, late, pending.Done)
	if !inTime {
		return none, kindTimeoutError(ctx)
	}
	return a.Value, a.Failure(theKind)
}

// kindTimeoutError says that a Kind has not answered in time.
func kindTimeoutError(ctx context.Context) error {
	return fmt.Errorf("the Kind has not returned in time: %w", ctxerr.Of(ctx))
}

// errKindTimeout is the cause of a wait for a Kind that OpenTimeout ended.
var errKindTimeout = fmt.Errorf("OpenTimeout is over: %w", context.DeadlineExceeded)

// withKindTimeout bounds a wait for a Kind.
func withKindTimeout(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, errKindTimeout)
}

// poolCreation is a user's pool that is being made; those who call meanwhile wait for
// it. It goes on when those who wait leave; the next call finds its result.
type poolCreation struct {
	done chan struct{}
	u    *userPool
	err  error // before done, like u
}

// getOrCreatePool finds a user's pool, or makes it. There is one call into a Kind at a
// time for a user: a Kind that hangs costs one goroutine for each.
func (s *server) getOrCreatePool(ctx context.Context, name string) (*userPool, error) {
	if u := (*s.users.Load())[name]; u != nil {
		return u, nil
	}
	d := s.def.Load()
	if _, ok := d.mapping(name); !ok {
		return nil, s.noMappingError(d, name)
	}
	ctx, cancel := withKindTimeout(ctx, d.OpenTimeout)
	defer cancel()
	m, err := s.startCreation(name)
	if err != nil {
		return nil, err
	}
	select {
	case <-m.done:
		return m.u, m.err
	case <-s.life.Done():
		return nil, s.goneError()
	case <-ctx.Done():
		return nil, fmt.Errorf("registry: user %q on server %q: %w", name, s.name, kindTimeoutError(ctx))
	}
}

// goneError is the error of a call that has found a server which is closed by now.
func (s *server) goneError() error {
	if s.registry.view.Load().closed {
		return ErrClosed
	}
	return unknownServerError(s.name)
}

// startCreation begins to make a user's pool, unless somebody has begun already.
func (s *server) startCreation(name string) (*poolCreation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, s.goneError()
	}
	if m := s.creating[name]; m != nil {
		return m, nil
	}
	m := &poolCreation{done: make(chan struct{})}
	if s.creating == nil {
		s.creating = map[string]*poolCreation{}
	}
	s.creating[name] = m
	s.kindCalls.Add() // INVARIANT: only before closed, after which close waits
	go callback.Guard(theKind, func() (err error) { m.u, err = s.createPool(name); return err }, func(err error) {
		defer s.kindCalls.Done()
		m.err = err
		s.mu.Lock()
		delete(s.creating, name)
		s.mu.Unlock()
		close(m.done)
	})
	return m, nil
}

func (s *server) noMappingError(d *ServerDefinition, name string) error {
	err := fmt.Errorf("%w for user %q on server %q", ErrNoMapping, name, s.name)
	if other := d.byLowerCase[strings.ToLower(name)]; other != "" {
		err = fmt.Errorf("%w, but for %q: SQL folds names that are not in double quotes", err, other)
	}
	return err
}

// createPool makes a user's pool of the present definition. A definition that changes
// meanwhile makes the pool useless; then it begins again with the present one.
func (s *server) createPool(name string) (*userPool, error) {
	for {
		if u := (*s.users.Load())[name]; u != nil {
			return u, nil
		}
		d := s.def.Load()
		if _, ok := d.mapping(name); !ok {
			return nil, s.noMappingError(d, name)
		}
		u := newUserPool(s, name, d)
		g, err := u.newVersionFor(s.life, d)
		if err != nil {
			return nil, &DefinitionError{Server: s.name, Err: err}
		}
		if err := u.applyDefinition(s.life, g, d); err != nil {
			return nil, err
		}
		added, err := s.add(u, d)
		if added {
			s.startPool(u, d)
			return u, nil
		}
		if closing := u.version.Load().Close(s.life); err != nil || closing != nil { // it has opened nothing
			return nil, errjoin.Join(err, closing)
		}
	}
}

// awaitKindCalls says that calls into a Kind have not returned when a server is closed.
func (s *server) awaitKindCalls(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeGrace)
	defer cancel()
	if left := s.kindCalls.Wait(ctx); left > 0 {
		return &DrainError{Server: s.name, Err: fmt.Errorf("%d calls of its Kind have not returned", left)}
	}
	return nil
}
