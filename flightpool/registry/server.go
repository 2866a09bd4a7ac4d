package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/fairshare"
	"github.com/flightpool/flightpool/internal/taskgroup"
)

// server is one registered server. It begins with newServer and ends with close, after
// which it grants and starts nothing; a new server of the same name is another one.
type server struct {
	registry *Registry
	name     string
	created  time.Time

	written   atomic.Pointer[ServerDefinition] // as its owner wrote it
	def       atomic.Pointer[ServerDefinition] // resolved
	allocator *fairshare.Share
	health    health
	probes    probeHistory

	// users is copied on every change, so that looking a user up takes no lock.
	users atomic.Pointer[map[string]*userPool]

	settings        context.Context //nolint:containedctx // by which its sessions know what others have set; life is made of it
	life            context.Context //nolint:containedctx // what drains and probes run on: it lives as long as the server
	end             context.CancelFunc
	backgroundTasks taskgroup.Group                   // drains and probes
	kindCalls       taskgroup.Group                   // calls into the Kind
	notices         callback.Notices[*UnhealthyError] // for the owner

	mu       sync.Mutex // guards writes of users, and the next four
	closed   bool
	creating map[string]*poolCreation
	removed  removedStats // what removed users did
	drains   []*drain     // under way; what is in it is not written to

	sweepAt time.Time // accessed by maintain alone
}

func newServer(r *Registry, d *ServerDefinition) *server {
	d.place = &place{}
	s := &server{registry: r, name: d.Name, created: time.Now(), allocator: fairshare.New(boundsOf(d)), removed: removedStats{draining: map[*userPool]struct{}{}}}
	s.settings = r.draining.settingsFor(r.life, d.Name)
	s.life, s.end = context.WithCancel(s.settings)
	s.def.Store(d)
	s.users.Store(&map[string]*userPool{})
	s.health.server, s.health.onTransition = d.Name, s.onHealthTransition
	s.health.applyDefinition(d.HealthCheck)
	return s
}

// add publishes a new user's pool, unless somebody else was faster or the definition
// that it was made with is not the present one any more. False: u was not published,
// and its caller closes it.
func (s *server) add(u *userPool, d *ServerDefinition) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return false, s.goneError()
	case (*s.users.Load())[u.name] != nil, s.def.Load() != d:
		return false, nil
	}
	users := maps.Clone(*s.users.Load())
	users[u.name] = u
	u.member.Join()
	s.users.Store(&users)
	return true, nil
}

// startPool lets a new pool open what it keeps ready. Until then the pool has no
// MinIdle, so that one which is not published opens nothing.
func (s *server) startPool(u *userPool, d *ServerDefinition) {
	g := u.version.Load()
	for {
		if err := g.reconfigure(d); err != nil {
			return // replaced or closed meanwhile: closed there
		}
		now := s.def.Load()
		if now == d {
			break
		}
		d = now // an update came in between: apply the newer definition
	}
	if n := d.WarmupConnections; n > d.MinIdle {
		s.background(func(life context.Context) { warmUp(life, g, n, d.OpenTimeout) })
	}
}

// warmUp opens connections of a new pool.
func warmUp(ctx context.Context, g poolVersion, n int, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_ = g.WaitReady(ctx, n) // the opens tell health of failures
}

// background runs f, for the life of the server, on a goroutine that close waits for,
// or, when the server is closed already, at once. f is run in any case, since somebody
// may wait for what it ends.
func (s *server) background(f func(life context.Context)) {
	s.mu.Lock()
	open := !s.closed
	if open {
		s.backgroundTasks.Add()
	}
	s.mu.Unlock()
	if !open {
		f(s.life)
		return
	}
	go func() {
		defer s.backgroundTasks.Done()
		f(s.life)
	}()
}

// detach removes a user's pool, unlessDo unless a call of Do uses it, and drains it in the
// background.
func (s *server) detach(u *userPool, unlessDo bool) {
	s.mu.Lock()
	if (*s.users.Load())[u.name] != u {
		s.mu.Unlock()
		return
	}
	g, removed := u.remove(unlessDo)
	if !removed {
		s.mu.Unlock()
		return
	}
	d := s.addDrain(u.name)
	users := maps.Clone(*s.users.Load())
	delete(users, u.name)
	s.removed.draining[u] = struct{}{}
	s.users.Store(&users)
	u.member.Leave() // before the user's next pool can join
	s.mu.Unlock()
	s.allocator.Dispatch()
	go s.runDrain(d, func(ctx context.Context) error { return u.closeVersion(ctx, g) })
}

// update changes the definition, or nothing when a pool cannot be made of it. It makes
// all that can fail first. From the moment when def is stored new pools are made of d;
// the rest follows user by user, and is not undone.
func (s *server) update(ctx context.Context, d *ServerDefinition) error {
	before := s.def.Load()
	if d.place = before.place; !d.leadsWhere(before) {
		d.place = &place{}
	}
	next, err := s.newVersionsFor(ctx, d)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.def.Store(d)
	users := *s.users.Load()
	s.mu.Unlock()
	s.allocator.Set(boundsOf(d))
	s.health.applyDefinition(d.HealthCheck)
	var faults []error
	for name, u := range users {
		g := next[u]
		delete(next, u)
		if _, ok := d.mapping(name); !ok {
			s.detach(u, false)
			continue
		}
		if g == nil && u.needsNewVersion(d) { // made in between: the next call makes it of the new definition
			s.detach(u, false)
			continue
		}
		if err := u.applyDefinition(s.life, g, d); err != nil && !errors.Is(err, ErrClosed) {
			faults = append(faults, fmt.Errorf("user %q: %w", name, err))
		}
	}
	for _, g := range next { // of users who went in between
		s.closeUnused(g)
	}
	s.allocator.Dispatch()
	if d.place != before.place {
		s.health.beginAnew()
	}
	return errjoin.Join(faults...)
}

// newVersionsFor makes the pool versions that a definition needs.
func (s *server) newVersionsFor(ctx context.Context, d *ServerDefinition) (next map[*userPool]*currentVersion, err error) {
	ctx, cancel := withKindTimeout(ctx, d.OpenTimeout)
	defer cancel()
	next = map[*userPool]*currentVersion{}
	var faults []error
	for name, u := range *s.users.Load() {
		if _, ok := d.mapping(name); !ok || !u.needsNewVersion(d) {
			continue
		}
		g, err := callKind(ctx, &s.kindCalls, func() (*currentVersion, error) { return u.newVersionFor(s.life, d) }, s.closeUnused)
		if err != nil {
			faults = append(faults, fmt.Errorf("user %q: %w", name, err))
			continue
		}
		next[u] = g
	}
	if err := errjoin.Join(faults...); err != nil {
		for _, g := range next {
			s.closeUnused(g)
		}
		return nil, err
	}
	return next, nil
}

// closeUnused closes a version that is not needed any more. It has opened nothing.
func (s *server) closeUnused(g *currentVersion) { _ = g.Close(s.life) }

// closeUsers removes all users' pools and waits until ctx ends for their loans, those
// included of pools that drain already; then it takes those back.
func (s *server) closeUsers(ctx context.Context) error {
	for _, u := range *s.users.Load() {
		s.detach(u, false)
	}
	return s.awaitDrains(ctx)
}

// close ends the server. Draining versions and probes are given until ctx ends, too,
// and then closeGrace to notice that. No pool is made once closed is set. The life of
// the server ends with ctx, so that what waits for loans takes them back.
func (s *server) close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		forceAll(ctx, s.underWay()) // so that their errors tell of ctx
		s.end()
	})
	defer stop()
	late, cancel := withCloseGrace(ctx)
	defer cancel()
	err := s.closeUsers(ctx)
	if left := s.backgroundTasks.Wait(late); left > 0 {
		err = errjoin.Join(err, &DrainError{Server: s.name, Err: fmt.Errorf("%d probes or pools have not ended: %w", left, ctxerr.Of(ctx))})
	}
	s.end()
	s.allocator.Stop()
	if left := s.poolStats().Total; err == nil && left > 0 { // of a CloseAll that gave up
		err = &DrainError{Server: s.name, Err: fmt.Errorf("%d connections remain: their Close has not returned", left)}
	}
	return errjoin.Join(err, s.awaitKindCalls(late))
}
