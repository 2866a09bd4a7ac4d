package dsql

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

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
			err = errors.Join(err, f.close(closing))
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

// leasesConfig is what the leases of a table are told.
func leasesConfig(c Config) dynamolease.Config {
	return dynamolease.Config{
		Table: c.LeaseTable, Budget: c.Budget, Limit: c.ConnLimit, Want: c.MaxSize, OpenTimeout: c.OpenTimeout, Fallback: c.Fallback, Logger: c.Logger,
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
	return errors.Join(errs...)
}
