package registry

import (
	"context"
	"fmt"
	"sync"

	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/errjoin"
)

// Warmup opens connections until every user's pool of a server has n, idle or in use,
// and waits for them until ctx ends. It makes the pools of the named users that are not
// there yet. It refuses what MaxSize cannot hold. Connections that it has opened stay
// when it fails.
func (r *Registry) Warmup(ctx context.Context, name string, n int) error {
	s, err := r.server(name)
	if err != nil {
		return err
	}
	d := s.def.Load()
	for user := range d.Users {
		if user == Public && len(d.Users) > 1 {
			continue
		}
		if _, err := s.getOrCreatePool(ctx, user); err != nil {
			return err
		}
	}
	users := *s.users.Load()
	if n > d.UserMaxSize || n*len(users) > d.MaxSize {
		return fmt.Errorf("registry: Warmup: %d connections for each of %d users of %q are more than MaxSize %d or UserMaxSize %d allow",
			n, len(users), name, d.MaxSize, d.UserMaxSize)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var faults []error
	for _, u := range users {
		wg.Go(func() {
			if err := u.version.Load().WaitReady(ctx, n); err != nil {
				mu.Lock()
				defer mu.Unlock()
				faults = append(faults, fmt.Errorf("registry: Warmup: user %q on server %q: %w", u.name, name, err))
			}
		})
	}
	wg.Wait()
	return errjoin.Join(faults...)
}

// EvictIdle closes the idle connections of a server beyond each user's
// MinIdle, without waiting, and returns how many.
func (r *Registry) EvictIdle(name string) (int, error) {
	s, err := r.server(name)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, u := range *s.users.Load() {
		n += u.version.Load().EvictIdle()
	}
	return n, nil
}

// CloseAll closes every connection of a server: idle ones now, those borrowed when
// they come back, or, when ctx ends, under their borrowers, those included that an Update
// has left to them; a *DrainError tells of that. The server stays registered, and the next call opens new connections.
func (r *Registry) CloseAll(ctx context.Context, name string) error {
	s, err := r.server(name)
	if err != nil {
		return err
	}
	return s.closeUsers(ctx)
}

// Healthy reports whether a server is registered and not known to be
// unreachable.
func (r *Registry) Healthy(name string) bool {
	s, err := r.server(name)
	return err == nil && s.health.down.Load() == nil
}

// CheckNow checks a server now, on a connection of any of its users, and takes
// the result into account as that of any check. It opens a connection when none
// is idle. A nil error means that the server works. When ctx ends first the check
// goes on, bounded by OpenTimeout and HealthCheck.Timeout.
func (r *Registry) CheckNow(ctx context.Context, name string) error {
	s, err := r.server(name)
	if err != nil {
		return err
	}
	for late := false; ctx.Err() == nil; late = true {
		p, begun := s.health.beginProbe()
		if begun {
			s.background(func(life context.Context) { s.probe(life, p) })
		}
		select {
		case <-p.done:
			if begun || late { // else it may have begun before this call, and asked then
				return p.err
			}
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("registry: CheckNow of server %q: %w", name, ctxerr.Of(ctx))
}
