package fleet

import (
	"context"
	"math"
	"math/rand/v2"
	"time"
)

// sharedBucket is the rate budget: two counters in one item that only rise.
//
//	granted  permits reserved so far; each has its number
//	earned   permits that time has paid for so far
//
// Both count in thousandths of a permit (permitUnits). Permit n may be used when n <=
// earned + depth. Reserving adds to granted. Time is paid in by ticks: whoever sees
// that earned has stood at e since a moment of its own clock sets it to e +
// rate·elapsed, on condition that it is still e. No clock is compared with another, so
// no skew matters.
//
// A tick's worth at most may be paid blindly: the budget may have been full for
// part of that time, and a full one earns nothing. Twice that may be paid by
// who saw, when the time began, that as much was owed: granted never falls, so
// it was owed all the while.
//
// INVARIANT: earned <= granted, and the whiles that are paid for do not
// overlap. So earned is never more than a tick ahead of a bucket that refills
// all the time. A permit that is used is at most two ticks' worth behind it
// for what was not paid in yet, one for knowledge that is a tick old, and two
// for its own delay: depth is Burst less six ticks' worth.
type sharedBucket struct {
	store         *meter
	key           string
	rate          float64 // thousandths per second
	tick          time.Duration
	depth         int64
	maxAhead      int64 // how much may be reserved before it is usable
	takeoverDelay time.Duration

	testFaults testFaults

	// Used by one goroutine.
	earned, granted int64     // as last seen
	earnedSince     time.Time // earned stood at its value at the latest then
	outstanding     int64     // granted less earned, at least, from earnedSince on
	lastAnswered    time.Time // when the latest answered request was sent
	isRefiller      bool      // this process made the last tick that it knows of
	lastReserved    int64     // granted after this process's last reservation
}

// permitUnits is the unit of both counters.
const permitUnits = 1000

// testFaults break a rule on purpose, or set this process's clock, in tests
// that show that each rule matters. The zero value is what users have.
type testFaults struct {
	unboundedCredit bool          // refill for all the time that seems to have passed
	useLatePermits  bool          // use permits however old
	skew            time.Duration // of this process's clock
}

// newSharedBucket makes a bucket. Its tick is longer than that of cfg where that would pay
// for less than two units: what a tick cannot pay for is lost.
func newSharedBucket(store *meter, cfg *LimiterConfig, rules testFaults) *sharedBucket {
	rate := cfg.Rate * permitUnits
	tick := max(cfg.Tick, seconds(2/rate))
	return &sharedBucket{
		store: store, key: rateKey(cfg.Budget),
		rate: rate, tick: tick,
		depth:         int64(permitUnits * (float64(cfg.Burst) - 6*cfg.Rate*tick.Seconds())),
		maxAhead:      int64(min(permitUnits*cfg.Rate*cfg.MaxWait.Seconds(), 1<<60)),
		takeoverDelay: 3*tick + rand.N(tick),
		testFaults:    rules,
	}
}

// now is this process's clock. Only differences of it are used.
func (p *sharedBucket) now() time.Time { return time.Now().Add(p.testFaults.skew) }

// maxTickTime is the longest time that one tick may pay for, from earnedSince on.
func (p *sharedBucket) maxTickTime() time.Duration {
	return max(p.tick, min(2*p.tick, p.timeFor(p.outstanding)))
}

// creditFor is what d pays for, maxTickTime at most.
func (p *sharedBucket) creditFor(d time.Duration) int64 {
	if !p.testFaults.unboundedCredit {
		d = min(d, p.maxTickTime())
	}
	return int64(p.rate * max(d, 0).Seconds())
}

// timeFor is how long it takes until so much is paid for.
func (p *sharedBucket) timeFor(amount int64) time.Duration { return seconds(float64(amount) / p.rate) }

// usable is the highest number of a permit that may be used at now. It is too low
// rather than too high: earned may have risen since, and earnedSince is not earlier
// than it did.
func (p *sharedBucket) usable(now time.Time) int64 {
	return p.earned + p.creditFor(now.Sub(p.earnedSince)) + p.depth
}

func (p *sharedBucket) ready(number int64, now time.Time) bool { return number <= p.usable(now) }

// batchDelay is how long a reservation may be put off, since what is reserved now
// has to wait for more than that.
func (p *sharedBucket) batchDelay() time.Duration {
	now := p.now()
	wait := p.timeFor(p.granted-p.earned-p.depth) - now.Sub(p.earnedSince)
	if p.isRefiller {
		wait = min(wait, p.tickDue().Sub(now))
	}
	return min(wait/2, p.tick)
}

// useWindow is how long after its time a permit may be used: a busy machine runs
// nobody to the moment.
func (p *sharedBucket) useWindow() time.Duration { return 2 * p.tick }

// inUseWindow reports whether a permit is not too late.
func (p *sharedBucket) inUseWindow(number int64, now time.Time) bool {
	return p.isFresh(now) && number > p.usable(now)-int64(p.rate*p.useWindow().Seconds())
}

// isFresh reports whether the knowledge of the table is a tick old at most.
func (p *sharedBucket) isFresh(now time.Time) bool { return now.Sub(p.lastAnswered) <= p.tick }

// shouldRefill reports whether it is this process's part to see that the budget
// gets full again: it ticks, or nobody has reserved anything since it did.
func (p *sharedBucket) shouldRefill() bool {
	return p.earned < p.granted && (p.isRefiller || p.lastReserved == p.granted)
}

// refillDue is when to refresh for the sake of refilling alone.
func (p *sharedBucket) refillDue() time.Time {
	if p.isRefiller {
		return p.tickDue()
	}
	return p.earnedSince.Add(p.takeoverDelay)
}

// tickDue leaves time for being late, which would be lost. A tick that comes after
// maxTickTime pays for no more than that.
func (p *sharedBucket) tickDue() time.Time { return p.earnedSince.Add(p.maxTickTime() * 5 / 8) }

// nextLookAt is when to look at a permit again that is not ready: at its time if that
// is within what may be read ahead; else when this process has to tick, or
// when the table should show that another has, never sooner than a quarter
// tick after the last look.
func (p *sharedBucket) nextLookAt(number int64) time.Time {
	at := p.earnedSince.Add(p.timeFor(number - p.depth - p.earned + 1))
	switch {
	case !at.After(p.earnedSince.Add(p.maxTickTime())):
		return at
	case p.isRefiller:
		return p.tickDue()
	case !p.lastAnswered.Before(at): // it stands still: somebody has to tick
		at = p.earnedSince.Add(p.takeoverDelay)
	}
	if soonest := p.lastAnswered.Add(p.tick / 4); at.Before(soonest) {
		return soonest
	}
	return at
}

// refresh ticks when that is due, and reads otherwise. One process ticks as long as it
// lives; another takes over when it has seen earned stand still for takeoverDelay,
// which differs from process to process.
func (p *sharedBucket) refresh(ctx context.Context) error {
	mine := p.isRefiller && !p.now().Before(p.tickDue())
	if p.earned < p.granted && (mine || p.isStill()) {
		return p.writeTick(ctx)
	}
	return p.read(ctx)
}

// isStill reports whether another was to tick, and has not for so long that this
// process takes over.
func (p *sharedBucket) isStill() bool {
	return !p.isRefiller && p.lastAnswered.Sub(p.earnedSince) >= p.takeoverDelay
}

// read reads the budget, and makes it if it is missing. sent is when the request was
// made: what the answer shows is not older than that.
func (p *sharedBucket) read(ctx context.Context) error {
	sent := p.now()
	snapshot, err := p.store.read(ctx, p.key)
	if err != nil {
		return err
	}
	r := snapshot.Records[p.key]
	if r == nil {
		sent = p.now()
		answer, err := p.store.write(ctx, Change{Key: p.key, Absent: true, Set: map[string]int64{"earned": 0, "granted": 0}})
		if err != nil {
			return err
		}
		r = answer.Record
	}
	p.noteRecord(r, sent)
	return nil
}

// maxGranted is what may be granted for a reservation to be made. There is room for a
// batch where there is for one permit: else who needs many got none beside many who need one.
func (p *sharedBucket) maxGranted() int64 { return p.earned + p.depth + p.maxAhead - permitUnits }

// isFull reports whether a reservation was to be refused when the record was last seen.
func (p *sharedBucket) isFull() bool { return p.granted > p.maxGranted() }

// knownFull reports whether a reservation is known to be refused. It saves a write that
// would be denied.
func (p *sharedBucket) knownFull(now time.Time) bool {
	return now.Sub(p.lastAnswered) <= 2*p.tick && p.isFull()
}

// maxReserved is how many permits may be reserved at once: as many as time pays for
// within MaxWait. More would wait for longer than others may be ahead of them.
func (p *sharedBucket) maxReserved() int {
	return int(min(max(p.maxAhead/permitUnits, 1), math.MaxInt32))
}

// reserve takes the next permits and returns the last one's number. It reports false
// when too many are reserved already. The record is made first if there is none, and
// nothing is reserved then.
func (p *sharedBucket) reserve(ctx context.Context, permits int) (last int64, ok bool, err error) {
	sent, k := p.now(), int64(permits)*permitUnits
	answer, err := p.store.write(ctx, Change{
		Key: p.key, AtMost: map[string]int64{"granted": p.maxGranted()}, Add: map[string]int64{"granted": k},
	})
	switch {
	case err != nil:
		return 0, false, err // they are lost if it was done after all
	case answer.Record == nil:
		return 0, false, p.read(ctx)
	}
	p.noteRecord(answer.Record, sent)
	if answer.Done {
		p.lastReserved = p.granted
	}
	return p.granted, answer.Done, nil
}

// writeTick makes a tick. It never pays for more than is reserved: a budget that nobody
// uses is full. base is from when the next tick counts: what was paid for moves it on,
// and time that cannot be paid for any more is forgotten. After a tick whose answer is
// lost, this process is one of those who may take over.
func (p *sharedBucket) writeTick(ctx context.Context) error {
	sent, owed := p.now(), p.granted
	credit := min(p.creditFor(sent.Sub(p.earnedSince)), p.granted-p.earned)
	base := p.earnedSince.Add(p.timeFor(credit))
	if p.testFaults.unboundedCredit || sent.Sub(p.earnedSince) > p.maxTickTime() || credit == p.granted-p.earned {
		base = sent
	}
	p.isRefiller = false
	answer, err := p.store.write(ctx, Change{
		Key: p.key, Equal: map[string]int64{"earned": p.earned}, Set: map[string]int64{"earned": p.earned + credit},
	})
	if err != nil {
		return err
	}
	p.noteRecord(answer.Record, sent)
	if answer.Done {
		// What others reserved since sent was not owed from earnedSince on.
		p.isRefiller, p.earnedSince, p.outstanding = true, base, owed-p.earned
	}
	return nil
}

// drain takes away what is left of the burst. Nobody's reservation is taken back; those
// that follow are for later.
func (p *sharedBucket) drain(ctx context.Context) error {
	sent := p.now()
	empty := p.usable(sent)
	answer, err := p.store.write(ctx, Change{
		Key: p.key, AtMost: map[string]int64{"granted": empty - 1}, Set: map[string]int64{"granted": empty},
	})
	if err == nil {
		p.noteRecord(answer.Record, sent)
	}
	return err
}

// noteRecord takes what a record shows, as the answer to a request sent at sent. A new
// value of earned counts from the receipt of the answer, which is later than it was
// written: less is paid for then, not more.
func (p *sharedBucket) noteRecord(r *Record, sent time.Time) {
	if r == nil { // it was removed: the next look makes it
		r = &Record{}
	}
	earned, granted := r.Numbers["earned"], r.Numbers["granted"]
	if earned != p.earned || p.earnedSince.IsZero() {
		p.earned, p.earnedSince, p.outstanding, p.isRefiller = earned, p.now(), granted-earned, false
	}
	p.granted, p.lastAnswered = granted, sent
}
