package main

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/dsql/auth"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pools are this project's and its peers.
var pools = []string{"dsql", "pgxpool", "aws-settings"}

// theirs is a pgxpool.
type theirs struct{ pool *pgxpool.Pool }

// pgxpool is the pool as it comes, with what no client of DSQL can do without:
// TLS with the cluster's name and a fresh token for every open.
//
// "aws-settings" stands in for AWS's Go connector (awslabs/aurora-dsql-connectors,
// go/pgx v0.5.0), which is a function that fills in a pgxpool.Config. It sets:
//
//	MaxConnLifetime   55m, without jitter: here by the story's scale
//	MaxConnIdleTime   10m
//	BeforeConnect     a fresh token per open, valid for 15m, not cached
//	TLS               1.2 or later, ServerName the cluster's
//	RuntimeParams     application_name alone
//	query mode        describe and execute, in place of cached statements
//
// and leaves the rest as pgxpool has it: MinConns 0, a check of lifetimes every
// minute, MaxConns the caller's. Neither asks anybody before an open.
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
	if m.Pool == "aws-settings" {
		cfg.MaxConnIdleTime, cfg.MaxConnLifetimeJitter = 10*time.Minute, 0
		cc.RuntimeParams = map[string]string{"application_name": "aurora-dsql-go-pgx/1.0.0"}
		cc.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec
	}
	cfg.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) (err error) {
		c.Password, err = auth.GenerateDBConnectAdminAuthToken(ctx, m.Host, "us-east-1", account)
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	return theirs{pool}, err
}

func (t theirs) use(ctx context.Context, do func(*pgx.Conn) error) (time.Duration, error) {
	began := time.Now()
	c, err := t.pool.Acquire(ctx)
	checkout := time.Since(began)
	if err != nil {
		return checkout, err
	}
	defer c.Release()
	return checkout, do(c.Conn())
}

func (t theirs) ready() int { return int(t.pool.Stat().IdleConns() + t.pool.Stat().AcquiredConns()) }

func (t theirs) account(r *result) { r.Opens = uint64(t.pool.Stat().NewConnsCount()) }

func (t theirs) close(context.Context) error {
	t.pool.Close()
	return nil
}
