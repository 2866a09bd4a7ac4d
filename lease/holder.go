package lease

import (
	"context"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
)

// Holder is a user of budgets that has others beside it in its process or fleet: a pool, for
// example. A budget that is full divides what there is among those that want it: whoever has least
// is served first, and whoever has more than its share is asked to give it up.
type Holder struct {
	giveUp func(n int) (closing int)
	wanted func() int // nil: all that it waits for
}

// NewHolder makes a holder. While others wait for what it has above its share, giveUp is called
// with n from time to time: n of its connections should go, those included that it is closing
// already. When others do not need as many any more, it is called with less, or 0. It should close
// those that nobody uses, and for the rest those that come back before it is asked for less, but
// none that are in use. It returns how many of the n it gives up, and need not wait until they are
// closed; what it has said is believed for as long as connections come, and then it is taken to
// need the rest, of which others then give up more. It runs on a goroutine of its own, never two at
// a time for one budget, maybe once more behind the release of the last lease, and must not call
// Close of a budget. A panic in it is logged. reservoir.GiveUp is such a function.
func NewHolder(giveUp func(n int) (closing int)) *Holder { return &Holder{giveUp: giveUp} }

// Wanting has others give up no more for h than it still wants: before they are asked, wanted is
// called, which says how many of h's Acquires under way are for connections that somebody waits
// for. The others go on, for what is free. It runs on a goroutine of its own, must not wait, and
// is set before the first Acquire. reservoir.WantedPermissions is such a function.
func (h *Holder) Wanting(wanted func() int) *Holder {
	h.wanted = wanted
	return h
}

// Wanted is how many of n Acquires under way h still wants: all, if it does not say.
// Implementations of Leases call it before they ask others.
func (h *Holder) Wanted(n int) int {
	if h == nil || h.wanted == nil {
		return n
	}
	says := callback.Go(func() (int, error) { return h.wanted(), nil })
	if !callback.EndsWithin(says.Done, sayWithin) || !says.Returned {
		return n
	}
	return max(0, min(n, says.Value))
}

// sayWithin is how long a holder is waited for that is to say what it wants: who asks has a budget to keep.
const sayWithin = 100 * time.Millisecond

type holderKey struct{}

// WithHolder is a context with which Acquire of a Leases takes for h. All who call it with
// another context are one holder together, which is asked for nothing.
func WithHolder(ctx context.Context, h *Holder) context.Context {
	return context.WithValue(ctx, holderKey{}, h)
}

// HolderOf is the holder for whom an Acquire with ctx takes, nil if there is none.
// Implementations of Leases ask for it.
func HolderOf(ctx context.Context) *Holder {
	h, _ := ctx.Value(holderKey{}).(*Holder)
	return h
}

// Ask asks the holder for n connections, and ends by calling answered with how many it gives up,
// and with an error if giveUp panicked. Implementations of Leases call it, each time on a goroutine of its own.
func (h *Holder) Ask(n int, answered func(closing int, err error)) {
	closing := 0
	callback.Guard("lease: a holder", func() error {
		if h != nil && h.giveUp != nil {
			closing = h.giveUp(n)
		}
		return nil
	}, func(err error) { answered(closing, err) })
}
