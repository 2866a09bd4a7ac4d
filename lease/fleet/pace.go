package fleet

import (
	"context"
	"math/rand/v2"
	"time"
)

// pace is the rate budget: two counters in one item that only rise.
//
//	granted  permits reserved so far; each has its number
//	earned   permits that time has paid for so far
//
// Both count in thousandths of a permit. Permit n may be used when n <= earned + depth. Reserving adds to granted.
// Time is paid in by ticks: whoever sees that earned has stood at e since a
// moment of its own clock sets it to e + rate·elapsed, on condition that it is
// still e. No clock is compared with another, so no skew matters.
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
type pace struct {
	store *meter
	key   string
	rate  float64 // thousandths per second
	tick  time.Duration
	depth int64
	ahead int64 // how much may be reserved before it is usable
	shy   time.Duration

	rules limiterRules

	// Used by one goroutine.
	earned, granted int64     // as last seen
	base            time.Time // earned stood at its value at the latest then
	debt            int64     // granted less earned, at least, from base on
	asked           time.Time // when the latest answered request was sent
	ticker          bool      // this process made the last tick that it knows of
	own             int64     // granted after this process's last reservation
}

// permit is the unit of both counters.
const permit = 1000

// limiterRules break a rule on purpose, or set this process's clock, in tests
// that show that each rule matters. The zero value is what users have.
type limiterRules struct {
	unboundedCredit bool          // refill for all the time that seems to have passed
	useLatePermits  bool          // use permits however old
	skew            time.Duration // of this process's clock
}

func newPace(store *meter, cfg *LimiterConfig, rules limiterRules) *pace {
	return &pace{
		store: store, key: rateKey(cfg.Budget),
		rate: cfg.Rate * permit, tick: cfg.Tick,
		depth: int64(permit * (float64(cfg.Burst) - 6*cfg.Rate*cfg.Tick.Seconds())),
		ahead: int64(permit * cfg.Rate * cfg.MaxWait.Seconds()),
		shy:   3*cfg.Tick + rand.N(cfg.Tick),
		rules: rules,
	}
}

// now is this process's clock. Only differences of it are used.
func (p *pace) now() time.Time { return time.Now().Add(p.rules.skew) }

// reach is the longest time that one tick may pay for from base on.
func (p *pace) reach() time.Duration { return max(p.tick, min(2*p.tick, p.cost(p.debt))) }

// worth is what d pays for, reach at most.
func (p *pace) worth(d time.Duration) int64 {
	if !p.rules.unboundedCredit {
		d = min(d, p.reach())
	}
	return int64(p.rate * max(d, 0).Seconds())
}

func (p *pace) cost(amount int64) time.Duration { return seconds(float64(amount) / p.rate) }

func (p *pace) usable(now time.Time) int64 { return p.earned + p.worth(now.Sub(p.base)) + p.depth }

func (p *pace) ready(number int64, now time.Time) bool { return number <= p.usable(now) }

// leisure is how long a reservation may be put off, since what is reserved now
// has to wait for more than that.
func (p *pace) leisure() time.Duration {
	now := p.now()
	wait := p.cost(p.granted-p.earned-p.depth) - now.Sub(p.base)
	if p.ticker {
		wait = min(wait, p.tickDue().Sub(now))
	}
	return min(wait/2, p.tick)
}

// lateness is how long after its time a permit may be used: a busy machine runs
// nobody to the moment.
func (p *pace) lateness() time.Duration { return 2 * p.tick }

// punctual reports whether a permit is not too late.
func (p *pace) punctual(number int64, now time.Time) bool {
	return p.fresh(now) && number > p.usable(now)-int64(p.rate*p.lateness().Seconds())
}

// fresh reports whether the knowledge of the table is a tick old at most.
func (p *pace) fresh(now time.Time) bool { return now.Sub(p.asked) <= p.tick }

// refilling reports whether it is this process's part to see that the budget
// gets full again: it ticks, or nobody has reserved anything since it did.
func (p *pace) refilling() bool {
	return p.earned < p.granted && (p.ticker || p.own == p.granted)
}

// refillDue is when to refresh for the sake of refilling alone.
func (p *pace) refillDue() time.Time {
	if p.ticker {
		return p.tickDue()
	}
	return p.base.Add(p.shy)
}

// tickDue leaves time for being late, which would be lost.
func (p *pace) tickDue() time.Time { return p.base.Add(p.reach() * 5 / 8) }

// due is when to look at a permit again that is not ready: at its time if that
// is within what may be read ahead; else when this process has to tick, or
// when the table should show that another has, never sooner than a quarter
// tick after the last look.
func (p *pace) due(number int64) time.Time {
	at := p.base.Add(p.cost(number - p.depth - p.earned + 1))
	switch {
	case !at.After(p.base.Add(p.reach())):
		return at
	case p.ticker:
		return p.tickDue()
	case !p.asked.Before(at): // it stands still: somebody has to tick
		at = p.base.Add(p.shy)
	}
	if soonest := p.asked.Add(p.tick / 4); at.Before(soonest) {
		return soonest
	}
	return at
}

// refresh ticks when that is due, and reads otherwise.
func (p *pace) refresh(ctx context.Context) error {
	mine := p.ticker && !p.now().Before(p.tickDue())
	stuck := !p.ticker && p.asked.Sub(p.base) >= p.shy // seen to stand still
	if p.earned < p.granted && (mine || stuck) {
		return p.advance(ctx)
	}
	return p.look(ctx)
}

// look reads the budget, and makes it if it is missing.
func (p *pace) look(ctx context.Context) error {
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
	p.learn(r, sent)
	return nil
}

// most is what may be granted for a reservation to be made.
func (p *pace) most(permits int) int64 { return p.earned + p.depth + p.ahead - int64(permits)*permit }

// full reports whether a reservation is known to be refused.
func (p *pace) full(permits int, now time.Time) bool {
	return now.Sub(p.asked) <= 2*p.tick && p.granted > p.most(permits)
}

// reserve takes the next permits and returns the last one's number. It
// reports false when too many are reserved already.
func (p *pace) reserve(ctx context.Context, permits int) (last int64, ok bool, err error) {
	sent, k := p.now(), int64(permits)*permit
	answer, err := p.store.write(ctx, Change{
		Key: p.key, AtMost: map[string]int64{"granted": p.most(permits)}, Add: map[string]int64{"granted": k},
	})
	switch {
	case err != nil:
		return 0, false, err // they are lost if it was done after all
	case answer.Record == nil:
		return 0, false, p.look(ctx)
	}
	p.learn(answer.Record, sent)
	if answer.Done {
		p.own = p.granted
	}
	return p.granted, answer.Done, nil
}

// advance makes a tick. It never pays for more than is reserved: a budget that
// nobody uses is full.
func (p *pace) advance(ctx context.Context) error {
	sent, owed := p.now(), p.granted
	credit := min(p.worth(sent.Sub(p.base)), p.granted-p.earned)
	base := p.base.Add(p.cost(credit))
	if p.rules.unboundedCredit || sent.Sub(p.base) > p.reach() || credit == p.granted-p.earned {
		base = sent
	}
	p.ticker = false
	answer, err := p.store.write(ctx, Change{
		Key: p.key, Equal: map[string]int64{"earned": p.earned}, Set: map[string]int64{"earned": p.earned + credit},
	})
	if err != nil {
		return err
	}
	p.learn(answer.Record, sent)
	if answer.Done {
		// What others reserved since sent was not owed from base on.
		p.ticker, p.base, p.debt = true, base, owed-p.earned
	}
	return nil
}

// drain takes away what is left of the burst.
func (p *pace) drain(ctx context.Context) error {
	sent := p.now()
	empty := p.usable(sent)
	answer, err := p.store.write(ctx, Change{
		Key: p.key, AtMost: map[string]int64{"granted": empty - 1}, Set: map[string]int64{"granted": empty},
	})
	if err == nil {
		p.learn(answer.Record, sent)
	}
	return err
}

func (p *pace) learn(r *Record, sent time.Time) {
	if r == nil { // it was removed: the next look makes it
		r = &Record{}
	}
	earned, granted := r.Numbers["earned"], r.Numbers["granted"]
	if earned != p.earned || p.base.IsZero() {
		p.earned, p.base, p.debt, p.ticker = earned, p.now(), granted-earned, false
	}
	p.granted, p.asked = granted, sent
}
