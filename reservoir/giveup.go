package reservoir

import "time"

// A promise is what GiveUp has said of connections in use. All fields are guarded by the
// reservoir's mutex.
type promise struct {
	n     int   // how many are still to be closed
	until int64 // what comes back later is lent as ever
	since int64 // when it was made, or a connection was last closed

	ofOpen bool // others wait for what Open takes, and not for permissions of Admit
}

const (
	promiseLasts    = 5 * time.Minute // after the latest GiveUp: longer than its word is believed
	promiseIsLikely = 5 * time.Second // without a connection that comes back
)

// GiveUp has n connections closed for others who wait for permissions of Admit, those
// included that are being closed already, but for those whose Close takes longer than CloseTimeout: idle ones now, below MinIdle too, and for the rest
// those in use that come back within five minutes, in place of lending them again. Nobody
// loses a connection under a loan. It does not wait, and returns how many of the n it gives
// up; those in use count unless none has come back for five seconds. A later call takes the
// place of this one: after GiveUp(0) what comes back is lent as ever.
func (r *Reservoir[C]) GiveUp(n int) (closing int) { return r.giveUp(n, false) }

// GiveUpOpened is GiveUp for others who wait for what Open takes, of which Admit knows nothing: an open that fails
// gives none of it up.
func (r *Reservoir[C]) GiveUpOpened(n int) (closing int) { return r.giveUp(n, true) }

func (r *Reservoir[C]) giveUp(n int, ofOpen bool) (closing int) {
	lacking, most := r.promise(n, ofOpen)
	r.retireIdle(OverCapacity, func(*entry[C], int64) bool { return r.mu.promise.n > 0 })
	return max(0, n-r.notPromised(lacking, most))
}

// promise is the beginning of giveUp: every connection that is closed from now on counts. It
// returns how many of n are not being closed yet, and how many of those in use may be
// promised at most.
func (r *Reservoir[C]) promise(n int, ofOpen bool) (lacking, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, now := &r.mu.promise, r.clock.read()
	r.endPromise(now)
	lacking = max(0, n-(r.mu.count[closing]-r.mu.stalled))
	most = lacking
	switch {
	case p.n == 0:
		p.since = now
	case !p.isLikely(now) && n < len(r.mu.all): // no more where nothing comes back: n is what others ask for who reckon with none
		most = p.n
	}
	p.n, p.until, p.ofOpen = lacking, addSaturating(now, int64(promiseLasts)), ofOpen
	return lacking, most
}

// notPromised is the end of giveUp: how many of those that were lacking are neither being
// closed nor likely to be soon.
func (r *Reservoir[C]) notPromised(lacking, most int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.mu.promise
	none := min(lacking, p.n) // of these none has been closed
	p.n = min(p.n, most, r.inUse())
	if p.isLikely(r.clock.now()) {
		none -= min(none, p.n)
	}
	return none
}

// isLikely says whether what was promised is expected to come back.
func (p *promise) isLikely(now int64) bool {
	return now < addSaturating(p.since, int64(promiseIsLikely))
}

// isPromised says whether a connection that comes back is closed for others. The caller
// holds mu.
func (r *Reservoir[C]) isPromised(e *entry[C], now int64) bool {
	return r.mu.promise.n > 0 && e.state != opening && now < r.mu.promise.until
}

// endPromise ends a promise whose time is over. The caller holds mu.
func (r *Reservoir[C]) endPromise(now int64) {
	if r.mu.promise.n > 0 && now >= r.mu.promise.until {
		r.mu.promise.n = 0
	}
}

// countPermission counts an open that gives its permission back: others get it. The caller holds mu.
func (r *Reservoir[C]) countPermission() {
	if !r.mu.promise.ofOpen {
		r.countPromised()
	}
}

// countPromised counts a connection that is about to be closed, for whatever reason. The caller holds mu.
func (r *Reservoir[C]) countPromised() {
	if p := &r.mu.promise; p.n > 0 {
		p.n--
		p.since = r.clock.now()
	}
}
