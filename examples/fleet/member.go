package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/lease/pglease"
	"github.com/flightpool/flightpool/reservoir/dsql"
)

const (
	settingsVariable = "FLEET_MEMBER"
	leaseTable       = "fleet"
	dynamoStore      = "dynamodb"
	postgresStore    = "postgres"
	accessKey        = "AKIDEXAMPLE"
	secretKey        = "secret"
)

// settings are what a member is told.
type settings struct {
	Gate, Host              string
	CA                      []byte
	Want, Limit             int
	Store, Dynamo, Postgres string // Store tells which of the others
}

// A state is what a member tells.
type state struct{ Ready, InUse, Leases, Spare int }

// member works on the cluster until its input ends.
func member(ctx context.Context, text string, in io.Reader, out io.Writer) error {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.CA)
	cfg := dsql.Config{
		Host: s.Host, MaxSize: s.Want, ConnLimit: s.Limit,
		// The stand-in's name leads nowhere, and its certificate is its own.
		TLS: &tls.Config{RootCAs: roots},
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.Gate)
		},
	}
	closeBudgets, err := share(ctx, s, &cfg) // what the fleet shares
	if err != nil {
		return err
	}
	pool, err := dsql.NewPool(ctx, cfg)
	if err != nil {
		return errors.Join(err, closeBudgets(ctx))
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in) // until the parent ends or says so
		stop()
		close(ended)
	}()
	for range s.Want / 2 {
		go work(working, pool)
	}
	encoder := json.NewEncoder(out)
	report := time.NewTicker(200 * time.Millisecond)
	defer report.Stop()
	for working.Err() == nil {
		<-report.C
		all := pool.Stats()
		if err := encoder.Encode(state{all.Reservoir.Idle, all.Reservoir.InUse, all.Leases.InUse, all.Leases.Spare}); err != nil {
			break // the parent is gone
		}
	}
	<-ended
	closing, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return errors.Join(pool.Close(closing), closeBudgets(closing))
}

// share makes the pool take part in the fleet's budgets. The pool itself makes
// and closes those that are in DynamoDB.
func share(ctx context.Context, s settings, cfg *dsql.Config) (closeAll func(context.Context) error, err error) {
	if s.Store == dynamoStore {
		cfg.LeaseTable = leaseTable
		return func(context.Context) error { return nil }, nil
	}
	db, err := pglease.Connect(ctx, s.Postgres)
	if err != nil {
		return nil, err
	}
	leases, err := pglease.New(ctx, db, fleet.Config{Table: leaseTable, Budget: s.Host, Limit: s.Limit, Want: s.Want})
	if err != nil {
		db.Close()
		return nil, err
	}
	limiter, err := pglease.NewLimiter(ctx, db, fleet.LimiterConfig{Table: leaseTable, Budget: s.Host})
	if err != nil {
		err = errors.Join(err, leases.Close(ctx))
		db.Close()
		return nil, err
	}
	cfg.Leases, cfg.Limiter = leases, limiter
	return func(ctx context.Context) error {
		defer db.Close()
		return errors.Join(leases.Close(ctx), limiter.Close(ctx))
	}, nil
}

// work makes a request now and then.
func work(ctx context.Context, pool *dsql.Pool) {
	for ctx.Err() == nil {
		_, err := pool.Exec(ctx, "select pg_sleep(0.05)")
		if errors.Is(err, dsql.ErrClosed) {
			return
		}
		time.Sleep(rand.N(200 * time.Millisecond))
	}
}
