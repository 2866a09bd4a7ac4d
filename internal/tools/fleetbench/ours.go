package main

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/jackc/pgx/v5"

	"github.com/flightpool/flightpool/lease/dynamolease"
	"github.com/flightpool/flightpool/reservoir/dsql"
)

// ours is this project's pool.
type ours struct {
	pool   *dsql.Pool
	leases *dynamolease.Leases // nil when they are the pool's own
}

func (m member) reservoir(ctx context.Context) (_ source, err error) {
	var o ours
	cfg := dsql.Config{
		Host: m.Host, TLS: m.tls(), Dial: m.dial, MaxSize: m.Conns + m.Spare, MinIdle: m.Conns, LowWatermark: m.Low,
		ReplaceAfter: m.Lifetime, LifetimeJitter: m.Jitter, GuardWindow: m.Guard,
		LeaseTable: table, ConnLimit: m.Limit, OpenRate: m.Rate, OpenBurst: m.Burst,
	}
	if m.Lease > 0 {
		account, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return nil, err
		}
		cfg.OpenTimeout = m.Lease / 4
		if o.leases, err = dynamolease.New(ctx, dynamodb.NewFromConfig(account), m.budget(cfg.OpenTimeout)); err != nil {
			return nil, err
		}
		cfg.Leases = o.leases
	}
	o.pool, err = dsql.NewPool(ctx, cfg)
	return o, err
}

// budget is the fleet's, as the pool would make it but for Lease and Grace.
func (m member) budget(open time.Duration) dynamolease.Config {
	cfg := dynamolease.Config{Table: table, Budget: m.Host, Limit: m.Limit, OpenTimeout: open, Lease: m.Lease, Grace: m.Grace}
	if m.Lease > 0 {
		cfg.RequestTimeout = m.Lease / 12
	}
	return cfg
}

func (o ours) use(ctx context.Context, do func(*pgx.Conn) error) (time.Duration, error) {
	began := time.Now()
	c, err := o.pool.Acquire(ctx)
	checkout := time.Since(began)
	if err != nil {
		return checkout, err
	}
	defer c.Release()
	return checkout, do(c.Conn())
}

func (o ours) ready() int {
	s := o.pool.Stats().Reservoir
	return s.Idle + s.InUse
}

func (o ours) account(r *result) {
	s := o.pool.Stats()
	r.Opens, r.Elided = s.Reservoir.Opens, s.Reservoir.OpensSkipped
	r.Writes, r.Dropped = s.Limiter.Traffic.Writes, s.Limiter.Dropped
	r.LeaseWrites, r.Losses, r.Reaped = s.Leases.Traffic.Writes, s.Leases.Losses, s.Leases.Reaped
}

func (o ours) close(ctx context.Context) error {
	err := o.pool.Close(ctx)
	if o.leases != nil && err == nil {
		err = o.leases.Close(ctx)
	}
	return err
}
