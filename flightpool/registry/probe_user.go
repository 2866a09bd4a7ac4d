package registry

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// pickProbeUser finds the user to probe as: one who can get a connection, since who has all
// on loan would keep the server unhealthy for as long as that lasts; else the first mapped
// one by name that has no pool yet and can be given one; else whoever it is.
func (s *server) pickProbeUser(ctx context.Context) (*userPool, error) {
	users := *s.users.Load()
	if u := busiestUser(users, (*userPool).canGetConn); u != nil {
		return u, nil
	}
	full := busiestUser(users, func(*userPool) bool { return true })
	if full != nil && !s.allocator.FitsNewcomer() {
		return full, nil
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(s.def.Load().Users)), func(name string) bool { return users[name] != nil })
	if len(names) > 1 && names[0] == Public {
		names = names[1:]
	}
	failed := fmt.Errorf("%w on server %q", ErrNoMapping, s.name)
	for i, name := range names {
		u, err := s.getOrCreatePool(ctx, name)
		if err == nil {
			return u, nil
		}
		if i == 0 {
			failed = err
		}
	}
	if full == nil {
		return nil, failed
	}
	return full, nil
}

// busiestUser finds, of some users, the one whose calls got the most connections, so that a
// user with a wrong password is not tried while there is another; else the one with the most
// calls; else the first by name. Those as whom the server was probed in vain come later: one
// without credentials would keep it unhealthy for the others.
func busiestUser(users map[string]*userPool, some func(*userPool) bool) (best *userPool) {
	var vain, got, calls uint64
	for _, u := range users {
		if !some(u) {
			continue
		}
		v, g, c := u.vainProbes.Load(), u.counters(u.stats()).acquires, u.callCount()
		if best == nil || cmp.Or(cmp.Compare(vain, v), cmp.Compare(g, got), cmp.Compare(c, calls), strings.Compare(best.name, u.name)) > 0 {
			best, vain, got, calls = u, v, g, c
		}
	}
	return best
}
