package kinds_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/flightpool/registry/kinds"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir/dsql"
	"github.com/flightpool/flightpool/testserver/dsqlgate"
)

// offlineLeases are those of a table that cannot be reached.
type offlineLeases struct{ lease.Leases }

func (offlineLeases) Acquire(context.Context) (func(), error) {
	return nil, &lease.Error{Budget: "x", Reason: lease.ErrUnavailable, Err: &net.OpError{Op: "dial", Err: errors.New("no route to the table")}}
}
func (offlineLeases) Stats() lease.Stats { return lease.Stats{Degraded: true} }

// grantingLeases are those of a table that cannot be reached, whose Fallback grants.
type grantingLeases struct{ lease.Leases }

func (grantingLeases) Stats() lease.Stats { return lease.Stats{Degraded: true} }

// The time of an open may be over while it waits for its permission, or for a cluster that opens too many at a time.
func TestWhatWaitsForAPermissionSaysNothingOfTheCluster(t *testing.T) {
	key := dsqlgate.Credential{AccessKeyID: "AKIDTEST", SecretAccessKey: "secret"}
	fullLeases, spent := lease.NewLeases("x", 1), lease.NewLimiter("x", 0.01, 1)
	_, err := fullLeases.Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, spent.Wait(t.Context()))
	gate, err := dsqlgate.Start(t.Context(), dsqlgate.Options{Upstream: "postgres://nobody@127.0.0.1:1/x", Credentials: []dsqlgate.Credential{key}})
	require.NoError(t, err)
	defer func() { require.NoError(t, gate.Close()) }()
	gate.Refuse(1000, "53400")
	never := func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	refused := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	for name, c := range map[string]struct {
		base    dsql.Config
		healthy bool
	}{
		"no lease":                         {dsql.Config{Leases: fullLeases, Dial: never}, true},
		"no permit":                        {dsql.Config{Limiter: spent, Dial: never}, true},
		"no table":                         {dsql.Config{Leases: offlineLeases{fullLeases}, Dial: never}, true},
		"opens too many":                   {dsql.Config{TLS: gate.ClientTLS(), Dial: gate.Dial}, true},
		"no answer":                        {dsql.Config{Dial: never}, false},
		"nobody listens, nor at the table": {dsql.Config{Leases: grantingLeases{lease.NewLeases("x", 9)}, Dial: refused}, false},
		"nobody listens":                   {dsql.Config{Dial: refused}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.base.Logger = slog.New(slog.DiscardHandler)
			c.base.Credentials = credentials.NewStaticCredentialsProvider(key.AccessKeyID, key.SecretAccessKey, "")
			r := newRegistry(t, kinds.DSQL(c.base))
			require.NoError(t, r.ApplyDDL(t.Context(), fmt.Sprintf(`
				CREATE SERVER d FOREIGN DATA WRAPPER dsql_fdw OPTIONS (host '%s', max_connections '4', min_connections '0', warmup_connections '0', connect_timeout '300');
				CREATE USER MAPPING FOR PUBLIC SERVER d`, gate.Host())))
			var callers sync.WaitGroup
			faults := make([]error, 4)
			for i := range faults {
				callers.Go(func() { _, faults[i] = r.Acquire(t.Context(), "d", fmt.Sprint("user", i)) })
			}
			callers.Wait()
			require.Equal(t, c.healthy, r.Healthy("d"), "%v", faults)
			if !c.healthy {
				return
			}
			for _, err := range faults {
				require.ErrorIs(t, err, registry.ErrExhausted)
				require.NotErrorIs(t, err, registry.ErrUnhealthy)
				require.ErrorIs(t, err, dsql.ErrReservoirEmpty)
				require.ErrorAs(t, err, new(*dsql.EmptyError))
			}
		})
	}
}
