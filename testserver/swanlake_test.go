package testserver_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"github.com/flightpool/flightpool/testserver/script"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/flightpool/flightpool/testserver"
)

// What the profile SwanLake is held to here was measured on the server itself.

func TestSwanLakeRunsTheStatementAfterAFailureOutsideTheTransaction(t *testing.T) {
	txBubble(t, testserver.SwanLake(), func(t *testing.T, srv *testserver.Server, c *client) {
		tx := begin(t, c)
		_, err := c.updateIn(tx, "INSERT INTO t VALUES (1), (1)")
		requireCode(t, codes.Internal, err)
		require.ErrorContains(t, err, "duckdb error: ")
		_, err = c.updateIn(tx, "INSERT INTO t VALUES (2)") // rolls back and commits by itself
		require.NoError(t, err)
		require.Equal(t, [][]string{{"1"}}, c.mustQuery("SELECT count(*) FROM t"))
		requireCode(t, codes.FailedPrecondition, tx.Commit(t.Context()))
		require.Len(t, srv.Ledger().Executions("INSERT INTO t VALUES (2)"), 2)
	})
}

func TestSwanLakeConfirmsTheCommitOfAnAbortedTransactionAndStoresNothing(t *testing.T) {
	txBubble(t, testserver.SwanLake(), func(t *testing.T, _ *testserver.Server, c *client) {
		tx := begin(t, c)
		_, err := c.updateIn(tx, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		_, err = c.updateIn(tx, "INSERT INTO t VALUES (1)")
		require.Error(t, err)
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, [][]string{{"0"}}, c.mustQuery("SELECT count(*) FROM t"))
	})
}

func TestSwanLakeDropsTheOpenTransactionOnASecondBegin(t *testing.T) {
	txBubble(t, testserver.SwanLake(), func(t *testing.T, srv *testserver.Server, c *client) {
		first := begin(t, c)
		_, err := c.updateIn(first, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		second := begin(t, c)
		require.NotEqual(t, first.ID(), second.ID())
		requireCode(t, codes.FailedPrecondition, first.Commit(t.Context()))
		require.NoError(t, second.Commit(t.Context()))
		require.Equal(t, [][]string{{"0"}}, c.mustQuery("SELECT count(*) FROM t"))
		require.Equal(t, 0, srv.Ledger().Snapshot().Transactions)
	})
}

func TestSwanLakeConfirmsTheEndOfAnUnknownTransaction(t *testing.T) {
	txBubble(t, testserver.SwanLake(), func(t *testing.T, srv *testserver.Server, c *client) {
		before := srv.Ledger().Snapshot().Executed
		require.NoError(t, endTx(t, c, "\x00\x00\x00\x00\x00\x00\x00\x63", true))
		require.Equal(t, before, srv.Ledger().Snapshot().Executed)
	})
}

func TestSwanLakeIgnoresTransactionIDs(t *testing.T) {
	txBubble(t, testserver.SwanLake(), func(t *testing.T, _ *testserver.Server, c *client) {
		tx := begin(t, c)
		c.mustUpdate("INSERT INTO t VALUES (1)") // in the transaction, although it does not say so
		require.NoError(t, tx.Rollback(t.Context()))
		require.Equal(t, [][]string{{"0"}}, c.mustQuery("SELECT count(*) FROM t"))
	})
}

// swan is txBubble with SwanLake.
func swan(t *testing.T, test func(t *testing.T, srv *testserver.Server, c *client)) {
	t.Helper()
	txBubble(t, testserver.SwanLake(), test)
}

// boundUpdate runs a prepared statement with parameters.
func boundUpdate(t *testing.T, c *client, sql string, params arrow.RecordBatch) (int64, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	st, err := c.Prepare(ctx, sql)
	if err != nil {
		return 0, err
	}
	if params != nil {
		defer params.Release()
		st.SetParameters(params)
	}
	n, err := st.ExecuteUpdate(ctx)
	require.NoError(t, st.Close(t.Context()))
	return n, err
}

func TestSwanLakeRefusesTheEndOfARecoveredTransactionOnce(t *testing.T) {
	for _, commit := range []bool{false, true} {
		swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
			tx := begin(t, c)
			_, err := c.updateIn(tx, "INSERT INTO t VALUES (1), (1)")
			require.Error(t, err)
			_, err = c.updateIn(tx, "INSERT INTO t VALUES (2)")
			require.NoError(t, err)
			requireCode(t, codes.FailedPrecondition, endTx(t, c, string(tx.ID()), commit))
			require.NoError(t, endTx(t, c, string(tx.ID()), commit))
			require.Equal(t, [][]string{{"2"}}, c.mustQuery("SELECT * FROM t"))
		})
	}
}

func TestSwanLakeNeverConfirmsACommitThatTheEngineRefuses(t *testing.T) {
	swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
		tx := begin(t, c)
		_, err := c.updateIn(tx, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		dial(t, srv).mustUpdate("INSERT INTO t VALUES (1)")
		err = endTx(t, c, string(tx.ID()), true)
		requireCode(t, codes.Internal, err)
		require.ErrorContains(t, err, "cannot commit - no transaction is active")
		require.Equal(t, 0, srv.Ledger().Snapshot().Transactions)
		requireCode(t, codes.FailedPrecondition, endTx(t, c, string(tx.ID()), false))
		require.NoError(t, endTx(t, c, string(tx.ID()), false))
		require.Equal(t, [][]string{{"1"}}, c.mustQuery("SELECT * FROM t"))
	})
}

func TestSwanLakeNumbersAreEightBytes(t *testing.T) {
	swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
		tx := begin(t, c)
		require.Equal(t, first, string(tx.ID()))
		require.Equal(t, first, string(prepare(t, c, "SELECT 1").Handle()), "they count by themselves")
		for _, id := range []string{"", "1", "flightpool-never-begun"} {
			requireCode(t, codes.InvalidArgument, endTx(t, c, id, true))
		}
		require.NoError(t, tx.Rollback(t.Context()))
		_, err := flightsql.NewPreparedStatement(c.Client, []byte("1")).Execute(t.Context())
		requireCode(t, codes.InvalidArgument, err)
	})
}

func TestSwanLakeTakesAnEmptyHandleForTheLatest(t *testing.T) {
	swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
		empty := func() ([][]string, error) {
			info, err := flightsql.NewPreparedStatement(c.Client, nil).Execute(t.Context())
			if err != nil {
				return nil, err
			}
			rows, err := c.fetch(t.Context(), info)
			return texts(rows), err
		}
		_, err := empty()
		requireCode(t, codes.InvalidArgument, err)
		prepare(t, c, "SELECT 1 AS x")
		st := prepare(t, c, "SELECT 2 AS x")
		rows, err := empty()
		require.NoError(t, err)
		require.Equal(t, [][]string{{"2"}}, rows)
		require.NoError(t, st.Close(t.Context()))
		_, err = empty()
		requireCode(t, codes.InvalidArgument, err)
	})
}

func TestSwanLakeRefusesALargeMessageAsOutOfRange(t *testing.T) {
	swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
		big := "SELECT '" + strings.Repeat("x", 4<<20) + "'"
		_, err := c.query(t.Context(), big)
		requireCode(t, codes.OutOfRange, err)
		_, err = c.update(big)
		requireCode(t, codes.OutOfRange, err)
		_, err = c.Prepare(t.Context(), big)
		requireCode(t, codes.OutOfRange, err)
		c.mustUpdate("CREATE TABLE swanlake.bulk (s VARCHAR)")
		_, err = boundUpdate(t, c, "INSERT INTO swanlake.bulk VALUES (?)", strs("s", strings.Repeat("x", 5<<20)))
		requireCode(t, codes.OutOfRange, err)
		require.Equal(t, [][]string{{"0"}}, c.mustQuery("SELECT count(*) FROM swanlake.bulk"))
	})
}

// strs is one batch with one column of texts.
func strs(name string, values ...string) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: name, Type: arrow.BinaryTypes.String, Nullable: true}}, nil))
	defer b.Release()
	b.Field(0).(*array.StringBuilder).AppendValues(values, nil)
	return b.NewRecordBatch()
}

func TestSwanLakeRunsAQueryToPrepareItOnceForItsText(t *testing.T) {
	swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
		const sql = "SELECT 41 AS x"
		prepare(t, c, sql)
		require.Len(t, srv.Ledger().Executions(sql), 1)
		c.mustQuery(sql) // its schema is known by now
		require.Len(t, srv.Ledger().Executions(sql), 2)
		prepare(t, c, "INSERT INTO t VALUES (1)")
		require.Empty(t, srv.Ledger().Executions("INSERT INTO t VALUES (1)"))
		_, err := c.Prepare(t.Context(), "SELECT error('no')")
		requireCode(t, codes.Internal, err)
		_, err = c.Prepare(t.Context(), "SELEC 1")
		requireCode(t, codes.Internal, err)
	})
}

func TestSwanLakeTellsTheCountOfPreparedUpdatesOnly(t *testing.T) {
	swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
		require.EqualValues(t, 0, c.mustUpdate("INSERT INTO t VALUES (1), (2)"))
		require.Equal(t, "0", affected(t, c, execute(t, c, "INSERT INTO t VALUES (3), (4)"), "x-swanlake-affected-rows"))
		n, err := boundUpdate(t, c, "UPDATE t SET a = 9 WHERE a = ?", batch(t, "a", 1, 99))
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		st := prepare(t, c, "DELETE FROM t WHERE a = 2")
		info, err := st.Execute(t.Context())
		require.NoError(t, err)
		require.Equal(t, "1", affected(t, c, info, "x-swanlake-affected-rows"))
	})
}

func TestSwanLakeAppendsABoundInsertAndStaysInItsCatalog(t *testing.T) {
	swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
		at := func(want string) {
			t.Helper()
			require.Equal(t, [][]string{{want, "main"}}, c.mustQuery("SELECT current_database(), current_schema()"))
		}
		at("memory")
		_, err := boundUpdate(t, c, "INSERT INTO t VALUES (?)", batch(t, "a", 1))
		requireCode(t, codes.Internal, err) // there is none in swanlake
		at("memory")
		c.mustUpdate("CREATE TABLE swanlake.u (a BIGINT, b BIGINT)")
		n, err := boundUpdate(t, c, "INSERT INTO swanlake.u VALUES (7, ?)", two(t, "x", 1, 2))
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		at("swanlake")
		require.Equal(t, [][]string{{"1", "2"}}, c.mustQuery("SELECT * FROM u"), "its VALUES are not looked at")
		_, err = c.query(t.Context(), "SELECT * FROM t")
		requireCode(t, codes.Internal, err) // that is in memory

		n, err = boundUpdate(t, c, "INSERT INTO u (b) VALUES (?)", batch(t, "1", 5, 6))
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
		at("swanlake")
		require.Equal(t, [][]string{{"1", "2"}, {"(null)", "5"}, {"(null)", "6"}}, c.mustQuery("SELECT * FROM u"))
		_, err = boundUpdate(t, c, "INSERT INTO u (b) VALUES (?)", batch(t, "wrong", 5))
		requireCode(t, codes.Internal, err)

		c.mustUpdate("USE memory")
		require.EqualValues(t, 0, c.mustUpdate("INSERT INTO t VALUES (1)"))
		at("memory")
		c.mustUpdate("CREATE TABLE swanlake.t (a BIGINT)")
		_, err = boundUpdate(t, c, "INSERT INTO t VALUES (?)", batch(t, "a", 8))
		require.NoError(t, err)
		at("swanlake")
		require.Equal(t, [][]string{{"1"}}, c.mustQuery("SELECT * FROM memory.t"))
		require.Equal(t, [][]string{{"8"}}, c.mustQuery("SELECT * FROM t"))
	})
}

// two is one row of two columns.
func two(t *testing.T, name string, a, b int64) arrow.RecordBatch {
	t.Helper()
	one, other := batch(t, name, a), batch(t, name, b)
	defer one.Release()
	defer other.Release()
	return array.NewRecordBatch(arrow.NewSchema(append(one.Schema().Fields(), other.Schema().Fields()...), nil),
		[]arrow.Array{one.Column(0), other.Column(0)}, 1)
}

func TestSwanLakeDropsTheRowsOfCommands(t *testing.T) {
	swanWith(t, script.New(), func(t *testing.T, srv *testserver.Server, db *script.Engine) {
		c := dial(t, srv)
		db.On("INSERT INTO r", script.Rows(batch(t, "a", 1, 2)))
		db.On("CALL", script.Rows(batch(t, "a", 3)))
		for _, sql := range []string{"INSERT INTO r VALUES (1) RETURNING a", "CALL pragma_version()", " -- say\ninsert INTO r VALUES (1) RETURNING a"} {
			info := execute(t, c, sql)
			schema, err := flight.DeserializeSchema(info.Schema, nil)
			require.NoError(t, err)
			require.Zero(t, schema.NumFields(), sql)
			if strings.HasPrefix(sql, " ") {
				continue
			}
			require.Equal(t, "0", affected(t, c, info, "x-swanlake-affected-rows"), sql)
			require.Len(t, srv.Ledger().Executions(sql), 1, "a command runs once: %s", sql)
		}
	})
}

func TestSwanLakeRefusesASyntaxErrorWhereItRuns(t *testing.T) {
	swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
		for _, sql := range []string{"SELEC 1", "SELECT 1 FROM WHERE", "INSRT INTO t VALUES (1)", "INSERT INTO nowhere VALUES (1)"} {
			info := execute(t, c, sql)
			_, err := c.fetch(t.Context(), info)
			requireCode(t, codes.Internal, err)
			require.ErrorContains(t, err, "duckdb error: ")
		}
		_, err := c.Execute(t.Context(), "SELECT * FROM nowhere")
		requireCode(t, codes.Internal, err)
	})
}

func TestSwanLakeTakesEmptyTextAndRefusesANul(t *testing.T) {
	swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
		for _, sql := range []string{"", " ;", "-- nothing"} {
			require.EqualValues(t, 0, c.mustUpdate(sql))
			require.Empty(t, c.mustQuery(sql))
		}
		for _, sql := range []string{"SELECT 'a\x00b'", "\x00", "INSERT INTO t VALUES (1)\x00"} {
			_, err := c.update(sql)
			requireCode(t, codes.InvalidArgument, err)
			_, err = c.query(t.Context(), sql)
			requireCode(t, codes.InvalidArgument, err)
			_, err = c.Prepare(t.Context(), sql)
			requireCode(t, codes.InvalidArgument, err)
		}
		require.Equal(t, [][]string{{"0"}}, c.mustQuery("SELECT count(*) FROM t"))
	})
}

func TestSwanLakeBindsTheFirstRowForOneRunAndElseNulls(t *testing.T) {
	swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
		st := prepare(t, c, "SELECT ? AS x")
		require.Equal(t, 1, st.DatasetSchema().NumFields())
		require.Equal(t, arrow.STRING, st.ParameterSchema().Field(0).Type.ID())
		require.Equal(t, "$1", st.ParameterSchema().Field(0).Name)
		require.Equal(t, [][]string{{"7"}}, runBound(t, c, st, 7, 8, 9))
		info, err := flightsql.NewPreparedStatement(c.Client, st.Handle()).Execute(t.Context())
		require.NoError(t, err)
		rows, err := c.fetch(t.Context(), info)
		require.NoError(t, err)
		require.Equal(t, [][]string{{"(null)"}}, texts(rows))

		find := prepare(t, c, "SELECT * FROM t WHERE a = ?")
		require.Equal(t, arrow.INT64, find.ParameterSchema().Field(0).Type.ID(), "of a simple shape it is known")
	})
}

func TestSwanLakeNamesNoHandleInTheReplyToABind(t *testing.T) {
	swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
		st := prepare(t, c, "SELECT ? AS x")
		var reply pb.DoPutPreparedStatementResult
		seen := false
		srv.Faults().Set(testserver.Fault{On: testserver.OnDoPut, After: true, Do: testserver.Rewrite(func(r *flight.PutResult) {
			seen = true
			require.NoError(t, proto.Unmarshal(r.AppMetadata, &reply))
		})})
		runBound(t, c, st, 1)
		require.True(t, seen)
		require.Empty(t, reply.GetPreparedStatementHandle())
	})
}

func TestSwanLakeRefusesUnknownTicketsAsInvalid(t *testing.T) {
	swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
		for _, handle := range []string{"", "nonsense", "sql\x00"} {
			raw := statementTicket(t, handle)
			requireCode(t, codes.InvalidArgument, c.get(t.Context(), &flight.Ticket{Ticket: raw}, func(arrow.RecordBatch) {}))
		}
	})
}

func TestSwanLakeRunsNoPreparedQueryAsAnUpdate(t *testing.T) {
	swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
		_, err := boundUpdate(t, c, "SELECT 5 AS x", nil)
		requireCode(t, codes.InvalidArgument, err)
		require.Len(t, srv.Ledger().Executions("SELECT 5 AS x"), 1, "by the preparation alone")
	})
}

func TestSwanLakeListsEightActions(t *testing.T) {
	swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
		names := listed(t, c)
		require.Len(t, names, 8)
		for _, name := range []string{"CancelFlightInfo", "RenewFlightEndpoint", "CloseSession"} {
			require.NotContains(t, names, name)
		}
	})
}

func TestSwanLakeTellsFourThingsOfItself(t *testing.T) {
	swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
		info := func(ids ...flightsql.SqlInfo) map[string]string {
			told := map[string]string{}
			i, err := c.GetSqlInfo(t.Context(), ids)
			require.NoError(t, err)
			rows, err := c.fetch(t.Context(), i)
			require.NoError(t, err)
			for _, row := range texts(rows) {
				told[row[0]] = row[1]
			}
			return told
		}
		require.Equal(t, []string{"562", "563", "564", "8"}, slices.Sorted(maps.Keys(info())))
		require.Contains(t, info(flightsql.SqlInfoFlightSqlServerTransaction, flightsql.SqlInfoFlightSqlServerName)["8"], "1")
		require.Empty(t, info(flightsql.SqlInfoFlightSqlServerName))
	})
}

func TestSwanLakePromisesNoOrderAndStripsLocks(t *testing.T) {
	swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
		c.mustUpdate("INSERT INTO t VALUES (1)")
		info := execute(t, c, "SELECT * FROM t WHERE a = 1 FOR UPDATE")
		require.False(t, info.GetOrdered())
		rows, err := c.fetch(t.Context(), info)
		require.NoError(t, err)
		require.Len(t, texts(rows), 1)
		require.Empty(t, srv.Ledger().Executions("SELECT * FROM t WHERE a = 1 FOR UPDATE"))
	})
}

func TestSwanLakeEvictsAtTheJanitorsRoundsOnly(t *testing.T) {
	for _, c := range []struct{ used, gone time.Duration }{
		{0, 20 * time.Minute}, {time.Second, 20 * time.Minute}, {4*time.Minute + 59*time.Second, 20 * time.Minute},
		{5 * time.Minute, 25 * time.Minute}, {6 * time.Minute, 25 * time.Minute},
	} {
		bubble(t, testserver.SwanLake(), func(t *testing.T, srv *testserver.Server) {
			began := time.Now()
			time.Sleep(c.used)
			dial(t, srv).mustUpdate(makeMine)
			require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Sessions == 0 }))
			require.Equal(t, c.gone+1, time.Since(began), "used last at %v", c.used)
		})
	}
}

func TestSwanLakeCountsTheTimeOfAStatementAsIdle(t *testing.T) {
	swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
		tx := begin(t, c)
		_, err := c.updateIn(tx, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		c.mustUpdate("SELECT sleep('21m')")
		_, err = c.updateIn(tx, "INSERT INTO t VALUES (2)") // in a new session, by itself
		require.NoError(t, err)
		require.NoError(t, endTx(t, c, string(tx.ID()), true), "which it does not know")
		require.Equal(t, [][]string{{"2"}}, c.mustQuery("SELECT * FROM t"))
	})
}

func TestSwanLakeLeavesATransactionThatChangesASecondCatalog(t *testing.T) {
	swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
		c.mustUpdate("CREATE TABLE swanlake.u (a BIGINT)")
		tx := begin(t, c)
		for _, sql := range []string{"INSERT INTO swanlake.u VALUES (1)", "INSERT INTO t VALUES (2)", "INSERT INTO swanlake.u VALUES (3)"} {
			_, err := c.updateIn(tx, sql)
			require.NoError(t, err)
		}
		requireCode(t, codes.FailedPrecondition, endTx(t, c, string(tx.ID()), true))
		require.Equal(t, [][]string{{"3"}}, c.mustQuery("SELECT * FROM swanlake.u"))
		require.Equal(t, [][]string{{"2"}}, c.mustQuery("SELECT * FROM t"))
	})
}

func TestSwanLakeHasAHundredSessions(t *testing.T) {
	bubble(t, testserver.SwanLake(), func(t *testing.T, srv *testserver.Server) {
		for range 100 {
			c := dial(t, srv)
			c.mustQuery("SELECT 1")
			require.NoError(t, c.Close()) // which ends no session
		}
		_, err := dial(t, srv).query(t.Context(), "SELECT 1")
		requireCode(t, codes.ResourceExhausted, err)
		require.ErrorContains(t, err, "maximum number of sessions reached")
	})
}

func TestSwanLakeRollsBackForAnAppendToASecondCatalogAndDoesNotRepeatIt(t *testing.T) {
	swan(t, func(t *testing.T, srv *testserver.Server, c *client) {
		c.mustUpdate("CREATE TABLE swanlake.u (a BIGINT)")
		tx := begin(t, c)
		_, err := c.updateIn(tx, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		_, err = boundUpdate(t, c, "INSERT INTO swanlake.u VALUES (?)", batch(t, "a", 2))
		requireCode(t, codes.Internal, err)
		requireCode(t, codes.FailedPrecondition, endTx(t, c, string(tx.ID()), true))
		require.Equal(t, [][]string{{"0"}}, c.mustQuery("SELECT count(*) FROM swanlake.u"))
		require.Equal(t, [][]string{{"0"}}, c.mustQuery("SELECT count(*) FROM memory.t"))
	})
}
