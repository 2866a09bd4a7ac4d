//go:build duckdb_arrow

package duckdb

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/testserver"
)

// serve starts a server on a loopback port and connects arrow-go's own client.
func serve(t *testing.T, cfg Config) (*testserver.Server, *flightsql.Client) {
	t.Helper()
	srv, err := Start(t.Context(), cfg, testserver.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	c, err := flightsql.NewClient(srv.Addr(), nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return srv, c
}

// fetch reads all rows that a FlightInfo stands for, as text.
func fetch(t *testing.T, c *flightsql.Client, info *flight.FlightInfo, err error) (all [][]string) {
	t.Helper()
	require.NoError(t, err)
	for _, endpoint := range info.Endpoint {
		r, err := c.DoGet(t.Context(), endpoint.Ticket)
		require.NoError(t, err)
		for r.Next() {
			eachRow(r.RecordBatch(), func(row []string) { all = append(all, append([]string(nil), row...)) })
		}
		require.NoError(t, r.Err())
		r.Release()
	}
	return all
}

func TestTheServerAnswersFromDuckDB(t *testing.T) {
	_, c := serve(t, Config{Tables: fstest.MapFS{"airports.csv": {Data: []byte("iata,miles\nJFK,12\nSFO,13\n")}}})
	info, err := c.Execute(t.Context(), "SELECT iata, miles * 2 AS m FROM airports ORDER BY iata")
	require.Equal(t, [][]string{{"JFK", "24"}, {"SFO", "26"}}, fetch(t, c, info, err))
	n, err := c.ExecuteUpdate(t.Context(), "DELETE FROM airports WHERE iata = 'JFK'")
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	_, err = c.ExecuteUpdate(t.Context(), "DELETE FROM nowhere")
	require.ErrorContains(t, err, "duckdb error: Catalog Error")
}

func TestEveryDuckDBTypePassesTheWire(t *testing.T) {
	_, c := serve(t, Config{})
	info, err := c.Execute(t.Context(), "SELECT column_name FROM (DESCRIBE FROM test_all_types())")
	cols := fetch(t, c, info, err)
	require.Greater(t, len(cols), 40)
	for _, col := range cols {
		info, err := c.Execute(t.Context(), "SELECT "+ident(col[0])+" FROM test_all_types()")
		require.Len(t, fetch(t, c, info, err), 3, "%s", col)
	}
}

func TestPreparedStatementsTakeParametersOverTheWire(t *testing.T) {
	srv, c := serve(t, Config{})
	st, err := c.Prepare(t.Context(), "SELECT i::BIGINT AS i FROM range(10) r(i) WHERE i > ?::BIGINT AND i < ?::BIGINT")
	require.NoError(t, err)
	require.Equal(t, "1 int64, 2 int64", describe(st.ParameterSchema()))
	require.Equal(t, "i int64", describe(st.DatasetSchema()))
	st.SetParameters(record(t, columns(arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int64), `[{"a": 3, "b": 6}]`))
	info, err := st.Execute(t.Context())
	require.Equal(t, [][]string{{"4"}, {"5"}}, fetch(t, c, info, err))
	require.NoError(t, st.Close(t.Context()))
	require.Zero(t, srv.Ledger().Snapshot().Prepared)
}

func TestTransactionsAndIngestOverTheWire(t *testing.T) {
	srv, c := serve(t, Config{})
	_, err := c.ExecuteUpdate(t.Context(), "CREATE TABLE t(a INT)")
	require.NoError(t, err)
	tx, err := c.BeginTransaction(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, srv.Ledger().Snapshot().Transactions)
	n, err := tx.ExecuteUpdate(t.Context(), "INSERT INTO t VALUES (1), (2)")
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Zero(t, srv.Ledger().Snapshot().Transactions)

	n, err = c.ExecuteIngest(t.Context(), reader(t, record(t, columns(arrow.PrimitiveTypes.Int32), `[{"a": 7}, {"a": 8}]`)), &flightsql.ExecuteIngestOpts{
		Table: "t",
		TableDefinitionOptions: &flightsql.TableDefinitionOptions{
			IfExists:   flightsql.TableDefinitionOptionsTableExistsOptionAppend,
			IfNotExist: flightsql.TableDefinitionOptionsTableNotExistOptionFail,
		},
	})
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	info, err := c.Execute(t.Context(), "FROM t ORDER BY a")
	require.Equal(t, [][]string{{"7"}, {"8"}}, fetch(t, c, info, err))
}

func TestMetadataComesFromTheCatalog(t *testing.T) {
	_, c := serve(t, Config{})
	_, err := c.ExecuteUpdate(t.Context(), "CREATE TABLE t(a INT PRIMARY KEY, b VARCHAR)")
	require.NoError(t, err)
	info, err := c.GetTables(t.Context(), &flightsql.GetTablesOpts{TableTypes: []string{"TABLE"}})
	require.Equal(t, [][]string{{"memory", "main", "t", "TABLE"}}, fetch(t, c, info, err))
	catalog, schema := "memory", "main"
	info, err = c.GetPrimaryKeys(t.Context(), flightsql.TableRef{Catalog: &catalog, DBSchema: &schema, Table: "t"})
	keys := fetch(t, c, info, err)
	require.Len(t, keys, 1)
	require.Contains(t, keys[0], "a")
	info, err = c.GetSqlInfo(t.Context(), []flightsql.SqlInfo{flightsql.SqlInfoFlightSqlServerName})
	require.Contains(t, strings.Join(fetch(t, c, info, err)[0], " "), "DuckDB")
}

func TestACancelledCallStopsTheDatabase(t *testing.T) {
	srv, c := serve(t, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	info, err := c.Execute(ctx, endless)
	if err == nil {
		r, errGet := c.DoGet(ctx, info.Endpoint[0].Ticket)
		if err = errGet; err == nil {
			require.False(t, r.Next())
			err = r.Err()
			r.Release()
		}
	}
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))
	due, _ := ctx.Deadline()
	require.NoError(t, srv.Ledger().WaitIdle(t.Context()))
	require.Less(t, time.Since(due), 5*time.Second)
	info, err = c.Execute(t.Context(), "SELECT 1")
	require.Equal(t, [][]string{{"1"}}, fetch(t, c, info, err), "the session goes on")
}

func TestAServerThatCannotStartLeavesNoDatabase(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, busy.Close()) }()
	_, err = Start(t.Context(), Config{}, testserver.Options{Listen: busy.Addr().String()})
	require.ErrorIs(t, err, testserver.ErrListen)
	_, err = Start(t.Context(), Config{Path: "x", PerSession: true}, testserver.Options{})
	require.ErrorContains(t, err, "PerSession")
}

// TestSwanLakeNeverConfirmsACommitThatDuckDBRefuses has two transactions insert
// one key: DuckDB refuses the second at its COMMIT.
func TestSwanLakeNeverConfirmsACommitThatDuckDBRefuses(t *testing.T) {
	for _, profile := range []testserver.Profile{testserver.SwanLake(), testserver.Strict()} {
		srv, err := Start(t.Context(), Config{}, testserver.Options{Profile: profile})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, srv.Close()) })
		connect := func() *flightsql.Client {
			c, err := flightsql.NewClient(srv.Addr(), nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, c.Close()) })
			return c
		}
		a, b := connect(), connect()
		_, err = a.ExecuteUpdate(t.Context(), "CREATE TABLE pk (i INTEGER PRIMARY KEY, v INTEGER)")
		require.NoError(t, err)
		var open []*flightsql.Txn
		for i, c := range []*flightsql.Client{a, b} {
			tx, err := c.BeginTransaction(t.Context())
			require.NoError(t, err)
			_, err = tx.ExecuteUpdate(t.Context(), fmt.Sprintf("INSERT INTO pk VALUES (1, %d)", i))
			require.NoError(t, err)
			open = append(open, tx)
		}
		require.NoError(t, open[0].Commit(t.Context()))
		err = open[1].Commit(t.Context())
		require.Error(t, err)
		if profile.AutoRecover {
			require.Equal(t, codes.Internal, status.Code(err))
			require.ErrorContains(t, err, "cannot commit - no transaction is active")
		}
		info, err := a.Execute(t.Context(), "SELECT v FROM pk")
		require.Equal(t, [][]string{{"0"}}, fetch(t, a, info, err))
		require.Equal(t, 0, srv.Ledger().Snapshot().Transactions)
	}
}

func TestSwanLakeOnDuckDBAppendsABoundInsertToItsCatalog(t *testing.T) {
	for _, cfg := range []Config{{}, {PerSession: true}} {
		srv, err := Start(t.Context(), cfg, testserver.Options{Profile: testserver.SwanLake()})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, srv.Close()) })
		c, err := flightsql.NewClient(srv.Addr(), nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		_, err = c.ExecuteUpdate(t.Context(), "CREATE TABLE swanlake.t (i INTEGER, s VARCHAR)")
		require.NoError(t, err)
		st, err := c.Prepare(t.Context(), "INSERT INTO swanlake.t (i) SELECT ? + 100")
		require.NoError(t, err)
		st.SetParameters(record(t, arrow.NewSchema([]arrow.Field{{Name: "1", Type: arrow.PrimitiveTypes.Int64}}, nil), `[{"1": 3}, {"1": 4}]`))
		n, err := st.ExecuteUpdate(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
		info, err := c.Execute(t.Context(), "SELECT current_database(), i::VARCHAR, s FROM t ORDER BY i")
		require.Equal(t, [][]string{{"swanlake", "3", "(null)"}, {"swanlake", "4", "(null)"}}, fetch(t, c, info, err))
		info, err = c.Execute(t.Context(), "INSERT INTO t VALUES (5, 'x') RETURNING i")
		require.Empty(t, fetch(t, c, info, err))
		info, err = c.Execute(t.Context(), "SELECT count(*)::VARCHAR FROM t WHERE i = 5 FOR UPDATE")
		require.Equal(t, [][]string{{"1"}}, fetch(t, c, info, err))
	}
}
