package flightpool

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/option"
)

func TestTargets(t *testing.T) {
	for text, want := range map[string]string{
		"grpc://db:31337":                              "tcp db:31337 plain",
		"GRPC://db:031337?":                            "tcp db:31337 plain",
		"grpc+tcp://db:31337/":                         "tcp db:31337 plain",
		"grpc+tls://db:443":                            "tcp db:443 secure",
		"grpc+tls://db:443/?transport=tls":             "tcp db:443 secure",
		"grpc+unix:///run/db.sock":                     "unix /run/db.sock plain",
		"grpc+unix:///run/a%40b%23c%3F.sock":           "unix /run/a@b#c?.sock plain",
		"grpc+unix://run/db.sock?transport=unix":       "unix run/db.sock plain",
		"flightsql://db:443":                           "tcp db:443 secure",
		"flightsql://127.0.0.1:31337":                  "tcp 127.0.0.1:31337 plain",
		"flightsql://127.1.2.3:31337":                  "tcp 127.1.2.3:31337 plain",
		"flightsql://LOCALHOST:31337":                  "tcp LOCALHOST:31337 plain",
		"flightsql://localhost:1/?transport=tls":       "tcp localhost:1 secure",
		"flightsql://db:1/?transport=tcp":              "tcp db:1 plain",
		"flightsql:///run/db.sock?transport=unix":      "unix /run/db.sock plain",
		"flightsql://[::1]:31337/?max_size=8":          "tcp [::1]:31337 plain",
		"grpc://[fe80::1%25eth0]:31337":                "tcp [fe80::1%eth0]:31337 plain",
		"flightsql://user:p%40ss@db:31337/?min_idle=2": "tcp db:31337 secure",
		"flightsql://user:p@ss@db:31337":               "tcp db:31337 secure",
	} {
		clean, _, err := ParseTarget(text)
		require.NoError(t, err, text)
		require.NotContains(t, clean, "@")
		d, faults := parseDSN(clean)
		require.Empty(t, faults, text)
		require.Equal(t, clean, d.bareTarget)
		security := map[bool]string{true: "secure", false: "plain"}[d.secure]
		require.Equal(t, want, fmt.Sprintf("%s %s %s", d.network, d.addr, security), text)
	}
}

func TestTargetOptionsBecomeConfig(t *testing.T) {
	_, cfg, err := ParseTarget("flightsql://user:p%40ss@db:1/?max_size=8&min_idle=-1&acquire_timeout=2s&query_timeout=1m&on_exhausted=overflow:3" +
		"&health_check=full_validate&health_check_sql=SELECT+2&validate_on_acquire=true&disable_retry=1&on_return=discard&leak_after=5m")
	require.NoError(t, err)
	require.Equal(t, []string{"user", "p@ss"}, basicOf(t, cfg.Auth))
	cfg.Auth = Auth{}
	require.Equal(t, Config{
		MaxSize: 8, MinIdle: -1, AcquireTimeout: 2 * time.Second, DefaultQueryTimeout: time.Minute, OnExhausted: Overflow(3),
		HealthCheck: HealthCheck{Kind: FullValidate, SQL: "SELECT 2", ValidateOnAcquire: true}, DisableRetry: true, OnReturn: ResetDiscard,
		LeakAfter: 5 * time.Minute,
	}, cfg)
	_, cfg, err = ParseTarget("flightsql://db:1/?token=abc%2Bdef/g==&tls_insecure_skip_verify=true&on_exhausted=fail_fast&open_retry=always")
	require.NoError(t, err)
	require.True(t, cfg.TLS.InsecureSkipVerify)
	require.Equal(t, "bearer", cfg.Auth.String())
	require.Equal(t, "Bearer abc+def/g==", headerOf(t, cfg.Auth))
	require.Equal(t, FailFast, cfg.OnExhausted)
	require.Equal(t, OpenRetryAlways, cfg.OpenRetry)
}

func TestZeroInATargetIsOff(t *testing.T) {
	_, cfg, err := ParseTarget("grpc://db:1/?min_idle=0&idle_ttl=0&max_lifetime=0s&acquire_timeout=0&lifetime_jitter=0&guard_window=0" +
		"&query_timeout=0&leak_after=0&health_check_interval=0&max_concurrent_opens=0")
	require.NoError(t, err)
	require.Equal(t, Config{
		MinIdle: -1, IdleTTL: -1, MaxLifetime: -1, AcquireTimeout: -1, LifetimeJitter: -1, GuardWindow: -1,
		DefaultQueryTimeout: -1, LeakAfter: -1, HealthCheck: HealthCheck{Interval: -1}, MaxConcurrentOpens: -1,
	}, cfg)
	resolved, err := cfg.resolve()
	require.NoError(t, err, "each of them can be off")
	require.Equal(t, -1, resolved.MinIdle)
	for option, want := range map[string]string{
		"max_size": "at least 1", "max_waiters": "at least 1",
		"dial_timeout": "cannot be switched off", "close_timeout": "cannot be switched off", "health_check_timeout": "cannot be switched off",
	} {
		_, _, err := ParseTarget("grpc://db:1/?" + option + "=0")
		require.ErrorContains(t, err, want, option)
	}
}

func TestBadTargetsSayWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "scheme",
		"db:31337":                           "did you mean grpc://db:31337?",
		"localhost:31337":                    "did you mean grpc://localhost:31337?",
		"127.0.0.1:31337":                    "did you mean grpc://127.0.0.1:31337?",
		"[::1]:31337":                        "did you mean grpc://[::1]:31337?",
		"db":                                 "has no scheme; begin with grpc://",
		"grpc:/db:1":                         "has no scheme",
		"http://db:1":                        `scheme "http" is none of grpc://, grpc+tls://, grpc+unix:// or flightsql://; did you mean grpc://?`,
		"https://db:1":                       "did you mean grpc+tls://?",
		"ftp://db:1":                         "its scheme is none of grpc://",
		"grpc://db":                          "no port",
		"grpc://:1":                          "no host",
		"grpc://::1:31337":                   "in brackets",
		"grpc://db:99999":                    "port is not between 1 and 65535",
		"grpc://db:0":                        "port is not between 1 and 65535",
		"grpc+tls://db:1/path":               "path",
		"grpc+unix://":                       "needs its path",
		"grpc+unix:///":                      "needs its path",
		"grpc+unix:///run/":                  "needs its path",
		"flightsql://db:1/?transport=unix":   "",
		"flightsql://db:1?transport=unix":    "needs its path",
		"grpc://db:1/?max_size=many":         `max_size: "many" is not a number`,
		"grpc://db:1/?acquire_timeout=5":     `acquire_timeout: "5" is not a duration`,
		"grpc://db:1/?max_sise=5":            `"max_sise" is none of`,
		"grpc://db:1/?MAX_SIZE=5":            `"MAX_SIZE" is none of`,
		"grpc://db:1/?max_size=1&max_size=2": `"max_size" is given more than once`,
		"flightsql://db:1/?transport=tls&transport=tcp": `"transport" is given more than once`,
		"grpc://db:1/?max_size":                         "name=value",
		"grpc://db:1/?open_retry=timed":                 "none of always, deadline, never",
		"grpc://db:1/?on_exhausted=overflow":            "overflow:n",
		"grpc://db:1/?health_check=pong":                "full_validate, ping, query",
		"flightsql://db:1/?transport=pigeon":            "pigeon",
		"grpc://u:p@db:1/?token=x":                      "excludes a user",
		"grpc://:p@db:1/":                               "without a user",
		"grpc://db:1/?token=abc+def":                    "%2B",
		"grpc://db:1/?token=":                           "empty",
		"grpc://db:1\x7f":                               "malformed host",
		"grpc://db:1/?validate_on_acquire=ja":           "neither true nor false",
		"grpc://db:1#max_size=3":                        "# part",
		"grpc://db:1/?max_size=3#x":                     "# part",
		"grpc://db:1/?transport=tls":                    "transport=tls contradicts the scheme grpc://; use flightsql:// with it, or grpc+tls:// without",
		"grpc+tls://db:1/?transport=tcp":                "contradicts the scheme grpc+tls://",
		"grpc+unix:///db.sock?transport=tls":            "contradicts",
		"grpc://db:1/?tls_insecure_skip_verify=1":       "TLS: the target is plain text",
	} {
		_, _, err := ParseTarget(text)
		require.ErrorContains(t, err, want, text)
		require.Equal(t, FaultUsage, faultIn(err))
		_, err = New(t.Context(), text, Config{MinIdle: -1})
		require.ErrorContains(t, err, want, text)
	}
	_, _, err := ParseTarget("grpc://db/?a=1&b=2")
	require.Equal(t, 3, strings.Count(err.Error(), "target: "), "all at once: %v", err)
}

// A password that is not encoded moves the end of what parsers take for the
// authority; no error may show any part of it.
func TestNoErrorOfATargetShowsAPassword(t *testing.T) {
	for _, c := range []string{"#", "/", "?", "%", "%zz", " ", "[", "]", "\\", "\x7f", "?max_size=", "?token=", "/x?a&b=", "?x=%", "://", "&", ":", "@", "?transport=", ";"} {
		for _, format := range []string{"flightsql://app:Sup3r%sSecret@db:31337/", "flightsql://app:Sup3r%sSecret@db", "flightsql://app:1%sSup3rSecret@db:1", "grpc://Sup3r:Secret%s", "app:Sup3r%sSecret@db:31337", "Sup3r:Secret%s://db"} {
			text := fmt.Sprintf(format, c)
			_, _, err := ParseTarget(text)
			_, again := New(t.Context(), text, Config{MaxSize: -1})
			for _, err := range []error{err, again} {
				if err != nil {
					require.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), "Sup3r", text)
					require.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), "Secret", text)
				}
			}
		}
	}
	_, _, err := ParseTarget("flightsql://app:Sup3rSecret#1@db:31337")
	require.ErrorContains(t, err, "percent-encode the user and the password")
	_, _, err = ParseTarget("grpc://db:1/?token=hunt%zzer2&a%zzer2=1")
	require.ErrorContains(t, err, `option "token": its value is not percent-encoded`)
	require.NotContains(t, err.Error(), "er2")
	for _, rest := range []string{"&er2=", "&er2=%zz", "&er2=1&er2=2", "&max_size=3&er2=1"} { // of a token that is not encoded
		_, _, err = ParseTarget("grpc://db:1/?token=hunt" + rest)
		require.ErrorContains(t, err, "an & in a value is written %26", rest)
		require.NotContains(t, err.Error(), "er2", rest)
	}
	_, _, err = ParseTarget("grpc://db:1/?size=1&token=x")
	require.ErrorContains(t, err, `option "size"`)
}

func TestAFieldInTargetAndConfigIsAFault(t *testing.T) {
	_, err := New(t.Context(), "grpc://u:p@127.0.0.1:1/?max_size=3&health_check_sql=x&disable_retry=false", Config{
		MaxSize: 4, Auth: BearerAuth("t"), HealthCheck: HealthCheck{SQL: "y"}, DisableRetry: true,
	})
	for _, field := range []string{"MaxSize", "Auth", "HealthCheck.SQL", "DisableRetry"} {
		require.ErrorContains(t, err, field+": set in the target and in the Config")
	}
}

// FuzzParseTarget: a target that is accepted means the same when it is parsed
// again without credentials and options, and encoding them is enough.
func FuzzParseTarget(f *testing.F) {
	for _, text := range []string{
		"grpc://db:31337", "flightsql://u:p%40@[::1]:1/?max_size=3&token=x", "grpc+unix:///a%40b?min_idle=0", "flightsql://x/y?transport=unix",
		"grpc+tls://u@h:1/?transport=tls", "a:1", "grpc://h:1#f", "grpc+unix:////a//b%2Fc",
	} {
		f.Add(text, "user", "pass#/?%@:word")
	}
	f.Fuzz(func(t *testing.T, text, user, password string) {
		clean, _, err := ParseTarget(text)
		if err != nil {
			require.Empty(t, clean)
			require.Equal(t, FaultUsage, faultIn(err))
			return
		}
		d, faults := parseDSN(text)
		require.Empty(t, faults)
		again, cfg, err := ParseTarget(clean)
		require.NoError(t, err, "%q became %q", text, clean)
		require.Equal(t, clean, again)
		require.Equal(t, "flightpool.Config{}", cfg.String())
		same, _ := parseDSN(clean)
		require.Equal(t, []any{d.network, d.addr, d.secure}, []any{same.network, same.addr, same.secure}, "%q became %q", text, clean)
		if user == "" {
			return
		}
		scheme, rest, _ := strings.Cut(clean, "://")
		_, cfg, err = ParseTarget(scheme + "://" + url.UserPassword(user, password).String() + "@" + rest)
		require.NoError(t, err)
		require.Equal(t, []string{user, password}, basicOf(t, cfg.Auth))
	})
}

// TestTwoKeysOfOneFieldExcludeEachOther holds whatever keys the table has: neither of
// two settings may win unsaid.
func TestTwoKeysOfOneFieldExcludeEachOther(t *testing.T) {
	before := fields
	defer func() { fields = before }()
	other := option.Field[Config, Auth]{Name: "Auth", Key: "other_token", At: func(c *Config) *Auth { return &c.Auth }, Read: parseBearer}
	fields = append(slices.Clone(fields), other)
	for target, fault := range map[string]string{
		"grpc://db:1/?token=a&other_token=b": "option other_token: excludes option token",
		"grpc://db:1/?other_token=b&token=a": "option token: excludes option other_token",
		"grpc://u:p@db:1/?other_token=b":     "option other_token: excludes a user in the target",
		"grpc://u:p@db:1/?token=b":           "option token: excludes a user in the target",
		"grpc://db:1/?token=a&token=b":       `option "token" is given more than once`,
	} {
		_, _, err := ParseTarget(target)
		require.ErrorContains(t, err, fault)
	}
	_, cfg, err := ParseTarget("grpc://db:1/?other_token=b")
	require.NoError(t, err)
	require.Equal(t, "Bearer b", headerOf(t, cfg.Auth))
}

func basicOf(t *testing.T, a Auth) []string {
	t.Helper()
	require.IsType(t, basicAuth{}, a.method)
	basic := a.method.(basicAuth)
	return []string{basic.user, basic.password.reveal()}
}

func headerOf(t *testing.T, a Auth) string {
	t.Helper()
	require.IsType(t, headerAuth{}, a.method)
	return a.method.(headerAuth).value.reveal()
}
