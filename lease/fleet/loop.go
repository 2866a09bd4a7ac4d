package fleet

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"time"
)

// work is what the loop has to do, and when. It belongs to one goroutine at a time, and
// has no lock: to New before the loop begins, to the loop, and to Close after it. What
// grants go by is in state.
type work struct {
	seq     int64               // the last sequence number that was given out
	pending map[int]*unanswered // by shard

	// When the budget's record is read next, and the pause after a read that failed.
	heartbeatAt      instant // the budget's record is read
	heartbeatBackoff backoff

	roundBeganAt instant // the current round is taken to have begun then
	dutiesAt     instant // no round is begun, nor are the dead looked for, before it: that failed a moment ago
	dutyBackoff  backoff
	cleanedRound int64 // the latest round for which it was looked who has not answered
	due          int64 // the latest round that was waited for: who has not checked in to it is dead
	suspects     map[int]*suspicion
	entryLost    bool // with leases of connections, which others may have by now
	surveyDue    bool // every shard is to be read
	blind        bool // that was tried, and failed: nothing is taken

	unasked bool // a shard did not answer in which owners may have to be suspected

	deadRound   int64           // the round whose dead are in deadCounted
	deadCounted map[string]bool // that were counted

	// While callers wait in vain: when to search for room in other shards, and when to
	// tell the fleet and look whether it is short.
	blocked       bool // somebody waits and nothing can be taken
	blockedSince  instant
	searchAt      instant
	searchBackoff backoff
	shareAt       instant

	keptCheckAt instant // when to look again whether others should know what is kept

	// A surplus goes back only when it has lasted: see surplusStep.
	surplus      bool // there is something to give back
	surplusSince instant

	// The record for operators is written again before the store may remove it.
	memberWritten bool
	memberWriteAt instant // once more
}

// unanswered is a step that was sent and whose outcome is unknown. There is one for
// each shard at most: one that does not answer keeps from no other.
type unanswered struct {
	step
	retryAt instant
	retries backoff
}

// loop is the one goroutine that talks to the store. It sends one request after the
// other, so that this process's entries have one writer. A request takes RequestTimeout
// at most, and storeGrace where the store ignores its context.
func (l *Leases) loop(ctx context.Context) {
	for ctx.Err() == nil {
		if wait := l.next(ctx); wait > 0 {
			pause(ctx, wait, l.wakeup)
		}
	}
}

// next does the most urgent thing, or tells how long there is nothing to do. The order
// is that of what is lost by waiting: the heartbeat, on which the validity of
// everything depends; steps of unknown outcome, since nothing else is written to their
// shards before; the survey, without which nothing can be taken; then what callers wait
// for. Zero says that it has done something, and is to be called again at once.
func (l *Leases) next(ctx context.Context) time.Duration {
	w, now := &l.work, l.clock()
	wait := max(now.until(w.heartbeatAt), 0)
	if wait == 0 {
		l.heartbeat(ctx)
		return 0
	}
	if p := w.first(); p != nil {
		if left := now.until(p.retryAt); left > 0 {
			return min(wait, left)
		}
		if l.send(ctx, p.step); len(w.pending) == 0 {
			l.beatIfLapsed()
		}
		return 0
	}
	if o := &l.state.outage; w.surveyDue || o.recount && now.mono >= o.holdUntil {
		w.surveyDue = true
		l.findDead(ctx, true)
		return l.afterSurvey(wait)
	}
	s, left, blocked := l.nextStep(now)
	if s == nil {
		s = l.keptStep(now)
	}
	if s != nil {
		w.setBlocked(false, now)
		l.send(ctx, *s)
		return 0
	}
	wait = min(wait, left)
	w.setBlocked(blocked != notBlocked, now)
	if blocked == notBlocked {
		return max(wait, time.Millisecond)
	}
	if due := now.until(w.shareAt); due <= 0 {
		l.updateLevel(ctx)
		return 0
	} else if wait = min(wait, due); blocked == noRoom {
		if due := now.until(w.searchAt); due <= 0 {
			l.searchRoom(ctx)
			return 0
		} else {
			wait = min(wait, due)
		}
	}
	return max(wait, time.Millisecond)
}

// first is the step that is to be sent again first.
func (w *work) first() (first *unanswered) {
	for _, p := range w.pending {
		if first == nil || p.retryAt.before(first.retryAt) {
			first = p
		}
	}
	return first
}

// afterSurvey waits a little when the survey failed. A process to which no shard
// answers is blind: it takes nothing, and the Fallback decides.
func (l *Leases) afterSurvey(wait time.Duration) time.Duration {
	w := &l.work
	if w.blind = w.surveyDue; w.blind {
		return min(wait, w.heartbeatBackoff.next(50*time.Millisecond, l.lease()/40))
	}
	l.beatIfLapsed()
	return 0
}

// beatIfLapsed makes the next thing a heartbeat when leases can be taken again: until
// then the Fallback decides, and nothing is known of what others did meanwhile.
func (l *Leases) beatIfLapsed() {
	if now := l.clock(); !l.usable(now) {
		l.work.heartbeatAt = now
	}
}

// setBlocked notes whether somebody waits and nothing can be taken. It starts the times
// for the search for room and for a level when that begins. They are random, so that
// processes that run short together do not all write the level.
func (w *work) setBlocked(blocked bool, now instant) {
	if blocked && !w.blocked {
		// A little later, when a search has had its chance: much of what is
		// missing is in other shards.
		w.blockedSince, w.searchAt, w.searchBackoff = now, now, 0
		w.shareAt = now.add(2*time.Second + mathrand.N(2*time.Second))
	}
	w.blocked = blocked
}

// lease is the budget's, or the configured one until it is known.
func (l *Leases) lease() time.Duration {
	if l.state.terms.lease > 0 {
		return l.state.terms.lease
	}
	return l.cfg.Lease
}

// wake never blocks: one signal pending is as good as many.
func wake(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// pause waits for d or a signal and reports whether ctx is still alive. A nil signal
// never comes.
func pause(ctx context.Context, d time.Duration, signal <-chan struct{}) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-signal:
		return true
	case <-ctx.Done():
		return false
	}
}

// backoff doubles, with jitter, between two bounds. Its zero value is no pause yet;
// each next is at least half of its bound.
type backoff time.Duration

func (b *backoff) next(low, high time.Duration) time.Duration {
	*b = min(max(2*(*b), backoff(low)), backoff(max(low, high)))
	return time.Duration(*b)/2 + mathrand.N(time.Duration(*b)/2+1)
}

// newID is 50 random bits: the ids of one budget's living processes must
// differ, and are short because each entry has one.
func newID() string { return rand.Text()[:10] }

// instant is a moment by both clocks of this process. The monotonic one may stand still
// while the machine is suspended; the wall clock may be set. What must not come too
// early, such as to take somebody for dead, goes by the clock that says less, and what
// must not come too late, such as the end of a validity, by the one that says more.
// Instants of two processes are never compared.
type instant struct{ mono, wall time.Duration }

// since is how long ago then is at least, and at most: by whichever clock says less,
// and more. A negative least says that a clock was set back.
func (i instant) since(then instant) (least, most time.Duration) {
	mono, wall := i.mono-then.mono, i.wall-then.wall
	return min(mono, wall), max(mono, wall)
}

func (i instant) add(d time.Duration) instant { return instant{i.mono + d, i.wall + d} }

// before reports whether both clocks say that i is before then.
func (i instant) before(then instant) bool { return i.mono < then.mono && i.wall < then.wall }

// until is how long it is to then by whichever clock says less.
func (i instant) until(then instant) time.Duration {
	return min(then.mono-i.mono, then.wall-i.wall)
}

// processClock is the real clock.
func processClock() func() instant {
	start := time.Now()
	return func() instant {
		now := time.Now()
		return instant{mono: now.Sub(start), wall: time.Duration(now.UnixNano())}
	}
}
