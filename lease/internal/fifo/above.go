package fifo

import (
	"cmp"
	"slices"
	"sort"
)

// Above is, for each holder that has more than its share of what all have, how much it is to give up,
// because others wait for it, or beyond lacks so many who are not in the queue: those that have most
// first, and no more in all than is lacking and not coming. What a holder gives up already is included.
// Until a holder has Answered it is not asked again.
//
// The share is the max-min share, and at least one. What its division leaves over stays with those
// who have it, one with each. Who has said in this round what it cannot give up is asked for the
// rest alone, and leaves less for the others to share.
func (s *Shared[K]) Above(beyond int) map[K]int {
	if s.waiting == 0 && beyond <= 0 {
		return nil
	}
	all, coming := s.look((*part).has)
	most, need := share(all, max(0, s.inUse-beyond), beyond)
	need -= coming
	above := map[K]int{}
	for _, h := range all {
		if n := min(h.has-max(most, h.keeps), need); n > 0 && !h.p.asking {
			above[h.of] = h.p.ask(h.p.going() + n)
			need -= n
		}
	}
	return above
}

// Excess is, for holders that give up more than others lack by now, or would though they have not said so, how much
// they are to give up instead, as Above has it: those that have most last.
func (s *Shared[K]) Excess(beyond int) map[K]int {
	if !s.GivingUp() {
		return nil
	}
	all, coming := s.look((*part).has)
	before, _ := s.look(func(p *part) int { return p.inUse })
	for i := range before {
		before[i].keeps = 0 // who cannot give up what others lack may yet
	}
	_, need := share(before, max(0, s.inUse-beyond), beyond)
	if coming < need {
		return nil
	}
	less := map[K]int{}
	for _, h := range slices.Backward(all) {
		if n := min(h.p.closing, coming-need); !h.p.asking && (n > 0 || h.p.told > h.p.closing) {
			less[h.of] = h.p.ask(h.p.closing - n)
			coming -= n
		}
	}
	return less
}

// ask notes that a holder is asked for n.
func (p *part) ask(n int) int {
	p.asking, p.asked, p.told, p.silent = true, n, n, false
	return n
}

// look is all holders, with what they have by has, those that have most first, and how much is coming.
func (s *Shared[K]) look(has func(*part) int) (all []holder[K], coming int) {
	for of, p := range s.parts {
		h := holder[K]{of: of, p: p, has: has(p)}
		h.wants, h.keeps = h.has+p.wanted(), min(p.kept, h.has)
		coming += p.going()
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b holder[K]) int { return cmp.Compare(b.has, a.has) })
	return all, coming
}

// holder is a part as Above looks at it.
type holder[K comparable] struct {
	of                K
	p                 *part
	has, wants, keeps int
}

// share is the most that a holder is to have of a total while others wait, and how much those have to
// give up in all who have more: what others lack, and what is lacking beyond them.
func share[K comparable](all []holder[K], total, beyond int) (most, n int) {
	sum := func(level int) (sum int) {
		for _, h := range all {
			sum += min(h.wants, max(level, h.keeps))
		}
		return sum
	}
	level := sort.Search(total, func(level int) bool { return sum(level+1) > total })
	lacking, surplus := beyond, 0
	for _, h := range all {
		lacking += max(0, min(h.wants, level)-h.has)
		surplus += max(0, h.has-max(level+1, h.keeps))
	}
	if surplus >= lacking { // those who have one that is left over need not be asked
		return level + 1, surplus
	}
	return level, lacking
}
