//go:build duckdb_arrow

package duckdb

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver/engine"
)

func TestEveryDuckDBTypeReachesArrow(t *testing.T) {
	s := newSession(t)
	cols := s.mustQuery(t, "SELECT column_name, column_type FROM (DESCRIBE FROM test_all_types())")
	require.Greater(t, len(cols), 40)
	for _, col := range cols {
		sql := "SELECT " + ident(col[0]) + " FROM test_all_types()"
		rows, err := s.query(t.Context(), sql, nil)
		require.NoError(t, err, "%s", col)
		require.Len(t, rows, 3, "%s", col)
	}
}

func TestParametersOfEveryScalarTypeArrive(t *testing.T) {
	s := newSession(t)
	for _, c := range []struct {
		typ        arrow.DataType
		json, want string
	}{
		{arrow.FixedWidthTypes.Boolean, `true`, "true"},
		{arrow.PrimitiveTypes.Int8, `-8`, "-8"},
		{arrow.PrimitiveTypes.Int16, `-16`, "-16"},
		{arrow.PrimitiveTypes.Int32, `-32`, "-32"},
		{arrow.PrimitiveTypes.Int64, `-64`, "-64"},
		{arrow.PrimitiveTypes.Uint8, `8`, "8"},
		{arrow.PrimitiveTypes.Uint16, `16`, "16"},
		{arrow.PrimitiveTypes.Uint32, `32`, "32"},
		{arrow.PrimitiveTypes.Uint64, `18446744073709551615`, "18446744073709551615"},
		{arrow.FixedWidthTypes.Float16, `0.5`, "0.5"},
		{arrow.PrimitiveTypes.Float32, `0.5`, "0.5"},
		{arrow.PrimitiveTypes.Float64, `0.25`, "0.25"},
		{arrow.BinaryTypes.String, `"a\u0000b"`, "a\x00b"},
		{arrow.BinaryTypes.LargeString, `"x"`, "x"},
		{arrow.BinaryTypes.Binary, `"AQI="`, `\x01\x02`},
		{&arrow.FixedSizeBinaryType{ByteWidth: 2}, `"AQI="`, `\x01\x02`},
		{&arrow.Decimal128Type{Precision: 10, Scale: 2}, `"-12.34"`, "-12.34"},
		{arrow.FixedWidthTypes.Date32, `"1969-12-31"`, "1969-12-31"},
		{arrow.FixedWidthTypes.Date64, `"1969-12-31"`, "1969-12-31"},
		{arrow.FixedWidthTypes.Time32ms, `"01:02:03.5"`, "01:02:03.5"},
		{arrow.FixedWidthTypes.Time64us, `"01:02:03.5"`, "01:02:03.5"},
		{arrow.FixedWidthTypes.Time64ns, `"01:02:03.5"`, "01:02:03.5"},
		{&arrow.TimestampType{Unit: arrow.Second}, `"2001-02-03 04:05:06"`, "2001-02-03 04:05:06"},
		{&arrow.TimestampType{Unit: arrow.Millisecond}, `"2001-02-03 04:05:06.5"`, "2001-02-03 04:05:06.5"},
		{&arrow.TimestampType{Unit: arrow.Microsecond}, `"2001-02-03 04:05:06.5"`, "2001-02-03 04:05:06.5"},
		{&arrow.TimestampType{Unit: arrow.Nanosecond}, `"2001-02-03 04:05:06.5"`, "2001-02-03 04:05:06.5"},
		{&arrow.TimestampType{Unit: arrow.Millisecond, TimeZone: "UTC"}, `"2001-02-03 04:05:06.5Z"`, "2001-02-03 04:05:06.5+00"},
		{&arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}, `"2001-02-03 04:05:06.5Z"`, "2001-02-03 04:05:06.5+00"},
		{arrow.FixedWidthTypes.MonthDayNanoInterval, `{"months": 1, "days": 2, "nanoseconds": 3000000000}`, "1 month 2 days 00:00:03"},
		{arrow.FixedWidthTypes.MonthInterval, `{"months": 14}`, "1 year 2 months"},
		{arrow.FixedWidthTypes.DayTimeInterval, `{"days": 2, "milliseconds": 3500}`, "2 days 00:00:03.5"},
		{arrow.FixedWidthTypes.Duration_s, `"90s"`, "00:01:30"},
		{arrow.FixedWidthTypes.Duration_ns, `"1500000ns"`, "00:00:00.0015"},
		{arrow.BinaryTypes.StringView, `"view"`, "view"},
		{arrow.BinaryTypes.BinaryView, `"AQI="`, `\x01\x02`},
		{arrow.BinaryTypes.LargeBinary, `"AQI="`, `\x01\x02`},
		{&arrow.Decimal32Type{Precision: 9, Scale: 2}, `"-12.34"`, "-12.34"},
		{&arrow.Decimal64Type{Precision: 18, Scale: 17}, `"-1.00000000000000001"`, "-1.00000000000000001"},
		{&arrow.Decimal128Type{Precision: 38, Scale: 38}, `"0.00000000000000000000000000000000000001"`, ".00000000000000000000000000000000000001"},
		{&arrow.Decimal256Type{Precision: 60, Scale: 2}, `"-99999999999999999999.34"`, "-99999999999999999999.34"},
		{arrow.ListOf(arrow.PrimitiveTypes.Int64), `[1, null, 3]`, "[1, NULL, 3]"},
		{arrow.ListOf(arrow.BinaryTypes.String), `[]`, "[]"},
		{arrow.ListOf(arrow.BinaryTypes.String), `[null]`, "[NULL]"},
		{arrow.ListOf(arrow.ListOf(arrow.PrimitiveTypes.Int32)), `[[], [1], null]`, "[[], [1], NULL]"},
		{arrow.ListOf(&arrow.Decimal128Type{Precision: 10, Scale: 2}), `["1.50"]`, "[1.50]"},
		{arrow.ListOf(&arrow.TimestampType{Unit: arrow.Nanosecond}), `["2001-02-03 04:05:06.000000007"]`, "['2001-02-03 04:05:06.000000007']"},
		{arrow.LargeListOf(arrow.FixedWidthTypes.Boolean), `[true]`, "[true]"},
		{arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Float64), `[0.5, 1.5]`, "[0.5, 1.5]"},
		{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.PrimitiveTypes.Int64}, `7`, "7"},
		{arrow.Null, `null`, "(null)"},
		{arrow.PrimitiveTypes.Int32, `null`, "(null)"},
		{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, `"word"`, "word"},
	} {
		s.mustUpdate(t, "SET TimeZone = 'UTC'")
		params := record(t, columns(c.typ), `[{"a": `+c.json+`}]`)
		rows, err := s.query(t.Context(), "SELECT CAST(? AS VARCHAR)", params)
		require.NoError(t, err, "%s", c.typ)
		require.Equal(t, [][]string{{c.want}}, rows, "%s", c.typ)
	}
}

func TestParametersThatCannotBeBoundAreErrors(t *testing.T) {
	s := newSession(t)
	one := columns(arrow.PrimitiveTypes.Int32)
	_, err := s.Query(t.Context(), "SELECT ?, ?", record(t, one, `[{"a": 1}]`))
	require.ErrorContains(t, err, "2 parameters, 1 are given")
	_, err = s.Query(t.Context(), "SELECT ?", nil)
	require.ErrorContains(t, err, "none is given")
	_, err = s.Query(t.Context(), "SELECT ?", record(t, columns(arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int32})), `[{"a": {"x": 1}}]`))
	require.ErrorContains(t, err, "not supported")
	_, err = s.Update(t.Context(), "SELECT ?::INT", record(t, columns(arrow.BinaryTypes.String), `[{"a": "x"}]`))
	require.ErrorContains(t, err, "Conversion Error")

	notUTF8 := texts(t, []int32{0, 2}, "\xff\xfe")
	_, err = s.Query(t.Context(), "SELECT ?", notUTF8)
	require.ErrorContains(t, err, "not valid utf8")
	beyondTheData := texts(t, []int32{0, 1 << 20, 1}, "x")
	_, err = s.Query(t.Context(), "SELECT ?", beyondTheData)
	require.Error(t, err)
	s.mustUpdate(t, "CREATE TABLE t(a VARCHAR)")
	for _, bad := range []arrow.RecordBatch{notUTF8, beyondTheData} {
		_, err = s.Ingest(t.Context(), engine.IngestTarget{Table: "t"}, reader(t, bad))
		require.Error(t, err)
	}
}

// texts makes a batch from raw buffers, as a peer could send it.
func texts(t *testing.T, offsets []int32, data string) arrow.RecordBatch {
	t.Helper()
	buffers := []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets)), memory.NewBufferBytes([]byte(data))}
	d := array.NewData(arrow.BinaryTypes.String, len(offsets)-1, buffers, nil, 0, 0)
	defer d.Release()
	col := array.MakeFromData(d)
	defer col.Release()
	batch := array.NewRecordBatch(columns(arrow.BinaryTypes.String), []arrow.Array{col}, int64(len(offsets)-1))
	t.Cleanup(batch.Release)
	return batch
}

func TestAStatementRunsOncePerRowOfItsParameters(t *testing.T) {
	s := newSession(t)
	s.mustUpdate(t, "CREATE TABLE t(i INT, s VARCHAR)")
	schema := columns(arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String)
	three := record(t, schema, `[{"a": 1, "b": "x"}, {"a": 2, "b": null}, {"a": 3, "b": "z"}]`)
	n, err := s.Update(t.Context(), "INSERT INTO t VALUES (?, ?)", three)
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	rows, err := s.query(t.Context(), "SELECT i, s FROM t WHERE i <= $1 AND coalesce(s, '') <> $2 ORDER BY i",
		record(t, schema, `[{"a": 2, "b": "x"}, {"a": 9, "b": "z"}]`))
	require.NoError(t, err)
	require.Equal(t, [][]string{{"2", "(null)"}, {"1", "x"}, {"2", "(null)"}}, rows)

	none := record(t, schema, `[]`)
	n, err = s.Update(t.Context(), "INSERT INTO t VALUES (?, ?)", none)
	require.NoError(t, err)
	require.Zero(t, n)
	r, err := s.Query(t.Context(), "SELECT i FROM t WHERE i = ? AND s = ?", none)
	require.NoError(t, err)
	require.Equal(t, "i int32", describe(r.Schema()))
	require.False(t, r.Next())
	r.Release()
}

func TestParametersGoByNameWhenAllNamesMatch(t *testing.T) {
	s := newSession(t)
	params := record(t, columns(arrow.BinaryTypes.String, arrow.BinaryTypes.String), `[{"a": "A", "b": "B"}]`)
	for sql, want := range map[string][]string{
		"SELECT $b::VARCHAR, $a::VARCHAR": {"B", "A"},
		"SELECT $2::VARCHAR, $1::VARCHAR": {"B", "A"},
		"SELECT ?::VARCHAR, ?::VARCHAR":   {"A", "B"},
	} {
		rows, err := s.query(t.Context(), sql, params)
		require.NoError(t, err)
		require.Equal(t, [][]string{want}, rows, sql)
	}
}

func TestIngestStoresByColumnNameInManyChunks(t *testing.T) {
	s := newSession(t)
	s.mustUpdate(t, "CREATE TABLE t(s VARCHAR DEFAULT 'none', b BIGINT, a BIGINT)")
	const rows = 300_000 // in one batch, each column of another type than the table's
	b := array.NewRecordBuilder(memory.DefaultAllocator, columns(arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int16))
	defer b.Release()
	for i := range rows {
		b.Field(0).(*array.Int32Builder).Append(int32(i))
		b.Field(1).(*array.Int16Builder).Append(int16(-i % 1000))
	}
	batch := b.NewRecordBatch()
	defer batch.Release()
	n, err := s.Ingest(t.Context(), engine.IngestTarget{Table: "t"}, reader(t, batch))
	require.NoError(t, err)
	require.EqualValues(t, rows, n)
	require.Equal(t, [][]string{{"300000", "44999850000", "-149850000", "none"}}, s.mustQuery(t, "SELECT count(*), sum(a), sum(b), any_value(s) FROM t"))
}

func TestIngestMakesTheTableAsAsked(t *testing.T) {
	s := newSession(t)
	rows := func() array.RecordReader {
		return reader(t, record(t, columns(arrow.PrimitiveTypes.Int32), `[{"a": 1}]`))
	}
	ingest := func(into engine.IngestTarget) error {
		into.Table = "t"
		_, err := s.Ingest(t.Context(), into, rows())
		return err
	}
	count := func() string { return s.mustQuery(t, "SELECT count(*) FROM t")[0][0] }
	require.Error(t, ingest(engine.IngestTarget{}), "missing")
	require.NoError(t, ingest(engine.IngestTarget{Create: true, Exists: engine.IngestFail}))
	require.Error(t, ingest(engine.IngestTarget{Create: true, Exists: engine.IngestFail}))
	require.NoError(t, ingest(engine.IngestTarget{Create: true, Exists: engine.IngestAppend}))
	require.Equal(t, "2", count())
	require.NoError(t, ingest(engine.IngestTarget{Create: true, Exists: engine.IngestReplace}))
	require.Equal(t, "1", count())
	require.NoError(t, ingest(engine.IngestTarget{Create: true, Temporary: true}))
	require.Equal(t, [][]string{{"memory"}, {"temp"}}, s.mustQuery(t, "SELECT database_name FROM duckdb_tables() ORDER BY ALL"))
}

func TestIngestIsAllOrNothingAndJoinsATransaction(t *testing.T) {
	s := newSession(t)
	s.mustUpdate(t, "CREATE TABLE t(a INT PRIMARY KEY)")
	schema := columns(arrow.PrimitiveTypes.Int32)
	twice := reader(t, record(t, schema, `[{"a": 1}]`), record(t, schema, `[{"a": 1}]`))
	_, err := s.Ingest(t.Context(), engine.IngestTarget{Table: "t"}, twice)
	require.ErrorContains(t, err, "constraint violation")
	require.Empty(t, s.mustQuery(t, "FROM t"))
	require.False(t, s.InTx())

	require.NoError(t, s.Begin(t.Context()))
	_, err = s.Ingest(t.Context(), engine.IngestTarget{Table: "t"}, reader(t, record(t, schema, `[{"a": 1}]`)))
	require.NoError(t, err)
	require.Len(t, s.mustQuery(t, "FROM t"), 1)
	require.NoError(t, s.Rollback(t.Context()))
	require.Empty(t, s.mustQuery(t, "FROM t"))
}

// cents is an extension type.
type cents struct{ arrow.ExtensionBase }

func newCents() *cents { return &cents{arrow.ExtensionBase{Storage: arrow.PrimitiveTypes.Int64}} }

func (*cents) ArrayType() reflect.Type                    { return reflect.TypeFor[centsArray]() }
func (*cents) ExtensionName() string                      { return "cents" }
func (*cents) Serialize() string                          { return "" }
func (*cents) ExtensionEquals(o arrow.ExtensionType) bool { return o.ExtensionName() == "cents" }
func (*cents) Deserialize(arrow.DataType, string) (arrow.ExtensionType, error) {
	return newCents(), nil
}

type centsArray struct{ array.ExtensionArrayBase }

// parameter is a batch of one column.
func parameter(t *testing.T, a arrow.Array) arrow.RecordBatch {
	t.Helper()
	b := array.NewRecordBatch(columns(a.DataType()), []arrow.Array{a}, int64(a.Len()))
	t.Cleanup(b.Release)
	a.Release()
	return b
}

func int64s(values ...int64) arrow.Array {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues(values, nil)
	return b.NewArray()
}

func TestParametersAreReadThroughWhateverCarriesThem(t *testing.T) {
	s := newSession(t)
	ends := array.NewInt32Builder(memory.DefaultAllocator)
	defer ends.Release()
	ends.AppendValues([]int32{2, 3}, nil)
	runs, values := ends.NewArray(), int64s(7, 8)
	defer runs.Release()
	defer values.Release()
	encoded := array.NewRunEndEncodedArray(runs, values, 3, 0)
	rows, err := s.query(t.Context(), "SELECT CAST(? AS VARCHAR)", parameter(t, encoded))
	require.NoError(t, err)
	require.Equal(t, [][]string{{"7"}, {"7"}, {"8"}}, rows)

	numbers := int64s(5)
	defer numbers.Release()
	extended := array.NewExtensionArrayWithStorage(newCents(), numbers)
	rows, err = s.query(t.Context(), "SELECT CAST(? AS VARCHAR)", parameter(t, extended))
	require.NoError(t, err)
	require.Equal(t, [][]string{{"5"}}, rows)

	d := array.NewDecimal128Builder(memory.DefaultAllocator, &arrow.Decimal128Type{Precision: 4, Scale: -2})
	defer d.Release()
	d.Append(decimal128.FromI64(-123))
	rows, err = s.query(t.Context(), "SELECT CAST(? AS VARCHAR)", parameter(t, d.NewArray()))
	require.NoError(t, err)
	require.Equal(t, [][]string{{"-12300"}}, rows)
}

func TestParametersThatDuckDBCannotHoldExactlyAreErrors(t *testing.T) {
	s := newSession(t)
	for _, c := range []struct {
		typ        arrow.DataType
		json, want string
	}{
		{arrow.FixedWidthTypes.MonthDayNanoInterval, `{"months": 1, "days": 2, "nanoseconds": 1}`, "no whole number of microseconds"},
		{&arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}, `"2001-02-03 04:05:06.000000001Z"`, "no whole number of microseconds"},
		{arrow.FixedWidthTypes.Duration_s, `9223372036854775807`, "out of range"},
		{arrow.FixedWidthTypes.Date64, `1`, "1 ms is no whole number of days"},
		{arrow.FixedWidthTypes.Date64, `185542587187200000`, "out of range"},
		{&arrow.Decimal256Type{Precision: 60, Scale: 0}, `"` + strings.Repeat("9", 39) + `"`, "39 digits"},
		{arrow.ListOf(arrow.FixedWidthTypes.Duration_ns), `["1ns"]`, "element 0: 1 ns is no whole number"},
		{arrow.ListOf(arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int8})), `[{"x": 1}]`, "not supported"},
		{arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int8), `[{"key": "k", "value": 1}]`, "not supported"},
	} {
		_, err := s.query(t.Context(), "SELECT CAST(? AS VARCHAR)", record(t, columns(c.typ), `[{"a": `+c.json+`}]`))
		require.ErrorContains(t, err, c.want, "%s", c.typ)
	}
	require.NotEmpty(t, s.mustQuery(t, "SELECT 1"))
}

func TestIngestKeepsNestedTypes(t *testing.T) {
	s := newSession(t)
	schema := columns(
		arrow.ListOf(arrow.BinaryTypes.String),
		arrow.StructOf(arrow.Field{Name: "x y", Type: arrow.PrimitiveTypes.Int8, Nullable: true}),
		arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Float64),
		arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int32),
		&arrow.Decimal128Type{Precision: 5, Scale: 1},
		&arrow.TimestampType{Unit: arrow.Nanosecond},
	)
	batch := record(t, schema, `[{"a": ["p", null], "b": {"x y": 7}, "c": [{"key": "k", "value": 1.5}], "d": [1, 2], "e": "12.5", "f": "2001-02-03 04:05:06.000000007"}]`)
	_, err := s.Ingest(t.Context(), engine.IngestTarget{Table: "t", Create: true}, reader(t, batch))
	require.NoError(t, err)
	require.Equal(t, [][]string{{"[p, NULL]", "{'x y': 7}", "{k=1.5}", "[1, 2]", "12.5", "2001-02-03 04:05:06.000000007"}},
		s.mustQuery(t, "SELECT a::VARCHAR, b::VARCHAR, c::VARCHAR, d::VARCHAR, e::VARCHAR, f::VARCHAR FROM t"))
}

func TestIngestRefusesTypesThatDuckDBLacks(t *testing.T) {
	s := newSession(t)
	wide := columns(&arrow.Decimal256Type{Precision: 60, Scale: 0})
	_, err := s.Ingest(t.Context(), engine.IngestTarget{Table: "t", Create: true}, reader(t, record(t, wide, `[{"a": "1"}]`)))
	require.ErrorContains(t, err, "60 digits")
}

func TestAnIngestThatItsReaderFailsStoresNothing(t *testing.T) {
	s := newSession(t)
	s.mustUpdate(t, "CREATE TABLE t(a INT)")
	broken := errors.New("broken")
	schema := columns(arrow.PrimitiveTypes.Int32)
	r := array.ReaderFromIter(schema, func(yield func(arrow.RecordBatch, error) bool) {
		_ = yield(zeros(schema, 500_000), nil) && yield(nil, broken) // more rows than DuckDB holds back
	})
	defer r.Release()
	_, err := s.Ingest(t.Context(), engine.IngestTarget{Table: "t"}, r)
	require.ErrorIs(t, err, broken)
	require.Equal(t, [][]string{{"0"}}, s.mustQuery(t, "SELECT count(*) FROM t"))
}

// zeros makes a batch of n rows of one integer.
func zeros(schema *arrow.Schema, n int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int32Builder).AppendValues(make([]int32, n), nil)
	return b.NewRecordBatch()
}

func reader(t *testing.T, batches ...arrow.RecordBatch) array.RecordReader {
	t.Helper()
	r, err := array.NewRecordReader(batches[0].Schema(), batches)
	require.NoError(t, err)
	t.Cleanup(r.Release)
	return r
}
