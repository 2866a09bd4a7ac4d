package sqldriver

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/reservoir"
)

// With open_retry=always New goes on for as long as its context, which is nobody's here.
func TestWhoWaitsForThePoolWaitsNoLongerThanForAConnection(t *testing.T) {
	for options, bound := range map[string]time.Duration{"&acquire_timeout=2s": 2 * time.Second, "": 30 * time.Second, "&acquire_timeout=0": time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			name := "grpc://127.0.0.1:1?open_retry=always" + options
			connector, err := Driver{}.OpenConnector(name)
			require.NoError(t, err)
			c := connector.(*dsnConnector)
			c.newPool = func(ctx context.Context) (*flightpool.FlightSQLPool, error) {
				return flightpool.New(ctx, name, flightpool.Config{Dialer: func(context.Context, string) (net.Conn, error) { return nil, errors.New("refused") }})
			}
			defer func() { require.NoError(t, c.Close()) }()
			ctx, stop := context.WithTimeout(t.Context(), time.Hour)
			defer stop()
			start := time.Now()
			_, err = c.Connect(ctx)
			require.Equal(t, bound, time.Since(start), options)
			var told *flightpool.Error
			require.ErrorAs(t, err, &told)
			require.True(t, told.Unsent)
			if bound < time.Hour {
				require.ErrorIs(t, err, flightpool.ErrExhausted)
				var full *reservoir.ExhaustedError
				require.ErrorAs(t, err, &full)
				require.Equal(t, bound, full.Waited)
				require.ErrorContains(t, err, "no connection was opened within "+bound.String())
			}
		})
	}
}
