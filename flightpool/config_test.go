package flightpool

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
)

func TestEveryFaultOfAConfigIsReportedAtOnceByName(t *testing.T) {
	bad := Config{
		MinIdle: 9, MaxSize: 8, DialTimeout: -1, CloseTimeout: -1, MaxMessage: -1,
		MaxLifetime: time.Second, GuardWindow: time.Minute, OnExhausted: Overflow(0),
		HealthCheck: HealthCheck{Kind: 7, Timeout: -1, RecoveryThreshold: -1},
		Cancel:      CancelPolicy{Grace: -1, Budget: -1, Actions: []string{" "}},
		OnReturn:    ResetSQL("RESET ALL", ""),
		Auth:        BasicAuth("a:b", "secret"),
		Headers:     metadata.MD{"grpc-x": nil, "Authorization": nil},
		TLS:         &tls.Config{MinVersion: tls.VersionTLS12},
	}
	_, err := New(t.Context(), "grpc://127.0.0.1:1", bad)
	for _, field := range []string{"MinIdle", "DialTimeout", "CloseTimeout", "MaxMessage", "HealthCheck.Kind", "HealthCheck.Timeout", "HealthCheck.RecoveryThreshold",
		"Cancel.Grace", "Cancel.Budget", "Cancel.Actions", "OnReturn", "Auth", "grpc-x", "put authorization into Auth", "TLS", "GuardWindow", "OnExhausted"} {
		require.ErrorContains(t, err, field)
	}
	require.NotContains(t, err.Error(), "secret")
	for name, fault := range map[string]string{"no name": "header name", "Authorization": "not for credentials", "X-Tenant": "in Headers too"} {
		_, err = New(t.Context(), "grpc://127.0.0.1:1", Config{SessionHeader: name, Headers: metadata.MD{"x-tenant": {"a"}}})
		require.ErrorContains(t, err, "SessionHeader: ")
		require.ErrorContains(t, err, fault)
	}
	require.Equal(t, FaultUsage, faultIn(err))
	_, err = NewWith(t.Context(), nil, Config{MaxSize: -2})
	require.ErrorContains(t, err, "open: is required")
	require.ErrorContains(t, err, "MaxSize")
}

func TestTargets(t *testing.T) {
	for dsn, want := range map[string]string{
		"grpc://db:31337":                              "tcp db:31337 plain",
		"grpc+tcp://db:31337/":                         "tcp db:31337 plain",
		"grpc+tls://db:443":                            "tcp db:443 secure",
		"grpc+unix:///run/db.sock":                     "unix /run/db.sock plain",
		"flightsql://db:443":                           "tcp db:443 secure",
		"flightsql://127.0.0.1:31337":                  "tcp 127.0.0.1:31337 plain",
		"flightsql://localhost:1/?transport=tls":       "tcp localhost:1 secure",
		"flightsql://db:1/?transport=tcp":              "tcp db:1 plain",
		"flightsql:///run/db.sock?transport=unix":      "unix /run/db.sock plain",
		"flightsql://[::1]:31337/?max_size=8":          "tcp [::1]:31337 plain",
		"flightsql://user:p%40ss@db:31337/?min_idle=2": "tcp db:31337 secure",
	} {
		target, _, err := ParseTarget(dsn)
		require.NoError(t, err, dsn)
		a, err := parseAddress(target)
		require.NoError(t, err, dsn)
		security := map[bool]string{true: "secure", false: "plain"}[a.secure]
		require.Equal(t, want, fmt.Sprintf("%s %s %s", a.network, a.addr, security), dsn)
		require.NotContains(t, target, "@")
	}
}

func TestTargetOptionsBecomeConfig(t *testing.T) {
	_, cfg, err := ParseTarget("flightsql://user:p%40ss@db:1/?max_size=8&min_idle=-1&acquire_timeout=2s&query_timeout=1m&on_exhausted=overflow:3" +
		"&health_check=full_validate&health_check_sql=SELECT+2&validate_on_acquire=true&disable_retry=1&on_return=discard&leak_after=5m")
	require.NoError(t, err)
	require.Equal(t, "p@ss", cfg.Auth.password.reveal())
	cfg.Auth.password = nil
	require.Equal(t, Config{
		MaxSize: 8, MinIdle: -1, AcquireTimeout: 2 * time.Second, DefaultQueryTimeout: time.Minute, OnExhausted: Overflow(3),
		HealthCheck: HealthCheck{Kind: FullValidate, SQL: "SELECT 2", ValidateOnAcquire: true}, DisableRetry: true, OnReturn: ResetDiscard,
		Auth: Auth{kind: "basic", user: "user"}, LeakAfter: 5 * time.Minute,
	}, cfg)
	_, cfg, err = ParseTarget("flightsql://db:1/?token=abc&tls_insecure_skip_verify=true&on_exhausted=fail_fast")
	require.NoError(t, err)
	require.True(t, cfg.TLS.InsecureSkipVerify)
	require.Equal(t, "bearer", cfg.Auth.String())
	require.Equal(t, FailFast, cfg.OnExhausted)
}

func TestBadTargetsSayWhatIsWrong(t *testing.T) {
	for dsn, want := range map[string]string{
		"":                                    "scheme",
		"db:31337":                            "scheme",
		"http://db:1":                         `scheme "http"`,
		"grpc://db":                           "no port",
		"grpc://:1":                           "no host",
		"grpc://db:99999":                     "port 99999",
		"grpc://db:1/path":                    "path",
		"grpc+unix://":                        "path of a socket",
		"grpc://db:1/?max_size=many":          `max_size: "many" is not a number`,
		"grpc://db:1/?acquire_timeout=5":      `acquire_timeout: "5" is not a duration`,
		"grpc://db:1/?max_sise=5":             `"max_sise" is none of`,
		"grpc://db:1/?max_size=1&max_size=2":  "given 2 times",
		"grpc://db:1/?on_exhausted=overflow":  "overflow:n",
		"grpc://db:1/?health_check=pong":      "full_validate, ping, query",
		"flightsql://db:1/?transport=pigeon":  "pigeon",
		"grpc://u:p@db:1/?token=x":            "excludes a user",
		"grpc://u:secret@db:1\x7f":            "invalid control character",
		"grpc://db:1/?validate_on_acquire=ja": "neither true nor false",
	} {
		_, _, err := ParseTarget(dsn)
		require.ErrorContains(t, err, want, dsn)
		require.NotContains(t, err.Error(), "secret")
	}
	_, _, err := ParseTarget("http://db/?a=1&b=2")
	require.Equal(t, 3, strings.Count(err.Error(), "\n")+1, "all at once: %v", err)
}

func TestAFieldInTargetAndConfigIsAFault(t *testing.T) {
	_, err := New(t.Context(), "grpc://u:p@127.0.0.1:1/?max_size=3&health_check_sql=x", Config{MaxSize: 4, Auth: BearerAuth("t"), HealthCheck: HealthCheck{SQL: "y"}})
	for _, field := range []string{"MaxSize", "Auth", "HealthCheck.SQL"} {
		require.ErrorContains(t, err, field+": set in the target and in the Config")
	}
}

func TestDefaults(t *testing.T) {
	cfg, err := Config{}.resolve()
	require.NoError(t, err)
	require.Equal(t, 1, cfg.MinIdle)
	require.Equal(t, []time.Duration{30 * time.Second, 5 * time.Second, 5 * time.Second, 250 * time.Millisecond, 5 * time.Second},
		[]time.Duration{cfg.AcquireTimeout, cfg.DialTimeout, cfg.CloseTimeout, cfg.Cancel.Grace, cfg.Cancel.Budget})
	require.Equal(t, "SELECT 1", cfg.HealthCheck.SQL)
	require.Equal(t, []int{3, 2}, []int{cfg.HealthCheck.FailureThreshold, cfg.HealthCheck.RecoveryThreshold})
	require.True(t, cfg.MaxSize >= 4 && cfg.MaxSize <= 16)
}
