package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
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

	Conns, Workers int
	Spare, Low     int           // room for replacements; LowWatermark
	Think          time.Duration // between two requests of a worker
	Work           time.Duration // of a request, at the server
	Length         time.Duration
	Patience       time.Duration // of a request
	Settle         time.Duration // not measured at the start

	Lifetime, Jitter, Guard time.Duration // 0: the pool's own
	Limit                   int
	Rate                    float64
	Burst                   int
	Lease, Grace            time.Duration // 0: dynamolease's own
}

// A source lends connections.
type source interface {
	// use borrows a connection for one call of do and says how long the
	// borrowing took.
	use(ctx context.Context, do func(*pgx.Conn) error) (checkout time.Duration, err error)
	ready() int
	account(*result)
	close(ctx context.Context) error
}

func (m member) source(ctx context.Context) (source, error) {
	switch m.Pool {
	case "dsql":
		return m.reservoir(ctx)
	case "pgxpool", "aws-settings":
		return m.pgxpool(ctx)
	}
	return nil, fmt.Errorf("there is no pool %q", m.Pool)
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
	closing, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := s.close(closing); err != nil {
		slog.Error("close", "error", err)
		r.CloseFailed = true
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// work makes requests until Length is over.
func (m member) work(ctx context.Context, s source) result {
	began := time.Now()
	settled, end := began.Add(m.Settle), began.Add(m.Length)
	sum := result{Ready: m.Conns + m.Spare}
	var mu sync.Mutex
	var all sync.WaitGroup
	all.Go(func() {
		for look := time.NewTicker(10 * time.Millisecond); time.Now().Before(end); <-look.C {
			if n := s.ready(); time.Now().After(settled) {
				mu.Lock()
				sum.Ready = min(sum.Ready, n)
				mu.Unlock()
			}
		}
	})
	var first moment
	for range m.Workers {
		all.Go(func() {
			own := m.requests(ctx, s, settled, end, &first)
			mu.Lock()
			defer mu.Unlock()
			own.Ready = sum.Ready
			sum.add(own)
		})
	}
	all.Wait()
	return sum
}

// requests is one worker's work. first is when the process's first request
// failed.
func (m member) requests(ctx context.Context, s source, settled, end time.Time, first *moment) (own result) {
	for time.Now().Before(end) {
		at := time.Now()
		checkout, err := m.request(ctx, s)
		if at.After(settled) {
			own.Requests++
			own.Request = append(own.Request, int(time.Since(at).Microseconds()))
			own.Checkout = append(own.Checkout, int(checkout.Microseconds()))
			if err != nil {
				own.Failures++
				if at.Sub(first.note(time.Now())) > aftermath {
					own.Later++
				}
			}
			if errors.Is(err, context.DeadlineExceeded) {
				own.Hung++
			}
		}
		time.Sleep(m.Think/2 + rand.N(m.Think+1))
	}
	return own
}

// aftermath is how long after the first failure of a process others may be due
// to the same event.
const aftermath = 300 * time.Millisecond

// A moment is a time that is noted once.
type moment struct {
	once sync.Once
	at   time.Time
}

func (m *moment) note(now time.Time) time.Time {
	m.once.Do(func() { m.at = now })
	return m.at
}

func (m member) request(ctx context.Context, s source) (checkout time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.Patience)
	defer cancel()
	return s.use(ctx, func(c *pgx.Conn) error {
		if m.Work > 0 {
			_, err := c.Exec(ctx, "select pg_sleep($1)", m.Work.Seconds())
			return err
		}
		var n int
		return c.QueryRow(ctx, "select 1").Scan(&n)
	})
}
