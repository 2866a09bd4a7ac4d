//go:build duckdb_arrow

package duckdb

import (
	"context"
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	capi "github.com/duckdb/duckdb-go-bindings"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver/engine"
)

func TestSessionsShareTablesButNotTemporaryOnes(t *testing.T) {
	e := newEngine(t, Config{})
	a, b := openSession(t, e), openSession(t, e)
	a.mustUpdate(t, "CREATE TABLE shared(i INT); CREATE TEMP TABLE mine(i INT)")
	b.mustQuery(t, "FROM shared")
	_, err := b.Query(t.Context(), "FROM mine", nil)
	require.ErrorContains(t, err, "duckdb error: Catalog Error")
	require.NotErrorIs(t, err, engine.ErrTxState)
}

func TestADatabasePerSessionSharesNothingButTheFiles(t *testing.T) {
	e := newEngine(t, Config{PerSession: true, Tables: fstest.MapFS{"odd name.csv": {Data: []byte("i\n1\n2\n")}}})
	a, b := openSession(t, e), openSession(t, e)
	a.mustUpdate(t, `DELETE FROM "odd name"`)
	require.Equal(t, [][]string{{"1"}, {"2"}}, b.mustQuery(t, `FROM "odd name"`))
}

func TestAWrongConfigurationIsRefused(t *testing.T) {
	_, err := New(t.Context(), Config{PerSession: true, Path: "x"})
	require.ErrorContains(t, err, "PerSession")
	_, err = New(t.Context(), Config{Settings: map[string]string{"no_such": "1"}})
	require.ErrorContains(t, err, "no_such")
	_, err = New(t.Context(), Config{Tables: fstest.MapFS{"bad.parquet": {Data: []byte("not parquet")}}})
	require.ErrorContains(t, err, "bad.parquet")
	e, err := New(t.Context(), Config{Tables: fstest.MapFS{"d": {Mode: fs.ModeDir}, "x.txt": {}}})
	require.NoError(t, err, "other files are left alone")
	require.NoError(t, e.Close())
}

func TestUpdateCountsRowsAndRunsEveryStatement(t *testing.T) {
	s := newSession(t)
	require.Zero(t, s.mustUpdate(t, "CREATE TABLE t(i INT)"))
	require.EqualValues(t, 3, s.mustUpdate(t, "INSERT INTO t VALUES (0); INSERT INTO t VALUES (1), (2), (3)"))
	require.EqualValues(t, 2, s.mustUpdate(t, "UPDATE t SET i = 9 WHERE i < 2"))
	require.EqualValues(t, 4, s.mustUpdate(t, "DELETE FROM t"))
	require.Zero(t, s.mustUpdate(t, "SELECT 42"), "its rows are dropped")
	require.EqualValues(t, 5000, s.mustUpdate(t, "INSERT INTO t FROM range(5000) RETURNING i"), "of several chunks")
	require.EqualValues(t, 3, s.mustUpdate(t, "UPDATE t SET i = 9 WHERE i < 3 RETURNING i, i + 1"))
	require.EqualValues(t, 5000, s.mustUpdate(t, "DELETE FROM t RETURNING *"))
	require.Zero(t, s.mustUpdate(t, "DELETE FROM t RETURNING *"))
	two := record(t, arrow.NewSchema([]arrow.Field{{Name: "1", Type: arrow.PrimitiveTypes.Int64}}, nil), `[{"1": 3}, {"1": 4}]`)
	n, err := s.Update(t.Context(), "INSERT INTO t VALUES (?) RETURNING i", two)
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
}

func TestQueryRunsAnyStatement(t *testing.T) {
	s := newSession(t)
	r, err := s.Query(t.Context(), "CREATE TABLE t(i INT); INSERT INTO t VALUES (1), (2)", nil)
	require.NoError(t, err)
	require.Zero(t, r.Schema().NumFields())
	require.False(t, r.Next())
	require.NoError(t, r.Err())
	require.EqualValues(t, 2, r.(*rows).RowsAffected())
	r.Release()
	require.Equal(t, [][]string{{"3"}}, s.mustQuery(t, "INSERT INTO t VALUES (3) RETURNING i"))
	require.Equal(t, [][]string{{"3"}}, s.mustQuery(t, "SELECT count(*) FROM t"))
	for _, sql := range []string{"EXPLAIN FROM t", "PRAGMA table_info('t')", "SHOW TABLES", "DESCRIBE t", "VALUES (1)", "CALL duckdb_settings()"} {
		require.NotEmpty(t, s.mustQuery(t, sql), sql)
	}
}

func TestRowsAreComputedWhileTheyAreRead(t *testing.T) {
	s := newSession(t)
	r, err := s.Query(t.Context(), "SELECT i, i * 2 AS j FROM range(1_000_000_000_000) AS r(i)", nil)
	require.NoError(t, err)
	require.True(t, r.Next())
	require.Positive(t, r.RecordBatch().NumRows())
	r.Release()
	require.Equal(t, [][]string{{"1"}}, s.mustQuery(t, "SELECT 1"), "the session goes on after a half-read result")
}

const endless = "SELECT sum(a.i * b.i) FROM range(1_000_000_000) a(i), range(1_000_000_000) b(i)"

func TestTheEndOfTheContextStopsAStatementAtOnce(t *testing.T) {
	s := newSession(t)
	for name, run := range map[string]func(ctx context.Context) error{
		"query":  func(ctx context.Context) error { _, err := s.query(ctx, endless, nil); return err },
		"update": func(ctx context.Context) error { _, err := s.Update(ctx, endless, nil); return err },
		"first of two statements": func(ctx context.Context) error {
			_, err := s.Update(ctx, "CREATE OR REPLACE TEMP TABLE x AS "+endless+"; SELECT 1", nil)
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		end, _ := ctx.Deadline()
		err := run(ctx)
		late := time.Since(end)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
		require.Less(t, late, 5*time.Second, "%s: it would run for hours; BenchmarkStopAfterCancel tells the milliseconds", name)
		require.Equal(t, [][]string{{"1"}}, s.mustQuery(t, "SELECT 1"), "no interrupt is left for the next statement")
	}
}

func TestAnInterruptIsRepeatedUntilTheStatementEnds(t *testing.T) {
	s := newSession(t)
	st, err := s.prepareLast(t.Context(), endless)
	require.NoError(t, err)
	defer st.close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	defer interruptAtEnd(ctx, s.conn)()
	for range 200 { // these take the first interrupts
		require.NoError(t, s.exec("SELECT 1"))
	}
	_, err = st.start(materialised)
	require.ErrorContains(t, err, "INTERRUPT")
}

func TestAContextThatHasEndedRunsNothing(t *testing.T) {
	s := newSession(t)
	s.mustUpdate(t, "CREATE TABLE t(i INT)")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		_, err := s.Update(ctx, "INSERT INTO t VALUES (1)", nil)
		require.ErrorIs(t, err, context.Canceled)
	}
	_, err := s.Query(ctx, "FROM t", nil)
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Describe(ctx, "FROM t")
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, s.mustQuery(t, "FROM t"))
}

func TestAnInterruptNeverHitsTheNextStatement(t *testing.T) {
	s := newSession(t)
	for i := range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%10)*100*time.Microsecond)
		_, err := s.query(ctx, "SELECT sum(i) FROM range(100_000) r(i)", nil)
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.Equal(t, [][]string{{"499999500000"}}, s.mustQuery(t, "SELECT sum(i) FROM range(1_000_000) r(i)"))
	}
}

func TestDescribeTellsColumnsAndParametersWithoutRunning(t *testing.T) {
	s := newSession(t)
	s.mustUpdate(t, "CREATE TABLE t(i INT, s VARCHAR)")
	for _, c := range []struct {
		sql, rows, params string
		update            bool
	}{
		{sql: "SELECT i, s FROM t WHERE i = ? AND s = $2", rows: "i int32, s utf8", params: "1 int32, 2 utf8"},
		{sql: "SELECT i FROM t WHERE s = $name", rows: "i int32", params: "name utf8"},
		{sql: "INSERT INTO t VALUES (?, ?)", params: "1 int32, 2 utf8", update: true},
		{sql: "INSERT INTO t VALUES (1, 'x') RETURNING i", rows: "i int32"},
		{sql: "DELETE FROM t", update: true},
		{sql: "CREATE TABLE u(i INT)", update: true},
		{sql: "BEGIN", update: true},
		{sql: "SELECT ? AS x", rows: "unknown", params: "1 null"},
		{sql: "SELECT 1; SELECT 2", rows: "unknown", params: "unknown"},
		{sql: "SELECT 1::DECIMAL(10,2) AS d", rows: "d decimal(10, 2)"},
	} {
		d, err := s.Describe(t.Context(), c.sql)
		require.NoError(t, err, c.sql)
		require.Equal(t, c.rows, describe(d.Rows), c.sql)
		require.Equal(t, c.params, describe(d.Params), c.sql)
		require.Equal(t, c.update, d.Update, c.sql)
	}
	require.Equal(t, [][]string{{"0"}}, s.mustQuery(t, "SELECT count(*) FROM t"))
	require.False(t, s.InTx())
}

func describe(schema *arrow.Schema) string {
	if schema == nil {
		return "unknown"
	}
	text := ""
	for i, f := range schema.Fields() {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s %s", f.Name, f.Type)
	}
	return text
}

func TestMalformedStatementsAreErrors(t *testing.T) {
	s := newSession(t)
	for _, sql := range []string{"", ";", "-- nothing", "SELEC", "SELECT 1\x00; SELECT 2", "SELECT '\xff'", "SELECT ?", "FROM no_such", "SELECT 1/", "SELECT error('x')"} {
		_, err := s.query(t.Context(), sql, nil)
		require.Error(t, err, "%q", sql)
		_, err = s.Update(t.Context(), sql, nil)
		require.Error(t, err, "%q", sql)
	}
	require.NotEmpty(t, s.mustQuery(t, "SELECT 1"))
}

func TestCatalogListsWhatTheSessionSees(t *testing.T) {
	s := newSession(t)
	s.mustUpdate(t, `CREATE TABLE t(a INT, b VARCHAR, c DOUBLE, PRIMARY KEY (b, a)); CREATE VIEW v AS SELECT a FROM t;
		CREATE TEMP TABLE tmp(i INT); CREATE SCHEMA other; CREATE TABLE gone(i INT); CREATE VIEW broken AS FROM gone; DROP TABLE gone`)
	schemas, err := s.Schemas(t.Context())
	require.NoError(t, err)
	require.Contains(t, schemas, engine.Schema{Catalog: "memory", Name: "other"})
	tables, err := s.Tables(t.Context())
	require.NoError(t, err)
	var got []string
	for _, tab := range tables {
		got = append(got, fmt.Sprintf("%s.%s.%s %s (%s) %v", tab.Catalog, tab.Schema, tab.Name, tab.Type, describe(tab.Columns), tab.PrimaryKey))
	}
	require.Equal(t, []string{
		"memory.main.broken VIEW () []",
		"memory.main.t TABLE (a int32, b utf8, c float64) [b a]",
		"memory.main.v VIEW (a int32) []",
		"temp.main.tmp LOCAL TEMPORARY (i int32) []",
	}, got)
}

func TestSQLInfoNamesTheRealDatabase(t *testing.T) {
	info := newEngine(t, Config{}).SQLInfo()
	require.Contains(t, info, flightsql.SqlInfoFlightSqlServerVersion)
	require.Equal(t, newSession(t).mustQuery(t, "SELECT version()")[0][0], info[flightsql.SqlInfoFlightSqlServerVersion])
}

// With more threads, DuckDB loses about one in fifty of these errors.
func TestAStatementThatFailsLateSaysWhy(t *testing.T) {
	e := newEngine(t, Config{})
	s := openSession(t, e)
	require.Equal(t, [][]string{{"1"}}, s.mustQuery(t, "SELECT current_setting('threads')"))
	for n := 120_000; n < 330_000; n += 3 * 2048 {
		_, err := s.query(t.Context(), fmt.Sprintf("SELECT CASE WHEN i = %d THEN error('late') ELSE i END FROM range(1000000) t(i)", n), nil)
		require.EqualError(t, err, "duckdb error: Invalid Input Error: late")
	}
	require.Equal(t, [][]string{{"2"}}, openSession(t, newEngine(t, Config{Settings: map[string]string{"threads": "2"}})).
		mustQuery(t, "SELECT current_setting('threads')"))
}

func TestAnInterruptThatNobodySentIsExplained(t *testing.T) {
	s := newSession(t)
	r, err := s.Query(t.Context(), "FROM range(100000000)", nil)
	require.NoError(t, err)
	defer r.Release()
	require.True(t, r.Next())
	capi.Interrupt(s.conn) // as a thread of the statement does when it fails
	for r.Next() {
	}
	require.ErrorContains(t, r.Err(), "INTERRUPT Error: Interrupted! (the statement was interrupted, or a thread of it has failed")
}
