package testserver_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

func TestTheCatalogueListsWhatTheSessionSees(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		c.mustUpdate("CREATE TABLE flights (id BIGINT PRIMARY KEY, carrier VARCHAR)")
		c.mustUpdate("CREATE TEMP TABLE scratch (a DOUBLE)")
		c.mustUpdate("CREATE SCHEMA other")
		rows := func(info *flight.FlightInfo, err error) [][]string {
			t.Helper()
			require.NoError(t, err)
			require.NotEmpty(t, info.Schema)
			batches, err := c.fetch(t.Context(), info)
			require.NoError(t, err)
			return texts(batches)
		}
		require.Equal(t, [][]string{{"memory"}, {"temp"}}, rows(c.GetCatalogs(t.Context())))
		require.Equal(t, [][]string{{"memory", "main"}, {"memory", "other"}, {"temp", "main"}},
			rows(c.GetDBSchemas(t.Context(), &flightsql.GetDBSchemasOpts{})))
		like := "oth%"
		require.Equal(t, [][]string{{"memory", "other"}}, rows(c.GetDBSchemas(t.Context(), &flightsql.GetDBSchemasOpts{DbSchemaFilterPattern: &like})))
		require.Equal(t, [][]string{
			{"memory", "main", "flights", "TABLE"}, {"temp", "main", "scratch", "LOCAL TEMPORARY"},
		}, rows(c.GetTables(t.Context(), &flightsql.GetTablesOpts{})))
		like = "fl_ghts"
		require.Len(t, rows(c.GetTables(t.Context(), &flightsql.GetTablesOpts{TableNameFilterPattern: &like})), 1)
		require.Len(t, rows(c.GetTables(t.Context(), &flightsql.GetTablesOpts{TableTypes: []string{"VIEW"}})), 0)
		require.Len(t, rows(c.GetTables(t.Context(), &flightsql.GetTablesOpts{IncludeSchema: true}))[0], 5)
		like = "nosuch"
		require.Empty(t, rows(c.GetTables(t.Context(), &flightsql.GetTablesOpts{Catalog: &like})))
		require.Empty(t, rows(c.GetDBSchemas(t.Context(), &flightsql.GetDBSchemasOpts{Catalog: &like})))
		require.Len(t, rows(c.GetTableTypes(t.Context())), 3)
		require.Equal(t, [][]string{{"memory", "main", "flights", "id", "1", "(null)"}},
			rows(c.GetPrimaryKeys(t.Context(), flightsql.TableRef{Table: "flights"})))
		require.Empty(t, rows(c.GetImportedKeys(t.Context(), flightsql.TableRef{Table: "flights"})))
		require.Empty(t, rows(c.GetExportedKeys(t.Context(), flightsql.TableRef{Table: "flights"})))

		other := dial(t, srv) // sees no temporary table of another
		info, err := other.GetTables(t.Context(), &flightsql.GetTablesOpts{})
		require.NoError(t, err)
		batches, err := other.fetch(t.Context(), info)
		require.NoError(t, err)
		require.Len(t, texts(batches), 1)
	})
}

func TestSQLInfoTellsWhatTheProfileHas(t *testing.T) {
	info := func(p testserver.Profile, id flightsql.SqlInfo) (value string) {
		bubble(t, p, func(t *testing.T, srv *testserver.Server) {
			c := dial(t, srv)
			info, err := c.GetSqlInfo(t.Context(), []flightsql.SqlInfo{id})
			require.NoError(t, err)
			rows, err := c.fetch(t.Context(), info)
			require.NoError(t, err)
			value = texts(rows)[0][1]
		})
		return value
	}
	require.Contains(t, info(testserver.Strict(), flightsql.SqlInfoFlightSqlServerTransaction), "2")
	require.Contains(t, info(testserver.SwanLake(), flightsql.SqlInfoFlightSqlServerTransaction), "1")
	require.Contains(t, info(testserver.Dremio(), flightsql.SqlInfoFlightSqlServerTransaction), "0")
	require.Contains(t, info(testserver.Strict(), flightsql.SqlInfoFlightSqlServerCancel), "true")
	require.Contains(t, info(testserver.Dremio(), flightsql.SqlInfoFlightSqlServerCancel), "false")
}

func TestWhatIsRefusedIsRefusedByEveryName(t *testing.T) {
	p := testserver.Profile{Refuse: map[string]codes.Code{
		"GetSchema": codes.Unimplemented, "CommandStatementUpdate": codes.PermissionDenied, "BeginTransaction": codes.Aborted,
	}}
	bubble(t, p, func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		_, err := c.GetExecuteSchema(t.Context(), "SELECT 1")
		requireCode(t, codes.Unimplemented, err)
		_, err = c.update("SET a = 1")
		requireCode(t, codes.PermissionDenied, err)
		_, err = c.BeginTransaction(t.Context())
		requireCode(t, codes.Aborted, err)
		require.Equal(t, 0, srv.Ledger().Snapshot().SessionsOpened)
	})
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		_, err := c.GetExecuteSchema(t.Context(), "SELECT 1")
		require.NoError(t, err)
		_, err = c.ExecutePoll(t.Context(), "SELECT 1", nil)
		require.NoError(t, err)
		_, err = c.action("NoSuchAction", nil)
		requireCode(t, codes.InvalidArgument, err)
	})
}
