package flightpool

import (
	"crypto/tls"
	"math"
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
	_, err = New(t.Context(), "127.0.0.1:1", Config{MinIdle: 9, MaxSize: 8})
	require.ErrorContains(t, err, "did you mean grpc://127.0.0.1:1?")
	require.ErrorContains(t, err, "MinIdle", "a bad target hides no fault of the Config")
	_, err = NewWith(t.Context(), nil, Config{MaxSize: -2})
	require.ErrorContains(t, err, "open: is required")
	require.ErrorContains(t, err, "MaxSize")
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

func TestTheLeastNumbersAreOff(t *testing.T) {
	p, err := New(t.Context(), "grpc://127.0.0.1:1", Config{
		MinIdle: math.MinInt, MaxConcurrentOpens: math.MinInt, MaxWaiters: math.MinInt, AcquireTimeout: math.MinInt64, IdleTTL: math.MinInt64, MaxLifetime: math.MinInt64,
		LifetimeJitter: math.MinInt64, GuardWindow: math.MinInt64, DefaultQueryTimeout: math.MinInt64, LeakAfter: math.MinInt64,
		HealthCheck: HealthCheck{Interval: math.MinInt64, IdleBeforeCheck: math.MinInt64, FailureThreshold: math.MinInt, UnhealthyAfter: math.MinInt64},
	})
	require.NoError(t, err)
	require.NoError(t, p.Close(t.Context()))
}

func TestADurationWithoutItsUnitIsNamed(t *testing.T) {
	_, err := New(t.Context(), "grpc://127.0.0.1:1", Config{
		AcquireTimeout: 30, DialTimeout: 5, CloseTimeout: 5, DefaultQueryTimeout: 30,
		HealthCheck: HealthCheck{Timeout: 5}, Cancel: CancelPolicy{Grace: 1, Budget: 5},
	})
	for _, field := range []string{"AcquireTimeout: 30ns", "DialTimeout: 5ns", "CloseTimeout: 5ns", "DefaultQueryTimeout: 30ns", "HealthCheck.Timeout: 5ns", "Cancel.Grace: 1ns", "Cancel.Budget: 5ns"} {
		require.ErrorContains(t, err, field+" is less than 1ms: is the unit missing?")
	}
}

func TestMaxSizesDefaultHasRoomForMinIdle(t *testing.T) {
	cfg, err := Config{MinIdle: 100}.resolve()
	require.NoError(t, err, "on a machine of any size")
	require.Equal(t, 100, cfg.MaxSize)
}

// A check runs in sessions that are lent afterwards.
func TestAHealthCheckOnlyReads(t *testing.T) {
	for sql, ok := range map[string]bool{
		"SELECT 1": true, "VALUES 1": true, "SELECT 1 FROM dual": true, "SHOW TABLES": true, "-- ping\nSELECT 1;": true, "SELECT count(*) FROM t; SELECT 2": true, "SOMETHING OF THE SERVER'S": true,
		"BEGIN": false, "SELECT 1; COMMIT": false, "SET threads = 1": false, "USE lake": false, "CREATE TEMP TABLE t (a INT)": false, "PREPARE p AS SELECT 1": false,
	} {
		_, err := Config{HealthCheck: HealthCheck{SQL: sql}}.resolve()
		if ok {
			require.NoError(t, err, sql)
			continue
		}
		require.ErrorContains(t, err, "HealthCheck.SQL: ", sql)
		require.NotContains(t, err.Error(), sql, "it may hold a secret")
	}
}
