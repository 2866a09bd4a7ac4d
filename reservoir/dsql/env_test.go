package dsql

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/option/optiontest"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/dynamolease"
	leasefleet "github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/reservoir"
)

func environ(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

const someHost = "abcdefghijklmnopqrstuvwxyz.dsql.us-east-1.on.aws"

func TestAnEmptyEnvironmentHasTheDefaultsOfGo(t *testing.T) {
	fromEnv, err := configFrom(environ(map[string]string{"CLUSTER_ENDPOINT": someHost, "DSQL_RESERVOIR_ENABLED": "true"}))
	require.NoError(t, err)
	none := environ(nil)
	a, err := fromEnv.resolve(none)
	require.NoError(t, err)
	b, err := Config{Host: someHost}.resolve(none)
	require.NoError(t, err)
	a.Dial, b.Dial = nil, nil
	require.Equal(t, b, a)
	require.Equal(t, a.MaxSize, a.MinIdle)
	require.Equal(t, a.MaxSize, a.LowWatermark)
	require.Equal(t, 11*time.Minute, a.ReplaceAfter)
	require.Equal(t, 2*time.Minute, a.LifetimeJitter)
	require.Equal(t, 45*time.Second, a.GuardWindow)
	require.Equal(t, 59*time.Minute, a.MaxLifetime)
	require.Equal(t, 9_800, a.ConnLimit)
	require.Equal(t, "abcdefghijklmnopqrstuvwxyz.us-east-1", a.Budget)
	require.Empty(t, a.LeaseTable)

	unset, err := configFrom(none)
	require.NoError(t, err)
	require.True(t, unset.OnDemand, "DSQL_RESERVOIR_ENABLED is false by default")
}

func TestEveryVariableIsRead(t *testing.T) {
	c, err := configFrom(environ(map[string]string{
		"DSQL_RESERVOIR_ENABLED": "TRUE", "DSQL_RESERVOIR_TARGET_READY": "7", "DSQL_RESERVOIR_LOW_WATERMARK": "3",
		"DSQL_RESERVOIR_BASE_LIFETIME": "50m", "DSQL_RESERVOIR_LIFETIME_JITTER": "0", "DSQL_RESERVOIR_GUARD_WINDOW": "10s",
		"DSQL_DISTRIBUTED_CONN_LEASE_ENABLED": "1", "DSQL_DISTRIBUTED_CONN_LEASE_TABLE": "leases", "DSQL_DISTRIBUTED_CONN_LIMIT": "20000",
		"DSQL_MAX_OPEN": "9", "CLUSTER_ENDPOINT": someHost, "CLUSTER_USER": "app",
		"DSQL_RESERVOIR_MAX_LIFETIME": "58m", "DSQL_RESERVOIR_IDLE_TTL": "0", "DSQL_RESERVOIR_LEAK_AFTER": "1m", "DSQL_RESERVOIR_CHECK_INTERVAL": "1m",
		"DSQL_CANCEL_GRACE": "1s", "DSQL_OPEN_RATE": "50.5", "DSQL_OPEN_BURST": "60", "DSQL_RATE_FALLBACK": "0", "DSQL_DISTRIBUTED_CONN_BUDGET": "ours",
		"DSQL_DISTRIBUTED_CONN_LEASE": "30s", "DSQL_DISTRIBUTED_CONN_LEASE_GRACE": "9s", "DSQL_DISTRIBUTED_CONN_LEASE_SHARDS": "2",
		"DSQL_DISTRIBUTED_CONN_LEASE_BATCH": "5", "DSQL_DISTRIBUTED_CONN_LEASE_STRICT": "true",
	}))
	require.NoError(t, err)
	require.Equal(t, Config{
		Host: someHost, User: "app", MaxSize: 9, MinIdle: 7, LowWatermark: 3,
		ReplaceAfter: 50 * time.Minute, LifetimeJitter: -1, GuardWindow: 10 * time.Second, ConnLimit: 20000, LeaseTable: "leases",
		MaxLifetime: 58 * time.Minute, IdleTTL: -1, LeakAfter: time.Minute, CheckInterval: time.Minute, CancelGrace: time.Second,
		OpenRate: 50.5, OpenBurst: 60, RateFallback: -1, Budget: "ours",
		Lease: 30 * time.Second, LeaseGrace: 9 * time.Second, LeaseShards: 2, LeaseBatch: 5, LeaseStrict: true,
	}, c)
}

func TestEveryFieldOfAConfigIsInTheTable(t *testing.T) {
	optiontest.Covers(t, fields,
		"Region", "RuntimeParams", "Credentials", "DirectTLS", "Dial", "Pgx", "MaxConcurrentOpens", "NoWait", "BadConnWhenEmpty", "AfterConnect",
		"BeforeAcquire", "BeforeClose", "AcquireTracer", "OnReturn", "Fallback", "Leases", "Limiter", "Hooks")
	doc, err := os.ReadFile("env.go")
	require.NoError(t, err)
	comment, _, _ := strings.Cut(string(doc), "func ConfigFromEnv")
	for _, row := range fields {
		if name, key := row.Names(); key != "" {
			optiontest.Named(t, comment, key, "Config."+name)
		}
	}
}

func TestEveryBadVariableIsNamed(t *testing.T) {
	bad := map[string]string{
		"DSQL_RESERVOIR_ENABLED": "ja", "DSQL_RESERVOIR_TARGET_READY": "0", "DSQL_RESERVOIR_LOW_WATERMARK": "many",
		"DSQL_RESERVOIR_BASE_LIFETIME": "0s", "DSQL_RESERVOIR_LIFETIME_JITTER": "-1s", "DSQL_RESERVOIR_GUARD_WINDOW": "45",
		"DSQL_DISTRIBUTED_CONN_LEASE_ENABLED": "2", "DSQL_DISTRIBUTED_CONN_LIMIT": "-5", "DSQL_MAX_OPEN": "1.5",
		"DSQL_RESERVOIR_MAX_LIFETIME": "0", "DSQL_RESERVOIR_IDLE_TTL": "x", "DSQL_CANCEL_GRACE": "0s", "DSQL_OPEN_RATE": "NaN", "DSQL_RATE_FALLBACK": "-1",
		"DSQL_DISTRIBUTED_CONN_LEASE": "60", "DSQL_DISTRIBUTED_CONN_LEASE_SHARDS": "0", "DSQL_DISTRIBUTED_CONN_LEASE_STRICT": "si",
	}
	_, err := configFrom(environ(bad))
	for name := range bad {
		require.ErrorContains(t, err, "dsql: "+name+":")
	}
	_, err = configFrom(environ(map[string]string{"DSQL_DISTRIBUTED_CONN_LEASE_ENABLED": "true"}))
	require.ErrorContains(t, err, "DSQL_DISTRIBUTED_CONN_LEASE_TABLE")
	_, err = configFrom(environ(map[string]string{"DSQL_OPEN_RATE": "0"}))
	require.EqualError(t, err, "dsql: DSQL_OPEN_RATE: cannot be off")
}

func TestThePlaceIsFoundFromWhatIsGiven(t *testing.T) {
	const id = "abcdefghijklmnopqrstuvwxyz"
	for name, c := range map[string]struct {
		host, region string
		env          map[string]string
		wantHost     string
		wantRegion   string
	}{
		"the host's region":           {id + ".dsql.eu-west-2.on.aws", "", map[string]string{"AWS_REGION": "us-east-1"}, id + ".dsql.eu-west-2.on.aws", "eu-west-2"},
		"that of a special partition": {id + ".dsql-gamma.eu-west-2.on.aws.", "", nil, id + ".dsql-gamma.eu-west-2.on.aws", "eu-west-2"},
		"the one that was set":        {id + ".dsql.eu-west-2.on.aws", "us-west-1", nil, id + ".dsql.eu-west-2.on.aws", "us-west-1"},
		"a cluster's identifier":      {id, "", map[string]string{"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-west-1"}, id + ".dsql.us-east-1.on.aws", "us-east-1"},
		"the default region":          {"db.example.com", "", map[string]string{"AWS_DEFAULT_REGION": "us-west-1"}, "db.example.com", "us-west-1"},
	} {
		t.Run(name, func(t *testing.T) {
			host, region, err := resolveEndpoint(c.host, c.region, environ(c.env))
			require.NoError(t, err)
			require.Equal(t, c.wantHost, host)
			require.Equal(t, c.wantRegion, region)
		})
	}
	_, _, err := resolveEndpoint("https://x:1", "", environ(nil))
	require.ErrorContains(t, err, "Host")
	require.ErrorContains(t, err, "AWS_REGION")
}

func TestATargetAloneMakesRoomForItself(t *testing.T) {
	c, err := configFrom(environ(map[string]string{"CLUSTER_ENDPOINT": someHost, "DSQL_RESERVOIR_ENABLED": "true", "DSQL_RESERVOIR_TARGET_READY": "500"}))
	require.NoError(t, err)
	c, err = c.resolve(environ(nil))
	require.NoError(t, err)
	require.Equal(t, 500, c.MaxSize)
	c.MaxSize = 499
	_, err = c.resolve(environ(nil))
	require.ErrorContains(t, err, "dsql: MinIdle:", "unless that is said to be less")
}

// What the reservoir does with it is tested there: the spread of a burst, the
// guard window to the nanosecond.
func TestTheReservoirIsToldOfAgesAndNumbers(t *testing.T) {
	for name, c := range map[string]struct {
		set  Config
		want reservoir.Config[*physical]
	}{
		"defaults": {Config{MaxSize: 9}, reservoir.Config[*physical]{
			MinIdle: 9, MaxSize: 9, OpenRetry: reservoir.OpenRetryNever, MaxLifetime: 59 * time.Minute, ReplaceAfter: 11 * time.Minute, LifetimeJitter: 2 * time.Minute, GuardWindow: 45 * time.Second,
			OpenTimeout: 5 * time.Second, CheckInterval: 5 * time.Minute, CheckTimeout: 5 * time.Second, CloseTimeout: 10 * time.Second,
		}},
		"others": {
			Config{
				MaxSize: 9, MinIdle: 3, ReplaceAfter: 50 * time.Minute, MaxLifetime: 58 * time.Minute, LifetimeJitter: time.Minute, GuardWindow: time.Second, OpenTimeout: 2 * time.Second,
				CheckInterval: time.Minute, CheckTimeout: time.Second, CloseTimeout: time.Second, MaxConcurrentOpens: 2,
			},
			reservoir.Config[*physical]{
				MinIdle: 3, MaxSize: 9, OpenRetry: reservoir.OpenRetryNever, MaxLifetime: 58 * time.Minute, ReplaceAfter: 50 * time.Minute, LifetimeJitter: time.Minute, GuardWindow: time.Second, OpenTimeout: 2 * time.Second,
				CheckInterval: time.Minute, CheckTimeout: time.Second, CloseTimeout: 2 * time.Second, MaxConcurrentOpens: 2,
			},
		},
		"on demand":     {Config{MaxSize: 9, OnDemand: true}, reservoir.Config[*physical]{MinIdle: 0, MaxSize: 9}},
		"nothing ready": {Config{MaxSize: 9, MinIdle: -1}, reservoir.Config[*physical]{MinIdle: 0, MaxSize: 9}},
		"without jitter": {Config{MaxSize: 9, LifetimeJitter: -1, GuardWindow: -1}, reservoir.Config[*physical]{
			MinIdle: 9, MaxSize: 9, LifetimeJitter: -1, GuardWindow: -1,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c.set.Host = someHost
			cfg, err := c.set.resolve(environ(nil))
			require.NoError(t, err)
			got := (&Cluster{cfg: cfg}).reservoirConfig(t.Context(), nil)
			require.Equal(t, c.want.MinIdle, got.MinIdle)
			require.Equal(t, c.want.MaxSize, got.MaxSize)
			if c.want.MaxLifetime > 0 {
				got.Open, got.Close, got.Check, got.Admit, got.AcquireTimeout = nil, nil, nil, nil, 0
				require.Equal(t, c.want, got)
			}
			if c.want.GuardWindow < 0 {
				require.Negative(t, got.LifetimeJitter)
				require.Negative(t, got.GuardWindow)
			}
		})
	}
}

func TestAClusterIsOneBudgetByWhateverName(t *testing.T) {
	const id = "abcdefghijklmnopqrstuvwxyz"
	for host, want := range map[string]string{
		id + ".dsql.us-east-1.on.aws":        id + ".us-east-1",
		id + ".dsql-fnh4.us-east-1.on.aws":   id + ".us-east-1",
		id + ".dsql.EU-WEST-2.on.aws.":       id + ".eu-west-2",
		id:                                   id + ".us-west-1",
		"dsql.example.com":                   "dsql.example.com",
		"x." + id + ".dsql.us-east-1.on.aws": "x." + id + ".dsql.us-east-1.on.aws",
	} {
		c, err := Config{Host: host}.resolve(environ(map[string]string{"AWS_REGION": "us-west-1"}))
		require.NoError(t, err)
		require.Equal(t, want, c.Budget)
	}
	c, err := Config{Host: id, Budget: "ours"}.resolve(environ(map[string]string{"AWS_REGION": "us-west-1"}))
	require.NoError(t, err)
	require.Equal(t, "ours", c.Budget)
}

func TestTheLeasesAreToldWhatIsConfigured(t *testing.T) {
	c, err := Config{
		Host: someHost, LeaseTable: "leases", Budget: "b", ConnLimit: 70, MaxSize: 7, OpenTimeout: time.Second, Fallback: lease.Share(3),
		Lease: 30 * time.Second, LeaseGrace: 10 * time.Second, LeaseShards: 4, LeaseBatch: 5, Logger: slog.New(slog.DiscardHandler),
	}.resolve(environ(nil))
	require.NoError(t, err)
	require.Equal(t, dynamolease.Config{
		Table: "leases", Budget: "b", Limit: 70, Want: 7, OpenTimeout: time.Second, Fallback: lease.Share(3),
		Lease: 30 * time.Second, Grace: 10 * time.Second, Shards: 4, Batch: 5, Logger: c.Logger,
	}, leasesConfig(c))
	c.LeaseStrict, c.Fallback = true, lease.Pessimistic()
	require.True(t, leasesConfig(c).Strict)
}

// Who may have all that the fleet may, and opens on demand, as each user's cluster of a registry, expects nothing in particular.
func TestWhoMayHaveAllOfTheFleetLeavesTheRestToTheOthers(t *testing.T) {
	for _, limit := range []int{40, connLimit, 20_000} {
		synctest.Test(t, func(t *testing.T) {
			c, err := Config{Host: someHost, LeaseTable: "leases", ConnLimit: limit, MaxSize: limit, OnDemand: true, Logger: slog.New(slog.DiscardHandler)}.resolve(environ(nil))
			require.NoError(t, err)
			store, began := leasefleet.NewMemory(), time.Now()
			for range 12 {
				l, err := leasefleet.New(t.Context(), store, leasesConfig(c))
				require.NoError(t, err)
				defer func() { require.NoError(t, l.Close(context.WithoutCancel(t.Context()))) }()
				release, err := l.Acquire(t.Context())
				require.NoError(t, err)
				defer release()
			}
			assert.Less(t, time.Since(began), time.Second, "%d: nobody waits for what another has taken in advance", limit)
		})
	}
}

func TestTheRegionIsFoundInTheProfile(t *testing.T) {
	const id = "abcdefghijklmnopqrstuvwxyz"
	file := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(file, []byte("[default]\nregion = eu-west-3\n[profile other]\nregion = eu-north-1\n"), 0o600))
	t.Setenv("AWS_CONFIG_FILE", file)
	for name, c := range map[string]struct {
		set     Config
		env     map[string]string
		profile string
		want    string
	}{
		"the default profile's":  {Config{Host: id}, nil, "", "eu-west-3"},
		"another profile's":      {Config{Host: id}, nil, "other", "eu-north-1"},
		"that of a private name": {Config{Host: "db.example.com"}, nil, "", "eu-west-3"},
		"the host's":             {Config{Host: id + ".dsql.eu-west-2.on.aws."}, nil, "", "eu-west-2"},
		"the environment's":      {Config{Host: id}, map[string]string{"AWS_DEFAULT_REGION": "us-west-1"}, "", "us-west-1"},
		"the one that was set":   {Config{Host: id, Region: "us-east-2"}, nil, "", "us-east-2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("AWS_REGION", "")
			t.Setenv("AWS_DEFAULT_REGION", "")
			t.Setenv("AWS_PROFILE", c.profile)
			cfg, err := c.set.regionFromProfile(t.Context(), environ(c.env))
			require.NoError(t, err)
			cfg, err = cfg.resolve(environ(c.env))
			require.NoError(t, err)
			require.Equal(t, c.want, cfg.Region)
			if c.set.Host == id {
				require.Equal(t, id+".dsql."+c.want+".on.aws", cfg.Host)
				require.Equal(t, id+"."+c.want, cfg.Budget)
			}
		})
	}
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	t.Setenv("AWS_PROFILE", "nobody")
	_, err := NewCluster(t.Context(), Config{Host: id})
	require.ErrorContains(t, err, "dsql: Region:")
	require.ErrorContains(t, err, "nobody", "why it is not known")
	t.Setenv("AWS_PROFILE", "other")
	cluster, err := NewCluster(t.Context(), Config{Host: id, OnDemand: true})
	require.NoError(t, err)
	require.Equal(t, "eu-north-1", cluster.Config().Region)
	require.NoError(t, cluster.Close(t.Context()))
}

// Who gives a connection string in place of a name is told so, and nobody sees what is in it.
func TestAHostThatIsNoNameIsNotPrinted(t *testing.T) {
	c, err := configFrom(environ(map[string]string{"CLUSTER_ENDPOINT": "postgres://ann:s3cret@db:5432/postgres"}))
	require.NoError(t, err)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		require.NotContains(t, fmt.Sprintf(verb, c), "s3cret", verb)
	}
	require.Contains(t, c.String(), "Host: set")
	require.Contains(t, Config{Host: "db.example.com"}.String(), `Host: "db.example.com"`)
	_, err = c.resolve(environ(nil))
	require.ErrorContains(t, err, "dsql: Host: a name is wanted")
	require.NotContains(t, err.Error(), "s3cret")
}

// Turned off, the watermark is what it is by default: opens never ask one at a time.
func TestALowWatermarkThatIsOffIsThatOfTheDefault(t *testing.T) {
	for _, low := range []int{0, -1} {
		c, err := Config{Host: someHost, MaxSize: 9, LowWatermark: low}.resolve(environ(nil))
		require.NoError(t, err)
		require.Equal(t, 9, c.LowWatermark, low)
	}
}

// The comments of Config, that of ConfigFromEnv and docs/dsql.md say each default as the code
// has it.
func TestTheDefaultsThatAreSaidHold(t *testing.T) {
	c, err := Config{Host: someHost}.resolve(environ(nil))
	require.NoError(t, err)
	said := optiontest.Said(t, "config.go", "Config")
	reservoirs, fleets := optiontest.Said(t, "../config.go", "Config"), optiontest.Said(t, "../../lease/fleet/config.go", "Config")
	for _, name := range []string{"IdleTTL", "MaxConcurrentOpens"} { // the reservoir's
		require.Equal(t, reservoirs[name], said[name], name)
		delete(said, name)
	}
	optiontest.Hold(t, said, c, "MaxSize", "MinIdle", "LowWatermark")

	require.NotZero(t, c.IdleTTL+1)
	filled := c
	filled.OnDemand = true // without DSQL_RESERVOIR_ENABLED
	filled.IdleTTL, filled.Lease, filled.LeaseGrace = 5*time.Minute, time.Minute, 20*time.Second
	require.Equal(t, []string{"5m", "60s", "20s"}, []string{reservoirs["IdleTTL"], fleets["Lease"], fleets["Grace"]})
	check := func(file string, row *regexp.Regexp, want int) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		table := map[string]string{}
		for _, m := range row.FindAllStringSubmatch(string(text), -1) {
			if _, ours := fields.Find(m[1]); ours && m[2] != "MaxSize" && m[2] != "`MaxSize`" {
				table[m[1]] = m[2]
			}
		}
		for _, name := range []string{"CLUSTER_ENDPOINT", "DSQL_MAX_OPEN", "DSQL_DISTRIBUTED_CONN_BUDGET", "DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "DSQL_RATE_FALLBACK"} {
			delete(table, name) // they have none that is a value
		}
		require.Len(t, table, want, file)
		optiontest.Parsed(t, fields, &filled, table)
	}
	check("env.go", regexp.MustCompile(`(?m)^//\t([A-Z_]+) +(\S+) `), 18)
	check("../../docs/dsql.md", regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| [^|]* \\| ([^|]*) \\|"), 5)
}
