package script_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver/engine"
	"github.com/flightpool/flightpool/testserver/script"
)

func session(t *testing.T, db *script.Engine) engine.Session {
	t.Helper()
	s, err := db.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func rowsOf(t *testing.T, s engine.Session, sql string) [][]string {
	t.Helper()
	rows, err := tryRows(t.Context(), s, sql)
	require.NoError(t, err)
	return rows
}

func tryRows(ctx context.Context, s engine.Session, sql string) ([][]string, error) {
	r, err := s.Query(ctx, sql, nil)
	if err != nil {
		return nil, err
	}
	defer r.Release()
	all := [][]string{}
	for r.Next() {
		for i := range int(r.RecordBatch().NumRows()) {
			var row []string
			for _, col := range r.RecordBatch().Columns() {
				row = append(row, strings.Clone(col.ValueStr(i)))
			}
			all = append(all, row)
		}
	}
	return all, r.Err()
}

// batch is one batch with one column of numbers.
func batch(name string, values ...int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: name, Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil))
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues(values, nil)
	return b.NewRecordBatch()
}

func must(t *testing.T, s engine.Session, sql string) {
	t.Helper()
	_, err := s.Update(t.Context(), sql, nil)
	require.NoError(t, err, sql)
}

func TestItAnswersItsSQL(t *testing.T) {
	s := session(t, script.New())
	must(t, s, "CREATE TABLE t (a BIGINT PRIMARY KEY, b DOUBLE, c VARCHAR, d BOOLEAN)")
	must(t, s, "CREATE TABLE IF NOT EXISTS t (a BIGINT)")
	must(t, s, "INSERT INTO t VALUES (1, 1.5, 'it''s', TRUE), (2, 2, NULL, false);")
	must(t, s, "UPDATE t SET c = 'two' WHERE a = 2 -- comment")
	must(t, s, "CREATE TEMP TABLE u AS SELECT * FROM t WHERE a = 2")
	must(t, s, "SET threads = 4")
	for sql, want := range map[string][][]string{
		"SELECT * FROM t":                           {{"1", "1.5", "it's", "true"}, {"2", "2", "two", "false"}},
		"select count(*) from t where c = 'two'":    {{"1"}},
		"SELECT * FROM u":                           {{"2", "2", "two", "false"}},
		"SELECT -5 AS x, 'a', NULL, 2.5, TRUE":      {{"-5", "a", "(null)", "2.5", "true"}},
		"SHOW threads":                              {{"4"}},
		"SELECT current_setting('threads')":         {{"4"}},
		"SHOW schema":                               {{"main"}},
		"SELECT * FROM generate(3)":                 {{"0"}, {"1"}, {"2"}},
		"SELECT count(*) FROM \"t\" WHERE a = NULL": {{"0"}},
	} {
		require.Equal(t, want, rowsOf(t, s, sql), sql)
	}
	must(t, s, "RESET threads")
	require.Equal(t, [][]string{{"(null)"}}, rowsOf(t, s, "SHOW threads"))
	must(t, s, "CREATE SCHEMA other")
	must(t, s, "USE other")
	_, err := tryRows(t.Context(), s, "SELECT * FROM t")
	require.ErrorContains(t, err, "does not exist")
	must(t, s, "USE main")
	must(t, s, "DELETE FROM t WHERE a = 1")
	require.Equal(t, [][]string{{"1"}}, rowsOf(t, s, "SELECT count(*) FROM t"))
	must(t, s, "DROP TABLE t")
	must(t, s, "DROP TABLE IF EXISTS t")
}

func TestASettingOfTheServerIsHeardInAllSessionsWithoutAValueOfTheirOwn(t *testing.T) {
	db := script.New()
	db.ServerSetting("threads", "3", "8")
	one, two := session(t, db), session(t, db)
	both := func(first, second string) {
		t.Helper()
		require.Equal(t, [][]string{{first}}, rowsOf(t, one, "SHOW threads"))
		require.Equal(t, [][]string{{second}}, rowsOf(t, two, "SELECT current_setting('threads')"))
	}
	both("3", "3")
	must(t, one, "SET threads = 4")
	both("4", "4")
	must(t, one, "SET SESSION threads = 5")
	both("5", "4")
	must(t, two, "RESET threads")
	both("5", "8")
	must(t, one, "RESET SESSION threads")
	both("8", "8")
	must(t, one, "SET SESSION colour = 'red'")
	require.Equal(t, [][]string{{"(null)"}}, rowsOf(t, two, "SHOW colour"))
	must(t, one, "RESET SESSION colour")
	require.Equal(t, [][]string{{"(null)"}}, rowsOf(t, one, "SHOW colour"))
}

func TestItRefusesWhatItDoesNotKnowAndNeverPanics(t *testing.T) {
	s := session(t, script.New())
	must(t, s, "CREATE TABLE t (a BIGINT)")
	for _, sql := range []string{
		"", ";", "?", "'", "\"", "SELECT", "SELECT 1,", "SELECT *", "SELECT * FROM", "SELECT * FROM t WHERE", "SELECT 1 1",
		"SELECT nosuch('x')", "SELECT * FROM nosuch(1)", "SELECT * FROM endless()", "SELECT * FROM endless(1)", "SELECT * FROM generate('x')",
		"SELECT * FROM generate(1,2,3)", "SELECT sleep('soon')", "SELECT sleep()", "SELECT ?", "SELECT $0", "SELECT $99999999", "SELECT $",
		"INSERT INTO t VALUES", "INSERT INTO t VALUES (1", "INSERT INTO t VALUES ('x')", "INSERT INTO t VALUES (?)", "INSERT INTO nosuch VALUES (1)",
		"CREATE", "CREATE TABLE", "CREATE TABLE t (a BIGINT)", "CREATE TABLE x (a BLOB)", "CREATE TABLE x AS", "UPDATE t SET z = 1", "UPDATE t",
		"INSERT INTO t VALUES (1) RETURNING", "INSERT INTO t VALUES (1) RETURNING z", "ALTER TABLE t", "ALTER TABLE t ADD COLUMN b BLOB DEFAULT 1", "ALTER TABLE t ADD COLUMN b BIGINT",
		"DELETE", "DROP TABLE nosuch", "USE nosuch", "SET", "SET a", "RELEASE nosuch", "ROLLBACK TO nosuch", "COMMIT", "ROLLBACK", "\x00", "SELECT '\xff", "é",
	} {
		_, err := s.Update(t.Context(), sql, nil)
		require.Error(t, err, "%q", sql)
		_, err = tryRows(t.Context(), s, sql)
		require.Error(t, err, "%q", sql)
		_, _ = s.Describe(t.Context(), sql)
	}
	params := batch("a", 1)
	_, err := s.Query(t.Context(), "SELECT 1", params)
	require.ErrorContains(t, err, "0 parameters, 1 are bound")
	empty := batch("a")
	r, err := s.Query(t.Context(), "SELECT ? AS x", empty)
	require.NoError(t, err)
	r.Release()
}

func TestAnInsertCanReturnWhatItHasStored(t *testing.T) {
	s := session(t, script.New())
	must(t, s, "CREATE TABLE t (a BIGINT PRIMARY KEY, b VARCHAR)")
	require.Equal(t, [][]string{{"one"}, {"two"}}, rowsOf(t, s, "INSERT INTO t VALUES (1, 'one'), (2, 'two') RETURNING b"))
	n, err := s.Update(t.Context(), "INSERT INTO t (a) VALUES (?) RETURNING a", batch("a", 3, 4))
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	_, err = tryRows(t.Context(), s, "INSERT INTO t VALUES (4, 'four') RETURNING b")
	require.ErrorContains(t, err, "duplicate key")
	require.Equal(t, [][]string{{"4"}}, rowsOf(t, s, "SELECT count(*) FROM t"))
}

func TestAnAlterTableIsRunInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := script.New()
		s, other := session(t, db), session(t, db)
		must(t, s, "CREATE TABLE t (a BIGINT)")
		must(t, s, "INSERT INTO t VALUES (1)")
		db.PauseBetweenSteps(time.Second)
		must(t, s, "ALTER TABLE t ADD COLUMN b BIGINT DEFAULT 2")
		require.Equal(t, [][]string{{"1", "2"}}, rowsOf(t, other, "SELECT * FROM t"))
		require.False(t, s.InTx())
		for _, limit := range []time.Duration{time.Second / 2, 3 * time.Second / 2} { // before the change and behind it
			ctx, stop := context.WithTimeout(t.Context(), limit)
			_, err := s.Update(ctx, "ALTER TABLE t ADD COLUMN c BIGINT DEFAULT 3", nil)
			stop()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.True(t, s.InTx())
			require.Equal(t, [][]string{{"1", "2"}}, rowsOf(t, other, "SELECT * FROM t"))
			must(t, s, "ROLLBACK")
		}
		_, err := s.Update(t.Context(), "ALTER TABLE t ADD COLUMN b BIGINT DEFAULT 2", nil)
		require.ErrorContains(t, err, "already exists")
		_, err = s.Update(t.Context(), "INSERT INTO t VALUES (2, 2)", nil)
		require.ErrorContains(t, err, "aborted")
		must(t, s, "ROLLBACK")
		must(t, s, "BEGIN")
		must(t, s, "ALTER TABLE t ADD COLUMN c BIGINT DEFAULT 3")
		require.True(t, s.InTx())
		must(t, s, "COMMIT")
		require.Equal(t, [][]string{{"1", "2", "3"}}, rowsOf(t, other, "SELECT * FROM t"))
	})
}

func TestItTransactionsSeeTheirSnapshotAndConflict(t *testing.T) {
	db := script.New()
	one, two := session(t, db), session(t, db)
	must(t, one, "CREATE TABLE t (a BIGINT PRIMARY KEY)")
	must(t, one, "INSERT INTO t VALUES (1)")

	must(t, one, "BEGIN")
	must(t, two, "INSERT INTO t VALUES (2)")
	require.Equal(t, [][]string{{"1"}}, rowsOf(t, one, "SELECT count(*) FROM t"))
	must(t, one, "INSERT INTO t VALUES (3)") // inserts do not conflict
	must(t, one, "COMMIT")
	require.Equal(t, [][]string{{"1"}, {"2"}, {"3"}}, rowsOf(t, two, "SELECT * FROM t"))

	must(t, one, "BEGIN")
	must(t, one, "INSERT INTO t VALUES (4)")
	must(t, two, "INSERT INTO t VALUES (4)")
	_, err := one.Update(t.Context(), "COMMIT", nil) // unless their keys do
	require.ErrorContains(t, err, "duplicate key")
	require.False(t, one.InTx())

	must(t, one, "BEGIN")
	must(t, one, "DELETE FROM t WHERE a = 1")
	must(t, two, "DELETE FROM t WHERE a = 2")
	require.ErrorContains(t, one.Commit(t.Context()), "conflict")
	require.Equal(t, [][]string{{"1"}, {"3"}, {"4"}}, rowsOf(t, one, "SELECT * FROM t"))
}

func TestItTemporaryTablesArePrivateAndRollBack(t *testing.T) {
	db := script.New()
	one, two := session(t, db), session(t, db)
	must(t, one, "BEGIN")
	must(t, one, "CREATE TEMP TABLE p (a BIGINT)")
	must(t, one, "ROLLBACK")
	_, err := tryRows(t.Context(), one, "SELECT * FROM p")
	require.Error(t, err)
	must(t, one, "CREATE TEMP TABLE p (a BIGINT)")
	must(t, one, "INSERT INTO p VALUES (1)")
	_, err = tryRows(t.Context(), two, "SELECT * FROM p")
	require.Error(t, err)
}

func TestItStopsAtTheEndOfTheContextAndAbortsTheTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := session(t, script.New())
		for _, sql := range []string{"SELECT sleep('1h')", "SELECT * FROM endless('1m')", "SELECT * FROM endless('0s')"} {
			must(t, s, "BEGIN")
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
			if sql == "SELECT * FROM endless('0s')" {
				cancel()
			}
			_, err := tryRows(ctx, s, sql)
			cancel()
			require.ErrorIs(t, err, ctx.Err())
			require.LessOrEqual(t, time.Since(began), 150*time.Second)
			_, err = s.Update(t.Context(), "CREATE TABLE x (a BIGINT)", nil)
			require.ErrorIs(t, err, engine.ErrTxState)
			must(t, s, "ROLLBACK")
		}
	})
}

func TestItStopsBetweenTwoBatches(t *testing.T) {
	s := session(t, script.New())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := s.Query(ctx, "SELECT * FROM generate(10, 1)", nil)
	require.NoError(t, err)
	defer r.Release()
	require.True(t, r.Next())
	cancel()
	require.False(t, r.Next())
	require.ErrorIs(t, r.Err(), context.Canceled)
}

func TestItGivesTheAnswersOfItsUser(t *testing.T) {
	db := script.New()
	db.On("SELECT the answer", script.Rows(batch("answer", 42)))
	db.On("SELECT the answer now", func(ctx context.Context, sql string, _ arrow.RecordBatch) (array.RecordReader, error) {
		return nil, context.Canceled
	})
	s := session(t, db)
	for range 2 {
		require.Equal(t, [][]string{{"42"}}, rowsOf(t, s, "SELECT the answer"))
	}
	_, err := tryRows(t.Context(), s, "SELECT the answer now")
	require.ErrorIs(t, err, context.Canceled)
}

// A parameter arrives as it is, or is refused: of what BIGINT and DOUBLE do not hold, no other number is made.
func TestItTakesNoNumberForAnother(t *testing.T) {
	s := session(t, script.New())
	ask := func(of arrow.DataType, value string) (string, error) {
		schema := arrow.NewSchema([]arrow.Field{{Name: "x", Type: of}}, nil)
		params, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(`[{"x":`+value+`}]`))
		require.NoError(t, err)
		defer params.Release()
		r, err := s.Query(t.Context(), "SELECT ?", params)
		if err != nil {
			return "", err
		}
		defer r.Release()
		require.True(t, r.Next())
		return r.RecordBatch().Column(0).ValueStr(0), nil
	}
	for of, value := range map[arrow.DataType]string{
		arrow.PrimitiveTypes.Float32: "1.5", arrow.PrimitiveTypes.Uint64: "9223372036854775807", arrow.PrimitiveTypes.Int8: "-7",
	} {
		got, err := ask(of, value)
		require.NoError(t, err)
		require.Equal(t, value, got)
	}
	_, err := ask(arrow.PrimitiveTypes.Uint64, "9223372036854775808")
	require.ErrorContains(t, err, "9223372036854775808 does not fit BIGINT")
}
