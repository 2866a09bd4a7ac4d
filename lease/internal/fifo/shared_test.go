package fifo

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// world is a budget of which everything is idle that holders have, and a model of it: what each
// holder has, and who waits for it, in their order.
type world struct {
	t      *testing.T
	shared Shared[string]
	limit  int
	has    map[string]int
	waits  map[string][]*Ticket
	joins  map[*Ticket]int

	r       *rand.Rand
	closing map[string][]struct{} // given up and not released
	gaveUp  int
}

func newWorld(t *testing.T, r *rand.Rand, limit int) *world {
	return &world{t: t, r: r, limit: limit, closing: map[string][]struct{}{}, has: map[string]int{}, waits: map[string][]*Ticket{}, joins: map[*Ticket]int{}}
}

func (w *world) acquire(of string) {
	if w.shared.InUse() < w.limit {
		w.shared.Take(of)
		w.has[of]++
		return
	}
	ticket := w.shared.Join(of)
	w.joins[ticket] = len(w.joins)
	w.waits[of] = append(w.waits[of], ticket)
}

// release gives one back, and says who is to be served then: who has least of those who wait, and
// of several the first.
func (w *world) release(of string) {
	w.shared.Release(of)
	w.has[of]--
	if n := len(w.closing[of]); n > 0 { // of which it is taken to be
		w.closing[of] = w.closing[of][:n-1]
	}
	next := ""
	for other, tickets := range w.waits {
		if len(tickets) > 0 && (next == "" || w.has[other] < w.has[next] ||
			w.has[other] == w.has[next] && w.joins[tickets[0]] < w.joins[w.waits[next][0]]) {
			next = other
		}
	}
	served := w.shared.Next()
	if next == "" {
		require.Nil(w.t, served)
		return
	}
	require.Same(w.t, w.waits[next][0], served)
	w.waits[next] = w.waits[next][1:]
	w.has[next]++
}

func (w *world) leave(of string, at int) {
	tickets := w.waits[of]
	require.True(w.t, w.shared.Leave(of, tickets[at]))
	require.False(w.t, w.shared.Leave(of, tickets[at]))
	w.waits[of] = append(tickets[:at:at], tickets[at+1:]...)
}

func (w *world) check() {
	inUse, waiting, known := 0, 0, 0
	for of, n := range w.has {
		inUse += n
		waiting += len(w.waits[of])
		if n > 0 || len(w.waits[of]) > 0 {
			known++
		}
	}
	for of, tickets := range w.waits {
		if w.has[of] == 0 && len(tickets) > 0 && w.shared.parts[of] == nil {
			w.t.Fatalf("%s waits and is not known", of)
		}
		if _, counted := w.has[of]; !counted {
			waiting += len(tickets)
			if len(tickets) > 0 {
				known++
			}
		}
	}
	require.Equal(w.t, []int{inUse, waiting, known}, []int{w.shared.InUse(), w.shared.Waiting(), len(w.shared.parts)})
}

// ask asks holders, which have some busy, and give up the others: at once, or later. What they have given
// up they want back.
func (w *world) ask(busy map[string]int, beside bool) {
	for again := true; again; {
		again = false
		above := w.shared.Above(0)
		require.Empty(w.t, w.shared.Above(0), "nobody is asked twice at a time, and no others for the same")
		going := 0
		for of := range w.has {
			going += max(len(w.closing[of]), above[of])
		}
		require.True(w.t, len(above) == 0 || going <= w.shared.Waiting(), "no more close than callers lack")
		if beside && len(above) > 0 && w.r.IntN(3) == 0 { // one comes before they have answered
			w.acquire([]string{"a", "b", "c"}[w.r.IntN(3)])
			for of, n := range w.shared.Above(0) {
				require.NotContains(w.t, above, of, "one at a time")
				above[of] = n
			}
		}
		for of, n := range above {
			require.Less(w.t, n, w.has[of], "each keeps one")
			before := len(w.closing[of])
			require.Greater(w.t, n, before, "no question without need")
			closing := max(0, min(n-before, w.has[of]-before-busy[of]))
			early := 0
			for i := range closing {
				w.gaveUp++
				w.closing[of] = append(w.closing[of], struct{}{})
				w.acquire(of)
				if w.r.IntN(2) == 0 && i == early {
					early++
					w.release(of)
				}
			}
			w.shared.Answered(of, before+closing)
			again = again || before+closing < n
		}
	}
}

// settle has all closed that holders give up. Nobody who waits has less in the end than one that has
// something idle, but for what a division leaves over.
func (w *world) settle(busy map[string]int) {
	w.gaveUp = 0
	for round := range 2*w.limit + 10 {
		before := w.gaveUp
		w.shared.NewRound()
		w.ask(busy, false)
		w.closeAll()
		require.False(w.t, round > 2*w.limit+5 && w.gaveUp > before, "connections go to and fro")
	}
	require.LessOrEqual(w.t, w.gaveUp, 2*w.limit, "connections go to and fro")
	for of, tickets := range w.waits {
		for other, n := range w.has {
			if len(tickets) > 0 && n > w.has[of]+1 && n > busy[other] {
				w.t.Fatalf("%s waits and has %d, %s has %d of which %d are busy", of, w.has[of], other, n, busy[other])
			}
		}
	}
}

func (w *world) closeAll() {
	for of := range w.closing {
		for len(w.closing[of]) > 0 {
			w.release(of)
		}
	}
}

func TestHoldersThatWaitHaveTheirShares(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		w, holders := newWorld(t, r, 1+r.IntN(9)), []string{"a", "b", "c", "d", "e"}[:1+r.IntN(5)]
		for range 3 {
			for range 60 {
				of := holders[r.IntN(len(holders))]
				switch r.IntN(5) {
				case 0, 1:
					w.acquire(of)
				case 2:
					if w.has[of] > 0 {
						w.release(of)
					}
				case 3:
					w.ask(nil, true)
				case 4:
					if n := len(w.waits[of]); n > 0 {
						w.leave(of, r.IntN(n))
					}
				}
				w.check()
			}
			busy := map[string]int{}
			for of, n := range w.has {
				if r.IntN(2) == 0 {
					busy[of] = r.IntN(n + 1)
				}
			}
			w.settle(busy)
			w.check()
		}
		waiting := 0
		for _, tickets := range w.waits {
			waiting += len(tickets)
		}
		all := w.shared.All()
		require.Len(t, all, waiting)
		for i := range all[:max(0, len(all)-1)] {
			require.Less(t, w.joins[all[i]], w.joins[all[i+1]], "in their order")
		}
		clear(w.waits)
		for of, n := range w.has {
			for range n {
				w.release(of)
			}
		}
		require.Empty(t, w.shared.parts, "nobody is kept")
	}
}

// One newcomer costs one connection, of whoever has most.
func TestAsManyAreAskedForAsAreLacking(t *testing.T) {
	var s Shared[int]
	for of := range 10 {
		for range 2 + of/9 {
			s.Take(of)
		}
	}
	s.Join(10)
	require.Equal(t, map[int]int{9: 1}, s.Above(0))
	s.Join(10)
	require.Empty(t, s.Above(0), "it will have its share")
	s.Answered(9, 0)
	require.Len(t, s.Above(0), 1, "another has what the one keeps")
	require.Empty(t, s.Above(0))
}

// One that does not answer, or does not close what it has said, keeps nobody waiting for ever.
func TestAHolderThatDoesNothingIsNotWaitedFor(t *testing.T) {
	var s Shared[int]
	for of := range 2 {
		for range 4 {
			s.Take(of)
		}
	}
	s.Join(2)
	ask := func() (of int) {
		above := s.Above(0)
		require.Len(t, above, 1)
		for of = range above {
			require.Equal(t, 1, above[of])
		}
		require.Empty(t, s.Above(0))
		return of
	}
	silent := ask()
	s.NewRound()
	other := ask()
	require.NotEqual(t, silent, other)
	s.Answered(other, 1)
	s.NewRound()
	require.Empty(t, s.Above(0), "one is being closed")
	for range CloseRounds - 1 {
		s.NewRound()
	}
	require.Equal(t, map[int]int{}, s.Above(0), "silent is not asked twice, and other not in this round: it has not done what it said")
	s.NewRound()
	require.Equal(t, other, ask())
	s.Answered(other, 1)
	s.NewRound()
	require.Equal(t, 7, s.Kept(), "it has said so anew")
	s.Answered(silent, 0)
}

// A holder is asked for all that it should be giving up, and answers so.
func TestAnswersAreOfAllThatIsGivenUp(t *testing.T) {
	var s Shared[int]
	for range 8 {
		s.Take(0)
	}
	s.Join(1)
	require.Equal(t, map[int]int{0: 1}, s.Above(0))
	s.Answered(0, 1)
	s.Join(1)
	require.Equal(t, map[int]int{0: 2}, s.Above(0))
	require.Equal(t, 6, s.Kept())
	s.Answered(0, 2)
	require.Equal(t, 6, s.Kept())
	s.Join(1)
	require.Equal(t, map[int]int{0: 3}, s.Above(0))
	s.Release(0)
	s.Next()
	require.Equal(t, 6, s.Kept(), "one of the three, which another has")
	s.Answered(0, 3)
	require.Equal(t, 6, s.Kept())
	s.Release(0)
	s.Next()
	require.Equal(t, 7, s.Kept())
}

// What has been given up is not asked for again, and one that is released tells that others will be.
func TestTheEndOfACloseIsWaitedFor(t *testing.T) {
	var s Shared[int]
	for range 8 {
		s.Take(0)
	}
	for range 4 {
		s.Join(1)
	}
	require.Equal(t, map[int]int{0: 4}, s.Above(0))
	s.Release(0)
	s.Next()
	s.Answered(0, 4)
	for range 3 {
		for range CloseRounds - 1 {
			s.NewRound()
			require.Empty(t, s.Above(0))
		}
		s.Release(0)
		s.Next()
	}
	require.Equal(t, 8, s.Kept())
	require.Equal(t, []int{4, 4, 0}, []int{s.parts[0].inUse, s.parts[1].inUse, s.parts[0].closing})
	for range 4 {
		s.Join(1)
	}
	require.Empty(t, s.Above(0), "each has its share")
}

// Those who are lacking some beyond the queue are served by all who have most.
func TestSomeAreLackingBeyondTheQueue(t *testing.T) {
	var s Shared[int]
	for of := range 3 {
		for range 4 * (of + 1) {
			s.Take(of)
		}
	}
	require.Empty(t, s.Above(0))
	require.Equal(t, map[int]int{2: 3}, s.Above(3))
	require.True(t, s.Asking())
	s.Answered(2, 1)
	require.False(t, s.Asking())
	require.Equal(t, 23, s.Kept())
	require.Equal(t, map[int]int{1: 2}, s.Above(3), "whoever has most beside it")
	s.Answered(1, 2)
	require.Equal(t, 21, s.Kept())
	s.NewRound()
	require.Equal(t, map[int]int{2: 8, 1: 4}, s.Above(12), "each keeps four")
}

// Who gives up more than others lack by now is asked for less, whatever it would like for itself.
func TestWhatIsNotLackingAnyMoreIsNotGivenUp(t *testing.T) {
	var s Shared[int]
	for of, n := range []int{8, 3} {
		for range n {
			s.Take(of)
		}
	}
	s.Join(0)
	var callers []*Ticket
	for range 3 {
		callers = append(callers, s.Join(2))
	}
	require.Equal(t, map[int]int{0: 3}, s.Above(0))
	require.Empty(t, s.Excess(0), "it has not answered")
	s.Answered(0, 9)
	require.Empty(t, s.Excess(0), "as many as are lacking, whatever it says")
	require.True(t, s.Leave(2, callers[0]))
	require.Empty(t, s.Above(0))
	require.Equal(t, map[int]int{0: 2}, s.Excess(0))
	require.Empty(t, s.Excess(0), "it is not asked twice at a time")
	s.Release(0)
	s.Next()
	s.Answered(0, 2)
	require.Empty(t, s.Excess(0))
	require.True(t, s.Leave(2, callers[2]))
	require.True(t, s.GivingUp())
	require.Equal(t, map[int]int{0: 0}, s.Excess(0))
	require.True(t, s.Asking())
	s.Answered(0, 0)
	require.False(t, s.GivingUp())
	require.Empty(t, s.Excess(0))

	require.Equal(t, map[int]int{0: 3}, s.Above(3))
	s.Answered(0, 3)
	require.Empty(t, s.Excess(3))
	require.Equal(t, map[int]int{0: 1}, s.Excess(1), "others of the fleet need no more")
}

// Who has said that it cannot give up what it was asked for may yet, and is told when that is not lacking any more.
func TestWhatAHolderCouldNotGiveUpIsTakenBackToo(t *testing.T) {
	var s Shared[int]
	for range 8 {
		s.Take(0)
	}
	caller := s.Join(1)
	require.Equal(t, map[int]int{0: 1}, s.Above(0))
	require.True(t, s.GivingUp(), "it may say so")
	s.Answered(0, 0)
	require.Empty(t, s.Above(0))
	require.Empty(t, s.Excess(0), "it is lacking still")
	require.True(t, s.Leave(1, caller))
	require.True(t, s.GivingUp())
	require.Equal(t, map[int]int{0: 0}, s.Excess(0))
	s.Answered(0, 0)
	require.Empty(t, s.Excess(0))
	require.False(t, s.GivingUp())

	s.NewRound()
	s.Join(1)
	require.Equal(t, map[int]int{0: 1}, s.Above(0))
	s.Answered(0, 0)
	s.Release(0)
	s.Next()
	require.False(t, s.GivingUp(), "it has, all the same")
}

func TestAHolderThatHasNotAnsweredIsTakenToNeedAll(t *testing.T) {
	var s Shared[int]
	for of := range 2 {
		for range 4 {
			s.Take(of)
		}
	}
	for range 4 {
		s.Join(2)
	}
	require.Equal(t, map[int]int{0: 1, 1: 1}, s.Above(0))
	s.Answered(1, 1)
	s.Release(1)
	s.Next()
	s.NewRound()
	require.Equal(t, map[int]int{1: 1}, s.Above(0), "two for each of the others")
}

// Whoever comes is wanted, also where some are not.
func TestACallerWhoComesIsWanted(t *testing.T) {
	var s Shared[int]
	var mu sync.Mutex
	s.Take(0)
	var callers []*Ticket
	for range 3 {
		callers = append(callers, s.Join(1))
	}
	s.AskWanted(&mu, func(int, int) int { return 0 })
	require.Zero(t, s.Wanted())
	s.Release(0)
	require.Same(t, callers[0], s.Next())
	require.True(t, s.Leave(1, callers[1]))
	require.Zero(t, s.Wanted())
	s.Join(1)
	require.Equal(t, 1, s.Wanted())
}

func TestWhoComesAfterARefusalIsWanted(t *testing.T) {
	var s Shared[int]
	var mu sync.Mutex
	s.Take(0)
	s.Join(0)
	s.AskWanted(&mu, func(int, int) int { return 0 })
	require.Len(t, s.All(), 1)
	s.Join(0)
	require.Equal(t, 1, s.Wanted()) // red: 0
}

func TestWhoComesWhileAHolderSaysIsWanted(t *testing.T) {
	var s Shared[int]
	var mu sync.Mutex
	s.Take(0)
	first, second := s.Join(0), s.Join(0)
	s.AskWanted(&mu, func(int, int) int {
		mu.Lock()
		defer mu.Unlock()
		s.Leave(0, first)
		s.Leave(0, second)
		return 0
	})
	s.Join(0)
	require.Equal(t, 1, s.Wanted()) // red: 0
}
