package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/flightpool/flightpool/internal/errjoin"
)

// A Kind's functions know no context, or need not look at theirs. Those who wait
// for one give up when their own context ends, and after ConnectTimeout; what it is
// still made of then is nobody's, and is closed.

// errKindExited is that of a Kind that ended the goroutine of a call.
var errKindExited = errors.New("the Kind ended the goroutine of the call")

// guarded runs a call into a Kind on a goroutine of ours and tells done how it
// ended, also when the Kind panics or ends the goroutine.
func guarded[T any](call func() (T, error), done func(T, error)) {
	var v T
	err := errKindExited
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the Kind panicked: %v", p)
		}
		done(v, err)
	}()
	v, err = call()
}

// called makes a call into a Kind, and gives it up with ctx; what it returns then is
// given to late. pending counts the call until it returns.
func called[T any](ctx context.Context, pending *tasks, call func() (T, error), late func(T)) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, kindLate(ctx)
	}
	type result struct {
		v   T
		err error
	}
	done := make(chan result) // INVARIANT: unbuffered, so that each result has exactly one owner
	pending.add()
	go guarded(call, func(v T, err error) {
		defer pending.done()
		select {
		case done <- result{v, err}:
		case <-ctx.Done():
			if err == nil && late != nil {
				late(v)
			}
		}
	})
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		return none, kindLate(ctx)
	}
}

// kindLate says that a Kind has not answered in time.
func kindLate(ctx context.Context) error {
	return fmt.Errorf("the Kind has not returned in time: %w", context.Cause(ctx))
}

// errSlowKind is why a wait for a Kind ends by ConnectTimeout.
var errSlowKind = fmt.Errorf("ConnectTimeout is over: %w", context.DeadlineExceeded)

// forKind bounds a wait for a Kind.
func forKind(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, errSlowKind)
}

// making is a user's pool that is being made; those who call meanwhile wait for it.
type making struct {
	done chan struct{}
	u    *userPool
	err  error // before done, like u
}

// user finds a user's pool, or makes it. There is one call into a Kind at a time for
// a user: a Kind that hangs has one goroutine of him.
func (s *server) user(ctx context.Context, name string) (*userPool, error) {
	if u := (*s.users.Load())[name]; u != nil {
		return u, nil
	}
	d := s.def.Load()
	if _, ok := d.mapping(name); !ok {
		return nil, s.unmapped(d, name)
	}
	ctx, cancel := forKind(ctx, d.ConnectTimeout)
	defer cancel()
	m, err := s.makeUser(name)
	if err != nil {
		return nil, err
	}
	select {
	case <-m.done:
		return m.u, m.err
	case <-s.life.Done():
		return nil, unknownServer(s.name)
	case <-ctx.Done():
		return nil, fmt.Errorf("registry: user %q on server %q: %w", name, s.name, kindLate(ctx))
	}
}

// makeUser begins to make a user's pool, unless somebody has begun already.
func (s *server) makeUser(name string) (*making, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, unknownServer(s.name)
	}
	if m := s.making[name]; m != nil {
		return m, nil
	}
	m := &making{done: make(chan struct{})}
	if s.making == nil {
		s.making = map[string]*making{}
	}
	s.making[name] = m
	s.pending.add() // INVARIANT: only before closed, after which close waits
	go guarded(func() (*userPool, error) { return s.newPool(name) }, func(u *userPool, err error) {
		defer s.pending.done()
		m.u, m.err = u, err
		s.mu.Lock()
		delete(s.making, name)
		s.mu.Unlock()
		close(m.done)
	})
	return m, nil
}

func (s *server) unmapped(d *ServerDefinition, name string) error {
	err := fmt.Errorf("%w for user %q on server %q", ErrNoMapping, name, s.name)
	if other := d.folded[strings.ToLower(name)]; other != "" {
		err = fmt.Errorf("%w, but for %q: SQL folds names that are not in double quotes", err, other)
	}
	return err
}

// newPool makes a user's pool of the present definition.
func (s *server) newPool(name string) (*userPool, error) {
	for {
		if u := (*s.users.Load())[name]; u != nil {
			return u, nil
		}
		d := s.def.Load()
		if _, ok := d.mapping(name); !ok {
			return nil, s.unmapped(d, name)
		}
		u := newUser(s, name, d)
		g, err := u.prepare(s.life, s.registry.kinds[d.Kind], d)
		if err != nil {
			return nil, &DefinitionError{Server: s.name, Err: err}
		}
		if err := u.renew(s.life, g, d); err != nil {
			return nil, err
		}
		added, err := s.add(u, d)
		if added {
			s.begin(u, d)
			return u, nil
		}
		if closing := u.gen.Load().close(s.life); err != nil || closing != nil { // it has opened nothing
			return nil, errjoin.Join(err, closing)
		}
	}
}

// unreturned says that calls into a Kind have not returned when a server is closed.
func (s *server) unreturned(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, forcedTime)
	defer cancel()
	if left := s.pending.wait(ctx); left > 0 {
		return &DrainError{Server: s.name, Err: fmt.Errorf("%d calls of its Kind have not returned", left)}
	}
	return nil
}
