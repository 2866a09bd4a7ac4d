package lease

import (
	"context"

	"github.com/flightpool/flightpool/internal/callback"
)

// Holder is a user of budgets that has others beside it in its process: a pool, for example. A
// budget that is full divides what its process has among those that want it: whoever has least
// is served first, and whoever has more than its share is asked for what it does not use.
type Holder struct{ closeIdle func(n int) (closing int) }

// NewHolder makes a holder. While others of the process wait for what it has above its share,
// closeIdle is called with n from time to time: it should close up to n connections that nobody
// uses, and none that are in use. It returns how many it closes, and need not wait until they are
// closed: the rest is taken to be in use. It runs on a goroutine of its own, never two at a time for one
// budget, maybe once more behind the release of the last lease, and must not call Close of a
// budget. A panic in it is logged.
func NewHolder(closeIdle func(n int) (closing int)) *Holder { return &Holder{closeIdle} }

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

// Ask asks the holder for n connections, and ends by calling answered with how many it closes,
// and with an error if closeIdle panicked. Implementations of Leases call it, each time on a goroutine of its own.
func (h *Holder) Ask(n int, answered func(closing int, err error)) {
	closing := 0
	callback.Guard("lease: a holder", func() error {
		if h != nil && h.closeIdle != nil {
			closing = h.closeIdle(n)
		}
		return nil
	}, func(err error) { answered(closing, err) })
}
