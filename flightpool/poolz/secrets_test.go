package poolz

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

const marker = "m4rker"

// What is secret stands in every place that takes it, in calls that are slow, fail, are
// cut short and run. Nothing of it is told; with Texts, the texts alone.
func TestNoSecretIsShown(t *testing.T) {
	for _, texts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { withSecrets(t, texts) })
	}
}

func withSecrets(t *testing.T, texts bool) {
	srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory, Users: map[string]string{"user": marker + "-password"}})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Close()) }()
	page := New(Config{SlowerThan: 1, Texts: texts})
	defer page.Close()
	cfg := flightpool.Config{Dialer: srv.Dial, Tracer: page.Tracer("main"), Headers: metadata.Pairs("x-api-key", marker+"-header"), MaxSize: 2, AcquireTimeout: time.Second}
	pool, err := flightpool.New(t.Context(), "grpc://user:"+marker+"-password@server:1", cfg)
	require.NoError(t, err)
	defer closePool(t, pool)
	page.Add("main", pool)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization-2", marker+"-call")
	after(2 * time.Second)
	run := func(sql string, fault *testserver.Fault) {
		if fault != nil {
			fault.SQL = sql // and not a cancel's probe, or a health check
			srv.Faults().Set(*fault)
		}
		ctx, stop := context.WithTimeout(ctx, 3*time.Second)
		defer stop()
		_ = pool.QueryRow(ctx, sql).Scan(new(any)) // how it ends is the fault's
	}
	run("SELECT '"+marker+"-literal'", nil)
	run("SELECT error('"+marker+"-error')", nil)
	run("SELECT '"+marker+"-slow'", &testserver.Fault{On: testserver.OnBatch, Times: 1, Do: testserver.Delay(2 * time.Second)})
	run("SELECT '"+marker+"-cancelled'", &testserver.Fault{On: testserver.OnBatch, Times: 1, Do: testserver.Delay(time.Minute)})
	run("SELECT '"+marker+"-refused'", &testserver.Fault{On: testserver.OnGetFlightInfo, Times: 1, Do: testserver.Effects(testserver.Delay(time.Second), testserver.Fail(codes.Internal, marker+"-answer"))})
	srv.Faults().Set(testserver.Fault{On: testserver.OnSession, Do: testserver.Fail(codes.Internal, marker+"-open")})
	pool.Reset()
	run("SELECT '"+marker+"-before'", nil)
	after(2 * time.Second)
	whileOpensFail := get(t, page, "/state.json").Body.String()
	require.Contains(t, whileOpensFail, `"last_open_error":"`)
	require.Equal(t, texts, strings.Contains(whileOpensFail, marker+"-open"))
	srv.Faults().Clear()
	srv.Faults().Set(testserver.Fault{On: testserver.OnSession, Times: 2, Do: testserver.Delay(time.Minute)})
	pool.Reset()
	run("SELECT '"+marker+"-no-connection'", nil)
	after(time.Minute)
	s, err := pool.AcquireSession(ctx)
	require.NoError(t, err)
	_ = s.SetOption(ctx, "secret", marker+"-option") // whether there is one is the server's
	res, err := s.Query(ctx, "SELECT '"+marker+"-running'")
	require.NoError(t, err)
	after(2 * time.Second)

	json := get(t, page, "/state.json").Body.String()
	require.Contains(t, json, `"slow":[{`)
	require.Contains(t, json, `"events":[{`)
	require.Contains(t, json, `"error":"`)
	require.Contains(t, json, `"running":true`)
	require.NotContains(t, get(t, page, "/").Body.String(), marker)
	for _, kind := range []string{"password", "header", "call", "option"} {
		require.NotContains(t, json, marker+"-"+kind)
	}
	if texts {
		require.Contains(t, json, marker+"-running")
		require.Contains(t, json, marker+"-answer")
	} else {
		require.NotContains(t, json, marker)
	}
	res.Release()
	require.NoError(t, s.Close())
}
