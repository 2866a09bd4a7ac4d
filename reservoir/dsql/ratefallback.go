package dsql

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/flightpool/flightpool/lease"
)

// A fallbackLimiter permits opens at a rate of this process's own while the
// keeper of the fleet's limiter cannot be reached.
type fallbackLimiter struct {
	lease.Limiter
	name        string
	rate        func() float64 // opens per second, as far as is known now
	logFallback func(rate float64)

	mu sync.Mutex
	// INVARIANT: local is nil until the keeper could not be reached, and is
	// replaced only when the rate is another one: an outage that comes and goes
	// has one burst.
	local     lease.Limiter
	localRate float64
	active    bool   // since the keeper was last reached
	granted   uint64 // by local
	denied    uint64
}

// withFallback wraps a limiter whose own fallback grants nothing. owners counts the
// processes that share the rate; 0 when not known.
func withFallback(fleet lease.Limiter, c Config, owners func() int) lease.Limiter {
	if c.RateFallback < 0 {
		return fleet
	}
	log := c.Logger
	return &fallbackLimiter{
		Limiter: fleet, name: c.Budget,
		rate: func() float64 {
			if c.RateFallback > 0 {
				return c.RateFallback
			}
			n := cmp.Or(owners(), max(1, c.ConnLimit/c.MaxSize))
			return max(c.OpenRate/float64(n), lease.MinRate)
		},
		logFallback: func(rate float64) {
			log.Warn("the fleet's rate of opens cannot be reached: this process opens at a rate of its own", "cluster", c.Host, "per_second", rate)
		},
	}
}

// Wait is as lease.Limiter says.
func (f *fallbackLimiter) Wait(ctx context.Context) error {
	err := f.Limiter.Wait(ctx)
	if err == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.active = false
		return nil
	}
	if !errors.Is(err, lease.ErrUnavailable) || ctx.Err() != nil {
		return err
	}
	err = f.localForRate().Wait(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.denied++
		return err
	}
	f.granted++
	return nil
}

// localForRate is the limiter of this process.
func (f *fallbackLimiter) localForRate() lease.Limiter {
	rate := f.rate()
	f.mu.Lock()
	if f.local == nil || f.localRate != rate {
		next := lease.NewLimiter(f.name, rate, max(1, int(rate)))
		if f.local != nil {
			next.Refused() // the burst of this outage has been had
		}
		f.local, f.localRate, f.active = next, rate, false
	}
	local, first := f.local, !f.active
	f.active = true
	f.mu.Unlock()
	if first {
		f.logFallback(rate)
	}
	return local
}

// Refused is as lease.Limiter says.
func (f *fallbackLimiter) Refused() {
	f.Limiter.Refused()
	if local := f.currentLocal(); local != nil {
		local.Refused()
	}
}

// Stats is as lease.Limiter says.
func (f *fallbackLimiter) Stats() lease.LimiterStats {
	s := f.Limiter.Stats()
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Granted += f.granted
	s.Fallbacks += f.granted
	s.Denied = s.Denied - min(s.Denied, f.granted+f.denied) + f.denied // the fleet's limiter denied each of these first
	if f.local != nil {
		s.Waiting += f.local.Stats().Waiting
	}
	return s
}

// Close is as lease.Limiter says.
func (f *fallbackLimiter) Close(ctx context.Context) error {
	err := f.Limiter.Close(ctx)
	if local := f.currentLocal(); local != nil {
		err = errors.Join(err, local.Close(ctx))
	}
	return err
}

func (f *fallbackLimiter) currentLocal() lease.Limiter {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.local
}
