package dsql

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// The pauses after refusals: the first, and the longest of a streak
// of the same. They double in between, and up to half of one is left to chance, so that a fleet
// does not come back as one.
var pauses = map[verdict]struct{ first, longest time.Duration }{
	tooFast:  {100 * time.Millisecond, 5 * time.Second},
	tooMany:  {time.Second, 30 * time.Second},
	hopeless: {time.Second, 5 * time.Second},
}

// A brake holds all opens of a Cluster while the cluster refuses them.
type brake struct {
	mu    sync.Mutex
	until time.Time
	// streaks are the refusals of each kind since the last open that succeeded.
	streaks [hopeless + 1]int
	// INVARIANT: hopeless is the error that the latest open failed with, if
	// there is no use in more, and refused is it if the cluster refused the
	// open, for its limits or for good; both are nil after one that succeeded.
	hopeless, refused error
	// counts counts failed opens by verdict.
	counts   [hopeless + 1]uint64
	watchers map[*watcher]struct{}
	// turn holds the one attempt that finds out whether the cluster still
	// refuses. Made by queue.
	turn chan struct{}
}

// A watcher is told when opens become hopeless.
type watcher struct{ tell func(error) }

// wait returns when opens may go on.
func (b *brake) wait(ctx context.Context) error {
	for {
		b.mu.Lock()
		left := time.Until(b.until)
		b.mu.Unlock()
		if left <= 0 {
			return ctx.Err()
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// enter waits for the end of the pause and, while the latest open was refused,
// for the one turn to find out whether the next is too: a process that was
// refused asks with one open, not with all. leave ends the turn. waited says that
// it took a while.
func (b *brake) enter(ctx context.Context) (leave func(), waited bool, err error) {
	turn := b.queue()
	for {
		waited = waited || b.left() > 0
		if err := b.wait(ctx); err != nil {
			return nil, waited, err
		}
		if b.calm() {
			return func() {}, waited, nil
		}
		select {
		case turn <- struct{}{}:
		default:
			waited = true
			select {
			case turn <- struct{}{}:
			case <-ctx.Done():
				return nil, waited, ctx.Err()
			}
		}
		if !b.calm() && b.left() == 0 {
			return func() { <-turn }, waited, nil
		}
		<-turn // the one before has found out
	}
}

func (b *brake) queue() chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.turn == nil {
		b.turn = make(chan struct{}, 1)
	}
	return b.turn
}

// calm says that the cluster does not refuse opens, as far as is known.
func (b *brake) calm() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.streaks == [hopeless + 1]int{}
}

// failed learns what became of an open. Refusals that come together, in one
// pause, are one.
func (b *brake) failed(v verdict, err error) {
	b.mu.Lock()
	var told []*watcher
	b.hopeless, b.refused = nil, nil
	b.counts[v]++
	if v != passing {
		b.refused = err
	}
	if v == hopeless {
		b.hopeless = err
		for w := range b.watchers {
			told = append(told, w)
		}
	}
	if limits, refused := pauses[v]; refused && !time.Now().Before(b.until) {
		pause := limits.longest
		if n := b.streaks[v]; n < 10 {
			pause = min(pause, limits.first<<n)
		}
		b.streaks[v]++
		b.until = time.Now().Add(pause - rand.N(pause/2+1))
	}
	b.mu.Unlock()
	for _, w := range told {
		w.tell(err)
	}
}

// succeeded ends the streaks. A pause that is under way stays: others may have
// been refused after this one was admitted.
func (b *brake) succeeded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hopeless, b.refused = nil, nil
	if !time.Now().Before(b.until) {
		clear(b.streaks[:])
	}
}

// due says that it is time to find out whether opens still fail, and that nobody
// does. Where connections are kept ready the reservoir does by itself, else it
// opens for callers alone.
func (b *brake) due() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !time.Now().Before(b.until) && len(b.turn) == 0
}

// refusal is why the cluster refused the latest open, or nil.
func (b *brake) refusal() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused
}

// failures counts the failed opens so far, by verdict.
func (b *brake) failures() [hopeless + 1]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts
}

// left is how long opens pause from now.
func (b *brake) left() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, time.Until(b.until))
}

// watch calls tell when opens become hopeless, at once if they are, until stop
// is called.
func (b *brake) watch(tell func(error)) (stop func()) {
	w := &watcher{tell}
	b.mu.Lock()
	err := b.hopeless
	if b.watchers == nil {
		b.watchers = map[*watcher]struct{}{}
	}
	b.watchers[w] = struct{}{}
	b.mu.Unlock()
	if err != nil {
		tell(err)
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watchers, w)
	}
}
