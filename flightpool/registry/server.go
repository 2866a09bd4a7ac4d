package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/fairshare"
)

// server is one registered server.
type server struct {
	registry *Registry
	name     string
	created  time.Time

	given  atomic.Pointer[ServerDefinition] // as its owner wrote it
	def    atomic.Pointer[ServerDefinition] // resolved
	share  *fairshare.Share
	health health

	// users is copied on every change, so that looking a user up takes no lock.
	users atomic.Pointer[map[string]*userPool]

	life    context.Context //nolint:containedctx // what drains and probes run on: it lives as long as the server
	end     context.CancelFunc
	behind  tasks // drains and probes
	pending tasks // calls into the Kind
	notices notices

	mu     sync.Mutex // guards writes of users, and the next two
	closed bool
	making map[string]*making

	sweepAt time.Time // the keeper's
	past    past      // what removed users did
}

func newServer(r *Registry, d *ServerDefinition) *server {
	s := &server{registry: r, name: d.Name, created: time.Now(), share: fairshare.New(boundsOf(d))}
	s.life, s.end = context.WithCancel(r.life)
	s.def.Store(d)
	s.users.Store(&map[string]*userPool{})
	s.health.server, s.health.changed = d.Name, s.healthChanged
	s.health.set(d.HealthCheck)
	return s
}

// add publishes a new user's pool, unless somebody else was faster or the
// definition that it was made with is not the present one any more.
func (s *server) add(u *userPool, d *ServerDefinition) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return false, unknownServer(s.name)
	case (*s.users.Load())[u.name] != nil, s.def.Load() != d:
		return false, nil
	}
	users := maps.Clone(*s.users.Load())
	users[u.name] = u
	u.member.Join()
	s.users.Store(&users)
	return true, nil
}

// begin lets a new pool open what it keeps ready.
func (s *server) begin(u *userPool, d *ServerDefinition) {
	g := u.gen.Load()
	for {
		if err := g.tune(d); err != nil {
			return // replaced or closed meanwhile: somebody else sees to it
		}
		now := s.def.Load()
		if now == d {
			break
		}
		d = now // an update came in between, and must have the last word
	}
	if n := d.WarmupConnections; n > d.MinConnections {
		s.background(func(life context.Context) { warm(life, g, n, d.ConnectTimeout) })
	}
}

// warm opens connections of a new pool.
func warm(ctx context.Context, g generation, n int, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_ = g.ready(ctx, n) // the opens tell health of failures
}

// background runs f, for the life of the server, on a goroutine that close waits
// for, or, when the server is closed already, at once.
func (s *server) background(f func(life context.Context)) {
	s.mu.Lock()
	open := !s.closed
	if open {
		s.behind.add()
	}
	s.mu.Unlock()
	if !open {
		f(s.life)
		return
	}
	go func() {
		defer s.behind.done()
		f(s.life)
	}()
}

// retire removes a user's pool and drains it in the background.
func (s *server) retire(u *userPool) { s.drainBehind(s.leave(u)) }

// retireUnless is retire, but for a pool that a call of Do uses by then.
func (s *server) retireUnless(u *userPool) { s.drainBehind(s.leaveUnless(u, u.busy)) }

func (s *server) drainBehind(drain func(ctx context.Context) error) {
	if drain != nil {
		go func() { _ = drain(s.life) }() // what had to be forced, the server's close reports
	}
}

// leave removes a user's pool and returns what waits for its loans until ctx
// ends, or the server does; nil when it was removed before. close waits for it.
func (s *server) leave(u *userPool) (drain func(ctx context.Context) error) {
	return s.leaveUnless(u, func() bool { return false })
}

// leaveUnless is leave, but for a pool that stays.
func (s *server) leaveUnless(u *userPool, stays func() bool) (drain func(ctx context.Context) error) {
	s.mu.Lock()
	if (*s.users.Load())[u.name] != u {
		s.mu.Unlock()
		return nil
	}
	g, removed := u.remove(stays)
	if !removed {
		s.mu.Unlock()
		return nil
	}
	s.behind.add() // INVARIANT: only while there are users, which close removes before it waits
	users := maps.Clone(*s.users.Load())
	delete(users, u.name)
	s.past.leaving(u)
	s.users.Store(&users)
	u.member.Leave() // before the user's next pool can join
	s.mu.Unlock()
	s.share.Dispatch()
	return func(ctx context.Context) error {
		defer s.behind.done()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.life, cancel)() // the removal has a life of its own, cut short when the server closes
		return u.finish(ctx, g)
	}
}

// update changes the definition, or nothing when a pool cannot be made of it.
func (s *server) update(ctx context.Context, d *ServerDefinition) error {
	next, err := s.prepare(ctx, d)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.def.Store(d)
	users := *s.users.Load()
	s.mu.Unlock()
	s.share.Set(boundsOf(d))
	s.health.set(d.HealthCheck)
	var faults []error
	for name, u := range users {
		g := next[u]
		delete(next, u)
		if _, ok := d.mapping(name); !ok {
			s.retire(u)
			continue
		}
		if g == nil && u.outdated(d) { // made in between: the next call makes it of the new definition
			s.retire(u)
			continue
		}
		if err := u.renew(s.life, g, d); err != nil && !errors.Is(err, ErrClosed) {
			faults = append(faults, fmt.Errorf("user %q: %w", name, err))
		}
	}
	for _, g := range next { // of users who went in between
		_ = g.close(s.life) // it has opened nothing
	}
	s.share.Dispatch()
	return errjoin.Join(faults...)
}

// prepare makes what a definition needs of new generations.
func (s *server) prepare(ctx context.Context, d *ServerDefinition) (next map[*userPool]*current, err error) {
	ctx, cancel := forKind(ctx, d.ConnectTimeout)
	defer cancel()
	next = map[*userPool]*current{}
	var faults []error
	for name, u := range *s.users.Load() {
		if _, ok := d.mapping(name); !ok {
			continue
		}
		if !u.outdated(d) {
			continue
		}
		switch g, err := called(ctx, &s.pending, func() (*current, error) { return u.prepare(s.life, s.registry.kinds[d.Kind], d) }, s.abandon); {
		case err != nil:
			faults = append(faults, fmt.Errorf("user %q: %w", name, err))
		case g != nil:
			next[u] = g
		}
	}
	if err := errjoin.Join(faults...); err != nil {
		for _, g := range next {
			_ = g.close(s.life) // it has opened nothing
		}
		return nil, err
	}
	return next, nil
}

// abandon closes a generation that came too late.
func (s *server) abandon(g *current) {
	if g != nil {
		_ = g.close(s.life) // it has opened nothing
	}
}

// closeUsers removes all users' pools and waits for their loans until ctx ends;
// then it takes those back.
func (s *server) closeUsers(ctx context.Context) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var faults []error
	for _, u := range *s.users.Load() {
		drain := s.leave(u)
		if drain == nil {
			continue
		}
		wg.Go(func() {
			if err := drain(ctx); err != nil && !errors.Is(err, ErrClosed) {
				mu.Lock()
				defer mu.Unlock()
				faults = append(faults, fmt.Errorf("user %q: %w", u.name, err))
			}
		})
	}
	wg.Wait()
	if err := errjoin.Join(faults...); err != nil {
		return &DrainError{Server: s.name, Err: err}
	}
	return nil
}

// close ends the server. Old generations that still drain, and probes, are given
// until ctx ends, too, and forcedTime to notice that.
func (s *server) close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.notices.close()
	stop := context.AfterFunc(ctx, s.end)
	defer stop()
	late, cancel := lenient(ctx)
	defer cancel()
	err := s.closeUsers(ctx)
	if left := s.behind.wait(late); left > 0 {
		err = errjoin.Join(err, &DrainError{Server: s.name, Err: fmt.Errorf("%d probes or pools have not ended: %w", left, context.Cause(ctx))})
	}
	s.end()
	s.share.Stop()
	return errjoin.Join(err, s.unreturned(late))
}
