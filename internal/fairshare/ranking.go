package fairshare

import "container/heap"

// A ranking keeps members in an order, the first of them at hand. Adding, removing and
// moving one take a time that grows with the logarithm of their number. It is a heap:
// only the first is in order. A change of what less compares needs a set.
type ranking struct {
	all   []*Member
	less  func(a, b *Member) bool
	place func(m *Member) *int // where a member's place is kept: from 1, 0 is none
}

// first is the first, or nil.
func (r *ranking) first() *Member {
	if len(r.all) == 0 {
		return nil
	}
	return r.all[0]
}

// set puts a member where it belongs: in, after its order has changed, or out.
func (r *ranking) set(m *Member, in bool) {
	switch at := *r.place(m); {
	case at == 0 && in:
		heap.Push(r, m)
	case at > 0 && in:
		heap.Fix(r, at-1)
	case at > 0:
		heap.Remove(r, at-1)
	}
}

// leave takes a member out that does not belong here any more, where one place is
// kept for two rankings.
func (r *ranking) leave(m *Member, stays bool) {
	if at := *r.place(m); !stays && at > 0 && at <= len(r.all) && r.all[at-1] == m {
		heap.Remove(r, at-1)
	}
}

// Len is for package heap, and so are the others.
func (r *ranking) Len() int { return len(r.all) }

// Less says what order is.
func (r *ranking) Less(i, j int) bool { return r.less(r.all[i], r.all[j]) }

// Swap swaps two.
func (r *ranking) Swap(i, j int) {
	r.all[i], r.all[j] = r.all[j], r.all[i]
	*r.place(r.all[i]), *r.place(r.all[j]) = i+1, j+1
}

// Push adds one at the end.
func (r *ranking) Push(x any) {
	m := x.(*Member) //nolint:forcetypeassert // set pushes nothing else
	r.all = append(r.all, m)
	*r.place(m) = len(r.all)
}

// Pop takes the last one out.
func (r *ranking) Pop() any {
	m := r.all[len(r.all)-1]
	r.all[len(r.all)-1] = nil
	r.all = r.all[:len(r.all)-1]
	*r.place(m) = 0
	return m
}
