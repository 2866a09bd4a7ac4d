package testserver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

const (
	hour    = "SELECT sleep('1h')"
	endless = "SELECT * FROM endless('10ms')"
)

func running(t *testing.T, srv *testserver.Server, n int) {
	t.Helper()
	require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Running == n }))
}

// inBackground runs sql and returns what ends it.
func inBackground(ctx context.Context, c *client, sql string) <-chan error {
	ended := make(chan error, 1)
	go func() { _, err := c.query(ctx, sql); ended <- err }()
	return ended
}

func TestTheEndOfAnRPCStopsItsStatement(t *testing.T) {
	for _, sql := range []string{hour, endless} {
		bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
			c := dial(t, srv)
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := c.query(ctx, sql)
			requireCode(t, codes.DeadlineExceeded, err)
			require.NoError(t, srv.Ledger().WaitIdle(t.Context()))
			require.Equal(t, time.Second, time.Since(began))

			got := srv.Ledger().Executions(sql)
			require.Len(t, got, 1)
			require.Equal(t, testserver.Interrupted, got[0].State)
			require.Equal(t, time.Second, got[0].Took)
			require.Equal(t, "DoGet", got[0].RPC)
		})
	}
}

func TestAServerThatIgnoresCancelsRunsOnAndKeepsTheSessionBusy(t *testing.T) {
	bubble(t, testserver.Profile{IgnoreRPCCancel: true}, func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.query(ctx, hour)
		requireCode(t, codes.DeadlineExceeded, err)
		require.Equal(t, time.Second, time.Since(began))
		synctest.Wait()
		require.Equal(t, 1, srv.Ledger().Snapshot().Running)
		require.Equal(t, 0, srv.Ledger().Snapshot().Streams)

		require.Equal(t, [][]string{{"1"}}, c.mustQuery("SELECT 1")) // behind it
		require.Equal(t, time.Hour, time.Since(began))
		require.Equal(t, testserver.Done, srv.Ledger().Executions(hour)[0].State)
	})
}

func TestAWaitingStatementRunsThoughItsCallerLeftWhereCancelsAreIgnored(t *testing.T) {
	bubble(t, testserver.SwanLake(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		c.mustUpdate("CREATE TABLE t (a BIGINT)")
		hold := srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "DELETE", Do: testserver.Hang()})
		go func() { _, _ = c.update("DELETE FROM t") }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.ExecuteUpdate(ctx, "INSERT INTO t VALUES (1)")
		requireCode(t, codes.DeadlineExceeded, err)
		require.Equal(t, 1, srv.Ledger().Snapshot().Queued)
		hold.Clear()
		require.NoError(t, srv.Ledger().WaitIdle(t.Context()))
		require.Equal(t, [][]string{{"1"}}, c.mustQuery("SELECT count(*) FROM t"))
	})
}

func TestCancelFlightInfoStopsTheQueryItNamesFromAnyConnection(t *testing.T) {
	for _, oldForm := range []bool{false, true} {
		bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
			c, control := dial(t, srv), dial(t, srv)
			info, err := c.Execute(t.Context(), hour)
			require.NoError(t, err)
			require.Equal(t, 1, srv.Ledger().Snapshot().Tickets)
			ended := make(chan error, 1)
			go func() { _, err := c.fetch(t.Context(), info); ended <- err }()
			running(t, srv, 1)

			if oldForm {
				res, err := control.CancelQuery(t.Context(), info) //nolint:staticcheck // servers must answer it
				require.NoError(t, err)
				require.Equal(t, flightsql.CancelResultCancelled, res)
			} else {
				res, err := control.CancelFlightInfo(t.Context(), &flight.CancelFlightInfoRequest{Info: info})
				require.NoError(t, err)
				require.Equal(t, flight.CancelStatusCancelled, res.Status)
			}
			require.Equal(t, 0, srv.Ledger().Snapshot().Running) // CANCELLED means that it has ended
			requireCode(t, codes.Canceled, <-ended)
			require.Equal(t, 1, srv.Ledger().Snapshot().Sessions) // control has opened none

			got := srv.Ledger().Cancels()
			require.Len(t, got, 1)
			require.Equal(t, 1, got[0].Session)
			require.Equal(t, "CANCEL_STATUS_CANCELLED", got[0].Answer)
			require.NotEqual(t, srv.Ledger().Executions(hour)[0].Peer, got[0].Peer)
			require.Equal(t, [][]string{{"1"}}, c.mustQuery("SELECT 1"))
		})
	}
}

// stubborn is an engine answer that stops only d after it is told to.
func stubborn(d time.Duration) script.Answer {
	return func(ctx context.Context, _ string, _ arrow.RecordBatch) (array.RecordReader, error) {
		<-ctx.Done()
		time.Sleep(d)
		return nil, ctx.Err()
	}
}

func TestACancelAnswersCancelledOnlyWhenTheStatementHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := script.New()
		db.On("STUBBORN", stubborn(5*time.Second))
		srv := start(t, testserver.Options{Engine: db, Listen: testserver.InMemory})
		c := dial(t, srv)
		info := execute(t, c, "STUBBORN")
		ended := make(chan error, 1)
		go func() { _, err := c.fetch(t.Context(), info); ended <- err }()
		running(t, srv, 1)
		began := time.Now()
		res, err := c.CancelFlightInfo(t.Context(), &flight.CancelFlightInfoRequest{Info: info})
		require.NoError(t, err)
		require.Equal(t, flight.CancelStatusCancelled, res.Status)
		require.Equal(t, 5*time.Second, time.Since(began))
		requireCode(t, codes.Canceled, <-ended)
	})
}

func TestCancelFlightInfoDropsATicketAndDoesNotKnowAFinishedQuery(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		info, err := c.Execute(t.Context(), "SELECT 1")
		require.NoError(t, err)
		_, err = c.CancelFlightInfo(t.Context(), &flight.CancelFlightInfoRequest{Info: info})
		require.NoError(t, err)
		require.Equal(t, 0, srv.Ledger().Snapshot().Tickets)
		_, err = c.fetch(t.Context(), info)
		requireCode(t, codes.NotFound, err)

		info, err = c.Execute(t.Context(), "SELECT 1")
		require.NoError(t, err)
		_, err = c.fetch(t.Context(), info)
		require.NoError(t, err)
		_, err = c.CancelFlightInfo(t.Context(), &flight.CancelFlightInfoRequest{Info: info})
		requireCode(t, codes.NotFound, err)
		_, err = c.CancelFlightInfo(t.Context(), &flight.CancelFlightInfoRequest{})
		requireCode(t, codes.NotFound, err)
	})
}

func TestASessionWideCancelHitsWhateverRunsNow(t *testing.T) {
	p := testserver.GizmoSQL()
	p.SessionKey = testserver.ByPeerIP
	bubble(t, p, func(t *testing.T, srv *testserver.Server) {
		c, control := dial(t, srv), dial(t, srv)
		info, err := c.Execute(t.Context(), "SELECT 1")
		require.NoError(t, err)
		_, err = control.CancelFlightInfo(t.Context(), &flight.CancelFlightInfoRequest{Info: info})
		requireCode(t, codes.InvalidArgument, err) // the session is idle
		require.ErrorContains(t, err, "No active SQL statement")
		_, err = c.fetch(t.Context(), info)
		require.NoError(t, err)

		ended := inBackground(t.Context(), c, hour) // the next statement
		running(t, srv, 1)
		_, err = control.CancelFlightInfo(t.Context(), &flight.CancelFlightInfoRequest{Info: info}) // late
		require.NoError(t, err)
		requireCode(t, codes.Canceled, <-ended)
	})
}

func TestGizmoSQLFindsTheSessionOfACancelByItsBearer(t *testing.T) {
	bubble(t, testserver.GizmoSQL(), func(t *testing.T, srv *testserver.Server) {
		c, control := dial(t, srv), dial(t, srv)
		mine, err := c.Client.Client.AuthenticateBasicToken(t.Context(), "u", "p")
		require.NoError(t, err)
		other, err := control.Client.Client.AuthenticateBasicToken(t.Context(), "u", "p")
		require.NoError(t, err)
		ended := inBackground(mine, c, hour)
		running(t, srv, 1)
		_, err = control.CancelFlightInfo(mine, &flight.CancelFlightInfoRequest{})
		requireCode(t, codes.InvalidArgument, err)
		require.ErrorContains(t, err, "UNKNOWN descriptor")
		named := &flight.CancelFlightInfoRequest{Info: &flight.FlightInfo{FlightDescriptor: &flight.FlightDescriptor{Type: flight.DescriptorCMD}}}
		_, err = control.CancelFlightInfo(other, named)
		requireCode(t, codes.InvalidArgument, err)
		_, err = control.CancelFlightInfo(mine, named)
		require.NoError(t, err)
		requireCode(t, codes.Canceled, <-ended)
		require.Equal(t, 3, srv.Ledger().Snapshot().Cancels)
		require.Equal(t, 2, srv.Ledger().Snapshot().Handshakes)
	})
}

func TestACustomActionCancelsTheCallersSession(t *testing.T) {
	p := testserver.Profile{SessionKey: testserver.ByHeader, CancelActions: []string{"KillMine"}}
	bubble(t, p, func(t *testing.T, srv *testserver.Server) {
		c, control := dial(t, srv), dial(t, srv)
		ended := inBackground(metadata.AppendToOutgoingContext(t.Context(), "x-session-id", "s"), c, hour)
		running(t, srv, 1)
		_, err := control.action("KillMine", nil)
		requireCode(t, codes.InvalidArgument, err)

		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-session-id", "s")
		stream, err := control.Client.Client.DoAction(ctx, &flight.Action{Type: "KillMine"})
		require.NoError(t, err)
		res, err := stream.Recv()
		require.NoError(t, err)
		require.Equal(t, "CANCELLED", string(res.Body))
		_, err = stream.Recv()
		require.Error(t, err)
		requireCode(t, codes.Canceled, <-ended)
		require.Equal(t, "KillMine", srv.Ledger().Cancels()[1].Action)
		require.Equal(t, "header s", srv.Ledger().Cancels()[1].Identity)
	})
}

func TestSwanLakeRefusesToCancelWithTwoDifferentCodes(t *testing.T) {
	bubble(t, testserver.SwanLake(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		info, err := c.Execute(t.Context(), "SELECT 1")
		require.NoError(t, err)
		_, err = c.CancelFlightInfo(t.Context(), &flight.CancelFlightInfoRequest{Info: info})
		requireCode(t, codes.InvalidArgument, err)
		_, err = c.CancelQuery(t.Context(), info) //nolint:staticcheck // servers must answer it
		requireCode(t, codes.Unimplemented, err)
		_, err = c.CloseSession(t.Context(), &flight.CloseSessionRequest{})
		requireCode(t, codes.InvalidArgument, err)
		_, err = c.GetSessionOptions(t.Context(), &flight.GetSessionOptionsRequest{})
		requireCode(t, codes.InvalidArgument, err)
		require.Equal(t, 4, srv.Ledger().Snapshot().Refused)
	})
}

func listed(t *testing.T, c *client) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := c.Client.Client.ListActions(ctx, &flight.Empty{})
	require.NoError(t, err)
	var names []string
	for {
		a, err := stream.Recv()
		if err != nil {
			return names
		}
		names = append(names, a.Type)
	}
}

func TestListActionsTellsTheTruthUnlessTheProfileLies(t *testing.T) {
	bubble(t, testserver.Profile{CancelActions: []string{"Mine"}}, func(t *testing.T, srv *testserver.Server) {
		names := listed(t, dial(t, srv))
		require.Contains(t, names, "CancelFlightInfo")
		require.Contains(t, names, "CloseSession")
		require.Contains(t, names, "Mine")
	})
	bubble(t, testserver.Dremio(), func(t *testing.T, srv *testserver.Server) {
		require.NotContains(t, listed(t, dial(t, srv)), "CancelFlightInfo")
	})
	bubble(t, testserver.SwanLake(), func(t *testing.T, srv *testserver.Server) {
		require.Contains(t, listed(t, dial(t, srv)), "CreatePreparedSubstraitPlan")
	})
}
