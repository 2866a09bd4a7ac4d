package lease

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/flightpool/flightpool/internal/ctxerr"
)

// MinRate is the lowest rate of a Limiter in opens per second: one open in
// eleven and a half days. A lower one is a mistake of units.
const MinRate = 1e-6

// CheckRate returns an error when rate, in opens per second, cannot be that of a
// Limiter: it must be a finite number of at least MinRate.
func CheckRate(rate float64) error {
	if !(rate >= MinRate) || math.IsInf(rate, 1) { // the negation refuses NaN
		return fmt.Errorf("rate is %v opens per second, must be finite and at least %v", rate, MinRate)
	}
	return nil
}

// NewLimiter is a budget of rate opens per second with bursts of up to burst,
// within one process. It panics when CheckRate refuses rate or burst is not
// positive. name appears in errors.
func NewLimiter(name string, rate float64, burst int) Limiter {
	if err := CheckRate(rate); err != nil {
		panic("lease: " + err.Error())
	}
	if burst <= 0 {
		panic(fmt.Sprintf("lease: burst is %d, must be positive", burst))
	}
	return &bucket{
		name: name, rate: rate, burst: float64(burst),
		headSlot: make(chan struct{}, 1), done: make(chan struct{}),
		tokens: float64(burst), refilledAt: time.Now(),
	}
}

type bucket struct {
	name        string
	rate, burst float64

	headSlot chan struct{} // held by the one waiter that takes the next token; the others queue on it in order
	done     chan struct{} // closed by Close

	mu sync.Mutex
	// INVARIANT: tokens <= burst is what the bucket held at the moment at.
	tokens     float64
	refilledAt time.Time
	stats      LimiterStats
	closed     bool
}

func (b *bucket) Wait(ctx context.Context) error {
	b.count(func(s *LimiterStats) { s.Waiting++ })
	err := b.wait(ctx)
	b.count(func(s *LimiterStats) {
		s.Waiting--
		if err == nil {
			s.Granted++
		} else {
			s.Denied++
		}
	})
	return err
}

func (b *bucket) wait(ctx context.Context) error {
	select {
	case b.headSlot <- struct{}{}:
		defer func() { <-b.headSlot }()
	case <-ctx.Done():
		return b.fail(ErrLimit, ctxerr.Of(ctx))
	case <-b.done:
		return b.fail(ErrClosed, nil)
	}
	for {
		if ctx.Err() != nil {
			return b.fail(ErrLimit, ctxerr.Of(ctx))
		}
		delay := b.takeOrDelay()
		if delay == 0 {
			return nil
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return b.fail(ErrLimit, ctxerr.Of(ctx))
		case <-b.done:
			timer.Stop()
			return b.fail(ErrClosed, nil)
		}
	}
}

// takeOrDelay spends a token and returns 0, or returns how long until there is one.
// After Close there is never one.
func (b *bucket) takeOrDelay() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.tokens = min(b.burst, b.tokens+b.rate*now.Sub(b.refilledAt).Seconds())
	b.refilledAt = now
	if b.closed {
		return time.Hour // Wait sees Close before that
	}
	if b.tokens >= 1 {
		b.tokens--
		return 0
	}
	return max(time.Nanosecond, time.Duration(math.Ceil((1-b.tokens)/b.rate*float64(time.Second))))
}

func (b *bucket) Refused() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens, b.refilledAt = min(b.tokens, 0), time.Now()
	b.stats.Refusals++
}

func (b *bucket) Stats() LimiterStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stats
}

func (b *bucket) Close(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		close(b.done)
	}
	return nil
}

func (b *bucket) count(f func(*LimiterStats)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.stats)
}

func (b *bucket) fail(reason, cause error) error {
	return &Error{Budget: b.name, Reason: reason, Limit: int(min(b.rate, math.MaxInt32)), Err: cause}
}
