package testserver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/engine"
	"github.com/flightpool/flightpool/testserver/script"
)

// slowEngine has sessions that take a second to describe a statement.
type slowEngine struct{ *script.Engine }

func (e slowEngine) Open(ctx context.Context) (engine.Session, error) {
	s, err := e.Engine.Open(ctx)
	return slowSession{s}, err
}

type slowSession struct{ engine.Session }

func (s slowSession) Describe(ctx context.Context, sql string) (engine.Description, error) {
	time.Sleep(time.Second)
	return s.Session.Describe(ctx, sql)
}

// A session that ends while a statement is prepared in it, or a query planned, has nothing of that: nobody would take it away.
func TestNothingIsKeptOfASessionThatHasEnded(t *testing.T) {
	for _, tc := range []struct {
		profile testserver.Profile
		ask     func(ctx context.Context, c *client) error
	}{
		{testserver.SwanLake(), func(ctx context.Context, c *client) error {
			_, err := c.Prepare(ctx, "INSERT INTO swanlake.t (v) VALUES (?)") // described twice, and what the second comes to is not told
			return err
		}},
		{testserver.Strict(), func(ctx context.Context, c *client) error { _, err := c.Execute(ctx, "SELECT 1"); return err }},
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := start(t, testserver.Options{Profile: tc.profile, Listen: testserver.InMemory, Engine: slowEngine{script.New()}})
			c := dial(t, srv)
			if tc.profile.AppendTo != "" {
				c.mustUpdate("CREATE TABLE swanlake.t (v BIGINT)")
			} else {
				c.mustUpdate("CREATE TABLE t (v BIGINT)")
			}
			done := make(chan error)
			go func() { done <- tc.ask(t.Context(), c) }()
			time.Sleep(500 * time.Millisecond)
			require.Equal(t, 1, srv.Faults().EvictSessions())
			require.Error(t, <-done)
			synctest.Wait()
			now := srv.Ledger().Snapshot()
			require.Equal(t, []int{0, 0, 0}, []int{now.Sessions, now.Prepared, now.Tickets}, tc.profile.Name)
		})
	}
}
