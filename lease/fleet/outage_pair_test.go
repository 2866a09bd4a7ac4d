package fleet

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
)

// outagePair is two processes with a limit of 10 and a lease.Share of 5: one has leases
// in advance, 7 or none, and no connection, the other 2 connections. By its Fallback the
// other comes to 5.
type outagePair struct {
	t            *testing.T
	quiet, other *Leases
	quietP       *process
	otherP       *process
	took         int // connections of both
}

func newOutagePair(t *testing.T, spare int) *outagePair {
	p := &outagePair{t: t}
	w := newWorld()
	start := func(seed uint64, want int) (*Leases, *process) {
		return join(t, w, seed, Config{Limit: 10, Want: want, Shards: 1, Batch: 1, Fallback: lease.Share(5)})
	}
	p.quiet, p.quietP = start(1, spare)
	time.Sleep(10 * time.Second) // others might have had to tell
	for _, release := range take(t, p.quiet, spare) {
		release()
	}
	p.other, p.otherP = start(2, 0)
	t.Cleanup(func() {
		p.quiet.stopGoroutines()
		p.other.stopGoroutines()
	})
	require.EqualValues(t, spare, p.quiet.Stats().Spare)
	time.Sleep(10 * time.Second)
	p.took = len(take(t, p.other, 2))
	return p
}

// calmDown waits until no round is due for a while.
func (p *outagePair) calmDown() {
	for round := p.seen().terms.round; p.seen().terms.round < round+2; { // no round is due for a while
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(2 * time.Second)
	require.EqualValues(p.t, 2, p.other.Stats().InUse)
}

// seen is what the quiet process knows.
func (p *outagePair) seen() state {
	p.quiet.mu.Lock()
	defer p.quiet.mu.Unlock()
	return p.quiet.state
}

// connect takes what l grants within a millisecond for each, up to 7 connections.
func (p *outagePair) connect(l *Leases) {
	for l.Stats().InUse < 7 {
		ctx, cancel := context.WithTimeout(p.t.Context(), time.Millisecond)
		_, err := l.Acquire(ctx)
		cancel()
		if err != nil {
			return
		}
		p.took++
	}
}

// refuseWrites begins an outage of writes, in which the other process takes its share.
func (p *outagePair) refuseWrites() {
	refuse := func(c Change) bool { return !strings.HasPrefix(c.Key, "member#") }
	p.quietP.set(func(p *process) { p.refuse = refuse })
	p.otherP.set(func(p *process) { p.refuse = refuse })
	for range 23 {
		p.connect(p.other)
		time.Sleep(time.Second)
	}
	require.Equal(p.t, 5, p.other.Stats().InUse, "by the Fallback")
}

// In an outage of writes alone a process that has nothing to write finds out by the
// round that cannot begin, and then knows that it may be as old as its own last write:
// from then on it has no more than its share.
func TestARoundThatCannotBeginShowsAnOutageOfWrites(t *testing.T) {
	for _, later := range []time.Duration{0, 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			p := newOutagePair(t, 7)
			p.calmDown()
			p.refuseWrites()
			for noticed := time.Now().Add(15 * time.Second); !p.seen().outage.failing && time.Now().Before(noticed); {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(later)
			p.connect(p.quiet)
			require.Equal(t, 10, p.took)
		})
	}
}

// Who had no lease in an outage of writes cannot know of it: it takes its share first,
// and more when others had the time to tell what they have.
func TestWhoHadNoLeaseTakesItsShareFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newOutagePair(t, 0)
		p.calmDown()
		p.refuseWrites()
		p.quietP.set(func(p *process) { p.refuse = nil })
		back := time.Now()
		for time.Since(back) < 15*time.Second {
			if time.Since(back) > 3*time.Second {
				p.otherP.set(func(p *process) { p.refuse = nil })
			}
			p.connect(p.quiet)
			require.LessOrEqual(t, p.took, 10, "%v after the outage", time.Since(back))
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, 10, p.took)
	})
}

// Whose last heartbeat was a while before an outage comes to its Fallback earlier than
// others. They have no more than their share from then on.
func TestTheFirstFallbackEndsWhatOthersTakeBeyondTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newOutagePair(t, 7)
		age := func(l *Leases) time.Duration {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.clock().mono - l.state.outage.heartbeatAt.mono
		}
		for age(p.quiet) > 20*time.Millisecond || age(p.other) < 7500*time.Millisecond {
			time.Sleep(10 * time.Millisecond)
		}
		for _, one := range []*process{p.quietP, p.otherP} {
			one.set(func(p *process) { p.outage = time.Now().Add(time.Minute) })
		}
		for p.other.Stats().InUse < 5 {
			p.connect(p.other)
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, 5, p.took)
		require.False(t, p.quiet.Stats().Degraded, "it has its own validity yet")
		p.connect(p.quiet)
		require.Equal(t, 10, p.took)
	})
}

// After an outage nobody has more than its share while others have the time to tell what
// they have, nor before every shard was read after that.
func TestOthersHaveTheTimeToTellWhatTheyHave(t *testing.T) {
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			p := newOutagePair(t, 7)
			p.calmDown()
			p.quietP.set(func(p *process) { p.outage = time.Now().Add(40 * time.Second) })
			p.otherP.set(func(p *process) { p.outage = time.Now().Add(time.Hour) })
			time.Sleep(30 * time.Second)
			p.connect(p.other)
			require.Equal(t, 5, p.took, "by the Fallback")
			for p.quiet.Stats().Degraded {
				time.Sleep(time.Millisecond)
			}
			back := time.Now()
			p.otherP.set(func(p *process) { p.outage = back.Add(1900 * time.Millisecond) }) // it tells within 4 s of that
			for time.Since(back) < 15*time.Second {
				p.connect(p.quiet)
				require.LessOrEqual(t, p.took, 10, "%v after the outage", time.Since(back))
				time.Sleep(10 * time.Millisecond)
			}
			require.Equal(t, 10, p.took)
		})
	}
}

// Of surveys only one that was sent after the others had their time shows what they have.
func TestAnEarlySurveyDoesNotEndTheHold(t *testing.T) {
	l := &Leases{cfg: Config{Fallback: lease.Share(5)}, clock: func() instant { return instant{} }}
	l.state.terms = terms{limit: 10}
	l.state.outage = outage{holdUntil: time.Second, recount: true}
	l.noteSurvey(instant{mono: time.Second - 1})
	require.True(t, l.state.outage.recount)
	l.noteSurvey(instant{mono: time.Second})
	require.False(t, l.state.outage.recount)
}
