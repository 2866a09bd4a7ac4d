package adbcpool

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// adbcKinds runs test with a connection of the pool as a database, over each
// backend.
func adbcKinds(t *testing.T, test func(r rig, pool *flightpool.FlightSQLPool, cn adbc.Connection)) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, testserver.Strict(), func(r rig) {
				pool := r.pool(kind)
				db := Database(pool)
				defer func() { require.NoError(r, db.Close()) }()
				cn, err := db.Open(r.Context())
				require.NoError(r, err)
				defer func() {
					_ = cn.Close()
					time.Sleep(10 * time.Second) // a cancelled statement may keep it for a while
					require.Zero(r, pool.Stats().InUse, "the session is back in the pool")
				}()
				test(r, pool, cn)
			})
		})
	}
}

// run executes sql and returns the rows affected.
func (r rig) run(cn adbc.Connection, sql string) (int64, error) {
	r.Helper()
	stmt, err := cn.NewStatement()
	require.NoError(r, err)
	defer func() { require.NoError(r, stmt.Close()) }()
	require.NoError(r, stmt.SetSqlQuery(sql))
	return stmt.ExecuteUpdate(r.Context())
}

// values reads the first column of a reader, as text.
func (r rig) values(rows array.RecordReader) []string {
	r.Helper()
	defer rows.Release()
	var out []string
	for rows.Next() {
		for i := range int(rows.RecordBatch().NumRows()) {
			out = append(out, rows.RecordBatch().Column(0).ValueStr(i))
		}
	}
	require.NoError(r, rows.Err())
	return out
}

func (r rig) query(cn adbc.Connection, sql string) []string {
	r.Helper()
	stmt, err := cn.NewStatement()
	require.NoError(r, err)
	defer func() { require.NoError(r, stmt.Close()) }()
	require.NoError(r, stmt.SetSqlQuery(sql))
	rows, _, err := stmt.ExecuteQuery(r.Context())
	require.NoError(r, err)
	return r.values(rows)
}

func (r rig) status(err error) adbc.Status {
	r.Helper()
	var e adbc.Error
	require.ErrorAs(r, err, &e)
	return e.Code
}

func TestADBCQueriesUpdatesAndPreparedStatements(t *testing.T) {
	adbcKinds(t, func(r rig, pool *flightpool.FlightSQLPool, cn adbc.Connection) {
		_, err := r.run(cn, "CREATE TABLE t (v BIGINT)")
		require.NoError(r, err)
		n, err := r.run(cn, "INSERT INTO t VALUES (1), (2)")
		require.NoError(r, err)
		require.EqualValues(r, 2, n)
		require.Equal(r, []string{"2"}, r.query(cn, "SELECT count(*) FROM t"))

		batch := ints(3, 4, 5)
		defer batch.Release()
		stmt, err := cn.NewStatement()
		require.NoError(r, err)
		require.NoError(r, stmt.SetSqlQuery("INSERT INTO t VALUES (?)"))
		require.NoError(r, stmt.Prepare(r.Context()))
		for range 2 {
			require.NoError(r, stmt.Bind(r.Context(), batch))
			n, err = stmt.ExecuteUpdate(r.Context())
			require.NoError(r, err)
			require.EqualValues(r, 3, n)
		}
		stream, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch, batch})
		require.NoError(r, err)
		defer stream.Release()
		require.NoError(r, stmt.BindStream(r.Context(), stream))
		n, err = stmt.ExecuteUpdate(r.Context())
		require.NoError(r, err)
		require.EqualValues(r, 6, n)
		require.NoError(r, stmt.Close())
		require.Equal(r, adbc.StatusInvalidState, r.status(stmt.Close()))
		require.Equal(r, []string{"14"}, r.query(cn, "SELECT count(*) FROM t"))
		require.Zero(r, r.server.Ledger().Snapshot().Prepared)
	})
}

func ints(values ...int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Int64}}, nil))
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues(values, nil)
	return b.NewRecordBatch()
}

func TestADBCExecutingAgainEndsTheLastResult(t *testing.T) {
	adbcKinds(t, func(r rig, pool *flightpool.FlightSQLPool, cn adbc.Connection) {
		stmt, err := cn.NewStatement()
		require.NoError(r, err)
		require.NoError(r, stmt.SetSqlQuery(generate(100_000)))
		first, _, err := stmt.ExecuteQuery(r.Context())
		require.NoError(r, err)
		defer first.Release()
		require.True(r, first.Next())

		other, err := cn.NewStatement()
		require.NoError(r, err)
		require.NoError(r, other.SetSqlQuery(generate(1)))
		_, _, err = other.ExecuteQuery(r.Context())
		require.Equal(r, adbc.StatusInvalidState, r.status(err), "one result at a time: %v", err)

		require.NoError(r, stmt.SetSqlQuery(generate(2)))
		again, _, err := stmt.ExecuteQuery(r.Context())
		require.NoError(r, err)
		require.Equal(r, []string{"0", "1"}, r.values(again))
		require.NoError(r, other.Close())
		require.NoError(r, stmt.Close())
	})
}

func TestADBCAutocommitBecomesTransactions(t *testing.T) {
	adbcKinds(t, func(r rig, pool *flightpool.FlightSQLPool, cn adbc.Connection) {
		set := func(value string) {
			require.NoError(r, cn.(adbc.PostInitOptions).SetOption(adbc.OptionKeyAutoCommit, value))
		}
		_, err := r.run(cn, "CREATE TABLE t (v BIGINT)")
		require.NoError(r, err)
		require.Equal(r, adbc.StatusInvalidState, r.status(cn.Commit(r.Context())))

		set(adbc.OptionValueDisabled)
		require.Zero(r, r.server.Ledger().Snapshot().Transactions, "it begins with the first statement")
		require.NoError(r, cn.Commit(r.Context()), "of nothing")
		insert := func() {
			_, err := r.run(cn, "INSERT INTO t VALUES (1)")
			require.NoError(r, err)
		}
		insert()
		require.Equal(r, 1, r.server.Ledger().Snapshot().Transactions)
		require.EqualValues(r, 0, r.count(pool, "t"))
		require.NoError(r, cn.Commit(r.Context()))
		require.EqualValues(r, 1, r.count(pool, "t"))
		insert()
		require.NoError(r, cn.Rollback(r.Context()))
		require.EqualValues(r, 1, r.count(pool, "t"))
		insert()
		set(adbc.OptionValueEnabled)
		require.EqualValues(r, 2, r.count(pool, "t"), "switching autocommit on commits")
		insert()
		require.EqualValues(r, 3, r.count(pool, "t"))

		set(adbc.OptionValueDisabled)
		insert()
		require.NoError(r, cn.Close())
		require.EqualValues(r, 3, r.count(pool, "t"), "Close rolls back")
	})
}

func TestADBCAFailedCommitLeavesTheConnectionUsable(t *testing.T) {
	for _, kind := range []string{"native", "open"} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, testserver.Strict(), func(r rig) {
				cn, err := Database(r.pool(kind)).Open(r.Context())
				require.NoError(r, err)
				defer func() { require.NoError(r, cn.Close()) }()
				_, err = r.run(cn, "CREATE TABLE t (v BIGINT)")
				require.NoError(r, err)
				require.NoError(r, cn.(adbc.PostInitOptions).SetOption(adbc.OptionKeyAutoCommit, adbc.OptionValueDisabled))
				_, err = r.run(cn, "INSERT INTO t VALUES (1)")
				require.NoError(r, err)
				r.server.Faults().Set(testserver.Fault{On: testserver.OnEnd, Times: 1, Do: testserver.Fail(codes.Aborted, "conflict")})
				require.ErrorIs(r, cn.Commit(r.Context()), flightpool.ErrTxAborted)
				_, err = r.run(cn, "INSERT INTO t VALUES (2)")
				require.NoError(r, err)
				require.NoError(r, cn.Commit(r.Context()))
				require.Equal(r, []string{"2"}, r.query(cn, "SELECT * FROM t"))
			})
		})
	}
}

func TestADBCErrorsAreADBCsAndThePools(t *testing.T) {
	adbcKinds(t, func(r rig, pool *flightpool.FlightSQLPool, cn adbc.Connection) {
		r.server.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, SQL: "generate(7)", Do: testserver.Fail(codes.NotFound, "no such thing")})
		stmt, err := cn.NewStatement()
		require.NoError(r, err)
		defer func() { require.NoError(r, stmt.Close()) }()
		require.NoError(r, stmt.SetSqlQuery(generate(7)))
		_, _, err = stmt.ExecuteQuery(r.Context())
		require.Equal(r, adbc.StatusNotFound, r.status(err))
		var e adbc.Error
		require.ErrorAs(r, err, &e)
		require.EqualValues(r, codes.NotFound, e.VendorCode)
		var pointer *adbc.Error
		require.ErrorAs(r, err, &pointer)
		require.Equal(r, codes.NotFound, status.Code(err))
		var ours *flightpool.Error
		require.ErrorAs(r, err, &ours)
		require.Equal(r, flightpool.FaultStatement, ours.Fault)
		r.server.Faults().Clear()

		require.NoError(r, stmt.SetSqlQuery("SELECT * FROM endless('1h')"))
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		rows, _, err := stmt.ExecuteQuery(ctx)
		if err == nil {
			for rows.Next() {
				continue
			}
			err = rows.Err()
			rows.Release()
		}
		require.Equal(r, adbc.StatusTimeout, r.status(err))
		require.ErrorIs(r, err, context.DeadlineExceeded)
		require.NoError(r, r.server.Ledger().WaitIdle(r.Context()), "it was stopped on the server")
	})
}

func TestADBCIngestsWhatIsBound(t *testing.T) {
	adbcKinds(t, func(r rig, pool *flightpool.FlightSQLPool, cn adbc.Connection) {
		batch := ints(1, 2, 3)
		defer batch.Release()
		load := func(mode string) (int64, error) {
			rows, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch, batch})
			require.NoError(r, err)
			defer rows.Release()
			return adbc.IngestStream(r.Context(), cn, rows, "loaded", mode, adbc.IngestStreamOptions{})
		}
		n, err := load(adbc.OptionValueIngestModeCreate)
		require.NoError(r, err)
		require.EqualValues(r, 6, n)
		_, err = load(adbc.OptionValueIngestModeCreate)
		require.Error(r, err)
		_, err = load(adbc.OptionValueIngestModeAppend)
		require.NoError(r, err)
		require.Equal(r, []string{"12"}, r.query(cn, "SELECT count(*) FROM loaded"))

		stmt, err := cn.NewStatement()
		require.NoError(r, err)
		defer func() { require.NoError(r, stmt.Close()) }()
		require.NoError(r, stmt.SetOption(adbc.OptionKeyIngestTargetTable, "loaded"))
		_, err = stmt.ExecuteUpdate(r.Context())
		require.Equal(r, adbc.StatusInvalidState, r.status(err))
		require.NoError(r, stmt.Bind(r.Context(), batch))
		require.NoError(r, stmt.SetOption(adbc.OptionKeyIngestMode, adbc.OptionValueIngestModeReplace))
		n, err = stmt.ExecuteUpdate(r.Context())
		require.NoError(r, err)
		require.EqualValues(r, 3, n)
		require.Equal(r, adbc.StatusInvalidArgument, r.status(stmt.SetOption(adbc.OptionKeyIngestMode, "sideways")))
	})
}

// What the server was not asked for is not what it does not tell.
func TestADBCInfoThatCannotBeAskedForIsAnError(t *testing.T) {
	adbcKinds(t, func(r rig, _ *flightpool.FlightSQLPool, cn adbc.Connection) {
		vendor := func() error {
			rows, err := cn.GetInfo(r.Context(), []adbc.InfoCode{adbc.InfoVendorName})
			if err == nil {
				rows.Release()
			}
			return err
		}
		require.NoError(r, vendor())
		st := r.stmt(cn, generate(5_000))
		rows, _, err := st.ExecuteQuery(r.Context())
		require.NoError(r, err)
		err = vendor()
		require.ErrorIs(r, err, backend.ErrBusy)
		require.Equal(r, adbc.StatusInvalidState, r.status(err))
		rows.Release()
		require.NoError(r, st.Close())

		require.NoError(r, cn.(adbc.PostInitOptions).SetOption(adbc.OptionKeyAutoCommit, adbc.OptionValueDisabled))
		_, err = r.run(cn, "SELECT error('no')")
		require.Error(r, err)
		require.ErrorIs(r, vendor(), flightpool.ErrTxAborted)
		require.NoError(r, cn.Rollback(r.Context()))
		require.NoError(r, vendor())
	})
}

func TestADBCMetadata(t *testing.T) {
	adbcKinds(t, func(r rig, pool *flightpool.FlightSQLPool, cn adbc.Connection) {
		_, err := r.run(cn, "CREATE TABLE flights (origin VARCHAR, delay BIGINT)")
		require.NoError(r, err)
		types, err := cn.GetTableTypes(r.Context())
		require.NoError(r, err)
		require.True(r, types.Schema().Equal(adbc.TableTypesSchema))
		require.Contains(r, r.values(types), "TABLE")

		info, err := cn.GetInfo(r.Context(), []adbc.InfoCode{adbc.InfoDriverName, adbc.InfoDriverADBCVersion, adbc.InfoVendorSql})
		require.NoError(r, err)
		require.True(r, info.Schema().Equal(adbc.GetInfoSchema))
		require.Len(r, r.values(info), 3)
	})
}

func TestErrorsOfTheCatalogueNameTheCall(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, testserver.Strict(), func(r rig) {
				pool := r.pool(kind)
				s, err := pool.AcquireSession(r.Context())
				require.NoError(r, err)
				if res, err := pool.SQLInfo(r.Context()); err == nil {
					res.Release()
				} else {
					require.ErrorContains(r, err, "ADBC has no call for SQLInfo")
				}
				_, err = s.Metadata(r.Context(), backend.MetadataRequest{Kind: backend.MetadataPrimaryKeys})
				require.ErrorContains(r, err, "a table name is needed")
				require.NoError(r, s.Close())
				for k, op := range []string{"Catalogs", "Schemas", "Tables", "TableTypes", "PrimaryKeys", "ImportedKeys", "ExportedKeys", "SQLInfo", "TypeInfo", "Metadata(9)"} {
					_, err := s.Metadata(r.Context(), backend.MetadataRequest{Kind: backend.MetadataKind(k)})
					var e *flightpool.Error
					require.ErrorAs(r, err, &e)
					require.Equal(r, op, e.Op)
				}
			})
		})
	}
}

// What a foreign driver's metadata leave out is for the driver to add.
func TestADBCCatalogue(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, testserver.Strict(), func(r rig) {
				cn, err := Database(r.pool(kind)).Open(r.Context())
				require.NoError(r, err)
				defer func() { require.NoError(r, cn.Close()) }()
				_, err = r.run(cn, "CREATE TABLE flights (origin VARCHAR, delay BIGINT)")
				require.NoError(r, err)
				_, err = r.run(cn, "CREATE TABLE airports (code VARCHAR)")
				require.NoError(r, err)

				schema, err := cn.GetTableSchema(r.Context(), nil, nil, "flights")
				require.NoError(r, err)
				require.Equal(r, 2, schema.NumFields())
				require.Equal(r, "delay", schema.Field(1).Name)
				_, err = cn.GetTableSchema(r.Context(), nil, nil, "ships")
				require.Equal(r, adbc.StatusNotFound, r.status(err))

				pattern, column := "fl%", "d_lay"
				for depth, want := range map[adbc.ObjectDepth][]string{
					adbc.ObjectDepthCatalogs:  {},
					adbc.ObjectDepthDBSchemas: {"main"},
					adbc.ObjectDepthTables:    {"main", "flights"},
					adbc.ObjectDepthAll:       {"main", "flights", "delay"},
				} {
					objects, err := cn.GetObjects(r.Context(), depth, nil, nil, &pattern, &column, nil)
					require.NoError(r, err)
					require.True(r, objects.Schema().Equal(adbc.GetObjectsSchema))
					text := ""
					for objects.Next() {
						text += objects.RecordBatch().Column(1).String()
					}
					require.NoError(r, objects.Err())
					objects.Release()
					for _, name := range want {
						require.Contains(r, text, name, depth)
					}
					require.NotContains(r, text, "airports")
					require.NotContains(r, text, "origin")
				}
			})
		})
	}
}

func TestADBCSessionOptionsEndWithTheConnection(t *testing.T) {
	inBubble(t, testserver.Strict(), func(r rig) {
		db := Database(r.pool("open", func(cfg *flightpool.Config) { cfg.MaxSize = 1 }))
		cn, err := db.Open(r.Context())
		require.NoError(r, err)
		options := cn.(adbc.GetSetOptions)
		require.NoError(r, options.SetOption(flightsql.OptionSessionOptionPrefix+"flavour", "sour"))
		require.NoError(r, options.SetOptionInt(flightsql.OptionSessionOptionPrefix+"level", 7))
		require.NoError(r, options.SetOption(flightsql.OptionBoolSessionOptionPrefix+"loud", "true"))
		require.NoError(r, options.SetOption(flightsql.OptionStringListSessionOptionPrefix+"path", `["a","b"]`))
		for key, want := range map[string]string{
			flightsql.OptionSessionOptionPrefix + "flavour":        "sour",
			flightsql.OptionBoolSessionOptionPrefix + "loud":       "true",
			flightsql.OptionStringListSessionOptionPrefix + "path": `["a","b"]`,
			adbc.OptionKeyAutoCommit:                               "true",
		} {
			got, err := options.GetOption(key)
			require.NoError(r, err)
			require.Equal(r, want, got, key)
		}
		level, err := options.GetOptionInt(flightsql.OptionSessionOptionPrefix + "level")
		require.NoError(r, err)
		require.EqualValues(r, 7, level)
		require.Equal(r, adbc.StatusNotImplemented, r.status(options.SetOption("nonsense", "x")))
		_, err = options.GetOption("nonsense")
		require.Equal(r, adbc.StatusNotFound, r.status(err))
		require.NoError(r, cn.Close())

		cn, err = db.Open(r.Context())
		require.NoError(r, err)
		defer func() { require.NoError(r, cn.Close()) }()
		_, err = cn.(adbc.GetSetOptions).GetOption(flightsql.OptionSessionOptionPrefix + "flavour")
		require.Equal(r, adbc.StatusNotFound, r.status(err), "the next borrower of the session does not see it")
	})
}

// Two kinds of session options, and those of which there is one value, were refused.
func TestADBCOptionsOfConnectionsMayBeSetOnTheDatabase(t *testing.T) {
	inBubble(t, testserver.Strict(), func(r rig) {
		db := Database(r.pool("native")).(adbc.PostInitOptions)
		for key, value := range map[string]string{
			flightsql.OptionSessionOptionPrefix + "flavour":        "sour",
			flightsql.OptionBoolSessionOptionPrefix + "loud":       "true",
			flightsql.OptionStringListSessionOptionPrefix + "path": `["a","b"]`,
			adbc.OptionKeyAutoCommit:                               "false",
			adbc.OptionKeyReadOnly:                                 "false",
			adbc.OptionKeyIsolationLevel:                           string(adbc.LevelDefault),
			OptionConstraints:                                      "false",
		} {
			require.NoError(r, db.SetOption(key, value), key)
		}
		for key, want := range map[string]adbc.Status{
			flightsql.OptionBoolSessionOptionPrefix + "loud":       adbc.StatusInvalidArgument,
			flightsql.OptionStringListSessionOptionPrefix + "path": adbc.StatusInvalidArgument,
			adbc.OptionKeyReadOnly:                                 adbc.StatusNotImplemented,
			adbc.OptionKeyIsolationLevel:                           adbc.StatusNotImplemented,
			flightsql.OptionRPCCallHeaderPrefix:                    adbc.StatusInvalidArgument, // it names no header
		} {
			require.Equal(r, want, r.status(db.SetOption(key, "loud")), key)
		}
		cn, err := db.(adbc.Database).Open(r.Context())
		require.NoError(r, err)
		defer func() { require.NoError(r, cn.Close()) }()
		for key, want := range map[string]string{
			flightsql.OptionSessionOptionPrefix + "flavour": "sour", flightsql.OptionBoolSessionOptionPrefix + "loud": "true",
			flightsql.OptionStringListSessionOptionPrefix + "path": `["a","b"]`, adbc.OptionKeyAutoCommit: "false", OptionConstraints: "false",
		} {
			got, err := cn.(adbc.GetSetOptions).GetOption(key)
			require.NoError(r, err)
			require.Equal(r, want, got, key)
		}
	})
}

func TestADBCCallHeadersReachTheServer(t *testing.T) {
	p := testserver.Strict()
	p.SessionKey, p.KeyName = testserver.ByHeader, "x-tenant"
	inBubble(t, p, func(r rig) {
		item := func(cfg *flightpool.Config) { cfg.MaxSize = 1 } // no other opens a session meanwhile
		cn, err := Database(r.pool("open", item)).Open(r.Context())
		require.NoError(r, err)
		defer func() { require.NoError(r, cn.Close()) }()
		stmt, err := cn.NewStatement()
		require.NoError(r, err)
		defer func() { require.NoError(r, stmt.Close()) }()
		require.NoError(r, stmt.SetSqlQuery(generate(1)))
		require.NoError(r, stmt.SetOption(flightsql.OptionRPCCallHeaderPrefix+"x-tenant", "mine"))
		before := r.server.Ledger().Snapshot().SessionsOpened
		rows, _, err := stmt.ExecuteQuery(r.Context())
		require.NoError(r, err)
		require.Equal(r, []string{"0"}, r.values(rows))
		require.Equal(r, before+1, r.server.Ledger().Snapshot().SessionsOpened)
	})
}

func TestADBCNoVerbShowsAHeaderOrAStatement(t *testing.T) {
	inBubble(t, testserver.Strict(), func(r rig) {
		db := Database(r.pool("open"))
		require.NoError(r, db.SetOptions(map[string]string{flightsql.OptionRPCCallHeaderPrefix + "x-key": "s3cret"}))
		cn, err := db.Open(r.Context())
		require.NoError(r, err)
		defer func() { require.NoError(r, cn.Close()) }()
		stmt, err := cn.NewStatement()
		require.NoError(r, err)
		defer func() { require.NoError(r, stmt.Close()) }()
		require.NoError(r, stmt.SetSqlQuery("SELECT 's3cret'"))
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			for _, v := range []any{db, cn, stmt} {
				require.NotContains(r, fmt.Sprintf(verb, v), "s3cret", "%s of %T", verb, v)
				require.NotContains(r, fmt.Sprintf(verb, v), fmt.Sprintf("%x", "s3cret"), "%s of %T", verb, v)
			}
		}
	})
}

func TestADBCAClosedConnectionSaysSo(t *testing.T) {
	adbcKinds(t, func(r rig, pool *flightpool.FlightSQLPool, cn adbc.Connection) {
		stmt, err := cn.NewStatement()
		require.NoError(r, err)
		require.NoError(r, stmt.SetSqlQuery("SELECT ?"))
		require.NoError(r, stmt.Prepare(r.Context()))
		require.NoError(r, cn.Close())
		_, _, err = stmt.ExecuteQuery(r.Context())
		require.Equal(r, adbc.StatusInvalidState, r.status(err))
		require.NoError(r, stmt.Close())
		_, err = cn.NewStatement()
		require.Equal(r, adbc.StatusInvalidState, r.status(err))
		require.Equal(r, adbc.StatusInvalidState, r.status(cn.Close()))
		_, err = cn.GetTableTypes(r.Context())
		require.Equal(r, adbc.StatusInvalidState, r.status(err))
	})
}
