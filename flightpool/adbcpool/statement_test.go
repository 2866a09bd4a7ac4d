package adbcpool

import (
	"context"
	"fmt"
	"path"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// stmt makes a statement, which is closed by the test.
func (r rig) stmt(cn adbc.Connection, sql string) adbc.Statement {
	r.Helper()
	st, err := cn.NewStatement()
	require.NoError(r, err)
	if sql != "" {
		require.NoError(r, st.SetSqlQuery(sql))
	}
	return st
}

// TestADBCAReaderOwnsItsResult ends a statement in every way while its result is
// being read: all rows come, or an error.
func TestADBCAReaderOwnsItsResult(t *testing.T) {
	const total = 5_000
	ways := map[string]struct {
		end   func(r rig, cn adbc.Connection, st adbc.Statement)
		whole bool
	}{
		"Close":       {func(r rig, _ adbc.Connection, st adbc.Statement) { require.NoError(r, st.Close()) }, true},
		"SetSqlQuery": {func(r rig, _ adbc.Connection, st adbc.Statement) { require.NoError(r, st.SetSqlQuery("SELECT 1")) }, true},
		"a table to load": {func(r rig, _ adbc.Connection, st adbc.Statement) {
			require.NoError(r, st.SetOption(adbc.OptionKeyIngestTargetTable, "t"))
		}, true},
		"another statement": {func(r rig, cn adbc.Connection, _ adbc.Statement) {
			other := r.stmt(cn, "SELECT 1")
			_, _, err := other.ExecuteQuery(r.Context())
			require.Equal(r, adbc.StatusInvalidState, r.status(err), "%v", err)
			require.NoError(r, other.Close())
		}, true},
		"Prepare": {func(r rig, _ adbc.Connection, st adbc.Statement) {
			require.Equal(r, adbc.StatusInvalidState, r.status(st.Prepare(r.Context())))
		}, true},
		"another execution": {func(r rig, _ adbc.Connection, st adbc.Statement) {
			rows, _, err := st.ExecuteQuery(r.Context())
			require.NoError(r, err)
			rows.Release()
		}, false},
		"the connection's Close": {func(r rig, cn adbc.Connection, _ adbc.Statement) { require.NoError(r, cn.Close()) }, false},
	}
	for name, way := range ways {
		for _, prepared := range []bool{false, true} {
			for _, kind := range kinds {
				t.Run(fmt.Sprintf("%s/prepared=%t/%s", name, prepared, kind), func(t *testing.T) {
					inBubble(t, testserver.Strict(), func(r rig) {
						pool := r.pool(kind)
						cn, err := Database(pool).Open(r.Context())
						require.NoError(r, err)
						st := r.stmt(cn, generate(total))
						if prepared {
							require.NoError(r, st.Prepare(r.Context()))
						}
						rows, _, err := st.ExecuteQuery(r.Context())
						require.NoError(r, err)
						require.True(r, rows.Next())
						seen := rows.RecordBatch().NumRows()
						way.end(r, cn, st)
						n, err := countRows(rows)
						if way.whole {
							require.NoError(r, err)
							require.EqualValues(r, total, seen+n)
						} else {
							require.Error(r, err, "%d of %d rows", seen+n, total)
						}
						rows.Release()
						_ = st.Close()
						if err := cn.Close(); err != nil {
							require.Equal(r, adbc.StatusInvalidState, r.status(err))
						}
						synctest.Wait()
						require.Zero(r, pool.Stats().InUse)
					})
				})
			}
		}
	}
}

// TestADBCAPreparedStatementGoesWithItsReader looks at the server: no handle is
// left when both the statement and its reader have ended, in either order.
func TestADBCAPreparedStatementGoesWithItsReader(t *testing.T) {
	adbcKinds(t, func(r rig, _ *flightpool.FlightSQLPool, cn adbc.Connection) {
		for _, first := range []string{"statement", "reader", "reader released early"} {
			st := r.stmt(cn, generate(5_000))
			require.NoError(r, st.Prepare(r.Context()))
			rows, _, err := st.ExecuteQuery(r.Context())
			require.NoError(r, err)
			require.True(r, rows.Next())
			if first == "statement" {
				require.NoError(r, st.Close())
				_, err = countRows(rows)
				require.NoError(r, err)
			}
			rows.Release()
			if first != "statement" {
				require.NoError(r, st.Close())
			}
			synctest.Wait()
			require.Zero(r, r.server.Ledger().Snapshot().Prepared, first)
		}
	})
}

// A reader without rows, which nobody has released, holds nothing up: its statement may be another, and prepared again.
func TestADBCAllThatAStatementWasPreparedAsGoesWithItsReader(t *testing.T) {
	adbcKinds(t, func(r rig, _ *flightpool.FlightSQLPool, cn adbc.Connection) {
		_, err := r.run(cn, "CREATE TABLE t (x BIGINT)")
		require.NoError(r, err)
		st := r.stmt(cn, "INSERT INTO t VALUES (0)")
		require.NoError(r, st.Prepare(r.Context()))
		rows, _, err := st.ExecuteQuery(r.Context())
		require.NoError(r, err)
		for i := range 3 {
			require.NoError(r, st.SetSqlQuery(fmt.Sprintf("INSERT INTO t VALUES (%d)", i+1)))
			require.NoError(r, st.Prepare(r.Context()))
		}
		require.NoError(r, st.Close())
		rows.Release()
		synctest.Wait()
		require.Zero(r, r.server.Ledger().Snapshot().Prepared)
	})
}

// headersOf records the RPCs of a pool whose headers lack x-tenant.
type headersOf struct {
	mu   sync.Mutex
	with []string
	lack []string
}

func (h *headersOf) note(ctx context.Context, method string) {
	md, _ := metadata.FromOutgoingContext(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.Equal(md.Get("x-tenant"), []string{"mine"}) {
		h.with = append(h.with, path.Base(method))
	} else {
		h.lack = append(h.lack, path.Base(method))
	}
}

func (h *headersOf) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.with, h.lack = nil, nil
}

func (h *headersOf) install(cfg *flightpool.Config) {
	cfg.MinIdle = -1 // no connection is opened beside the one that is looked at
	cfg.DialOptions = []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, m string, a, b any, cc *grpc.ClientConn, next grpc.UnaryInvoker, o ...grpc.CallOption) error {
			h.note(ctx, m)
			return next(ctx, m, a, b, cc, o...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, m string, next grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			h.note(ctx, m)
			return next(ctx, d, cc, m, o...)
		}),
	}
}

func TestADBCHeadersGoWithEveryCallOfAStatement(t *testing.T) {
	uses := map[string]func(r rig, cn adbc.Connection, st adbc.Statement){
		"query": func(r rig, _ adbc.Connection, st adbc.Statement) {
			require.NoError(r, st.SetSqlQuery(generate(1)))
			rows, _, err := st.ExecuteQuery(r.Context())
			require.NoError(r, err)
			r.values(rows)
		},
		"prepared query": func(r rig, _ adbc.Connection, st adbc.Statement) {
			require.NoError(r, st.SetSqlQuery(generate(1)))
			require.NoError(r, st.Prepare(r.Context()))
			rows, _, err := st.ExecuteQuery(r.Context())
			require.NoError(r, err)
			r.values(rows)
		},
		"prepared update": func(r rig, _ adbc.Connection, st adbc.Statement) {
			require.NoError(r, st.SetSqlQuery("INSERT INTO t VALUES (1)"))
			require.NoError(r, st.Prepare(r.Context()))
			_, err := st.ExecuteUpdate(r.Context())
			require.NoError(r, err)
		},
		"ingestion": func(r rig, _ adbc.Connection, st adbc.Statement) {
			require.NoError(r, st.SetOption(adbc.OptionKeyIngestTargetTable, "loaded"))
			require.NoError(r, st.SetOption(adbc.OptionKeyIngestMode, adbc.OptionValueIngestModeCreateAppend))
			b := ints(1)
			defer b.Release()
			require.NoError(r, st.Bind(r.Context(), b))
			_, err := st.ExecuteUpdate(r.Context())
			require.NoError(r, err)
		},
		"schema": func(r rig, _ adbc.Connection, st adbc.Statement) {
			require.NoError(r, st.SetSqlQuery(generate(1)))
			_, err := st.(adbc.StatementExecuteSchema).ExecuteSchema(r.Context())
			require.NoError(r, err)
		},
		"catalogue": func(r rig, cn adbc.Connection, _ adbc.Statement) {
			rows, err := cn.GetTableTypes(r.Context())
			require.NoError(r, err)
			rows.Release()
		},
	}
	for _, at := range []string{"statement", "connection", "database"} {
		for use, do := range uses {
			for _, kind := range []string{"native", "open"} {
				if use == "catalogue" && at == "statement" {
					continue // not the statement's
				}
				t.Run(at+"/"+use+"/"+kind, func(t *testing.T) {
					inBubble(t, testserver.Strict(), func(r rig) {
						var seen headersOf
						const key = flightsql.OptionRPCCallHeaderPrefix + "x-tenant"
						pool := r.pool(kind, seen.install)
						r.update(pool, "CREATE TABLE t (v BIGINT)")
						db := Database(pool)
						if at == "database" {
							require.NoError(r, db.SetOptions(map[string]string{key: "mine"}))
						}
						cn, err := db.Open(r.Context())
						require.NoError(r, err)
						if at == "connection" {
							require.NoError(r, cn.(adbc.PostInitOptions).SetOption(key, "mine"))
						}
						st := r.stmt(cn, "")
						if at == "statement" {
							require.NoError(r, st.SetOption(key, "mine"))
						}
						do(r, cn, st) // what the session itself learns comes once
						require.NoError(r, st.SetSqlQuery(""))
						seen.reset()
						do(r, cn, st)
						require.NoError(r, st.Close())
						require.Empty(r, seen.lack, "with: %v", seen.with)
						require.NotEmpty(r, seen.with)
						require.NoError(r, cn.Close())
					})
				})
			}
		}
	}
}

func TestADBCWithoutATextNothingIsExecuted(t *testing.T) {
	adbcKinds(t, func(r rig, _ *flightpool.FlightSQLPool, cn adbc.Connection) {
		st := r.stmt(cn, "")
		_, _, err := st.ExecuteQuery(r.Context())
		require.Equal(r, adbc.StatusInvalidState, r.status(err))
		_, err = st.ExecuteUpdate(r.Context())
		require.Equal(r, adbc.StatusInvalidState, r.status(err))
		_, err = st.(adbc.StatementExecuteSchema).ExecuteSchema(r.Context())
		require.Equal(r, adbc.StatusInvalidState, r.status(err))
		require.Equal(r, adbc.StatusInvalidState, r.status(st.Prepare(r.Context())))
		require.NoError(r, st.Close())
	})
}

func TestADBCALoadTwiceIsNoAppend(t *testing.T) {
	adbcKinds(t, func(r rig, pool *flightpool.FlightSQLPool, cn adbc.Connection) {
		st := r.stmt(cn, "")
		load := func() error {
			b := ints(1, 2)
			defer b.Release()
			require.NoError(r, st.Bind(r.Context(), b))
			_, err := st.ExecuteUpdate(r.Context())
			return err
		}
		require.NoError(r, st.SetOption(adbc.OptionKeyIngestTargetTable, "loaded"))
		require.NoError(r, load())
		require.Error(r, load(), "the mode is create unless it is set")
		require.EqualValues(r, 2, r.count(pool, "loaded"))
		require.NoError(r, st.SetOption(adbc.OptionKeyIngestMode, adbc.OptionValueIngestModeAppend))
		require.NoError(r, load())
		require.EqualValues(r, 4, r.count(pool, "loaded"))

		require.NoError(r, st.SetSqlQuery("SELECT * FROM loaded"))
		rows, _, err := st.ExecuteQuery(r.Context())
		require.NoError(r, err, "what was loaded is no parameter")
		n, err := countRows(rows)
		require.NoError(r, err)
		require.EqualValues(r, 4, n)
		rows.Release()
		require.NoError(r, st.Close())
	})
}

// What a text has run with is neither the parameters of the next nor the rows of a load.
// What was bound for a text that has not run is of the next.
func TestADBCParametersStayWithTheTextThatHasRunWithThem(t *testing.T) {
	adbcKinds(t, func(r rig, pool *flightpool.FlightSQLPool, cn adbc.Connection) {
		_, err := r.run(cn, "CREATE TABLE t (v BIGINT)")
		require.NoError(r, err)
		b := ints(1, 2, 3)
		defer b.Release()
		for _, prepared := range []bool{false, true} {
			st := r.stmt(cn, "SELECT 7")
			require.NoError(r, st.Bind(r.Context(), b))
			require.NoError(r, st.SetSqlQuery("INSERT INTO t VALUES (?)"))
			if prepared {
				require.NoError(r, st.Prepare(r.Context()))
			}
			before := r.count(pool, "t")
			for range 2 {
				n, err := st.ExecuteUpdate(r.Context())
				require.NoError(r, err)
				require.EqualValues(r, 3, n)
			}
			require.NoError(r, st.SetSqlQuery("SELECT * FROM t"))
			rows, _, err := st.ExecuteQuery(r.Context())
			require.NoError(r, err)
			n, err := countRows(rows)
			require.NoError(r, err)
			require.EqualValues(r, before+6, n)
			rows.Release()

			require.NoError(r, st.Bind(r.Context(), b))
			require.NoError(r, st.SetSqlQuery("INSERT INTO t VALUES (?)"))
			_, err = st.ExecuteUpdate(r.Context())
			require.NoError(r, err)
			require.NoError(r, st.SetOption(adbc.OptionKeyIngestTargetTable, "loaded"))
			_, err = st.ExecuteUpdate(r.Context())
			require.Equal(r, adbc.StatusInvalidState, r.status(err), "nothing is bound for the load")
			require.NoError(r, st.Close())
		}
	})
}

func TestADBCTheSchemaOfRowsIsToldWithoutRunning(t *testing.T) {
	adbcKinds(t, func(r rig, _ *flightpool.FlightSQLPool, cn adbc.Connection) {
		for _, prepared := range []bool{false, true} {
			sql := fmt.Sprintf("SELECT * FROM generate(%d)", 3)
			st := r.stmt(cn, sql)
			if prepared {
				require.NoError(r, st.Prepare(r.Context()))
			}
			schema, err := st.(adbc.StatementExecuteSchema).ExecuteSchema(r.Context())
			require.NoError(r, err)
			require.Equal(r, 1, schema.NumFields())
			require.Zero(r, r.executions(sql))
			require.NoError(r, st.Close())
		}
	})
}

// failing is a driver of another kind, whose statements fail but for the probe.
type failing struct{ err error }

func (failing) SetOptions(map[string]string) error                  { return nil }
func (failing) Close() error                                        { return nil }
func (f failing) Open(context.Context) (adbc.Connection, error)     { return &failingConn{err: f.err}, nil }
func (c *failingConn) Close() error                                 { return nil }
func (c *failingConn) NewStatement() (adbc.Statement, error)        { return &failingStmt{err: c.err}, nil }
func (s *failingStmt) SetSqlQuery(q string) error                   { s.sql = q; return nil }
func (s *failingStmt) Close() error                                 { return nil }
func (s *failingStmt) ExecuteUpdate(context.Context) (int64, error) { return -1, s.err }

type failingConn struct {
	adbc.Connection
	err error
}

func (c *failingConn) GetInfo(context.Context, []adbc.InfoCode) (array.RecordReader, error) {
	return nil, adbc.Error{Code: adbc.StatusNotImplemented}
}

type failingStmt struct {
	adbc.Statement
	err error
	sql string
}

func (s *failingStmt) ExecuteQuery(context.Context) (array.RecordReader, int64, error) {
	if s.sql == "SELECT 1" {
		b := ints(1)
		defer b.Release()
		r, err := array.NewRecordReader(b.Schema(), []arrow.RecordBatch{b})
		return r, 1, err
	}
	return nil, -1, s.err
}

func TestADBCADriversErrorIsToldAsItIs(t *testing.T) {
	for code := adbc.StatusUnknown; code <= adbc.StatusUnauthorized; code++ {
		if code == adbc.StatusTimeout || code == adbc.StatusCancelled {
			continue // those are the contexts'
		}
		for _, form := range []string{"value", "pointer"} {
			t.Run(code.String()+"/"+form, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					given := adbc.Error{
						Code: code, VendorCode: 2003, SqlState: [5]byte{'4', '2', 'S', '0', '2'}, Msg: "no such table",
						Details: []adbc.ErrorDetail{&adbc.TextErrorDetail{Name: "k", Detail: "v"}},
					}
					var err error = given
					if form == "pointer" {
						err = &given
					}
					p, perr := New(t.Context(), failing{err}, flightpool.Config{MaxSize: 1})
					require.NoError(t, perr)
					defer func() { require.NoError(t, p.Close(context.WithoutCancel(t.Context()))) }()
					cn, perr := Database(p).Open(t.Context())
					require.NoError(t, perr)
					st, perr := cn.NewStatement()
					require.NoError(t, perr)
					require.NoError(t, st.SetSqlQuery("SELECT * FROM nowhere"))
					_, _, err = st.ExecuteQuery(t.Context())
					var got adbc.Error
					require.ErrorAs(t, err, &got)
					require.Equal(t, code, got.Code)
					require.Equal(t, given.VendorCode, got.VendorCode)
					require.Equal(t, given.SqlState, got.SqlState)
					require.Equal(t, given.Details, got.Details)
					require.NoError(t, st.Close())
					require.NoError(t, cn.Close())
				})
			})
		}
	}
}

func TestADBCTheDetailsOfAStatusAreKept(t *testing.T) {
	s, err := status.New(codes.NotFound, "no table").WithDetails(&errdetails.ErrorInfo{Reason: "GONE"})
	require.NoError(t, err)
	var got adbc.Error
	require.ErrorAs(t, toADBC(&backend.Error{Fault: backend.FaultStatement, Err: s.Err()}), &got)
	require.Equal(t, adbc.StatusNotFound, got.Code)
	require.EqualValues(t, codes.NotFound, got.VendorCode)
	require.Len(t, got.Details, 1)
	require.Equal(t, "grpc-status-details-bin", got.Details[0].Key())
	value, err := got.Details[0].Serialize()
	require.NoError(t, err)
	require.Contains(t, string(value), "GONE")
}

func TestADBCOptionsAreReadAsTheyWereSet(t *testing.T) {
	adbcKinds(t, func(r rig, pool *flightpool.FlightSQLPool, cn adbc.Connection) {
		db := Database(pool)
		st := r.stmt(cn, "")
		const header = flightsql.OptionRPCCallHeaderPrefix + "x-tenant"
		for _, test := range []struct {
			of         any
			key, value string
			refused    string // a value that is not taken
		}{
			{st, OptionRoute, "query", "sideways"},
			{st, adbc.OptionKeyIngestMode, adbc.OptionValueIngestModeReplace, "upsert"},
			{st, adbc.OptionKeyIngestTargetTable, "t", ""},
			{st, adbc.OptionValueIngestTargetCatalog, "c", ""},
			{st, adbc.OptionValueIngestTargetDBSchema, "s", ""},
			{st, adbc.OptionValueIngestTemporary, "true", "yes"},
			{st, adbc.OptionKeyIncremental, "false", "true"},
			{st, header, "a", ""},
			{cn, header, "b", ""},
			{cn, OptionConstraints, "false", "maybe"},
			{cn, adbc.OptionKeyReadOnly, "false", "true"},
			{cn, adbc.OptionKeyIsolationLevel, string(adbc.LevelDefault), string(adbc.LevelSnapshot)},
			{cn, adbc.OptionKeyAutoCommit, "true", "on"},
			{db, header, "c", ""},
			{db, adbc.OptionKeyAutoCommit, "false", "off"},
			{db, OptionConstraints, "false", ""},
		} {
			options := test.of.(adbc.GetSetOptions)
			require.NoError(r, options.SetOption(test.key, test.value), test.key)
			if test.refused != "" {
				require.Error(r, options.SetOption(test.key, test.refused), test.key)
			}
			got, err := options.GetOption(test.key)
			require.NoError(r, err, test.key)
			require.Equal(r, test.value, got, test.key)
		}
		for _, of := range []any{db, cn, st} {
			options := of.(adbc.GetSetOptions)
			require.Equal(r, adbc.StatusNotImplemented, r.status(options.SetOption("no.such.option", "x")))
			require.Equal(r, adbc.StatusNotImplemented, r.status(options.SetOptionInt("no.such.option", 1)))
			_, err := options.GetOption("no.such.option")
			require.Equal(r, adbc.StatusNotFound, r.status(err))
			_, err = options.GetOptionDouble("no.such.option")
			require.Equal(r, adbc.StatusNotFound, r.status(err))
		}
		err := db.SetOptions(map[string]string{adbc.OptionKeyPassword: "s3cret"})
		require.Error(r, err)
		require.NotContains(r, err.Error(), "s3cret")

		second, err := db.Open(r.Context())
		require.NoError(r, err)
		got, err := second.(adbc.GetSetOptions).GetOption(adbc.OptionKeyAutoCommit)
		require.NoError(r, err)
		require.Equal(r, "false", got, "the database's options are those of its connections")
		require.NoError(r, second.Close())
		require.NoError(r, st.Close())
	})
}
