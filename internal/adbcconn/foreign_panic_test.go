package adbcconn

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// On a goroutine of ours a panic of the driver's would end the process, and a Goexit keep
// the driver locked.
func TestADriverThatFailsBehindItsCallerCostsItsConnectionAlone(t *testing.T) {
	for name, ends := range map[string]func(){"panic": func() { panic("driver") }, "Goexit": runtime.Goexit} {
		t.Run(name+" in the release of a result", func(t *testing.T) {
			withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
				rows, err := c.Query(t.Context(), "q", backend.Call{})
				require.NoError(t, err)
				d.atRelease = ends
				_, err = ints(t, rows)
				require.NoError(t, err)
				_, err = c.Query(t.Context(), "q", backend.Call{}) // waits for the release
				require.ErrorIs(t, err, backend.ErrSessionLost)
				require.ErrorContains(t, c.Lost(), "the driver")
			})
		})
		t.Run(name+" in the release of a late result", func(t *testing.T) {
			withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				d.query, d.atRelease = 2*time.Second, ends
				_, err := c.Query(ctx, "q", backend.Call{})
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		})
		t.Run(name+" in the close", func(t *testing.T) {
			withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
				rows, err := c.Query(t.Context(), "q", backend.Call{})
				require.NoError(t, err)
				_, err = rows.Next()
				require.NoError(t, err)
				d.atRelease, d.atClose = ends, ends
				began := time.Now()
				require.ErrorContains(t, c.Close(), "the driver")
				require.Zero(t, time.Since(began), "it is known at once")
			})
		})
		t.Run(name+" in the close of a connection that comes late", func(t *testing.T) {
			withStubborn(t, func(t *testing.T, d *stubborn, _ backend.Conn) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				d.open, d.atClose = 2*time.Second, ends
				_, err := OpenGeneric(ctx, d, GenericConfig{})
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		})
	}
}
