package testserver_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/engine"
	"github.com/flightpool/flightpool/testserver/script"
)

func TestTheLedgerTellsEachStatement(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		c.mustUpdate("CREATE TABLE t (a BIGINT)")
		tx := begin(t, c)
		_, err := c.updateIn(tx, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context()))
		_, err = c.query(t.Context(), "SELECT error('boom')")
		require.Error(t, err)

		all := srv.Ledger().Statements()
		var lines []string
		for i, s := range all {
			require.Equal(t, i+1, s.ID)
			require.Equal(t, 1, s.Session)
			require.Contains(t, s.Peer, "client:")
			lines = append(lines, fmt.Sprintf("%s %v %v %v %v", s.SQL, s.Kind, s.RPC, s.State, s.Tx != ""))
		}
		require.Equal(t, []string{
			"CREATE TABLE t (a BIGINT) update DoPut done false",
			"BEGIN begin BeginTransaction done false",
			"INSERT INTO t VALUES (1) update DoPut done true",
			"COMMIT commit EndTransaction done true",
			"SELECT error('boom') query DoGet failed false",
		}, lines)
		require.EqualError(t, all[4].Err, "boom")
	})
}

func TestTheLedgerCountsWhatRunsWaitsAndStreams(t *testing.T) {
	bubble(t, testserver.Profile{SessionKey: testserver.ByPeerIP}, func(t *testing.T, srv *testserver.Server) {
		one, two := dial(t, srv), dial(t, srv)
		info := execute(t, two, "SELECT 1 AS waits")
		first := inBackground(t.Context(), one, hour)
		running(t, srv, 1)
		second := make(chan error, 1)
		go func() { _, err := two.fetch(t.Context(), info); second <- err }()
		synctest.Wait()
		now := srv.Ledger().Snapshot()
		require.Equal(t, 1, now.Running)
		require.Equal(t, 1, now.Queued)
		require.Equal(t, 2, now.Streams)
		require.Equal(t, 2, now.Conns)
		require.False(t, now.Idle())
		time.Sleep(10 * time.Minute)
		require.Equal(t, 10*time.Minute, srv.Ledger().Executions(hour)[0].Took)
		require.NoError(t, <-first)
		require.NoError(t, <-second)
		now = srv.Ledger().Snapshot()
		require.True(t, now.Idle(), "%v", now)
		require.Equal(t, 1, now.RunningPeak)
		require.Equal(t, 2, now.Executed)
	})
}

func TestWaitReturnsAtTheMomentOfTheChangeOrWithItsContext(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		began := time.Now()
		ended := inBackground(t.Context(), c, "SELECT sleep('90s')")
		running(t, srv, 1)
		require.NoError(t, srv.Ledger().WaitIdle(t.Context()))
		require.Equal(t, 90*time.Second, time.Since(began))
		require.NoError(t, <-ended)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := srv.Ledger().Wait(ctx, func(s testserver.Snapshot) bool { return s.Running == 99 })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "executed 1")
	})
}

// Once a client has the reply, the ledger shows it: no test needs to wait.
func TestTheLedgerIsAheadOfTheReply(t *testing.T) {
	srv := start(t, testserver.Options{})
	var clients sync.WaitGroup
	for who := range 4 {
		c := dial(t, srv)
		clients.Go(func() {
			for i := range 50 {
				sql := fmt.Sprintf("SELECT %d AS c%d", i, who)
				if _, err := c.query(t.Context(), sql); err != nil {
					t.Error(err)
				}
				all := srv.Ledger().Executions(sql)
				if len(all) != 1 || all[0].State != testserver.Done {
					t.Errorf("%s: %v", sql, all)
				}
			}
		})
	}
	clients.Wait()
	now := srv.Ledger().Snapshot()
	require.Equal(t, 200, now.Executed)
	require.Equal(t, 0, now.Running)
	require.LessOrEqual(t, now.RunningPeak, 4)
}

type brokenEngine struct{ engine.Engine }

var errBroken = errors.New("broken")

func (brokenEngine) Open(context.Context) (engine.Session, error) { return nil, errBroken }

func TestASessionThatCannotBeOpenedIsNotCounted(t *testing.T) {
	srv := start(t, testserver.Options{Engine: brokenEngine{script.New()}, Profile: testserver.Profile{MaxSessions: 1}})
	c := dial(t, srv)
	for range 3 {
		_, err := c.query(t.Context(), "SELECT 1")
		require.ErrorContains(t, err, "broken")
	}
	require.Equal(t, 0, srv.Ledger().Snapshot().Sessions)
}
