package testserver_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/testserver"
)

// sees reports whether the session of c has the temporary table of another.
func sees(ctx context.Context, t *testing.T, c *client) bool {
	t.Helper()
	_, err := c.query(ctx, "SELECT * FROM mine")
	return err == nil
}

const makeMine = "CREATE TEMP TABLE mine (a BIGINT)"

func TestASessionByConnectionIsPrivateAndEndsWithItsConnection(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		one, two := dial(t, srv), dial(t, srv)
		one.mustUpdate(makeMine)
		require.True(t, sees(t.Context(), t, one))
		require.False(t, sees(t.Context(), t, two))
		require.Equal(t, 2, srv.Ledger().Snapshot().Sessions)

		require.NoError(t, one.Close())
		require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Sessions == 1 && s.Conns == 1 }))
		now := srv.Ledger().Snapshot()
		require.Equal(t, 2, now.SessionsPeak)
		require.Equal(t, 2, now.SessionsOpened)
		require.Equal(t, 2, now.ConnsPeak)
		require.Equal(t, 2, now.ConnsOpened)
	})
}

func TestASessionByPeerIPIsSharedByAllConnections(t *testing.T) {
	bubble(t, testserver.Profile{SessionKey: testserver.ByPeerIP}, func(t *testing.T, srv *testserver.Server) {
		one, two := dial(t, srv), dial(t, srv)
		one.mustUpdate(makeMine)
		require.True(t, sees(t.Context(), t, two))
		require.Equal(t, 1, srv.Ledger().Snapshot().SessionsOpened)
	})
}

func TestASessionByCookieFollowsTheCookieAndIsNewWithoutIt(t *testing.T) {
	bubble(t, testserver.Dremio(), func(t *testing.T, srv *testserver.Server) {
		one, two := dial(t, srv), dial(t, srv)
		one.mustUpdate(makeMine)
		require.False(t, sees(t.Context(), t, one)) // no cookie was sent back

		cookie := metadata.AppendToOutgoingContext(t.Context(), "cookie", "a=b; SESSION_ID=one")
		ctx, cancel := context.WithCancel(cookie)
		defer cancel()
		_, err := one.ExecuteUpdate(ctx, makeMine)
		require.NoError(t, err)
		require.True(t, sees(cookie, t, two))
	})
}

func TestASessionByHeaderFollowsTheHeaderAndElseLastsForACall(t *testing.T) {
	bubble(t, testserver.ClickHouse(), func(t *testing.T, srv *testserver.Server) {
		one, two := dial(t, srv), dial(t, srv)
		named := metadata.AppendToOutgoingContext(t.Context(), "x-clickhouse-session-id", "s1")
		ctx, cancel := context.WithCancel(named)
		defer cancel()
		_, err := one.ExecuteUpdate(ctx, makeMine)
		require.NoError(t, err)
		require.True(t, sees(named, t, two))
		require.False(t, sees(t.Context(), t, one))
		one.mustUpdate(makeMine)
		require.False(t, sees(t.Context(), t, one))
		require.Equal(t, [][]string{{"1"}}, one.mustQuery("SELECT 1"), "the ticket outlives the session that it was made in")
		require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Sessions == 1 }))
	})
}

func TestAServerWithoutSessionsForgetsBetweenCalls(t *testing.T) {
	p := testserver.InfluxDB()
	p.Refuse = nil
	bubble(t, p, func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		c.mustUpdate(makeMine)
		require.False(t, sees(t.Context(), t, c))
		require.Equal(t, [][]string{{"1"}}, c.mustQuery("SELECT 1"))
		require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Sessions == 0 }))
	})
}

func TestASessionWithATimeToLiveOutlivesItsConnectionAndExpiresAtTheJanitorsRound(t *testing.T) {
	bubble(t, testserver.SwanLake(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		began := time.Now()
		c.mustUpdate(makeMine)
		require.NoError(t, c.Close())
		require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Conns == 0 }))
		require.Equal(t, 1, srv.Ledger().Snapshot().Sessions)

		require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Sessions == 0 }))
		require.Equal(t, 20*time.Minute+1, time.Since(began), "the janitor comes at 15 minutes, when it is not yet longer than that, and every 5")
		require.Equal(t, 1, srv.Ledger().Snapshot().SessionsEvicted)
	})
}

func TestUseKeepsASessionAliveAndExpiryIsSilent(t *testing.T) {
	bubble(t, testserver.SwanLake(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		c.mustUpdate(makeMine)
		for range 3 {
			time.Sleep(14 * time.Minute)
			require.True(t, sees(t.Context(), t, c))
		}
		time.Sleep(21 * time.Minute)
		require.Equal(t, [][]string{{"1"}}, c.mustQuery("SELECT 1"))
		require.False(t, sees(t.Context(), t, c))
		require.Equal(t, 2, srv.Ledger().Snapshot().SessionsOpened)
	})
}

func TestOneSessionTooManyIsRefusedWithTheProfilesCode(t *testing.T) {
	for _, p := range []testserver.Profile{{MaxSessions: 1}, {MaxSessions: 1, LimitCode: codes.Unavailable}} {
		bubble(t, p, func(t *testing.T, srv *testserver.Server) {
			one, two := dial(t, srv), dial(t, srv)
			one.mustQuery("SELECT 1")
			_, err := two.query(t.Context(), "SELECT 1")
			requireCode(t, srv.Profile().LimitCode, err)
			require.Equal(t, 1, srv.Ledger().Snapshot().Refused)

			srv.Faults().LimitSessions(2)
			two.mustQuery("SELECT 1")
			require.Equal(t, 2, srv.Ledger().Snapshot().Sessions)

			require.NoError(t, two.Close())
			require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Sessions == 1 }))
			dial(t, srv).mustQuery("SELECT 1") // in the place of two
		})
	}
}

// first is the first id of a session of SwanLake's.
const first = "\x00\x00\x00\x00\x00\x00\x00\x01"

func TestEvictionGivesANewEmptySessionWhoseNumbersStartAnew(t *testing.T) {
	bubble(t, testserver.SwanLake(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		c.mustUpdate(makeMine)
		tx, err := c.BeginTransaction(t.Context())
		require.NoError(t, err)
		require.Equal(t, first, string(tx.ID()))
		require.Equal(t, 1, srv.Ledger().Snapshot().Transactions)

		require.Equal(t, 1, srv.Faults().EvictSessions())
		require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Sessions == 0 }))
		require.Equal(t, 0, srv.Ledger().Snapshot().Transactions)
		require.False(t, sees(t.Context(), t, c))
		other, err := c.BeginTransaction(t.Context())
		require.NoError(t, err)
		require.Equal(t, first, string(other.ID())) // the stale id names another's transaction
		require.NoError(t, other.Rollback(t.Context()))
	})
}

func TestAnEvictedClientIsToldOnceByGetSessionOptions(t *testing.T) {
	bubble(t, testserver.Profile{EvictedCode: codes.Unauthenticated}, func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		c.mustQuery("SELECT 1")
		_, err := c.GetSessionOptions(t.Context(), &flight.GetSessionOptionsRequest{})
		require.NoError(t, err)
		srv.Faults().EvictSessions()
		_, err = c.GetSessionOptions(t.Context(), &flight.GetSessionOptionsRequest{})
		requireCode(t, codes.Unauthenticated, err)
		_, err = c.GetSessionOptions(t.Context(), &flight.GetSessionOptionsRequest{})
		require.NoError(t, err)
	})
}

func TestSessionOptionsAreKeptErasedAndPrivate(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		one, two := dial(t, srv), dial(t, srv)
		set := func(name string, v any) {
			opts, err := flight.NewSessionOptionValues(map[string]any{name: v})
			require.NoError(t, err)
			res, err := one.SetSessionOptions(t.Context(), &flight.SetSessionOptionsRequest{SessionOptions: opts})
			require.NoError(t, err)
			require.Empty(t, res.Errors)
		}
		set("a", "x")
		set("n", int64(7))
		got, err := one.GetSessionOptions(t.Context(), &flight.GetSessionOptionsRequest{})
		require.NoError(t, err)
		require.Equal(t, "x", got.SessionOptions["a"].GetStringValue())
		require.Equal(t, int64(7), got.SessionOptions["n"].GetInt64Value())
		set("a", nil)
		got, err = one.GetSessionOptions(t.Context(), &flight.GetSessionOptionsRequest{})
		require.NoError(t, err)
		require.Len(t, got.SessionOptions, 1)
		got, err = two.GetSessionOptions(t.Context(), &flight.GetSessionOptionsRequest{})
		require.NoError(t, err)
		require.Empty(t, got.SessionOptions)
	})
}

func TestCloseSessionEndsTheSessionWithWhatRunsInIt(t *testing.T) {
	bubble(t, testserver.Profile{SessionKey: testserver.ByPeerIP}, func(t *testing.T, srv *testserver.Server) {
		one, two := dial(t, srv), dial(t, srv)
		one.mustUpdate(makeMine)
		ended := make(chan error, 1)
		go func() { _, err := one.query(t.Context(), "SELECT sleep('1h')"); ended <- err }()
		require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Running == 1 }))

		res, err := two.CloseSession(t.Context(), &flight.CloseSessionRequest{})
		require.NoError(t, err)
		require.Equal(t, flight.CloseSessionResultClosed, res.Status)
		require.Equal(t, 0, srv.Ledger().Snapshot().Sessions)
		require.Equal(t, 0, srv.Ledger().Snapshot().Running)
		requireCode(t, codes.Unavailable, <-ended)
		require.False(t, sees(t.Context(), t, one))
	})
}

func TestCloseEndsWhatRunsInAnEvictedSession(t *testing.T) {
	bubble(t, testserver.SwanLake(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		ended := inBackground(t.Context(), c, hour)
		running(t, srv, 1)
		waits := make(chan error, 1)
		go func() { _, err := c.Prepare(t.Context(), "SELECT 1"); waits <- err }()
		synctest.Wait()
		srv.Faults().EvictSessions()
		synctest.Wait()
		require.Equal(t, 1, srv.Ledger().Snapshot().Running) // what runs, runs on
		require.Empty(t, waits)
		began := time.Now()
		require.NoError(t, srv.Close())
		require.Zero(t, time.Since(began))
		require.Error(t, <-ended)
		require.Error(t, <-waits)
	})
}

func TestAnEvictedSessionEndsAfterWhatRunsInItAndBlocksNobody(t *testing.T) {
	bubble(t, testserver.Profile{IgnoreRPCCancel: true}, func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		ended := inBackground(t.Context(), c, hour)
		running(t, srv, 1)
		srv.Faults().EvictSessions() // its end waits for the hour, the next call gets a new session
		c.mustQuery("SELECT 1")
		require.Equal(t, 2, srv.Ledger().Snapshot().Sessions)
		require.NoError(t, <-ended)
		require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Sessions == 1 }))
	})
}

func TestACallWhoseSessionIsGoneByTheTimeItRunsIsTold(t *testing.T) {
	bubble(t, testserver.Profile{SessionKey: testserver.ByPeerIP}, func(t *testing.T, srv *testserver.Server) {
		one, two := dial(t, srv), dial(t, srv)
		srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, Times: 1, Do: testserver.Delay(time.Minute)})
		began := time.Now()
		ended := inBackground(t.Context(), one, "SELECT 1")
		synctest.Wait()
		_, err := two.CloseSession(t.Context(), &flight.CloseSessionRequest{})
		require.NoError(t, err)
		requireCode(t, codes.Unavailable, <-ended)
		require.Equal(t, time.Minute, time.Since(began))
	})
}

// The order in which a server begins with the requests of one connection is not that in
// which they came.
func TestACallThatWasTakenBackBeforeItWasBegunOpensNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, done, goOn := make(chan context.Context, 1), make(chan error, 1), make(chan struct{})
		hold := grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if !strings.HasSuffix(info.FullMethod, "/GetFlightInfo") {
				return handle(ctx, req)
			}
			held <- ctx
			<-goOn
			res, err := handle(ctx, req)
			done <- err
			return res, err
		})
		srv := start(t, testserver.Options{Profile: testserver.Profile{SessionKey: testserver.ByPeerIP}, Listen: testserver.InMemory, GRPC: []grpc.ServerOption{hold}})
		c := dial(t, srv)
		c.mustUpdate(makeMine)
		ctx, takeBack := context.WithCancel(t.Context())
		ended := inBackground(ctx, c, "SELECT 1")
		begun := <-held
		takeBack()
		<-begun.Done()
		_, err := c.CloseSession(t.Context(), &flight.CloseSessionRequest{})
		require.NoError(t, err)
		close(goOn)
		requireCode(t, codes.Canceled, <-done)
		requireCode(t, codes.Canceled, <-ended)
		require.Equal(t, 0, srv.Ledger().Snapshot().Sessions)
	})
}

func TestStatementsOfASessionMayRunSideBySide(t *testing.T) {
	for _, sideBySide := range []bool{true, false} {
		p := testserver.Strict()
		p.SideBySide = sideBySide
		bubble(t, p, func(t *testing.T, srv *testserver.Server) {
			c := dial(t, srv)
			slow := inBackground(t.Context(), c, "SELECT sleep('1m')")
			running(t, srv, 1)
			began := time.Now()
			c.mustUpdate("CREATE TABLE t (a BIGINT)")
			require.Equal(t, !sideBySide, time.Since(began) == time.Minute)
			require.NoError(t, <-slow)

			rows := execute(t, c, "SELECT * FROM generate(4, 1)")
			began = time.Now()
			held := c.get(t.Context(), rows.GetEndpoint()[0].GetTicket(), func(arrow.RecordBatch) {
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				_, err := c.query(ctx, "SELECT 1")
				require.NoError(t, err)
			})
			require.NoError(t, held)
			require.Zero(t, time.Since(began))

			slow = inBackground(t.Context(), c, "SELECT sleep('1m')")
			running(t, srv, 1)
			require.Equal(t, 1, srv.Faults().EvictSessions())
			require.Equal(t, sideBySide, <-slow != nil, "a statement that was put aside has lost its session")
		})
	}
}
