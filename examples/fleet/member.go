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

	"github.com/flightpool/flightpool/reservoir/dsql"
)

const (
	settingsVariable = "FLEET_MEMBER"
	leaseTable       = "fleet"
	accessKey        = "AKIDEXAMPLE"
	secretKey        = "secret"
)

// settings are what a member is told.
type settings struct {
	Gate, Host, Dynamo string
	CA                 []byte
	Want, Limit        int
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
	pool, err := dsql.NewPool(ctx, dsql.Config{
		Host: s.Host, MaxOpen: s.Want,
		LeaseTable: leaseTable, ConnLimit: s.Limit, // what the fleet shares
		// The stand-in's name leads nowhere, and its certificate is its own.
		TLS: &tls.Config{RootCAs: roots},
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.Gate)
		},
	})
	if err != nil {
		return err
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
	return pool.Close(closing)
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
