package dsql_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir/dsql"
	"github.com/flightpool/flightpool/testserver/dsqlgate"
	"github.com/flightpool/flightpool/testserver/localdeps"
)

// noAccount hides the machine's own AWS settings.
func noAccount(t *testing.T) {
	t.Helper()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
		"AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

func TestAnOpenThatCannotSucceedNamesTheSettingAndLeavesNoLease(t *testing.T) {
	limited := key
	limited.Users = []string{"admin"}
	static := func(expires time.Time) aws.CredentialsProvider {
		return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: key.AccessKeyID, SecretAccessKey: key.SecretAccessKey, SessionToken: key.SessionToken, CanExpire: !expires.IsZero(), Expires: expires}, nil
		})
	}
	plain := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, dsql.Postgres.Addr())
	}
	for name, c := range map[string]struct {
		gate func(*dsqlgate.Options)
		slow time.Duration
		set  func(*dsql.Config)
		says []string
	}{
		"a token that expires":  {nil, 1500 * time.Millisecond, func(c *dsql.Config) { c.TokenLifetime = time.Second }, []string{"access denied", "Credentials"}},
		"wrong region":          {nil, 0, func(c *dsql.Config) { c.Region = "eu-west-1" }, []string{"access denied", "eu-west-1", "Region"}},
		"wrong role":            {func(o *dsqlgate.Options) { o.Credentials = []dsqlgate.Credential{limited} }, 0, func(c *dsql.Config) { c.User = "app" }, []string{"access denied", `"app"`, "User"}},
		"wrong secret":          {nil, 0, func(c *dsql.Config) { c.Credentials = credentials.NewStaticCredentialsProvider("AKIDTEST", "x", "") }, []string{"access denied", "Credentials"}},
		"missing credentials":   {nil, 0, func(c *dsql.Config) { c.Credentials = nil }, []string{"Credentials"}},
		"expired credentials":   {nil, 0, func(c *dsql.Config) { c.Credentials = static(time.Now().Add(-time.Minute)) }, []string{"expired", "AKIDTEST", "Credentials"}},
		"another database":      {nil, 0, func(c *dsql.Config) { c.Database = "other" }, []string{"Database"}},
		"a plaintext server":    {nil, 0, func(c *dsql.Config) { c.Dial = plain }, []string{"refused TLS", "Port"}},
		"an unknown authority":  {nil, 0, func(c *dsql.Config) { c.TLS = nil }, []string{"certificate", "TLS"}},
		"another's certificate": {nil, 0, func(c *dsql.Config) { c.Host = "other.dsql.us-east-1.on.aws" }, []string{"certificate", "Host"}},
		"nobody listens": {nil, 0, func(c *dsql.Config) {
			c.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:1")
			}
		}, []string{"connection refused"}},
		"nobody answers": {nil, time.Minute, func(c *dsql.Config) { c.OpenTimeout = 300 * time.Millisecond }, []string{"OpenTimeout"}},
	} {
		t.Run(name, func(t *testing.T) {
			noAccount(t)
			g := startGate(t, c.gate)
			g.SlowHandshakes(c.slow)
			p := newPool(t, g, c.set)
			began := time.Now()
			err := p.Ping(within(t, 20*time.Second))
			require.Less(t, time.Since(began), 15*time.Second, "within the open timeout, and what a busy machine adds")
			var open *dsql.OpenError
			require.ErrorAs(t, err, &open)
			for _, text := range c.says {
				require.ErrorContains(t, err, text)
			}
			closeSoon(t, p.Close)
			require.Zero(t, p.Stats().Leases.InUse)
			require.Zero(t, p.Stats().Reservoir.Total)
		})
	}
}

func TestHopelessOpensFailNewCallersAtOnceAndEndWithTheCause(t *testing.T) {
	g := startGate(t, nil)
	g.Refuse(3, "08006")
	p := newPool(t, g, func(c *dsql.Config) { c.MaxSize = 1 })
	require.ErrorContains(t, p.WaitReady(within(t, 20*time.Second), 0), "access denied")
	for range 30 {
		began := time.Now()
		require.ErrorContains(t, p.Ping(within(t, 20*time.Second)), "access denied")
		require.Less(t, time.Since(began), time.Second)
	}
	require.LessOrEqual(t, g.Stats().Attempts, 3, "callers do not make attempts")
	reach(t, "opens go on in the background", func() bool { return p.Stats().Reservoir.Idle == 1 })
	require.NoError(t, p.Ping(within(t, 20*time.Second)), "and end the trouble")
}

func TestARefusalForTheLimitsMakesCallersWait(t *testing.T) {
	for _, code := range []string{"53400", "53300"} {
		t.Run(code, func(t *testing.T) {
			g := startGate(t, nil)
			g.Refuse(1, code)
			p := newPool(t, g, func(c *dsql.Config) { c.MaxSize = 1 })
			require.NoError(t, p.Ping(within(t, 20*time.Second)))
			require.Equal(t, 2, g.Stats().Attempts)
			if code == "53400" {
				require.EqualValues(t, 1, p.Stats().Limiter.Refusals, "the fleet is told")
			}
		})
	}
}

func TestACallerOutlastsRefusalsThatOutlastTheirOpen(t *testing.T) {
	g := startGate(t, nil)
	g.Refuse(2, "53300")
	var log bytes.Buffer
	p := newPool(t, g, func(c *dsql.Config) {
		c.MaxSize, c.OpenTimeout, c.Logger = 1, 1500*time.Millisecond, slog.New(slog.NewTextHandler(&log, nil))
	})
	require.NoError(t, p.Ping(within(t, 20*time.Second)))
	require.GreaterOrEqual(t, p.Stats().Reservoir.OpenFailures, uint64(1), "pauses of 0.5 to 1 and of 1 to 2 s")
	closeSoon(t, p.Close)                   // whoever logs has ended
	refusals := p.Stats().FailedOpens.Limit // the second may come when the open has no time left
	require.Contains(t, []uint64{1, 2}, refusals)
	require.EqualValues(t, refusals, strings.Count(log.String(), "too many open connections"))
}

func TestWhoWaitsForAConnectionInUseIsNotToldOfDeniedOpens(t *testing.T) {
	g := startGate(t, nil)
	p := newPool(t, g, func(c *dsql.Config) { c.MaxSize, c.OnDemand = 2, true })
	held, err := p.Acquire(within(t, 20*time.Second))
	require.NoError(t, err)
	g.Refuse(1000, "08006")
	got := make(chan error)
	go func() { got <- p.Ping(within(t, 20*time.Second)) }()
	reach(t, "the other is denied", func() bool { return p.Stats().FailedOpens.Denied > 0 })
	held.Release()
	require.NoError(t, <-got)
}

func TestALeaseTableThatIsMissingOrForbiddenNamesTheSetting(t *testing.T) {
	noAccount(t)
	g := startGate(t, nil)
	dynamo, err := localdeps.StartDynamoDB(t.Context())
	require.NoError(t, err)
	defer dynamo.Close()
	forbidding := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"__type":"com.amazon.coral.service#AccessDeniedException","message":"not authorized to perform: dynamodb:GetItem"}`)
	}))
	defer forbidding.Close()
	for endpoint, says := range map[string]string{dynamo.Endpoint: "ResourceNotFound", forbidding.URL: "AccessDenied"} {
		t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", endpoint)
		began := time.Now()
		_, err = dsql.NewPool(t.Context(), config(g, func(c *dsql.Config) { c.LeaseTable = "no-such-table" }))
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, `LeaseTable "no-such-table"`)
		require.Less(t, time.Since(began), 15*time.Second)
	}
	require.Zero(t, g.Stats().Attempts)
}

func TestPGVariablesOfTheEnvironmentAreIgnored(t *testing.T) {
	noAccount(t)
	g := startGate(t, nil)
	for name, value := range map[string]string{
		"PGHOST": "db1", "PGPORT": "nonsense", "PGDATABASE": "other", "PGUSER": "other", "PGPASSWORD": "x", "PGPASSFILE": "/none", "PGAPPNAME": "other",
		"PGCONNECT_TIMEOUT": "nonsense", "PGSSLMODE": "prefer", "PGSSLKEY": "/none", "PGSSLCERT": "/none", "PGSSLCERTMODE": "nonsense", "PGSSLROOTCERT": "/none",
		"PGSSLNEGOTIATION": "nonsense", "PGSSLSNI": "0", "PGSSLPASSWORD": "x", "PGTARGETSESSIONATTRS": "nonsense", "PGSERVICE": "none", "PGSERVICEFILE": "/none", "PGTZ": "nonsense", "PGOPTIONS": "-c nonsense",
		"PGMINPROTOCOLVERSION": "nonsense", "PGMAXPROTOCOLVERSION": "nonsense", "PGCHANNELBINDING": "nonsense", "PGREQUIREAUTH": "nonsense",
	} {
		t.Setenv(name, value)
	}
	p := newPool(t, g, nil)
	var name string
	require.NoError(t, p.QueryRow(within(t, 20*time.Second), "show application_name").Scan(&name))
	require.Equal(t, "flightpool", name)
}

// A listener keeps the first bytes that each connection sends.
type listener struct {
	net.Conn
	heard chan<- byte
	once  sync.Once
}

func (l *listener) Write(b []byte) (int, error) {
	l.once.Do(func() { l.heard <- b[0] })
	return l.Conn.Write(b)
}

func TestTLSBeginsAsConfigured(t *testing.T) {
	for direct, first := range map[bool]byte{false: 0, true: 0x16} { // the length of an SSLRequest, a TLS handshake
		heard := make(chan byte, 1)
		g := startGate(t, nil)
		p := newPool(t, g, func(c *dsql.Config) {
			c.MaxSize, c.DirectTLS = 1, direct
			c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := g.Dial(ctx, network, address)
				return &listener{Conn: conn, heard: heard}, err
			}
		})
		require.NoError(t, p.Ping(within(t, 20*time.Second)))
		require.Equal(t, first, <-heard)
	}
}

func TestFaultsOfTheConfigurationAreToldTogether(t *testing.T) {
	noAccount(t)
	_, err := dsql.NewPool(t.Context(), dsql.Config{
		Port: 70000, TLS: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it must be refused
		MaxSize: 2, MinIdle: 3, LowWatermark: 3, ReplaceAfter: time.Hour, MaxLifetime: time.Hour, GuardWindow: time.Hour, CancelGrace: -1, RateFallback: math.Inf(1), OpenTimeout: -1, CloseTimeout: -1, CheckTimeout: -1, BadConnWhenEmpty: true,
		ConnLimit: -1, OpenRate: math.NaN(), OpenBurst: -1, TokenLifetime: time.Millisecond,
	})
	for _, field := range []string{"Host", "Region", "Port", "TLS", "MinIdle", "LowWatermark", "ReplaceAfter", "MaxLifetime", "CancelGrace", "RateFallback", "GuardWindow", "OpenTimeout", "CloseTimeout", "CheckTimeout", "BadConnWhenEmpty", "ConnLimit", "OpenRate", "OpenBurst", "TokenLifetime"} {
		require.ErrorContains(t, err, "dsql: "+field+":")
	}
}

// Who writes 30 where 30*time.Second is meant is told so, whatever the field.
func TestADurationWithoutItsUnitIsRefused(t *testing.T) {
	noAccount(t)
	c := dsql.Config{
		Host: dsqlgate.DefaultHost, AcquireTimeout: 30, OpenTimeout: 5, CloseTimeout: 5, CancelGrace: 500, CheckTimeout: 5, CheckInterval: 300,
		ReplaceAfter: 11, LifetimeJitter: 2, MaxLifetime: 59, GuardWindow: 45, IdleTTL: 300, LeakAfter: 60,
	}
	_, err := dsql.NewPool(t.Context(), c)
	for _, field := range []string{
		"AcquireTimeout: 30ns", "OpenTimeout: 5ns", "CloseTimeout: 5ns", "CancelGrace: 500ns", "CheckTimeout: 5ns", "CheckInterval: 300ns",
		"ReplaceAfter: 11ns", "LifetimeJitter: 2ns", "MaxLifetime: 59ns", "GuardWindow: 45ns", "IdleTTL: 300ns", "LeakAfter: 60ns",
	} {
		require.ErrorContains(t, err, "dsql: "+field+" is less than 1ms: is the unit missing?")
	}
	require.NotContains(t, err.Error(), "\n")
}

func TestWhatWouldNeverOpenAConnectionIsRefused(t *testing.T) {
	noAccount(t)
	for _, c := range []dsql.Config{{NoWait: true, OnDemand: true}, {NoWait: true, MinIdle: -1}} {
		c.Host = dsqlgate.DefaultHost
		_, err := dsql.NewPool(t.Context(), c)
		require.ErrorContains(t, err, "dsql: NoWait:")
	}
}

// unreachable leases belong to a table that does not answer, with a fallback
// that grants nothing.
type unreachable struct{ lease.Leases }

func (unreachable) Acquire(context.Context) (func(), error) {
	return nil, fmt.Errorf("no answer: %w", lease.ErrUnavailable)
}

func TestWithoutPermissionToOpenCallersAreToldWhy(t *testing.T) {
	g := startGate(t, nil)
	p := newPool(t, g, func(c *dsql.Config) { c.Leases = unreachable{lease.NewLeases("x", 1)} })
	err := p.Ping(within(t, 20*time.Second))
	require.ErrorIs(t, err, dsql.ErrReservoirEmpty)
	require.ErrorIs(t, err, lease.ErrUnavailable)
	require.NotErrorIs(t, err, context.DeadlineExceeded, "at once")
	require.Positive(t, p.Stats().FailedOpens.Unpermitted)
	require.Zero(t, g.Stats().Attempts)
}

// Where nothing is kept ready nobody opens connections but for callers.
func TestOnDemandRecoversFromAnOpenThatWasDenied(t *testing.T) {
	for name, set := range map[string]func(*dsql.Config){
		"OnDemand":   func(c *dsql.Config) { c.OnDemand = true },
		"no MinIdle": func(c *dsql.Config) { c.MinIdle = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			g := startGate(t, nil)
			p := newPool(t, g, func(c *dsql.Config) {
				c.MaxSize = 1
				set(c)
			})
			ctx := within(t, 30*time.Second)
			g.Refuse(2, "08006")
			require.ErrorContains(t, p.Ping(ctx), "access denied")
			attempts := g.Stats().Attempts
			for range 100 {
				require.ErrorContains(t, p.Ping(ctx), "access denied")
			}
			require.LessOrEqual(t, g.Stats().Attempts, attempts+1, "callers fail at once in the pause")
			reach(t, "callers have connections again", func() bool { return p.Ping(ctx) == nil })
			require.LessOrEqual(t, g.Stats().Attempts, 3, "one attempt after each pause")
		})
	}
}

// Nobody else would open the connection that WaitReady waits for.
func TestWaitReadyRecoversFromAnOpenThatWasDenied(t *testing.T) {
	g := startGate(t, nil)
	p := newPool(t, g, func(c *dsql.Config) { c.MaxSize, c.OnDemand = 1, true })
	ctx := within(t, 20*time.Second)
	g.Refuse(1, "08006")
	require.ErrorContains(t, p.WaitReady(ctx, 0), "access denied")
	reach(t, "the pause is over", func() bool { return p.Stats().Paused == 0 })
	require.NoError(t, p.WaitReady(ctx, 0))
}

// Nobody else could give what this process alone is allowed.
func TestMoreConnectionsThanTheOwnLimitAreAFault(t *testing.T) {
	c := newCluster(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize, c.ConnLimit = 0, 3 })
	require.Equal(t, 3, c.Config().MaxSize, "the default makes room")
	cfg := dsql.Config{Host: dsqlgate.DefaultHost, MaxSize: 4, ConnLimit: 3}
	_, err := dsql.NewCluster(t.Context(), cfg)
	require.ErrorContains(t, err, "MaxSize: 4 is more than ConnLimit 3")
}
