package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// probe is one look at a server, by the keeper or by CheckNow. There is one of a
// server at a time. It runs on the server's own context: a caller who does not
// wait any longer says nothing about the server.
type probe struct {
	done chan struct{}
	err  error // before done
}

// begin starts a probe, or returns the one under way.
func (h *health) begin() (p *probe, begun bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.probe != nil {
		return h.mu.probe, false
	}
	h.mu.probe, h.mu.asking = &probe{done: make(chan struct{})}, true
	return h.mu.probe, true
}

// asked says that the probe under way is in no queue any more.
func (h *health) asked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.asking = false
}

func (h *health) end(p *probe, err error) {
	h.mu.Lock()
	h.mu.probe = nil
	h.mu.Unlock()
	p.err = err
	close(p.done)
}

func (h *health) isAsking() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.asking
}

// probe runs a probe that has begun, and ends it.
//
// INVARIANT: nobody waits for a connection to an unhealthy server when no probe is
// under way. Who came while one asked, and so was spared as if he were the probe,
// is failed between asked and end.
func (s *server) probe(life context.Context, p *probe) {
	ctx, cancel := context.WithTimeout(life, s.patience())
	defer cancel()
	err := s.ask(ctx)
	s.health.asked()
	if down := s.health.down.Load(); down != nil {
		s.failWaiters(down)
	}
	s.health.end(p, err)
	s.registry.wakeKeeper() // while a probe is under way it knows of no next one
}

// patience is how long a probe may take.
func (s *server) patience() time.Duration {
	d := s.def.Load()
	if sum := d.ConnectTimeout + d.HealthCheck.Timeout; sum > 0 {
		return sum
	}
	return math.MaxInt64 // both are said to be endless
}

// ask checks the server on a connection of one of its users and tells health what
// that has shown.
func (s *server) ask(ctx context.Context) error {
	for {
		u, err := s.anybody(ctx)
		if err != nil {
			s.health.undecided()
			return err
		}
		g := u.gen.Load()
		down := s.health.down.Load() != nil
		if err = s.prove(ctx, u, g, down); err != nil && ctx.Err() == nil && superseded(err, u, g) {
			continue
		}
		switch {
		case !down: // the hooks have told
		case errors.Is(err, ErrExhausted), errors.Is(err, ErrClosed), errors.Is(err, ErrUnhealthy), errors.Is(err, context.Canceled):
			s.health.undecided()
		case err != nil && faulty(err):
			s.health.probed(err)
		default: // the server answered, whatever it said
			s.health.probed(nil)
		}
		return err
	}
}

// prove checks one connection of a user. An unhealthy server lets this one open
// pass.
func (s *server) prove(ctx context.Context, u *userPool, g *current, down bool) error {
	if down {
		s.share.AllowOne(u.member)
		defer s.share.AllowOne(nil)
	}
	return u.prove(ctx, g)
}

// superseded says that a probe has met a pool that has just gone, or was taken for
// a caller who had to be failed: it has shown nothing.
func superseded(err error, u *userPool, g *current) bool {
	return closedUnder(err) && (u.removed.Load() || u.gen.Load() != g) || errors.Is(err, ErrUnhealthy)
}

// anybody finds a user to probe as: the one who got the most connections, so that
// one whose password is wrong is not asked for while there is another; else the one
// with the most calls; else the first by name who is mapped.
func (s *server) anybody(ctx context.Context) (best *userPool, err error) {
	var got, calls uint64
	for _, u := range *s.users.Load() {
		g, c := u.counters(u.stats()).acquires, u.calls()
		if best == nil || cmp.Or(cmp.Compare(g, got), cmp.Compare(c, calls), strings.Compare(best.name, u.name)) > 0 {
			best, got, calls = u, g, c
		}
	}
	if best != nil {
		return best, nil
	}
	names := slices.Sorted(maps.Keys(s.def.Load().Users))
	if len(names) == 0 {
		return nil, fmt.Errorf("%w on server %q", ErrNoMapping, s.name)
	}
	if names[0] == Public && len(names) > 1 {
		names = names[1:]
	}
	return s.user(ctx, names[0])
}

// failWaiters fails everybody who waits for a connection.
func (s *server) failWaiters(err error) {
	for _, u := range *s.users.Load() {
		u.gen.Load().failWaiters(err)
	}
}
