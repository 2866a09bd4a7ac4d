package flightpool

import (
	"context"
	"crypto/tls"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// troubles are what docs/troubleshooting.md explains: each fails as its users see it.
func troubles(t *testing.T) map[string]func() error {
	srv, err := testserver.Start(testserver.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = srv.Close() })
	ca, secret := newAuthority(t), "Sup3r/Secret"
	secure, err := testserver.Start(testserver.Options{TLS: &tls.Config{Certificates: []tls.Certificate{ca.issue("localhost")}}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = secure.Close() })
	guarded, err := testserver.Start(testserver.Options{Users: map[string]string{"app": "secret"}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = guarded.Close() })

	open := func(target string, cfg Config) func() error {
		return func() error {
			p, err := New(t.Context(), target, cfg)
			if err == nil {
				err = p.Close(t.Context())
			}
			return err
		}
	}
	with := func(cfg Config, f func(ctx context.Context, p *FlightSQLPool) error) func() error {
		return func() error {
			p, err := New(t.Context(), srv.URI(), cfg)
			require.NoError(t, err)
			defer func() { _ = p.Close(t.Context()) }()
			return f(t.Context(), p)
		}
	}
	return map[string]func() error{
		"no scheme":      open("localhost:31337", Config{}),
		"no port":        open("grpc://localhost", Config{}),
		"password":       open("flightsql://app:"+secret+"@localhost:31337", Config{}),
		"nobody listens": open("grpc://"+deadAddress(t), Config{}),
		"name":           open("grpc://no-such-host.invalid:1", Config{}),
		"plain to TLS":   open("grpc://"+secure.Addr(), Config{}),
		"TLS to plain":   open("grpc+tls://"+srv.Addr(), Config{}),
		"authority":      open("grpc+tls://"+secure.Addr(), Config{}),
		"credentials":    open("grpc://"+guarded.Addr(), Config{Auth: BasicAuth("app", "wrong")}),
		"no credentials": open("grpc://"+guarded.Addr(), Config{}),
		"silent":         open("grpc://"+srv.Addr(), Config{Dialer: frozen, DialTimeout: 10 * time.Millisecond}),
		"impatient": func() error {
			short, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer stop()
			_, err := New(short, srv.URI(), Config{Dialer: frozen})
			return err
		},
		"unknown setting": open("flightsql://localhost:31337/?max_sise=8", Config{}),
		"exhausted": with(Config{MaxSize: 1, AcquireTimeout: time.Millisecond}, func(ctx context.Context, p *FlightSQLPool) error {
			s, err := p.AcquireSession(ctx)
			require.NoError(t, err)
			defer func() { _ = s.Close() }()
			return p.Ping(ctx)
		}),
		"closed": with(Config{}, func(ctx context.Context, p *FlightSQLPool) error {
			require.NoError(t, p.Close(ctx))
			return p.Ping(ctx)
		}),
		"BEGIN": with(Config{}, func(ctx context.Context, p *FlightSQLPool) error {
			_, err := p.Update(ctx, "BEGIN")
			return err
		}),
		"route": with(Config{}, func(ctx context.Context, p *FlightSQLPool) error {
			_, err := p.Execute(ctx, "FROBNICATE everything")
			return err
		}),
		"aborted": with(Config{}, func(ctx context.Context, p *FlightSQLPool) error {
			s, err := p.AcquireSession(ctx)
			require.NoError(t, err)
			defer func() { _ = s.Close() }()
			require.NoError(t, s.BeginTransaction(ctx))
			_, err = s.Update(ctx, "INSERT INTO nowhere VALUES (1)")
			require.Error(t, err)
			_, err = s.Update(ctx, "CREATE TABLE later (id BIGINT)")
			return err
		}),
		"no rows": with(Config{}, func(ctx context.Context, p *FlightSQLPool) error {
			if _, err := p.Update(ctx, "CREATE TABLE empty_one (id BIGINT)"); err != nil {
				return err
			}
			return p.QueryRow(ctx, "SELECT * FROM empty_one").Scan(new(int64))
		}),
		"large message": with(Config{MaxMessage: 4 << 10}, func(ctx context.Context, p *FlightSQLPool) error {
			return p.QueryRow(ctx, "SELECT * FROM generate(5000)").Scan(new(int64))
		}),
		"no field": with(Config{}, func(ctx context.Context, p *FlightSQLPool) error {
			_, err := CollectRows[struct{ ID int64 }](p.Query(ctx, "SELECT 1 AS number"))
			return err
		}),
		"NULL": with(Config{}, func(ctx context.Context, p *FlightSQLPool) error {
			return p.QueryRow(ctx, "SELECT NULL").Scan(new(string))
		}),
		"deadline": with(Config{}, func(ctx context.Context, p *FlightSQLPool) error {
			short, stop := context.WithTimeout(ctx, 10*time.Millisecond)
			defer stop()
			_, err := p.Query(short, "SELECT sleep('1h')")
			return err
		}),
		"lost in a session": with(Config{}, func(ctx context.Context, p *FlightSQLPool) error {
			s, err := p.AcquireSession(ctx)
			require.NoError(t, err)
			defer func() { _ = s.Close() }()
			srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "never", Times: 1, Do: testserver.Kill()})
			_, err = s.Update(ctx, "CREATE TABLE never (id BIGINT)")
			return err
		}),
	}
}

// lastResort is a row for those whom no row before it fits.
const lastResort = "context deadline exceeded"

// Each first cell of the page's tables is text of one of these errors, and each error is on the page.
func TestTheTroubleshootingPageHasWhatErrorsSay(t *testing.T) {
	text, err := os.ReadFile("../docs/troubleshooting.md")
	require.NoError(t, err)
	var quoted []string
	for line := range strings.Lines(string(text)) {
		if cell, ok := strings.CutPrefix(line, "| `"); ok {
			cell, _, _ = strings.Cut(cell, "` |")
			quoted = append(quoted, cell)
		}
	}
	matched := map[string]bool{}
	for name, fail := range troubles(t) {
		err := fail()
		require.Error(t, err, name)
		found := ""
		for _, q := range quoted {
			if !strings.Contains(err.Error(), q) {
				continue
			}
			require.True(t, found == "" || q == lastResort, "%s: two rows for %v", name, err)
			if found == "" {
				found, matched[q] = q, true
			}
		}
		if found == "" {
			t.Errorf("%s is not explained: %v", name, err)
		}
	}
	for _, q := range quoted {
		require.True(t, matched[q], "no error says %q", q)
	}
}
