package fairshare

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// user is a member in a table: what it holds, and how many opens of its wait.
type user struct {
	held, tickets, yielding, asks int
	waits                         bool
	since                         time.Duration // ago
}

func shared(maxConnections int, set func(s *Share), users ...user) (s *Share, members []*Member) {
	s = New(Bounds{Max: maxConnections, MaxOpening: 8})
	if set != nil {
		set(s)
	}
	for _, u := range users {
		m := s.NewMember("", nil, maxConnections)
		m.held, m.since = u.held, time.Now().Add(-u.since)
		s.held += u.held
		s.peak = max(s.peak, s.held)
		m.Join()
		for range u.tickets {
			s.tickets++
			m.tickets = append(m.tickets, &ticket{m: m, number: s.tickets, ready: make(chan struct{})})
		}
		if u.waits {
			m.waiting.Store(1)
		}
		s.expect(m, u.yielding, u.asks)
		s.update(m)
		members = append(members, m)
	}
	s.refloor()
	s.ask, s.askCold = 8, 8
	return s, members
}

// Who gives up what, when: each policy by itself. took is the user whose connection
// is taken, -1 nobody's.
func TestEachPolicyTakesFromWhomTheTableSays(t *testing.T) {
	second := time.Second
	one := user{held: 1, since: second}
	for _, c := range []struct {
		name   string
		policy policy
		max    int
		set    func(s *Share)
		users  []user
		took   int
		loan   bool
	}{
		{"lowered: who keeps most", overBound, 2, nil, []user{{held: 1}, {held: 2}}, 1, true},
		{"lowered: not what is coming already", overBound, 2, nil, []user{{held: 1}, {held: 2, yielding: 1}}, -1, false},
		{"within the bound", overBound, 3, nil, []user{{held: 1}, {held: 2}}, -1, false},
		{"overflow that is allowed", overBound, 2, func(s *Share) { s.Overflow = 1 }, []user{{held: 3}}, -1, false},

		{"overflow without callers", overflowUnused, 2, func(s *Share) { s.Overflow = 1 }, []user{{held: 1}, {held: 2}}, 1, false},
		{"overflow with callers", overflowUnused, 2, func(s *Share) { s.Overflow = 1 }, []user{{held: 1}, {held: 2, waits: true}}, -1, false},

		{"nothing and waits", hungryTakes, 2, nil, []user{one, {held: 1}, {tickets: 1, waits: true}}, 0, false},
		{"nothing, but no caller", hungryTakes, 2, nil, []user{one, {held: 1}, {tickets: 1}}, -1, false},
		{"nothing, but one is being closed", hungryTakes, 2, nil, []user{one, {held: 1, yielding: 1}, {tickets: 1, waits: true}}, -1, false},
		{"nothing, and one in use is asked for", hungryTakes, 2, nil, []user{one, {held: 1, yielding: 1, asks: 1}, {tickets: 1, waits: true}}, 0, false},
		{"nothing, but there is room", hungryTakes, 3, nil, []user{one, {held: 1}, {tickets: 1, waits: true}}, -1, false},
		{"nothing, but the server is unhealthy", hungryTakes, 2, func(s *Share) { s.shut = true }, []user{one, {held: 1}, {tickets: 1, waits: true}}, -1, false},

		{"two more", poorTakes, 4, nil, []user{{held: 3}, {held: 1, tickets: 1, waits: true}}, 0, true},
		{"one more", poorTakes, 3, nil, []user{{held: 2}, {held: 1, tickets: 1, waits: true}}, -1, false},
		{"two more, but one is coming", poorTakes, 4, nil, []user{{held: 3, yielding: 1}, {held: 1, tickets: 1, waits: true}}, -1, false},
		{"two more, and wants two", poorTakes, 6, nil, []user{{held: 5, yielding: 1}, {held: 1, tickets: 2, waits: true}}, 0, true},

		{"wants, and another has one", wantingTakes, 3, nil, []user{{held: 1}, {held: 2, tickets: 1, waits: true}}, 0, false},
		{"wants, but that is reserved", wantingTakes, 4, func(s *Share) { s.Reserved = 2 }, []user{{held: 2}, {held: 2, tickets: 1, waits: true}}, -1, false},

		{"nobody has two: the longest", turnTakes, 2, nil, []user{{held: 1, since: second}, {held: 1, since: 2 * second}, {tickets: 1, waits: true}}, 0, true},
		{"nobody has two: not yet", turnTakes, 1, nil, []user{{held: 1}, {tickets: 1, waits: true}}, -1, false},
		{"somebody has two", turnTakes, 3, nil, []user{one, {held: 2, since: second}, {tickets: 1, waits: true}}, -1, false},
		{"enough make way", turnTakes, 2, nil, []user{one, {held: 1, since: second, yielding: 1, asks: 1}, {tickets: 1, waits: true}}, -1, false},
		{"who makes way already is passed over", turnTakes, 2, nil, []user{{held: 1, since: second, yielding: 1, asks: 1}, one, {tickets: 1, waits: true}, {tickets: 1, waits: true}}, 1, true},
		{"who has some waits its turn", turnTakes, 2, nil, []user{one, {held: 1, since: second, tickets: 1, waits: true}}, -1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, members := shared(c.max, c.set, c.users...)
			var st step
			require.Equal(t, c.took >= 0, c.policy(s, &st, time.Now()))
			require.Equal(t, c.took, slices.Index(members, st.from))
			require.Equal(t, c.loan, st.loan)
		})
	}
}

func TestHowLongIdleAndHowLongATurnGoByWhatAnOpenTakes(t *testing.T) {
	for took, want := range map[time.Duration][2]time.Duration{
		0:                     {100 * time.Millisecond, 10 * time.Millisecond},
		2 * time.Millisecond:  {100 * time.Millisecond, 20 * time.Millisecond},
		50 * time.Millisecond: {500 * time.Millisecond, 500 * time.Millisecond},
		3 * time.Second:       {10 * time.Second, time.Second},
	} {
		s := &Share{openTime: took}
		require.Equal(t, want, [2]time.Duration{s.cold(), s.turn()}, "%v", took)
	}
}
