package dsql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/dynamolease"
)

// budgets are the two budgets of a Cluster, and how to end those that it made.
type budgets struct {
	leases  lease.Leases
	limiter lease.Limiter
	closers []func(context.Context) error
}

// newBudgets takes the budgets that were given and makes the others: in the
// table if there is one, else for this process.
func newBudgets(ctx context.Context, c Config, account aws.Config) (_ *budgets, err error) {
	f := &budgets{leases: c.Leases, limiter: c.Limiter}
	defer func() {
		if err != nil {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.CloseTimeout)
			defer cancel()
			err = errjoin.Join(err, f.close(closing))
		}
	}()
	var client *dynamodb.Client
	if c.LeaseTable != "" {
		client = dynamodb.NewFromConfig(account)
	}
	if f.leases == nil {
		if f.leases, err = newLeases(ctx, c, client); err != nil {
			return f, err
		}
		f.closers = append(f.closers, f.leases.Close)
	}
	if f.limiter == nil {
		if f.limiter, err = newLimiter(ctx, c, client); err != nil {
			return f, err
		}
		if client != nil {
			f.limiter = withFallback(f.limiter, c, func() int { return f.leases.Stats().Owners })
		}
		f.closers = append(f.closers, f.limiter.Close)
	}
	return f, nil
}

func newLeases(ctx context.Context, c Config, client *dynamodb.Client) (lease.Leases, error) {
	if client == nil {
		return lease.NewLeases(c.Budget, c.ConnLimit), nil
	}
	leases, err := dynamolease.New(ctx, client, leasesConfig(c))
	if err != nil {
		return nil, fmt.Errorf("dsql: LeaseTable %q: %w", c.LeaseTable, err)
	}
	return leases, nil
}

// leasesConfig is what the leases of a table are told. Up to Want of them are taken at once.
//
// INVARIANT: who may have all that the fleet may is not taken to expect that, unless it keeps them ready. Else the first
// one takes them all, and the next waits until the fleet has found itself short.
func leasesConfig(c Config) dynamolease.Config {
	want := c.MaxSize
	if c.OnDemand && c.MaxSize >= c.ConnLimit {
		want = 0 // not known
	}
	return dynamolease.Config{
		Table: c.LeaseTable, Budget: c.Budget, Limit: c.ConnLimit, Want: want, OpenTimeout: c.OpenTimeout, Fallback: c.Fallback, Logger: c.Logger,
		Lease: c.Lease, Grace: c.LeaseGrace, Shards: c.LeaseShards, Batch: c.LeaseBatch, Strict: c.LeaseStrict,
	}
}

func newLimiter(ctx context.Context, c Config, client *dynamodb.Client) (lease.Limiter, error) {
	if client == nil {
		return lease.NewLimiter(c.Budget, c.OpenRate, c.OpenBurst), nil
	}
	limiter, err := dynamolease.NewLimiter(ctx, client, dynamolease.LimiterConfig{
		Table: c.LeaseTable, Budget: c.Budget, Rate: c.OpenRate, Burst: c.OpenBurst, Logger: c.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("dsql: LeaseTable %q: %w", c.LeaseTable, err)
	}
	return limiter, nil
}

// valid says whether a lease granted some time ago still covers an open.
func (f *budgets) valid() error {
	if revoker, ok := f.leases.(lease.Revoker); ok {
		return revoker.Valid()
	}
	return nil
}

// close ends what newBudgets made, the last first.
func (f *budgets) close(ctx context.Context) error {
	var errs []error
	for i := len(f.closers) - 1; i >= 0; i-- {
		errs = append(errs, f.closers[i](ctx))
	}
	return errjoin.Join(errs...)
}

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
	undecided uint64 // that local let ask again
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

// Wait is as lease.Limiter says. Who waits for the rate of this process asks the fleet's
// limiter again from time to time: when that is reached, the other comes on top of it.
func (f *fallbackLimiter) Wait(ctx context.Context) error {
	for {
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
		if decided, err := f.waitAlone(ctx); decided {
			return err
		}
	}
}

// askFleetAfter is how long a caller waits for the rate of this process before it asks
// the fleet's limiter again.
const askFleetAfter = time.Second

// waitAlone waits for the rate of this process for a while.
func (f *fallbackLimiter) waitAlone(ctx context.Context) (decided bool, err error) {
	brief, cancel := context.WithTimeout(ctx, askFleetAfter)
	defer cancel()
	err = f.localForRate().Wait(brief)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		f.granted++
	case ctx.Err() == nil && errors.Is(err, lease.ErrLimit):
		f.undecided++
		return false, nil
	default:
		f.denied++
	}
	return true, err
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
	s.Denied = s.Denied - min(s.Denied, f.granted+f.denied+f.undecided) + f.denied // the fleet's limiter denied each of these first
	if f.local != nil {
		s.Waiting += f.local.Stats().Waiting
	}
	return s
}

// Close is as lease.Limiter says.
func (f *fallbackLimiter) Close(ctx context.Context) error {
	err := f.Limiter.Close(ctx)
	if local := f.currentLocal(); local != nil {
		err = errjoin.Join(err, local.Close(ctx))
	}
	return err
}

func (f *fallbackLimiter) currentLocal() lease.Limiter {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.local
}
