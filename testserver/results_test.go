package testserver_test

import (
	"context"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/testserver"
)

func execute(t *testing.T, c *client, sql string) *flight.FlightInfo {
	t.Helper()
	info, err := c.Execute(t.Context(), sql)
	require.NoError(t, err)
	return info
}

func TestAQueryRunsOnceWhenItIsFetchedAndATicketIsGoodOnce(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		info := execute(t, c, "SELECT 1 AS one")
		require.Empty(t, srv.Ledger().Executions("SELECT 1 AS one"))
		require.Len(t, info.Endpoint, 1)
		require.Empty(t, info.Endpoint[0].Location)
		schema, err := flight.DeserializeSchema(info.Schema, nil)
		require.NoError(t, err)
		require.Equal(t, "one", schema.Field(0).Name)

		rows, err := c.fetch(t.Context(), info)
		require.NoError(t, err)
		require.Equal(t, [][]string{{"1"}}, texts(rows))
		require.True(t, rows[0].Schema().Equal(schema))
		_, err = c.fetch(t.Context(), info)
		requireCode(t, codes.NotFound, err)
		require.Len(t, srv.Ledger().Executions("SELECT 1 AS one"), 1)
	})
}

func TestATicketRunsInTheSessionThatItWasMadeIn(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		one, two := dial(t, srv), dial(t, srv)
		one.mustUpdate(makeMine)
		info := execute(t, one, "SELECT * FROM mine")
		_, err := two.fetch(t.Context(), info)
		require.NoError(t, err)

		info = execute(t, one, "SELECT * FROM mine")
		require.NoError(t, one.Close())
		require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Sessions == 1 && s.Tickets == 0 }))
		_, err = two.fetch(t.Context(), info)
		requireCode(t, codes.NotFound, err)
	})
}

func TestARoamingTicketRunsInTheSessionThatRedeemsItAndAsOftenAsItIs(t *testing.T) {
	bubble(t, testserver.SwanLake(), func(t *testing.T, srv *testserver.Server) {
		one, two := dial(t, srv), dial(t, srv)
		one.mustUpdate(makeMine)
		info := execute(t, one, "SELECT * FROM mine")
		_, err := two.fetch(t.Context(), info)
		requireCode(t, codes.Internal, err)
		for range 2 {
			_, err = one.fetch(t.Context(), info)
			require.NoError(t, err)
		}
		require.Equal(t, 0, srv.Ledger().Snapshot().Tickets)
	})
}

func TestAServerMayRunAQueryInGetFlightInfo(t *testing.T) {
	const sql = "SELECT * FROM generate(3)"
	bubble(t, testserver.Profile{Run: testserver.RunInInfo}, func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		info := execute(t, c, sql)
		require.Len(t, srv.Ledger().Executions(sql), 1)
		rows, err := c.fetch(t.Context(), info)
		require.NoError(t, err)
		require.Len(t, texts(rows), 3)
		require.Len(t, srv.Ledger().Executions(sql), 1)
		require.Equal(t, "GetFlightInfo", srv.Ledger().Executions(sql)[0].RPC)
	})
	bubble(t, testserver.Profile{Run: testserver.RunInBoth}, func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		c.mustQuery(sql)
		require.Len(t, srv.Ledger().Executions(sql), 2)
		c.mustQuery(sql) // its schema is known now
		require.Len(t, srv.Ledger().Executions(sql), 3)
		c.mustQuery("CREATE TABLE t (a BIGINT)") // no query: run once
		require.Len(t, srv.Ledger().Executions("CREATE TABLE t (a BIGINT)"), 1)
	})
}

func TestALearnedSchemaIsStaleAfterAnotherSessionChangedTheTable(t *testing.T) {
	bubble(t, testserver.SwanLake(), func(t *testing.T, srv *testserver.Server) {
		one, two := dial(t, srv), dial(t, srv)
		one.mustUpdate("CREATE TABLE t (a BIGINT)")
		one.mustQuery("SELECT * FROM t")
		two.mustUpdate("DROP TABLE t")
		two.mustUpdate("CREATE TABLE t (a BIGINT, b VARCHAR)")
		columns := func() (inInfo, inStream int) {
			info := execute(t, one, "SELECT * FROM t")
			schema, err := flight.DeserializeSchema(info.Schema, nil)
			require.NoError(t, err)
			rdr, err := one.DoGet(t.Context(), info.Endpoint[0].Ticket)
			require.NoError(t, err)
			defer rdr.Release()
			require.False(t, rdr.Next())
			return schema.NumFields(), rdr.Schema().NumFields()
		}
		inInfo, inStream := columns()
		require.Equal(t, 1, inInfo)
		require.Equal(t, 2, inStream)
		one.mustUpdate("CREATE TABLE other (a BIGINT)") // forgets what was learned
		inInfo, _ = columns()
		require.Equal(t, 2, inInfo)
	})
}

func TestSeveralEndpointsShareAResultInOrder(t *testing.T) {
	bubble(t, testserver.Profile{Endpoints: 3, NoSchema: true}, func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		info := execute(t, c, "SELECT * FROM generate(10, 2)") // 5 batches
		require.Len(t, info.Endpoint, 3)
		require.Empty(t, info.Schema)
		var sizes []int
		for _, e := range info.Endpoint {
			n := 0
			require.NoError(t, c.get(t.Context(), e.Ticket, func(arrow.RecordBatch) { n++ }))
			sizes = append(sizes, n)
		}
		require.Equal(t, []int{1, 2, 2}, sizes)
		require.Equal(t, 0, srv.Ledger().Snapshot().Tickets)

		rows := c.mustQuery("SELECT * FROM generate(10, 2)")
		require.Equal(t, []string{"0"}, rows[0])
		require.Equal(t, []string{"9"}, rows[9])
	})
}

func TestLocationsAreThoseOfTheProfile(t *testing.T) {
	srv := start(t, testserver.Options{Profile: testserver.Profile{
		Locations: []testserver.Location{testserver.ReuseConnection, testserver.OwnAddress, testserver.Unreachable},
	}})
	c := dial(t, srv)
	info := execute(t, c, "SELECT 1")
	var uris []string
	for _, l := range info.Endpoint[0].Location {
		uris = append(uris, l.Uri)
	}
	require.Equal(t, []string{"arrow-flight-reuse-connection://?", srv.URI(), "grpc+tcp://127.0.0.1:1"}, uris)
}

func TestCountsAreZeroWhereTheProfileSaysSo(t *testing.T) {
	bubble(t, testserver.Profile{ZeroCounts: true}, func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		c.mustUpdate("CREATE TABLE t (a BIGINT)")
		require.Equal(t, int64(0), c.mustUpdate("INSERT INTO t VALUES (1), (2)"))
		require.Equal(t, [][]string{{"2"}}, c.mustQuery("SELECT count(*) FROM t"))
	})
}

func TestTheRowsAffectedByAStatementSentAsAQueryComeInAHeader(t *testing.T) {
	bubble(t, testserver.Profile{AffectedHeader: "x-affected"}, func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		c.mustUpdate("CREATE TABLE t (a BIGINT)")
		require.Equal(t, "2", affected(t, c, execute(t, c, "INSERT INTO t VALUES (1), (2)"), "x-affected"))
	})
}

// affected fetches a result without rows and returns what a header of it says.
func affected(t *testing.T, c *client, info *flight.FlightInfo, name string) string {
	t.Helper()
	var header metadata.MD
	rdr, err := c.DoGet(t.Context(), info.Endpoint[0].Ticket, grpc.Header(&header))
	require.NoError(t, err)
	defer rdr.Release()
	require.False(t, rdr.Next())
	require.NoError(t, rdr.Err())
	require.Equal(t, 0, rdr.Schema().NumFields())
	return strings.Join(header.Get(name), ",")
}

func TestARequestAboveTheLimitIsRefused(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		_, err := c.query(t.Context(), "SELECT '"+strings.Repeat("x", 4<<20)+"'")
		requireCode(t, codes.ResourceExhausted, err)
		require.Equal(t, 0, srv.Ledger().Snapshot().Executed)
	})
}

func prepare(t *testing.T, c *client, sql string) *flightsql.PreparedStatement {
	t.Helper()
	st, err := c.Prepare(t.Context(), sql)
	require.NoError(t, err)
	return st
}

// runBound binds values and returns the rows.
func runBound(t *testing.T, c *client, st *flightsql.PreparedStatement, values ...int64) [][]string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	params := batch(t, "a", values...)
	defer params.Release()
	st.SetParameters(params)
	info, err := st.Execute(ctx)
	require.NoError(t, err)
	rows, err := c.fetch(ctx, info)
	require.NoError(t, err)
	return texts(rows)
}

func TestPreparedStatementsBindRunAndClose(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		c.mustUpdate("CREATE TABLE t (a BIGINT)")
		insert := prepare(t, c, "INSERT INTO t VALUES (?)")
		require.Equal(t, "$1", insert.ParameterSchema().Field(0).Name)
		require.Equal(t, arrow.INT64, insert.ParameterSchema().Field(0).Type.ID())
		update, known := insert.IsUpdate()
		require.True(t, known)
		require.True(t, update)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		insert.SetParameters(batch(t, "a", 1, 2, 3))
		n, err := insert.ExecuteUpdate(ctx)
		require.NoError(t, err)
		require.Equal(t, int64(3), n)

		find := prepare(t, c, "SELECT * FROM t WHERE a = ?")
		require.Equal(t, [][]string{{"3"}, {"1"}}, runBound(t, c, find, 3, 9, 1))
		require.Equal(t, 2, srv.Ledger().Snapshot().Prepared)
		require.NoError(t, find.Close(t.Context()))
		require.NoError(t, insert.Close(t.Context()))
		require.Equal(t, 0, srv.Ledger().Snapshot().Prepared)
		_, err = c.action("ClosePreparedStatement", nil)
		require.Error(t, err)

		echo := prepare(t, c, "SELECT ? AS x")
		require.Nil(t, echo.ParameterSchema()) // any type will do
		require.Equal(t, [][]string{{"5"}}, runBound(t, c, echo, 5))
	})
}

func TestABindMayRenewTheHandle(t *testing.T) {
	bubble(t, testserver.Profile{RenewHandles: true}, func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		st := prepare(t, c, "SELECT ? AS x")
		old := string(st.Handle())
		require.Equal(t, [][]string{{"7"}}, runBound(t, c, st, 7))
		require.NotEqual(t, old, string(st.Handle()))
		_, err := flightsql.NewPreparedStatement(c.Client, []byte(old)).Execute(t.Context())
		requireCode(t, codes.InvalidArgument, err)
	})
}

func TestIngestStoresInsideTheTransactionThatItNames(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		ingest := func(o *flightsql.ExecuteIngestOpts) (int64, error) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			return c.ExecuteIngest(ctx, reader(t, batch(t, "a", 1, 2), batch(t, "a", 3)), o)
		}
		options := func(missing flightsql.TableDefinitionOptionsTableNotExistOption, exists flightsql.TableDefinitionOptionsTableExistsOption) *flightsql.TableDefinitionOptions {
			return &flightsql.TableDefinitionOptions{IfNotExist: missing, IfExists: exists}
		}
		create, fail := flightsql.TableDefinitionOptionsTableNotExistOptionCreate, flightsql.TableDefinitionOptionsTableNotExistOptionFail
		add, replace := flightsql.TableDefinitionOptionsTableExistsOptionAppend, flightsql.TableDefinitionOptionsTableExistsOptionReplace

		_, err := ingest(&flightsql.ExecuteIngestOpts{Table: "t", TableDefinitionOptions: options(fail, add)})
		require.Error(t, err)
		n, err := ingest(&flightsql.ExecuteIngestOpts{Table: "t", TableDefinitionOptions: options(create, add)})
		require.NoError(t, err)
		require.Equal(t, int64(3), n)

		tx := begin(t, c)
		_, err = ingest(&flightsql.ExecuteIngestOpts{Table: "t", TableDefinitionOptions: options(create, add), TransactionId: tx.ID()})
		require.NoError(t, err)
		require.NoError(t, tx.Rollback(t.Context()))
		require.Equal(t, [][]string{{"3"}}, c.mustQuery("SELECT count(*) FROM t"))
		_, err = ingest(&flightsql.ExecuteIngestOpts{Table: "t", TableDefinitionOptions: options(create, add)})
		require.NoError(t, err)
		require.Equal(t, [][]string{{"6"}}, c.mustQuery("SELECT count(*) FROM t"))
		_, err = ingest(&flightsql.ExecuteIngestOpts{Table: "t", TableDefinitionOptions: options(create, replace)})
		require.NoError(t, err)
		require.Equal(t, [][]string{{"3"}}, c.mustQuery("SELECT count(*) FROM t"))
		_, err = ingest(&flightsql.ExecuteIngestOpts{Table: "p", Temporary: true, TableDefinitionOptions: options(create, add)})
		require.NoError(t, err)
		_, err = dial(t, srv).query(t.Context(), "SELECT * FROM p")
		require.Error(t, err)
	})
}
