package registry_test

import (
	"bytes"
	"context"
	"database/sql/driver"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/testserver"
)

// The log names server, user and borrower, whatever the kind of the server is.
func TestALoanThatIsForgottenIsFoundWithItsBorrower(t *testing.T) {
	for _, kind := range []string{"fake", "memory"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told bytes.Buffer
				srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
				require.NoError(t, err)
				defer func() { require.NoError(t, srv.Close()) }()
				kinds := []registry.Kind{{Name: "fake", Connector: func(r registry.ConnectParams) (driver.Connector, error) {
					return sqlConnector{&fake{byUser: map[string]int{}}, r.User}, nil
				}}, {Name: "memory", Flight: func(ctx context.Context, r registry.ConnectParams) (*flightpool.FlightSQLPool, error) {
					r.Config.Dialer = srv.Dial
					return flightpool.New(ctx, "grpc://server:1", r.Config)
				}}}
				reg, err := registry.NewWith(registry.Config{Kinds: kinds, Logger: slog.New(slog.NewTextHandler(&told, nil))})
				require.NoError(t, err)
				require.NoError(t, reg.Register(t.Context(), registry.ServerDefinition{
					Name: "s", Kind: kind, LeakAfter: time.Minute, Users: map[string]registry.UserMapping{"ana": {}},
				}))
				forget := func() *registry.Conn {
					c, err := reg.Acquire(t.Context(), "s", "ana")
					require.NoError(t, err)
					return c
				}
				c := forget()
				time.Sleep(3 * time.Minute)
				require.Equal(t, uint64(1), reg.Stats().Leaks)
				require.NoError(t, c.Release())
				require.NoError(t, reg.Close(t.Context()))
				require.Regexp(t, `server=s user=ana.* borrower="github.com/flightpool/flightpool/flightpool/registry_test\.TestALoan`, told.String())
			})
		})
	}
}
