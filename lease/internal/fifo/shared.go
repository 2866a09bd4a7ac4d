package fifo

import (
	"cmp"
	"slices"
	"sort"
)

// Shared is the queue of a budget that several holders of one process share, and counts
// what each has. Callers of one holder are served in their order; of several holders that
// one is served which has least, and of those that have as much whoever came first. Its
// owner's mutex guards it.
//
// INVARIANT: parts has the holders that have something, wait, or are being asked; inUse and
// waiting are the sums over them.
type Shared[K comparable] struct {
	parts          map[K]*part
	inUse, waiting int
	joined         uint64
}

type part struct {
	inUse   int
	callers Queue
	asked   int // by Above, until Answered; 0: not
	kept    int // what it could not give up when it last answered; 0: it gave up all that it was asked for
}

func (p *part) wants() int { return p.inUse + p.callers.Len() }

// Join adds a caller of a holder's.
func (s *Shared[K]) Join(of K) *Ticket {
	s.joined++
	s.waiting++
	t := s.part(of).callers.Join()
	t.number = s.joined
	return t
}

// Leave takes t out, as Queue.Leave.
func (s *Shared[K]) Leave(of K, t *Ticket) bool {
	p := s.parts[of]
	if p == nil || !p.callers.Leave(t) {
		return false
	}
	s.waiting--
	s.tidy(of, p)
	return true
}

// Next takes out the caller who is served next, whose holder has one more then; nil: nobody
// waits. The owner answers it once its mutex is free.
func (s *Shared[K]) Next() *Ticket {
	var next *part
	for _, p := range s.parts {
		if p.callers.Len() > 0 && (next == nil || p.inUse < next.inUse || p.inUse == next.inUse && p.callers.first().number < next.callers.first().number) {
			next = p
		}
	}
	if next == nil {
		return nil
	}
	s.waiting--
	s.inUse++
	next.inUse++
	return next.callers.Next()
}

// Take gives a holder one, without a wait.
func (s *Shared[K]) Take(of K) {
	s.inUse++
	s.part(of).inUse++
}

// Release takes one back.
func (s *Shared[K]) Release(of K) {
	p := s.parts[of]
	s.inUse--
	p.inUse--
	s.tidy(of, p)
}

// All takes out every caller, first come first.
func (s *Shared[K]) All() []*Ticket {
	var all []*Ticket
	for of, p := range s.parts {
		all = append(all, p.callers.All()...)
		s.tidy(of, p)
	}
	s.waiting = 0
	slices.SortFunc(all, func(a, b *Ticket) int { return cmp.Compare(a.number, b.number) })
	return all
}

// Waiting is the number of waiting callers.
func (s *Shared[K]) Waiting() int { return s.waiting }

// InUse is what all holders have.
func (s *Shared[K]) InUse() int { return s.inUse }

// Above is, for each holder that has more than its share of what all have, how much it is to be
// asked for because others wait for it. Holders that have not Answered since they were last in it
// are left out.
//
// The share is the max-min share, and at least one. What its division leaves over stays with those
// who have it, one with each. A holder that could not give up what it was last asked for is asked
// again, and leaves less for the others to share meanwhile.
func (s *Shared[K]) Above() map[K]int {
	if s.waiting == 0 {
		return nil
	}
	above := map[K]int{}
	for _, keep := range []bool{false, true} {
		most, n := s.share(keep)
		for of, p := range s.parts {
			if n := min(p.inUse-most, n); n > above[of] && p.asked == 0 {
				above[of] = n
			}
		}
	}
	for of, n := range above {
		s.parts[of].asked = n
	}
	return above
}

// share is the most that a holder is to have while others wait, and how much those have to give up who
// have more. keep says that holders keep what they could not give up when they were last asked.
func (s *Shared[K]) share(keep bool) (most, n int) {
	sum := func(level int) (sum int) {
		for _, p := range s.parts {
			sum += min(p.wants(), max(level, p.keeps(keep)))
		}
		return sum
	}
	share := sort.Search(s.inUse, func(level int) bool { return sum(level+1) > s.inUse })
	lacking, surplus := 0, 0
	for _, p := range s.parts {
		lacking += max(0, min(p.wants(), share)-p.inUse)
		surplus += max(0, p.inUse-max(share+1, p.keeps(keep)))
	}
	if surplus >= lacking { // those who have one that is left over need not be asked
		return share + 1, surplus
	}
	return share, lacking
}

func (p *part) keeps(keep bool) int {
	if keep {
		return min(p.kept, p.inUse)
	}
	return 0
}

// Answered takes note of what a holder gives up of what it was asked for.
func (s *Shared[K]) Answered(of K, closing int) {
	p := s.parts[of]
	p.kept = 0
	if closing < p.asked {
		p.kept = p.inUse - max(closing, 0) // or less, if some are gone already: the next answer tells
	}
	p.asked = 0
	s.tidy(of, p)
}

func (s *Shared[K]) part(of K) *part {
	p := s.parts[of]
	if p == nil {
		p = &part{}
		if s.parts == nil {
			s.parts = map[K]*part{}
		}
		s.parts[of] = p
	}
	return p
}

func (s *Shared[K]) tidy(of K, p *part) {
	if p.inUse == 0 && p.callers.Len() == 0 && p.asked == 0 {
		delete(s.parts, of)
	}
}
