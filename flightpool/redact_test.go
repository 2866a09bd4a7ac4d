package flightpool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/testserver"
)

// prints gives v under every verb, in the formats of slog, in JSON, and in a
// dump that reads unexported fields and calls no methods.
func prints(t *testing.T, v any) string {
	t.Helper()
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%!"} {
		fmt.Fprintf(&out, verb+"\n", v)
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("text", "v", v)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("json", "v", v)
	if text, err := json.Marshal(v); err == nil {
		out.Write(text)
	} else {
		out.WriteString(err.Error())
	}
	return out.String()
}

// recorder keeps what an assertion says.
type recorder struct{ bytes.Buffer }

func (r *recorder) Errorf(format string, args ...any) { fmt.Fprintf(r, format, args...) }

// dump is what a failed assertion shows of v: it reads unexported fields and
// calls no methods.
func dump[T any](v T) string {
	var r recorder
	var zero T
	assert.Equal(&r, zero, v)
	return r.String()
}

func TestAuthConfigAndPoolPrintNoSecrets(t *testing.T) {
	for _, a := range []Auth{BasicAuth("me", "hunter2"), BearerAuth("hunter2"), HeaderAuth("X hunter2"), BasicHeader("me", "hunter2"), {}} {
		cfg := Config{MaxSize: 3, Auth: a, Headers: metadata.MD{"x-api-key": {"hunter2"}}, OnReturn: ResetSQL("SET key = 'hunter2'")}
		type unexported struct {
			auth Auth
			raw  Config
		}
		for _, v := range []any{a, &a, cfg, &cfg, []Config{cfg}, map[string]any{"cfg": cfg}} {
			require.NotContains(t, prints(t, v), "hunter2")
			require.NotContains(t, prints(t, v), fmt.Sprintf("%x", "hunter2"))
		}
		require.NotContains(t, prints(t, unexported{auth: a, raw: Config{Auth: a}}), "hunter2")
		require.NotContains(t, fmt.Sprintf("%"+"p", a), "hunter2", "no method is asked for this verb")
		cfg.Headers = nil // what is public and a map cannot be hidden from reflection
		require.NotContains(t, fmt.Sprintf("%"+"p", cfg), "hunter2")
		require.NotContains(t, prints(t, unexported{auth: a, raw: cfg}), "hunter2")
		require.NotContains(t, dump(cfg), "hunter2")
		require.NotContains(t, dump(a), "hunter2")
		require.NotContains(t, dump(a), "aHVudGVyM") // base64
	}
	require.Equal(t, "none", Auth{}.String())
	require.Equal(t, "flightpool.Config{}", Config{}.String())
	cfg := Config{MinIdle: -1, MaxSize: 3, Headers: metadata.MD{"b": nil, "a": nil}, Auth: BasicAuth("me", "x"), HealthCheck: HealthCheck{Kind: Query}}
	require.Equal(t, "flightpool.Config{MinIdle: -1, MaxSize: 3, HealthCheck.Kind: 1, Auth: basic me, Headers: a b}", cfg.String())
	text, err := json.Marshal(cfg)
	require.NoError(t, err)
	require.JSONEq(t, `{"MinIdle": -1, "MaxSize": 3, "HealthCheck.Kind": "1", "Auth": "basic me", "Headers": "a b"}`, string(text))

	inBubble(t, testserver.Strict(), Config{Auth: BasicAuth("me", "hunter2"), Headers: metadata.MD{"x-api-key": {"hunter2"}}}, func(r *rig) {
		require.NotContains(r, prints(t, r.pool), "hunter2")
		require.Contains(r, prints(t, r.pool), "server:1")
		// %s of a pointer in a struct reads what it points to, without the locks of an open pool.
		require.NoError(r, r.pool.Close(r.Context()))
		require.NotContains(r, prints(t, struct{ pool *FlightSQLPool }{r.pool}), "hunter2")
	})
}

func TestBasicHeaderIsThatOfHTTP(t *testing.T) {
	r := &http.Request{Header: http.Header{}}
	r.SetBasicAuth("me", "hunter2")
	header, err := BasicHeader("me", "hunter2").credential(t.Context()).get(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, r.Header.Get("Authorization"), header.Header)
}
