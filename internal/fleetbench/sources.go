package main

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/dsql/auth"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flightpool/flightpool/reservoir/dsql"
)

func (m member) source(ctx context.Context) (source, error) {
	switch m.Pool {
	case "dsql":
		return m.reservoir(ctx)
	case "pgxpool", "aws-settings":
		return m.pgxpool(ctx)
	}
	return nil, fmt.Errorf("there is no pool %q", m.Pool)
}

type ours struct{ pool *dsql.Pool }

func (m member) reservoir(ctx context.Context) (source, error) {
	pool, err := dsql.NewPool(ctx, dsql.Config{
		Host: m.Host, TLS: m.tls(), Dial: m.dial, MaxOpen: m.Conns,
		BaseLifetime: m.Lifetime, LifetimeJitter: m.Jitter, GuardWindow: m.Guard,
		LeaseTable: table, ConnLimit: m.Limit, OpenRate: m.Rate, OpenBurst: m.Burst,
	})
	return ours{pool}, err
}

func (o ours) use(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	c, err := o.pool.Acquire(ctx)
	checkout := time.Since(began)
	if err != nil {
		return checkout, err
	}
	defer c.Release()
	return checkout, statement(ctx, c.Conn())
}

func (o ours) ready() int {
	s := o.pool.Stats().Reservoir
	return s.Idle + s.InUse
}

func (o ours) account(r *result) {
	s := o.pool.Stats()
	r.Writes, r.Opens = s.Limiter.Traffic.Writes, s.Reservoir.Opens
	r.Dropped, r.Elided = s.Limiter.Dropped, s.Reservoir.OpensElided
}

func (o ours) close(ctx context.Context) error { return o.pool.Close(ctx) }

type theirs struct{ pool *pgxpool.Pool }

func (m member) pgxpool(ctx context.Context) (source, error) {
	cfg, err := pgxpool.ParseConfig("host=localhost user=admin database=postgres sslmode=disable")
	if err != nil {
		return nil, err
	}
	account := credentials.NewStaticCredentialsProvider(accessKey, secret, "")
	cc := cfg.ConnConfig
	cc.Host, cc.Fallbacks, cc.TLSConfig, cc.DialFunc = m.Host, nil, m.tls(), m.dial
	cc.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	cfg.MaxConns = int32(m.Conns)
	if m.Lifetime > 0 {
		cfg.MaxConnLifetime, cfg.MaxConnLifetimeJitter = m.Lifetime, m.Jitter
	}
	if m.Pool == "aws-settings" { // a fresh token per open, no jitter; else as pgxpool
		cfg.MaxConnIdleTime, cfg.MaxConnLifetimeJitter = 10*time.Minute, 0
	}
	cfg.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) (err error) {
		c.Password, err = auth.GenerateDBConnectAdminAuthToken(ctx, m.Host, "us-east-1", account)
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	return theirs{pool}, err
}

func (t theirs) use(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	c, err := t.pool.Acquire(ctx)
	checkout := time.Since(began)
	if err != nil {
		return checkout, err
	}
	defer c.Release()
	return checkout, statement(ctx, c.Conn())
}

func (t theirs) ready() int { return int(t.pool.Stat().IdleConns() + t.pool.Stat().AcquiredConns()) }

func (t theirs) account(r *result) { r.Opens = uint64(t.pool.Stat().NewConnsCount()) }

func (t theirs) close(context.Context) error {
	t.pool.Close()
	return nil
}
