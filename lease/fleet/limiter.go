package fleet

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/internal/fifo"
)

// Limiter is a fleet's budget of opens in a Store. It is a lease.Limiter. One goroutine
// makes its requests and gives permits to callers in the order in which they came. mu
// guards what callers and that goroutine share; no request is made under it.
type Limiter struct {
	cfg     LimiterConfig
	bucket  *sharedBucket
	local   lease.Limiter // what Share grants while the store cannot be reached
	stop    context.CancelFunc
	running sync.WaitGroup
	wakeup  chan struct{} // wakes the goroutine that reserves

	// expectedReturns is how many callers came while the last batch was handed out.
	// As many are reserved for in advance with the next: those who open one
	// connection after the other. Used by one goroutine.
	expectedReturns int

	mu           sync.Mutex
	waiting      fifo.Queue
	arrived      uint64 // callers who have ever waited
	closed       bool
	refused      bool          // the server refused an open, and the store does not know yet
	failingSince time.Time     // since when every request has failed, or zero
	back         chan struct{} // closed when the store is reached again, if Degraded or it was
	stats        lease.LimiterStats
}

var (
	errUseFallback = errors.New("the fallback decides")
	errBack        = errors.New("the store is reached again")
)

// NewLimiter joins the fleet that shares cfg.Budget. A wrong setting or a
// missing permission is a *ConfigError; a store that does not answer is not,
// cfg.Fallback decides then. ctx bounds NewLimiter alone. Close ends its
// goroutine.
func NewLimiter(ctx context.Context, store Store, cfg LimiterConfig) (*Limiter, error) {
	if store == nil {
		return nil, errors.New("lease: the store is nil")
	}
	return openLimiter(ctx, store, cfg, testFaults{})
}

func openLimiter(ctx context.Context, store Store, cfg LimiterConfig, rules testFaults) (*Limiter, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	l := &Limiter{
		cfg:    cfg,
		bucket: newSharedBucket(newMeter(store, cfg.RequestTimeout), &cfg, rules),
		wakeup: make(chan struct{}, 1),
	}
	// A Share is granted by a limiter of this process alone: so many a second, and as
	// many at once.
	if n := cfg.Fallback.Allows(); n > 0 && n < math.MaxInt {
		l.local = lease.NewLimiter(cfg.Budget, float64(n), n)
	}
	err := l.bucket.read(ctx)
	if isPermanent(err) {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, errjoin.Join(ctxerr.Of(ctx), err)
	}
	if err != nil {
		l.noteResult(err, true)
	}
	// The end of ctx does not end the goroutine, Close does.
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	l.running.Go(func() { l.reserveLoop(own) })
	return l, nil
}

// Wait is as lease.Limiter says.
func (l *Limiter) Wait(ctx context.Context) error {
	err := l.wait(ctx)
	for errors.Is(err, errUseFallback) {
		if err = l.fallback(ctx); errors.Is(err, errBack) {
			err = l.wait(ctx)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.stats.Denied++
		return err
	}
	l.stats.Granted++
	return nil
}

// wait queues for a permit. errUseFallback says that the caller is not queued, or not
// any more, and that the Fallback is to be asked.
func (l *Limiter) wait(ctx context.Context) error {
	if ctx.Err() != nil {
		return l.fail(lease.ErrLimit, ctxerr.Of(ctx))
	}
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		return l.fail(lease.ErrClosed, nil)
	case l.stats.Degraded:
		l.mu.Unlock()
		return errUseFallback
	}
	ticket := l.waiting.Join()
	l.arrived++
	l.mu.Unlock()
	wake(l.wakeup)

	select {
	case err := <-ticket.Answered():
		return err
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.waiting.Leave(ticket) {
		l.stats.Dropped++ // a permit came with the end of ctx, and is spent
	}
	return l.fail(lease.ErrLimit, errjoin.Join(ctxerr.Of(ctx), l.stats.Cause))
}

// fallback is the Fallback's answer to one caller: none, one of this process's own
// rate, or at once. errBack says that it decides no more.
func (l *Limiter) fallback(ctx context.Context) error {
	l.mu.Lock()
	cause, back := l.stats.Cause, l.back
	l.mu.Unlock()
	switch {
	case isClosed(back):
		return errBack
	case l.cfg.Fallback == lease.Pessimistic():
		return l.fail(lease.ErrUnavailable, cause)
	case l.local != nil:
		if err := l.waitAlone(ctx, back); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Fallbacks++
	return nil
}

// waitAlone waits for the rate of this process, until the store is back: what that
// grants comes on top of the fleet's.
func (l *Limiter) waitAlone(ctx context.Context, back <-chan struct{}) error {
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-back:
			cancel()
		case <-own.Done():
		}
	}()
	err := l.local.Wait(own)
	if err != nil && ctx.Err() == nil && isClosed(back) {
		return errBack
	}
	return err
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// Refused is as lease.Limiter says. The server's bucket is emptier than the store's, as
// it is when something else opens connections. The next request takes what is left of
// the burst away for the whole fleet.
func (l *Limiter) Refused() {
	l.mu.Lock()
	l.refused = true
	l.stats.Refusals++
	l.mu.Unlock()
	if l.local != nil {
		l.local.Refused()
	}
	wake(l.wakeup)
}

// Stats is as lease.Limiter says.
func (l *Limiter) Stats() lease.LimiterStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Waiting = l.waiting.Len()
	if l.local != nil {
		s.Waiting += l.local.Stats().Waiting
	}
	s.Traffic = l.bucket.store.traffic()
	return s
}

// Close is as lease.Limiter says. What is reserved and not used is lost to the fleet,
// which is less than a batch. Callers who wait are answered ErrClosed first, then the
// goroutine ends: what it has reserved is handed to nobody.
func (l *Limiter) Close(ctx context.Context) error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	waiting := l.waiting.All()
	l.mu.Unlock()
	for _, ticket := range waiting {
		ticket.Answer(l.fail(lease.ErrClosed, nil))
	}
	if first {
		l.stop()
	}
	if l.local != nil {
		if err := l.local.Close(ctx); err != nil {
			return err
		}
	}
	l.running.Wait() // short: it only ever waits on the context that stop ended
	return nil
}

func (l *Limiter) fail(reason, cause error) error {
	return &lease.Error{Budget: l.cfg.Budget, Reason: reason, Limit: int(l.cfg.Rate), Err: cause}
}
