package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/flightpool/flightpool/flightpool"
)

// lookup looks up where a call goes. It takes no lock, but for a user's first call.
func (r *Registry) lookup(ctx context.Context, server, user string) (*userPool, *currentVersion, error) {
	s, err := r.server(server)
	if err != nil {
		return nil, nil, err
	}
	u := (*s.users.Load())[user]
	if down := s.health.down.Load(); down != nil {
		if u == nil {
			s.probes.recordAsker(user)
		}
		return nil, nil, down
	}
	if u == nil {
		if u, err = s.getOrCreatePool(ctx, user); err != nil {
			return nil, nil, err
		}
	}
	return u, u.version.Load(), nil
}

// Acquire borrows a connection to a server for a local user. The caller must
// Release it. The wait ends with
//
//   - ErrUnknownServer or ErrNoMapping, at once;
//   - an *UnhealthyError when the server is unreachable, at once;
//   - an *ExhaustedError when ctx's deadline or AcquireTimeout is over, or as the
//     policy has it;
//   - the error of the open when none of the user's connections can be opened;
//   - an error at a user's first call when the Kind cannot make a connector, or has
//     not made it when OpenTimeout is over;
//   - the error of ctx; ErrClosed when the registry closes.
func (r *Registry) Acquire(ctx context.Context, server, user string) (*Conn, error) {
	return callUserPool(ctx, r, server, user, func(u *userPool, g *currentVersion) (*Conn, error) { return u.acquire(ctx, g) })
}

// callUserPool makes a call on a user's pool. A pool that was replaced or removed
// between the lookup and the call has done nothing: the call goes to the next. The loop
// ends: each turn needs another change of the definition, or another removal. An error
// of call has done nothing only where closedBeforeSend says so.
func callUserPool[T any](ctx context.Context, r *Registry, server, user string, call func(u *userPool, g *currentVersion) (T, error)) (T, error) {
	var none T
	for {
		u, g, err := r.lookup(ctx, server, user)
		if err != nil {
			return none, err
		}
		v, err := none, u.checkFailFast(g)
		if err == nil {
			v, err = call(u, g)
		}
		if err == nil {
			return v, nil
		}
		if closedBeforeSend(err) && (u.removed.Load() || u.version.Load() != g) && ctx.Err() == nil {
			continue
		}
		return none, u.wrapError(ctx, err)
	}
}

// closedBeforeSend says that a pool was closed before anything of a call was sent.
func closedBeforeSend(err error) bool {
	var e *flightpool.Error
	return errors.Is(err, ErrClosed) && (!errors.As(err, &e) || e.Unsent)
}

// errNoConnFree is for callers under FailFast.
var errNoConnFree = fmt.Errorf("%w: the server's connections are taken and the policy is FailFast", ErrExhausted)

// checkFailFast refuses a caller for whom, under FailFast, no connection is idle and
// none can be opened at once: what the reservoir has room for, other users may
// have taken.
func (u *userPool) checkFailFast(g *currentVersion) error {
	s := u.server
	if s.def.Load().OnExhausted != flightpool.FailFast || g.Stats().Idle > 0 || u.member.HasRoom() {
		return nil
	}
	u.rejected.Add(1)
	return errNoConnFree
}

// wrapError gives an error the numbers of the server, or the server's health in its place where
// that is behind it: an open that fails may reach a caller before the news of what
// it has made of the server.
func (u *userPool) wrapError(ctx context.Context, err error) error {
	if down := u.server.health.down.Load(); down != nil && ctx.Err() == nil && !errors.Is(err, ErrUnhealthy) && !errors.Is(err, ErrExhausted) && isServerFault(err) && repeatable(err) {
		return down
	}
	return u.withNumbers(err)
}

// repeatable says that an error of a call leaves nothing to be known of what the call has done.
//
// INVARIANT: what was sent, and may have changed something, fails with an error of its own. That a server is unhealthy, and
// for which reason, is of other calls and opens.
func repeatable(err error) bool {
	var e *flightpool.Error
	return !errors.As(err, &e) || flightpool.SafeToRetry(err) // what is none of a pool's is of an open
}

// withNumbers gives an error the names, and one of a connection that did not come free the numbers.
func (u *userPool) withNumbers(err error) error {
	s := u.server
	switch {
	case errors.Is(err, ErrUnhealthy):
		return err
	case !errors.Is(err, ErrExhausted):
		return fmt.Errorf("registry: user %q on server %q: %w", u.name, s.name, err)
	}
	all, own, limit := u.member.Numbers()
	return &ExhaustedError{
		Server: s.name, User: u.name, ServerConnections: all, UserConnections: own, MaxSize: limit,
		Waiting: u.member.Waiting(), Err: err,
	}
}
