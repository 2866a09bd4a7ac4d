package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const memberVariable = "FLEET_MEMBER"

// A member is what one process does.
type member struct {
	Pool       string // dsql, pgxpool or aws-settings
	Gate, Host string
	CA         []byte

	Conns, Workers   int
	Think            time.Duration // between two requests of a worker
	Length           time.Duration
	Lifetime, Jitter time.Duration // 0: the pool's own
	Guard            time.Duration
	Limit            int
	Rate             float64
	Burst            int
	Patience         time.Duration // of a request
	Settle           time.Duration // not measured at the start
}

// A result is what a process, or a fleet, has seen.
type result struct {
	Requests, Failures int
	// Requests' and checkouts' durations, in microseconds.
	Request, Checkout []int
	// Ready is the lowest number of usable connections after Settle; -1: not
	// known.
	Ready                  int
	Writes                 uint64 // of DynamoDB, for the limiter
	Opens, Dropped, Elided uint64
}

func (r *result) add(o result) {
	if r.Requests == 0 && r.Ready == 0 {
		r.Ready = o.Ready
	}
	r.Ready = min(r.Ready, o.Ready)
	r.Requests, r.Failures = r.Requests+o.Requests, r.Failures+o.Failures
	r.Request, r.Checkout = append(r.Request, o.Request...), append(r.Checkout, o.Checkout...)
	r.Writes, r.Opens = r.Writes+o.Writes, r.Opens+o.Opens
	r.Dropped, r.Elided = r.Dropped+o.Dropped, r.Elided+o.Elided
}

// A source lends connections.
type source interface {
	// use borrows a connection for one statement and says how long the
	// borrowing took.
	use(ctx context.Context) (checkout time.Duration, err error)
	ready() int
	account(*result)
	close(ctx context.Context) error
}

func (m member) tls() *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(m.CA)
	return &tls.Config{RootCAs: roots, ServerName: m.Host, MinVersion: tls.VersionTLS12}
}

func (m member) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, m.Gate)
}

func runMember(ctx context.Context, text string) error {
	slog.SetLogLoggerLevel(slog.LevelError)
	var m member
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return err
	}
	s, err := m.source(ctx)
	if err != nil {
		return err
	}
	r := m.work(ctx, s)
	s.account(&r)
	closing, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := s.close(closing); err != nil {
		slog.Error("close", "error", err)
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// work makes requests until Length is over.
func (m member) work(ctx context.Context, s source) result {
	began := time.Now()
	settled, end := began.Add(m.Settle), began.Add(m.Length)
	var mu sync.Mutex
	var all sync.WaitGroup
	sum := result{Ready: s.ready()}
	if sum.Ready >= 0 {
		sum.Ready = m.Conns
		all.Go(func() {
			for look := time.NewTicker(10 * time.Millisecond); time.Now().Before(end); <-look.C {
				if n := s.ready(); time.Now().After(settled) {
					mu.Lock()
					sum.Ready = min(sum.Ready, n)
					mu.Unlock()
				}
			}
		})
	}
	for range m.Workers {
		all.Go(func() {
			var own result
			for time.Now().Before(end) {
				at := time.Now()
				ctx, cancel := context.WithTimeout(ctx, m.Patience)
				checkout, err := s.use(ctx)
				cancel()
				if at.After(settled) {
					own.Requests++
					own.Request = append(own.Request, int(time.Since(at).Microseconds()))
					own.Checkout = append(own.Checkout, int(checkout.Microseconds()))
					if err != nil {
						own.Failures++
					}
				}
				time.Sleep(m.Think/2 + rand.N(m.Think+1))
			}
			mu.Lock()
			defer mu.Unlock()
			own.Ready = sum.Ready
			sum.add(own)
		})
	}
	all.Wait()
	return sum
}

// statement is one request's work.
func statement(ctx context.Context, c *pgx.Conn) error {
	var n int
	return c.QueryRow(ctx, "select 1").Scan(&n)
}
