package fifo

import (
	"cmp"
	"slices"
	"sync"
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
	surplus int // of callers, those whom it did not want any more when it was last asked: they go first

	asking  bool // it was asked, and has not Answered
	asked   int  // what for
	early   int  // connections released meanwhile, which may be of those
	silent  bool // a round has begun since it was asked
	told    int  // what it was asked for at last, without what it has released since: it may give that up whatever it says
	closing int  // what it has said that it gives up, and has not released yet
	rounds  int  // that have begun since it said so, or has released one
	kept    int  // what it cannot give up in this round
}

// CloseRounds is how long it is believed that a holder gives up what it has said, without one that it releases.
const CloseRounds = 10

// going is what it gives up, as far as that is believed. An answer is waited for in the round of its question.
func (p *part) going() int {
	n := p.closing
	if !p.silent {
		n = max(n, p.asked-p.early)
	}
	return min(n, p.inUse)
}

// has is what it keeps.
func (p *part) has() int { return p.inUse - p.going() }

// wanted are its callers without the surplus.
func (p *part) wanted() int { return max(0, p.callers.Len()-p.surplus) }

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
	p.surplus = max(0, p.surplus-1)
	s.tidy(of, p)
	return true
}

// Next takes out the caller who is served next, whose holder has one more then; nil: nobody
// waits. The owner answers it once its mutex is free.
func (s *Shared[K]) Next() *Ticket {
	if s.waiting == 0 {
		return nil
	}
	var next *part
	for _, p := range s.parts {
		if p.callers.Len() > 0 && (next == nil || p.inUse < next.inUse || p.inUse == next.inUse && p.callers.first().number < next.callers.first().number) {
			next = p
		}
	}
	s.waiting--
	s.inUse++
	next.inUse++
	next.surplus = max(0, next.surplus-1)
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
	p.told = max(0, p.told-1)
	if p.closing > 0 {
		p.closing--
		p.rounds = 0
	}
	if p.asking {
		p.early++
	}
	s.tidy(of, p)
}

// All takes out every caller, first come first.
func (s *Shared[K]) All() []*Ticket {
	var all []*Ticket
	for of, p := range s.parts {
		all = append(all, p.callers.All()...)
		p.surplus = 0
		s.tidy(of, p)
	}
	s.waiting = 0
	slices.SortFunc(all, func(a, b *Ticket) int { return cmp.Compare(a.number, b.number) })
	return all
}

// Waiting is the number of waiting callers.
func (s *Shared[K]) Waiting() int { return s.waiting }

// Wanted is Waiting without those whom their holders did not want any more when they were last asked.
func (s *Shared[K]) Wanted() (n int) {
	for _, p := range s.parts {
		n += p.wanted()
	}
	return n
}

// AskWanted asks each holder how many of its callers it still wants. mu is the owner's mutex, which
// is not held meanwhile.
func (s *Shared[K]) AskWanted(mu sync.Locker, wanted func(of K, callers int) int) {
	mu.Lock()
	surplus := map[K]int{}
	for of, p := range s.parts {
		if n := p.callers.Len(); n > 0 {
			surplus[of] = n
		}
	}
	mu.Unlock()
	for of, n := range surplus {
		surplus[of] = n - wanted(of, n)
	}
	mu.Lock()
	defer mu.Unlock()
	for of, n := range surplus {
		if p := s.parts[of]; p != nil {
			p.surplus = min(n, p.callers.Len()) // some may have left meanwhile
		}
	}
}

// InUse is what all holders have.
func (s *Shared[K]) InUse() int { return s.inUse }

// Answered takes note of what a holder gives up of what it was asked for.
func (s *Shared[K]) Answered(of K, closing int) {
	p := s.parts[of]
	asked := p.asked
	left := max(0, min(closing, asked)-p.early) // of those that were released meanwhile
	if left > p.closing {
		p.rounds = 0
	}
	p.asking, p.asked, p.early, p.closing = false, 0, 0, left
	if closing < asked {
		p.kept = p.has()
	}
	s.tidy(of, p)
}

// NewRound forgets what holders cannot give up, but for one that has not answered, which is taken to need
// all. What one has said and not done keeps it from being asked in this round.
func (s *Shared[K]) NewRound() {
	for _, p := range s.parts {
		if p.kept, p.silent = 0, p.asking; p.silent {
			p.kept = p.inUse
		}
		if p.closing == 0 {
			continue
		}
		if p.rounds++; p.rounds >= CloseRounds {
			p.closing, p.kept = 0, p.inUse
		}
	}
}

// Asking says whether a holder has still to answer in this round.
func (s *Shared[K]) Asking() bool {
	for _, p := range s.parts {
		if p.asking && !p.silent {
			return true
		}
	}
	return false
}

// GivingUp says whether a holder may give something up.
func (s *Shared[K]) GivingUp() bool {
	for _, p := range s.parts {
		if p.told > 0 || p.asking {
			return true
		}
	}
	return false
}

// Kept is what holders have and do not give up, as far as they have answered.
func (s *Shared[K]) Kept() (n int) {
	for _, p := range s.parts {
		n += p.has()
	}
	return n
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
	if p.inUse == 0 && p.callers.Len() == 0 && !p.asking {
		delete(s.parts, of)
	}
}
