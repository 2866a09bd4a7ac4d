package fleet

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/internal/fifo"
)

// reserveLoop reserves permits while somebody waits, one batch after the other, and
// hands each one out when its time has come. With nobody waiting it goes on refilling
// the budget if that is what this process last did. While requests fail it only reads,
// with pauses of up to two seconds; callers are answered by the Fallback meanwhile. It
// is the only goroutine that uses the bucket.
func (l *Limiter) reserveLoop(ctx context.Context) {
	var backoff backoff
	for ctx.Err() == nil {
		l.drainIfRefused(ctx)
		n, failing, degraded := l.load()
		var err error
		switch {
		// Nobody waits here: the Fallback serves the callers. A read finds out when the
		// store is back.
		case degraded:
			if !pause(ctx, backoff.next(100*time.Millisecond, 2*time.Second), nil) {
				return
			}
			err = l.bucket.read(ctx)
		// Those who come while a batch is handed out are in the next, unless a permit of
		// this one is left.
		case n > 0:
			if n = l.gatherCallers(ctx, n); n == 0 {
				continue // all have left, and nothing was asked
			}
			err = l.reserveBatch(ctx, min(n+min(n, l.expectedReturns), l.cfg.Batch, l.bucket.maxReserved()))
		// Nobody waits, but the budget is not full, and it is this process that ticks.
		case l.bucket.shouldRefill():
			pause(ctx, l.bucket.refillDue().Sub(l.bucket.now()), l.wakeup)
			err = l.bucket.refresh(ctx)
		// Nor does anybody wait for whom the store is asked: a read tells how long it fails.
		case failing:
			err = l.bucket.read(ctx)
		default:
			pause(ctx, time.Hour, l.wakeup)
			continue
		}
		if ctx.Err() != nil {
			return
		}
		l.noteResult(err, isPermanent(err))
		if err == nil {
			backoff = 0
		} else if !degraded {
			pause(ctx, backoff.next(20*time.Millisecond, time.Second), nil)
		}
	}
}

func (l *Limiter) load() (waiting int, failing, degraded bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting.Len(), !l.failingSince.IsZero(), l.stats.Degraded
}

// gatherCallers lets more callers come before a reservation whose time is further away
// than that. It costs them nothing, and a batch is one write.
func (l *Limiter) gatherCallers(ctx context.Context, waiting int) int {
	if waiting < l.cfg.Batch {
		pause(ctx, l.bucket.batchDelay(), nil)
		waiting, _, _ = l.load()
	}
	return waiting
}

// reserveBatch reserves k permits and hands them out. Permits whose reservation had no
// answer are lost to the fleet, which errs on the safe side. What comes while the first
// is handed out until the last is tells how many callers to expect again.
func (l *Limiter) reserveBatch(ctx context.Context, k int) error {
	sent := l.bucket.now()
	if l.bucket.knownFull(sent) {
		return l.waitForRoom(ctx)
	}
	last, ok, err := l.bucket.reserve(ctx, k)
	switch {
	case err != nil:
		return err
	case !ok:
		return l.waitForRoom(ctx)
	}
	came := uint64(0)
	// One after the other: each is held back until its own time.
	for i := range k {
		if err := l.usePermit(ctx, last-int64(k-1-i)*permitUnits, sent); err != nil {
			return err // the rest of the batch is lost
		}
		if i == 0 {
			came = l.arrivals()
		}
	}
	l.expectedReturns = int(l.arrivals() - came)
	return nil
}

// waitForRoom waits until more permits may be reserved. As many are reserved
// already as MaxWait allows: whoever asks again within two thirds of that comes
// before they run out. So a fleet of any size asks seldom, by a read each.
//
// INVARIANT: whoever waits for room and sees that nobody pays time in, does. Those who
// have reserved what is in the way may have died, or have given their permits up.
func (l *Limiter) waitForRoom(ctx context.Context) error {
	b := l.bucket
	if third := l.cfg.MaxWait / 3; !b.isRefiller {
		if !pause(ctx, third+rand.N(third+1), nil) {
			return ctx.Err()
		}
		if err := b.read(ctx); err != nil {
			return err
		}
	}
	for b.isFull() && (b.isRefiller || b.isStill()) {
		if !pause(ctx, b.refillDue().Sub(b.now()), nil) {
			return ctx.Err()
		}
		if err := b.refresh(ctx); err != nil {
			return err
		}
	}
	return nil
}

// usePermit waits for a permit's time and gives it to whoever waits first, or to who
// comes while it may be used. It is lost if nobody comes within the time of its use.
func (l *Limiter) usePermit(ctx context.Context, number int64, reserved time.Time) error {
	for {
		inTime, err := l.awaitPermit(ctx, number, reserved)
		if err != nil {
			return err
		}
		if l.deliver(inTime) || !inTime {
			return nil
		}
		pause(ctx, l.cfg.Tick/4, l.wakeup)
	}
}

// awaitPermit waits for a permit's time and reports whether it was not missed.
//
// INVARIANT: a permit is used within two ticks of its time, or not at all. Later
// ones would add up to more than the budget.
func (l *Limiter) awaitPermit(ctx context.Context, number int64, reserved time.Time) (inTime bool, err error) {
	for ctx.Err() == nil {
		now := l.bucket.now()
		if l.bucket.ready(number, now) {
			// Whoever has reserved it a moment ago cannot be late. Otherwise that is
			// judged by knowledge that is a tick old at most: older knowledge shows too
			// early a time.
			late := now.Sub(reserved) > l.bucket.useWindow() && !l.bucket.inUseWindow(number, now)
			if late && !l.bucket.isFresh(now) {
				if err := l.bucket.refresh(ctx); err != nil {
					return false, err
				}
				continue
			}
			return !late || l.bucket.testFaults.useLatePermits, nil
		}
		// Not yet: it is looked at again at its time, or when the record has to be read
		// or ticked for it.
		if due := l.bucket.nextLookAt(number); due.After(now) {
			pause(ctx, due.Sub(now), nil)
			continue
		}
		if err := l.bucket.refresh(ctx); err != nil {
			return false, err
		}
	}
	return false, ctx.Err()
}

// deliver gives a permit to whoever waits first, if it is good and somebody does. A
// permit that is late is counted as dropped.
func (l *Limiter) deliver(inTime bool) (handed bool) {
	l.mu.Lock()
	var next *fifo.Ticket
	if inTime {
		next = l.waiting.Next()
	} else {
		l.stats.Dropped++
	}
	l.mu.Unlock()
	if next != nil {
		next.Answer(nil)
	}
	return next != nil
}

func (l *Limiter) arrivals() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.arrived
}

// drainIfRefused tells the store of a refusal, once for all those since the last time,
// and again if that failed.
func (l *Limiter) drainIfRefused(ctx context.Context) {
	l.mu.Lock()
	refused := l.refused
	l.refused = false
	l.mu.Unlock()
	if refused && l.bucket.drain(ctx) != nil {
		l.mu.Lock()
		l.refused = true
		l.mu.Unlock()
	}
}

// noteResult keeps account of failures. The fallback takes over when they have lasted
// for longer than the configured patience, or when waiting is useless. A nil err
// ends that at once. Those who wait when it takes over are told to ask it.
func (l *Limiter) noteResult(err error, useless bool) {
	l.mu.Lock()
	before := l.stats.Degraded
	l.stats.Cause = err
	var waiting []*fifo.Ticket
	switch {
	case err == nil:
		l.failingSince, l.stats.Degraded = time.Time{}, false
		if before {
			close(l.back)
		}
	case l.failingSince.IsZero():
		l.failingSince = time.Now()
	}
	// From here on callers are not queued: see wait.
	if err != nil && (useless || time.Since(l.failingSince) >= l.cfg.Patience) {
		if l.stats.Degraded = true; !before {
			l.back = make(chan struct{})
		}
		waiting = l.waiting.All()
	}
	after := l.stats.Degraded
	l.mu.Unlock()

	switch {
	case after && !before:
		l.cfg.Logger.Warn("the rate budget cannot be reached: the fallback decides",
			"budget", l.cfg.Budget, "fallback", l.cfg.Fallback.String(), "cause", err)
	case before && !after:
		l.cfg.Logger.Info("the rate budget is reached again", "budget", l.cfg.Budget)
	}
	for _, ticket := range waiting {
		ticket.Answer(errUseFallback)
	}
}

var _ lease.Limiter = (*Limiter)(nil)
