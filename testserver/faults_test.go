package testserver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/testserver"
)

func TestAFaultDelaysThePointThatItIsSetOn(t *testing.T) {
	for _, on := range []testserver.Point{
		testserver.OnConnect, testserver.OnSession, testserver.OnGetFlightInfo,
		testserver.OnStatement, testserver.OnDoGet, testserver.OnBatch,
	} {
		t.Run(string(on), func(t *testing.T) {
			bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
				fault := srv.Faults().Set(testserver.Fault{On: on, Times: 1, Do: testserver.Delay(7 * time.Second)})
				c := dial(t, srv)
				began := time.Now()
				c.mustQuery("SELECT 1")
				require.Equal(t, 7*time.Second, time.Since(began))
				require.Equal(t, 1, fault.Fired())
				if on != testserver.OnConnect {
					c.mustQuery("SELECT 1") // once only
					require.Equal(t, 7*time.Second, time.Since(began))
				}
			})
		})
	}
}

func TestADelayOfEachBatchAddsUp(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		srv.Faults().Set(testserver.Fault{On: testserver.OnBatch, Do: testserver.Delay(time.Second)})
		c := dial(t, srv)
		began := time.Now()
		c.mustQuery("SELECT * FROM generate(5, 1)")
		require.Equal(t, 5*time.Second, time.Since(began))
	})
}

func TestAFaultSkipsAndMatchesSQLAndEndsWhenCleared(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		fault := srv.Faults().Set(testserver.Fault{
			On: testserver.OnGetFlightInfo, SQL: "AS bad", Skip: 1,
			Do: testserver.Fail(codes.ResourceExhausted, "no"),
		})
		c.mustQuery("SELECT 1 AS bad")
		c.mustQuery("SELECT 1 AS good")
		for range 2 {
			_, err := c.query(t.Context(), "SELECT 1 AS bad")
			requireCode(t, codes.ResourceExhausted, err)
		}
		require.Equal(t, 2, fault.Fired())
		require.Len(t, srv.Ledger().Executions("SELECT 1 AS bad"), 1)
		fault.Clear()
		fault.Clear()
		c.mustQuery("SELECT 1 AS bad")

		srv.Faults().Set(testserver.Fault{On: testserver.OnDoPut, SQL: "CREATE", Do: testserver.Fail(codes.Aborted, "no")})
		srv.Faults().Set(testserver.Fault{On: testserver.OnDoGet, SQL: "AS two", Do: testserver.Fail(codes.Aborted, "no")})
		srv.Faults().Set(testserver.Fault{On: testserver.OnPrepare, SQL: "AS three", Do: testserver.Fail(codes.Aborted, "no")})
		_, err := c.update("CREATE TABLE t (a BIGINT)")
		requireCode(t, codes.Aborted, err)
		_, err = c.query(t.Context(), "SELECT 1 AS two")
		requireCode(t, codes.Aborted, err)
		_, err = c.Prepare(t.Context(), "SELECT 1 AS three")
		requireCode(t, codes.Aborted, err)
		srv.Faults().Clear()
		c.mustUpdate("CREATE TABLE t (a BIGINT)")
		c.mustQuery("SELECT 1 AS two")
	})
}

func TestAStreamDiesAfterSomeBatchesByStatusOrByReset(t *testing.T) {
	for _, do := range []testserver.Effect{testserver.Fail(codes.Internal, "died"), testserver.Kill()} {
		bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
			srv.Faults().Set(testserver.Fault{On: testserver.OnBatch, Skip: 2, Times: 1, Do: do})
			c := dial(t, srv)
			info := execute(t, c, "SELECT * FROM generate(100, 1)")
			n := 0
			err := c.get(t.Context(), info.Endpoint[0].Ticket, func(arrow.RecordBatch) { n++ })
			require.Error(t, err)
			require.LessOrEqual(t, n, 2) // a reset loses what was under way
			require.NoError(t, srv.Ledger().WaitIdle(t.Context()))
		})
	}
}

func TestKillAtTheStatementTellsWhatWasDoneFromWhatWasNot(t *testing.T) {
	for _, after := range []bool{false, true} {
		bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
			c := dial(t, srv)
			c.mustUpdate("CREATE TABLE t (a BIGINT)")
			srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, After: after, SQL: "INSERT", Do: testserver.Kill()})
			_, err := c.update("INSERT INTO t VALUES (1)")
			requireCode(t, codes.Unavailable, err)
			srv.Faults().Clear()
			done := 0
			if after {
				done = 1
			}
			require.Len(t, srv.Ledger().Executions("INSERT INTO t VALUES (1)"), done)
			rows := c.mustQuery("SELECT * FROM t") // over a new connection
			require.Len(t, rows, done)
			require.Equal(t, 2, srv.Ledger().Snapshot().ConnsOpened)
		})
	}
}

func TestALostReplyOfACommitLeavesTheCommitDone(t *testing.T) {
	txBubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server, c *client) {
		tx := begin(t, c)
		_, err := c.updateIn(tx, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		srv.Faults().Set(testserver.Fault{On: testserver.OnEnd, After: true, Times: 1, Do: testserver.Kill()})
		requireCode(t, codes.Unavailable, tx.Commit(t.Context()))
		require.Equal(t, [][]string{{"1"}}, c.mustQuery("SELECT count(*) FROM t"))
	})
}

func TestAHungCallEndsWithItsContextOrWithTheFault(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		c.mustQuery("SELECT 1")
		hang := srv.Faults().Set(testserver.Fault{On: testserver.OnCloseSession, Do: testserver.Hang()})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.CloseSession(ctx, &flight.CloseSessionRequest{})
		requireCode(t, codes.DeadlineExceeded, err)
		require.Equal(t, 1, srv.Ledger().Snapshot().Sessions)

		closed := make(chan error, 1)
		go func() { _, err := c.CloseSession(t.Context(), &flight.CloseSessionRequest{}); closed <- err }()
		synctest.Wait()
		require.Empty(t, closed)
		hang.Clear()
		require.NoError(t, <-closed)
	})
}

func TestCloseEndsWhateverHangs(t *testing.T) {
	for _, on := range []testserver.Point{testserver.OnConnect, testserver.OnSession, testserver.OnStatement, testserver.OnGetFlightInfo} {
		synctest.Test(t, func(t *testing.T) {
			srv := start(t, testserver.Options{Profile: testserver.SwanLake(), Listen: testserver.InMemory})
			srv.Faults().Set(testserver.Fault{On: on, Do: testserver.Hang()})
			c := dial(t, srv)
			failed := make(chan error, 1)
			go func() { _, err := c.update("SET a = 1"); failed <- err }()
			if on == testserver.OnGetFlightInfo {
				go func() { _, _ = c.Execute(t.Context(), "SELECT 1") }()
			}
			synctest.Wait()
			require.NoError(t, srv.Close())
			require.NoError(t, srv.Close())
			require.NoError(t, c.Close())
			<-failed
			require.Equal(t, testserver.Snapshot{}, current(srv.Ledger().Snapshot()))
		})
	}
}

// current is a snapshot without its totals.
func current(s testserver.Snapshot) testserver.Snapshot {
	s.ConnsPeak, s.ConnsOpened, s.SessionsPeak, s.SessionsOpened, s.SessionsEvicted = 0, 0, 0, 0, 0
	s.Handshakes, s.RunningPeak, s.Executed, s.Cancels, s.Refused = 0, 0, 0, 0, 0
	return s
}

func TestKillConnsCutsEveryConnection(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		one, two := dial(t, srv), dial(t, srv)
		one.mustQuery("SELECT 1")
		two.mustQuery("SELECT 1")
		ended := inBackground(t.Context(), one, hour)
		running(t, srv, 1)
		require.Equal(t, 2, srv.Faults().KillConns())
		requireCode(t, codes.Unavailable, <-ended)
		require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Sessions == 0 && s.Running == 0 }))
	})
}

func TestAFrozenConnectionAnswersNothingUntilItThaws(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		c.mustQuery("SELECT 1")
		require.Equal(t, 1, srv.Faults().FreezeConns())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.query(ctx, "SELECT 1 AS frozen")
		requireCode(t, codes.DeadlineExceeded, err)
		require.Empty(t, srv.Ledger().Executions("SELECT 1 AS frozen"))
		srv.Faults().ThawConns()
		c.mustQuery("SELECT 1")
		require.Equal(t, 1, srv.Ledger().Snapshot().ConnsOpened)
	})
}

func TestFreezeAtAPointSwallowsTheReply(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		c.mustUpdate("CREATE TABLE t (a BIGINT)")
		srv.Faults().Set(testserver.Fault{On: testserver.OnDoPut, After: true, SQL: "INSERT", Do: testserver.Freeze()})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.ExecuteUpdate(ctx, "INSERT INTO t VALUES (1)")
		requireCode(t, codes.DeadlineExceeded, err)
		require.Equal(t, testserver.Done, srv.Ledger().Executions("INSERT INTO t VALUES (1)")[0].State)
	})
}

func TestGoAwayFinishesWhatRunsAndMovesTheClientOn(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		c.mustUpdate(makeMine)
		ended := inBackground(t.Context(), c, hour)
		running(t, srv, 1)
		require.Equal(t, 1, srv.Faults().GoAway())
		synctest.Wait()
		require.False(t, sees(t.Context(), t, c)) // another connection, another session
		require.NoError(t, <-ended)
		require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Conns == 1 }))
	})
}

func TestGoAwayAtAPointLetsThatCallFinish(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		srv.Faults().Set(testserver.Fault{On: testserver.OnBatch, Times: 1, Do: testserver.GoAway()})
		require.Len(t, c.mustQuery("SELECT * FROM generate(3, 1)"), 3)
		synctest.Wait() // until the client has heard of it
		c.mustQuery("SELECT 1")
		require.Equal(t, 2, srv.Ledger().Snapshot().ConnsOpened)
	})
}

func TestAConnectionMayBeRefused(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		refuse := srv.Faults().Set(testserver.Fault{On: testserver.OnConnect, Do: testserver.Kill()})
		c := dial(t, srv)
		_, err := c.query(t.Context(), "SELECT 1")
		requireCode(t, codes.Unavailable, err)
		require.Positive(t, srv.Ledger().Snapshot().Refused)
		refuse.Clear()
		time.Sleep(time.Minute) // the client's own back-off
		c.mustQuery("SELECT 1")
	})
}

func TestEffectsAndDoCombine(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		c.mustUpdate(makeMine)
		called := false
		srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, Times: 1, Do: testserver.Effects(
			testserver.Do(func() { called = true }), testserver.Evict(), testserver.Delay(time.Second),
			testserver.Fail(codes.Aborted, "so"),
		)})
		began := time.Now()
		_, err := c.Execute(t.Context(), "SELECT * FROM mine")
		requireCode(t, codes.Aborted, err)
		require.True(t, called)
		require.Equal(t, time.Second, time.Since(began))
		require.False(t, sees(t.Context(), t, c))
		require.Panics(t, func() { srv.Faults().Set(testserver.Fault{On: testserver.OnDoGet}) })
	})
}

func TestWrongFlightInfos(t *testing.T) {
	for name, check := range map[string]struct {
		do    testserver.Effect
		wrong func(*flight.FlightInfo) bool
	}{
		"no endpoints":  {testserver.NoEndpoints, func(i *flight.FlightInfo) bool { return len(i.Endpoint) == 0 }},
		"no schema":     {testserver.NoSchema, func(i *flight.FlightInfo) bool { return len(i.Schema) == 0 }},
		"bad schema":    {testserver.BadSchema, func(i *flight.FlightInfo) bool { return string(i.Schema) == "not a schema" }},
		"nil tickets":   {testserver.NilTickets, func(i *flight.FlightInfo) bool { return i.Endpoint[0].Ticket == nil }},
		"nil endpoints": {testserver.NilEndpoints, func(i *flight.FlightInfo) bool { return i.Endpoint[0].GetTicket() == nil }},
		"bad tickets":   {testserver.BadTickets, func(i *flight.FlightInfo) bool { return string(i.Endpoint[0].Ticket.Ticket) == "not a ticket" }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
				c := dial(t, srv)
				srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, After: true, Do: check.do})
				info, err := c.Execute(t.Context(), "SELECT 1")
				require.NoError(t, err)
				require.True(t, check.wrong(info), "%v", info)
			})
		})
	}
}

func TestWrongStreams(t *testing.T) {
	for name, f := range map[string]testserver.Fault{
		"schema cut short": {On: testserver.OnDoGet, After: true, Do: testserver.TruncatedHeader},
		"batch cut short":  {On: testserver.OnBatch, Do: testserver.TruncatedHeader},
		"body cut short":   {On: testserver.OnBatch, Do: testserver.TruncatedBody},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
				c := dial(t, srv)
				struck := srv.Faults().Set(f)
				info := execute(t, c, "SELECT * FROM generate(100)")
				err := readGarbage(t.Context(), c, info)
				require.Error(t, err)
				require.Equal(t, 1, struck.Fired())
				require.NoError(t, srv.Ledger().WaitIdle(t.Context()))
			})
		})
	}
}

func TestAnotherSchemaThanThatOfTheResult(t *testing.T) {
	bubble(t, testserver.Profile{Endpoints: 2}, func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, After: true, Skip: 1, Do: testserver.OtherSchema()})
		srv.Faults().Set(testserver.Fault{On: testserver.OnDoGet, After: true, Skip: 1, Do: testserver.OtherSchema()})
		names := func(info *flight.FlightInfo) (names []string) {
			schema, err := flight.DeserializeSchema(info.Schema, memory.DefaultAllocator)
			require.NoError(t, err)
			names = append(names, schema.Field(0).Name)
			for _, e := range info.Endpoint {
				rdr, err := c.DoGet(t.Context(), e.Ticket)
				require.NoError(t, err)
				require.False(t, rdr.Next())
				names = append(names, rdr.Schema().Field(0).Name)
				rdr.Release()
			}
			return names
		}
		require.Equal(t, []string{"i", "i", "other"}, names(execute(t, c, "SELECT * FROM generate(0)")))
		require.Equal(t, []string{"other", "other", "other"}, names(execute(t, c, "SELECT * FROM generate(0)")))
	})
}

// readGarbage reads a stream that may make arrow-go panic.
func readGarbage(ctx context.Context, c *client, info *flight.FlightInfo) (err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("panic")
		}
	}()
	_, err = c.fetch(ctx, info)
	return err
}

func TestListActionsCanBeMadeToLie(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		srv.Faults().Set(testserver.Fault{On: testserver.OnListActions, After: true, Do: testserver.Rewrite(func(a *flight.ActionType) {
			a.Type = "No" + a.Type
		})})
		require.Contains(t, listed(t, dial(t, srv)), "NoCancelFlightInfo")
	})
}

func TestACancelMayAnswerWhatATestWants(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		srv.Faults().Set(testserver.Fault{On: testserver.OnCancel, After: true, Do: testserver.Rewrite(func(r *flight.Result) {
			r.Body = []byte{8, 3} // CANCEL_STATUS_NOT_CANCELLABLE
		})})
		info := execute(t, c, "SELECT 1")
		res, err := c.CancelFlightInfo(t.Context(), &flight.CancelFlightInfoRequest{Info: info})
		require.NoError(t, err)
		require.Equal(t, flight.CancelStatusNotCancellable, res.Status)
	})
}

// What a cleared fault would have done to a call that another has delayed is not done.
func TestAClearedFaultDoesNotStrikeACallThatWasDelayed(t *testing.T) {
	bubble(t, testserver.Profile{}, func(t *testing.T, srv *testserver.Server) {
		f := srv.Faults()
		f.Set(testserver.Fault{On: testserver.OnConnect, Do: testserver.Delay(time.Hour)})
		f.Set(testserver.Fault{On: testserver.OnConnect, Do: testserver.Freeze()})
		conn, err := srv.Dial(t.Context(), "server:1")
		require.NoError(t, err)
		time.Sleep(time.Minute)
		f.Clear()
		require.NoError(t, conn.Close())
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Hour)
		defer stop()
		require.NoError(t, srv.Ledger().Wait(ctx, func(s testserver.Snapshot) bool { return s.Conns == 0 && s.ConnsOpened == 1 }), "its end is noticed")
	})
}

// A limit of the server's own ends what is being executed. What has been is answered as done, however long that takes.
func TestATimeLimitEndsNothingThatIsDone(t *testing.T) {
	for after, want := range map[bool]codes.Code{true: codes.OK, false: codes.Unknown} {
		bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
			c := dial(t, srv)
			srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, After: after, Do: testserver.Delay(time.Minute)})
			time.AfterFunc(time.Second, func() { srv.Faults().EndStatements() })
			_, err := c.update("CREATE TABLE a (i BIGINT)")
			require.Equal(t, want, status.Code(err))
			srv.Faults().Clear()
			_, err = c.update("INSERT INTO a VALUES (1)")
			require.Equal(t, after, err == nil, "it is there if it was said to be")
		})
	}
}
