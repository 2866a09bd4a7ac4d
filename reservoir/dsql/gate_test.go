package dsql_test

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/dsql"
	"github.com/flightpool/flightpool/testserver/dsqlgate"
)

var key = dsqlgate.Credential{AccessKeyID: "AKIDTEST", SecretAccessKey: "secret/with+signs", SessionToken: "session=token/+"}

func startGate(t *testing.T, set func(*dsqlgate.Options)) *dsqlgate.Gate {
	t.Helper()
	o := dsqlgate.Options{Upstream: dsql.Postgres.DSN(), Credentials: []dsqlgate.Credential{key}}
	if set != nil {
		set(&o)
	}
	g, err := dsqlgate.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

func config(g *dsqlgate.Gate, set func(*dsql.Config)) dsql.Config {
	c := dsql.Config{
		Host: g.Host(), TLS: g.ClientTLS(), Dial: g.Dial, MaxSize: 4,
		Logger:      slog.New(slog.DiscardHandler),
		Credentials: credentials.NewStaticCredentialsProvider(key.AccessKeyID, key.SecretAccessKey, key.SessionToken),
	}
	if set != nil {
		set(&c)
	}
	return c
}

func newCluster(t *testing.T, g *dsqlgate.Gate, set func(*dsql.Config)) *dsql.Cluster {
	t.Helper()
	c, err := dsql.NewCluster(t.Context(), config(g, set))
	require.NoError(t, err)
	t.Cleanup(func() { closeSoon(t, c.Close) })
	return c
}

func newPool(t *testing.T, g *dsqlgate.Gate, set func(*dsql.Config)) *dsql.Pool {
	t.Helper()
	p, err := dsql.NewPool(t.Context(), config(g, set))
	require.NoError(t, err)
	t.Cleanup(func() { closeSoon(t, p.Close) })
	return p
}

func closeSoon(t *testing.T, end func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	defer cancel()
	require.NoError(t, end(ctx))
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// reach looks until the condition holds: a server learns of the end of a
// connection a little later, and does not say so.
func reach(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); runtime.Gosched() {
		require.True(t, time.Now().Before(end), what)
	}
}
