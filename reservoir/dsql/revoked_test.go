package dsql

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
)

// A connection may be opened and lent while leases are being revoked, after the list of
// those that are open was made. It ends by the deadline too, and so does its lease,
// whenever its borrower returns it.
func TestAConnectionLentWhileLeasesAreRevokedEndsByTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &revoking{Leases: lease.NewLeases("x", 10)}
		cfg, err := Config{Host: someHost, MaxSize: 1, OnDemand: true, CheckInterval: -1, Logger: slog.New(slog.DiscardHandler)}.resolve(environ(nil))
		require.NoError(t, err)
		var server net.Conn
		c, err := newCluster(t.Context(), cfg, &budgets{leases: leases, limiter: lease.NewLimiter("x", 100, 100)}, func(context.Context) (*physical, error) {
			p := &physical{}
			var local net.Conn
			local, server = net.Pipe()
			p.setSocket(local)
			p.owner.Store(ownedByCloser) // so that nothing is closed but its end of the pipe
			return p, nil
		})
		require.NoError(t, err)
		busy, err := c.res.Acquire(t.Context())
		require.NoError(t, err)
		c.mu.Lock()
		clear(c.openConns) // as the list has it
		c.mu.Unlock()
		leases.tell(lease.Revocation{Deadline: time.Now().Add(20 * time.Second), Cause: errGone})
		began := time.Now()
		assert.NoError(t, server.SetReadDeadline(began.Add(time.Minute)))
		_, err = server.Read(make([]byte, 1))
		assert.Error(t, err)
		assert.Equal(t, 20*time.Second, time.Since(began))
		synctest.Wait()
		assert.Zero(t, leases.Stats().InUse)
		_ = busy.Release() // it was taken back
		assert.NoError(t, c.Close(t.Context()))
	})
}
