package reservoir

import (
	"errors"
	"math"
	"time"
)

// infancy is the age up to which a connection that ends by itself counts as a
// failed open. Without it, a server that takes connections and drops them would
// be asked for new ones without a pause.
const infancy = time.Second

var errLost = errors.New("reservoir: the connection has ended")

// lose takes note that a connection has ended by itself.
func (r *Reservoir[C]) lose(e *entry[C], cause error) {
	if cause == nil {
		cause = errLost
	}
	var fx effects[C]
	r.mu.Lock()
	if e.lost == nil { // the first reason counts
		e.lost = cause
		e.calm = math.MinInt64 // its release takes the long way
		if e.state == idle {
			r.stillborn(e, r.clock.read())
			r.settle(e, &fx)
			r.pump(&fx)
		}
	}
	r.unlock(&fx)
}

// stillborn counts a lost connection as a failed open if it was that young. The
// caller holds mu.
func (r *Reservoir[C]) stillborn(e *entry[C], now int64) {
	if now-e.born >= int64(infancy) || now < r.mu.retryAt {
		return
	}
	if now >= r.mu.trusted {
		r.mu.doubt = 0
	}
	r.mu.lastOpen = e.lost
	r.failedAgain(r.mu.doubt, now)
}
