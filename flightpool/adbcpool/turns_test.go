package adbcpool

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// An execution that has taken all the time of a call is stopped behind its caller. What has no context waits for that: the
// prepared statement is closed then, however short the time of a call is.
func TestAStatementIsClosedBehindAnExecutionThatIsBeingStopped(t *testing.T) {
	inBubble(t, testserver.Strict(), func(r rig) {
		p := r.pool("native", func(c *flightpool.Config) { c.DefaultQueryTimeout = 100 * time.Millisecond })
		c, err := Database(p).Open(r.Context())
		require.NoError(r, err)
		defer func() { require.NoError(r, c.Close()) }()
		s, err := c.NewStatement()
		require.NoError(r, err)
		require.NoError(r, s.SetSqlQuery("SELECT sleep('1h')"))
		require.NoError(r, s.Prepare(r.Context()))
		prepared := r.server.Ledger().Snapshot().Prepared
		r.server.Faults().Set(testserver.Fault{On: testserver.OnCancel, Do: testserver.Delay(500 * time.Millisecond)})
		_, _, err = s.ExecuteQuery(r.Context())
		require.ErrorIs(r, err, context.DeadlineExceeded)
		require.NoError(r, s.SetSqlQuery("SELECT 1"))
		require.Equal(r, prepared-1, r.server.Ledger().Snapshot().Prepared)
		require.NoError(r, s.Close())
	})
}
