package registry

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// maxProbedUsers is how many users one probe tries of whom nothing is shown.
const maxProbedUsers = 4

// probeHistory is what a server knows of its probes since it has become unhealthy.
type probeHistory struct {
	asker atomic.Pointer[string] // the latest user without a pool who was refused; nil: none

	mu   sync.Mutex
	vain map[string]int // how many have shown nothing, by user
}

// recordAsker takes note of a user who is refused, and who may have what others lack: without a pool none is known of.
func (h *probeHistory) recordAsker(user string) {
	if p := h.asker.Load(); p == nil || *p != user {
		h.asker.Store(&user)
	}
}

func (h *probeHistory) recordVain(user string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.vain == nil {
		h.vain = map[string]int{}
	}
	h.vain[user]++
}

// forget begins anew: what was so in an outage is not so in the next.
func (h *probeHistory) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.vain = nil
	h.asker.Store(nil)
}

// leastVain sorts users by how often they were probed in vain, and else leaves their order.
func (h *probeHistory) leastVain(users []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortStableFunc(users, func(a, b string) int { return cmp.Compare(h.vain[a], h.vain[b]) })
}

// pickProbeUser finds the user to probe as, of those not tried yet, and makes the user's pool if there is none.
func (s *server) pickProbeUser(ctx context.Context, tried []string) (*userPool, error) {
	failed := fmt.Errorf("%w on server %q", ErrNoMapping, s.name)
	for i, name := range s.probeCandidates() {
		if slices.Contains(tried, name) {
			continue
		}
		u, err := s.getOrCreatePool(ctx, name)
		if err == nil {
			return u, nil
		}
		if i == 0 {
			failed = err
		}
	}
	return nil, failed
}

// probeCandidates are the users as whom to probe, the best first: those who can get a connection, since who has all on loan
// would keep the server unhealthy for as long as that lasts; then those who could be given a pool; then the rest. Whoever was
// probed in vain comes later: a user without credentials would keep it unhealthy for the others.
func (s *server) probeCandidates() []string {
	users := *s.users.Load()
	var names, full []string
	for _, u := range busiest(users) {
		if u.canGetConn() {
			names = append(names, u.name)
		} else {
			full = append(full, u.name)
		}
	}
	if s.allocator.FitsNewcomer() {
		names = append(names, s.newcomers(users)...)
	}
	names = append(names, full...)
	s.probes.leastVain(names)
	return names
}

// newcomers are users who have no pool yet: the latest who was refused, and the mapped ones by name, the public one last.
func (s *server) newcomers(users map[string]*userPool) (names []string) {
	mapped := s.def.Load()
	if asker := s.probes.asker.Load(); asker != nil {
		if _, ok := mapped.mapping(*asker); ok {
			names = append(names, *asker)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(mapped.Users)) {
		if name != Public && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if _, ok := mapped.Users[Public]; ok {
		names = append(names, Public)
	}
	return slices.DeleteFunc(names, func(name string) bool { return users[name] != nil })
}

// busiest sorts users by the connections that their calls got, so that a user with a wrong
// password is not tried while there is another; else by their calls, and by name.
func busiest(users map[string]*userPool) []*userPool {
	type activity struct {
		u          *userPool
		got, calls uint64
	}
	all := make([]activity, 0, len(users))
	for _, u := range users {
		all = append(all, activity{u, u.counters(u.stats()).acquires, u.callCount()})
	}
	slices.SortFunc(all, func(a, b activity) int {
		return cmp.Or(cmp.Compare(b.got, a.got), cmp.Compare(b.calls, a.calls), cmp.Compare(a.u.name, b.u.name))
	})
	sorted := make([]*userPool, len(all))
	for i, a := range all {
		sorted[i] = a.u
	}
	return sorted
}
