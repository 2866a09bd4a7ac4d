package fairshare

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// user is a member in a table: what it holds, and how many opens of its wait.
type user struct {
	held, tickets, reclaims, loans int
	waits                          bool
	since                          time.Duration // ago
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
		s.setReclaims(m, u.reclaims, u.loans)
		s.update(m)
		members = append(members, m)
	}
	s.updateFloor()
	s.idleAsks, s.coldAsks = 8, 8
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
		{"lowered: who keeps most", shrinkToBound, 2, nil, []user{{held: 1}, {held: 2}}, 1, true},
		{"lowered: not what is coming already", shrinkToBound, 2, nil, []user{{held: 1}, {held: 2, reclaims: 1}}, -1, false},
		{"within the bound", shrinkToBound, 3, nil, []user{{held: 1}, {held: 2}}, -1, false},
		{"overflow that is allowed", shrinkToBound, 2, func(s *Share) { s.bounds.Overflow = 1 }, []user{{held: 3}}, -1, false},

		{"overflow without callers", endOverflow, 2, func(s *Share) { s.bounds.Overflow = 1 }, []user{{held: 1}, {held: 2}}, 1, false},
		{"overflow with callers", endOverflow, 2, func(s *Share) { s.bounds.Overflow = 1 }, []user{{held: 2}, {held: 1, waits: true}}, -1, false},
		{"overflow with callers who wait for their bound", endOverflow, 2, func(s *Share) { s.bounds.Overflow = 1 }, []user{{held: 1}, {held: 2, waits: true}}, 1, false},

		{"nothing and waits", idleForStarving, 2, nil, []user{one, {held: 1}, {tickets: 1, waits: true}}, 0, false},
		{"nothing, but no caller", idleForStarving, 2, nil, []user{one, {held: 1}, {tickets: 1}}, -1, false},
		{"nothing, but one is being closed", idleForStarving, 2, nil, []user{one, {held: 1, reclaims: 1}, {tickets: 1, waits: true}}, -1, false},
		{"nothing, and one in use is asked for", idleForStarving, 2, nil, []user{one, {held: 1, reclaims: 1, loans: 1}, {tickets: 1, waits: true}}, 0, false},
		{"nothing, but there is room", idleForStarving, 3, nil, []user{one, {held: 1}, {tickets: 1, waits: true}}, -1, false},
		{"nothing, but the server is unhealthy", idleForStarving, 2, func(s *Share) { s.shut = true }, []user{one, {held: 1}, {tickets: 1, waits: true}}, -1, false},

		{"two more", equalize, 4, nil, []user{{held: 3}, {held: 1, tickets: 1, waits: true}}, 0, true},
		{"one more", equalize, 3, nil, []user{{held: 2}, {held: 1, tickets: 1, waits: true}}, -1, false},
		{"two more, but one is coming", equalize, 4, nil, []user{{held: 3, reclaims: 1}, {held: 1, tickets: 1, waits: true}}, -1, false},
		{"two more, and wants two", equalize, 6, nil, []user{{held: 5, reclaims: 1}, {held: 1, tickets: 2, waits: true}}, 0, true},

		{"wants, and another has one", coldForWaiting, 3, nil, []user{{held: 1}, {held: 2, tickets: 1, waits: true}}, 0, false},
		{"wants, but that is reserved", coldForWaiting, 4, func(s *Share) { s.bounds.Reserved = 2 }, []user{{held: 2}, {held: 2, tickets: 1, waits: true}}, -1, false},

		{"nobody has two: the longest", rotate, 2, nil, []user{{held: 1, since: second}, {held: 1, since: 2 * second}, {tickets: 1, waits: true}}, 0, true},
		{"nobody has two: not yet", rotate, 1, nil, []user{{held: 1}, {tickets: 1, waits: true}}, -1, false},
		{"somebody has two", rotate, 3, nil, []user{one, {held: 2, since: second}, {tickets: 1, waits: true}}, -1, false},
		{"enough make way", rotate, 2, nil, []user{one, {held: 1, since: second, reclaims: 1, loans: 1}, {tickets: 1, waits: true}}, -1, false},
		{"who makes way already is passed over", rotate, 2, nil, []user{{held: 1, since: second, reclaims: 1, loans: 1}, one, {tickets: 1, waits: true}, {tickets: 1, waits: true}}, 1, true},
		{"who has some waits its turn", rotate, 2, nil, []user{one, {held: 1, since: second, tickets: 1, waits: true}}, -1, false},
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
		require.Equal(t, want, [2]time.Duration{s.coldAfter(), s.rotateEvery()}, "%v", took)
	}
}
