//go:build duckdb_arrow

package duckdb

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver/engine"
)

// DuckDB itself cuts off what is finer than its types, and takes an interval of days and
// milliseconds for one number.
func TestIngestStoresValuesExactlyOrNotAtAll(t *testing.T) {
	nanos := arrow.FixedWidthTypes.Duration_ns
	zoned := &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}
	for _, c := range []struct {
		typ          arrow.DataType
		exact, reads string
		refused, why string
	}{
		{nanos, `"1000ns"`, "00:00:00.000001", `"5ns"`, "5 ns is no whole number of microseconds"},
		{zoned, `"2001-02-03 04:05:06.000001Z"`, "2001-02-03 04:05:06.000001+00", `"2001-02-03 04:05:06.000000001Z"`, "no whole number of microseconds"},
		{arrow.FixedWidthTypes.MonthDayNanoInterval, `{"months": 1, "days": 2, "nanoseconds": 3000}`, "1 month 2 days 00:00:00.000003", `{"months": 1, "days": 2, "nanoseconds": 1}`, "1 ns is no whole number"},
		{arrow.FixedWidthTypes.MonthInterval, `{"months": 14}`, "1 year 2 months", "", ""},
		{arrow.FixedWidthTypes.Time64ns, `"01:02:03.000000001"`, "01:02:03.000000001", "", ""},
		{arrow.FixedWidthTypes.Date64, `"1969-12-31"`, "1969-12-31", `1`, "1 ms is no whole number of days"},
		{arrow.FixedWidthTypes.Date64, `"2001-02-03"`, "2001-02-03", `185542587187200000`, "out of range"}, // the first day that is none of 32 bits
		{arrow.FixedWidthTypes.DayTimeInterval, `null`, "NULL", `{"days": 1, "milliseconds": 0}`, "days and milliseconds"},
		{arrow.ListOf(nanos), `["1000ns", null]`, "['00:00:00.000001', NULL]", `["1000ns", "1ns"]`, "1 ns is no whole number"},
		{arrow.FixedSizeListOf(1, nanos), `["1000ns"]`, "[00:00:00.000001]", `["1ns"]`, "1 ns is no whole number"},
		{arrow.StructOf(arrow.Field{Name: "x", Type: arrow.ListOf(nanos), Nullable: true}), `{"x": null}`, "{'x': NULL}", `{"x": ["1ns"]}`, "1 ns is no whole number"},
		{arrow.MapOf(arrow.BinaryTypes.String, nanos), `[{"key": "k", "value": "1000ns"}]`, "{k='00:00:00.000001'}", `[{"key": "k", "value": "1ns"}]`, "1 ns is no whole number"},
		{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: nanos}, `"1000ns"`, "00:00:00.000001", `"1ns"`, "1 ns is no whole number"},
	} {
		s := newSession(t)
		_, err := s.Ingest(t.Context(), engine.IngestTarget{Table: "t", Create: true}, reader(t, record(t, columns(c.typ), `[{"a": `+c.exact+`}]`)))
		require.NoError(t, err, "%s", c.typ)
		require.Equal(t, [][]string{{c.reads}}, s.mustQuery(t, "SELECT coalesce(a::VARCHAR, 'NULL') FROM t"), "%s", c.typ)
		if c.refused == "" {
			continue
		}
		_, err = s.Ingest(t.Context(), engine.IngestTarget{Table: "t"}, reader(t, record(t, columns(c.typ), `[{"a": `+c.exact+`}, {"a": `+c.refused+`}]`)))
		require.ErrorContains(t, err, `column "a": row 1 of a batch: `, "%s", c.typ)
		require.ErrorContains(t, err, c.why, "%s", c.typ)
		require.Equal(t, [][]string{{"1"}}, s.mustQuery(t, "SELECT count(*) FROM t"), "%s", c.typ)
	}
}

// What stands behind a NULL is of no value.
func TestWhatIsBehindANullIsNotLookedAt(t *testing.T) {
	s := newSession(t)
	items := array.NewDurationBuilder(memory.DefaultAllocator, arrow.FixedWidthTypes.Duration_ns.(*arrow.DurationType))
	items.AppendValues([]arrow.Duration{1, 1000}, nil)
	valid := memory.NewBufferBytes([]byte{0b10})
	of := arrow.FixedSizeListOf(1, arrow.FixedWidthTypes.Duration_ns)
	col := array.MakeFromData(array.NewData(of, 2, []*memory.Buffer{valid}, []arrow.ArrayData{items.NewArray().Data()}, 1, 0))
	_, err := s.Ingest(t.Context(), engine.IngestTarget{Table: "t", Create: true}, reader(t, array.NewRecordBatch(columns(of), []arrow.Array{col}, 2)))
	require.NoError(t, err)
	require.Equal(t, [][]string{{"1"}}, s.mustQuery(t, "SELECT count(a) FROM t"))
}
