package rowscan

import (
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/tools/valuegen"
)

// columnOf builds a column from JSON values, one a row.
func columnOf(t *testing.T, dt arrow.DataType, values string) arrow.Array {
	col, _, err := array.FromJSON(memory.DefaultAllocator, dt, strings.NewReader(values))
	require.NoError(t, err, dt)
	return col
}

// rowsOf reads columns called a, b, c … as values of type T.
func rowsOf[T any](t *testing.T, columns ...arrow.Array) (got []T, err error) {
	t.Helper()
	fields := make([]arrow.Field, len(columns))
	for i, col := range columns {
		fields[i] = arrow.Field{Name: string(rune('a' + i)), Type: col.DataType(), Nullable: true}
	}
	batch := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, int64(columns[0].Len()))
	for v, err := range Rows[T](resultOf(batch)) {
		if err != nil {
			return got, err
		}
		got = append(got, v)
	}
	return got, nil
}

func oneRow[T any](t *testing.T, columns ...arrow.Array) T {
	t.Helper()
	got, err := rowsOf[T](t, columns...)
	require.NoError(t, err)
	require.Len(t, got, 1)
	return got[0]
}

func refused[T any](t *testing.T, why string, columns ...arrow.Array) {
	t.Helper()
	_, err := rowsOf[T](t, columns...)
	require.ErrorContains(t, err, why)
}

// encodedNulls are columns whose own bitmap, if there is one, marks no NULL.
func encodedNulls(t *testing.T) map[string]arrow.Array {
	texts := columnOf(t, arrow.BinaryTypes.String, `["x", null]`)
	second := columnOf(t, arrow.PrimitiveTypes.Int8, `[1]`)
	codes, offsets := memory.NewBufferBytes([]byte{5}), memory.NewBufferBytes(arrow.Int32Traits.CastToBytes([]int32{1}))
	union := []arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}}
	ids := []arrow.UnionTypeCode{5}
	return map[string]arrow.Array{
		"dictionary": array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, second, texts),
		"run ends":   array.NewRunEndEncodedArray(columnOf(t, arrow.PrimitiveTypes.Int32, `[1]`), array.NewSlice(texts, 1, 2), 1, 0),
		"dense":      array.NewDenseUnion(arrow.DenseUnionOf(union, ids), 1, []arrow.Array{texts}, codes, offsets, 0),
		"sparse":     array.NewSparseUnion(arrow.SparseUnionOf(union, ids), 1, []arrow.Array{array.NewSlice(texts, 1, 2)}, codes, 0),
		"null":       array.NewNull(1),
		"extension":  valuegen.Extension("flightpool.other", array.NewSlice(texts, 1, 2)),
	}
}

func TestANullIsNullInEveryEncoding(t *testing.T) {
	for name, col := range encodedNulls(t) {
		t.Run(name, func(t *testing.T) {
			require.Nil(t, Value(col, 0))
			require.Nil(t, oneRow[struct{ A any }](t, col).A)
			require.Nil(t, oneRow[struct{ A *string }](t, col).A)
			require.Nil(t, oneRow[struct{ A []byte }](t, col).A)
			require.False(t, oneRow[struct{ A sql.NullString }](t, col).A.Valid)
			refused[struct{ A string }](t, "NULL does not fit string: use a pointer", col)
			refused[struct{ A bool }](t, "NULL does not fit bool", col)
			refused[struct{ A Decimal }](t, "NULL does not fit rowscan.Decimal", col)
			refused[struct{ A time.Time }](t, "NULL does not fit time.Time", col)
			refused[struct{ A [2]byte }](t, "NULL does not fit [2]uint8", col)
			refused[struct{ A struct{ X int } }](t, "NULL does not fit", col)
		})
	}
}

type (
	base  struct{ A int64 }
	Base  struct{ A int64 }
	Audit struct{ CreatedAt string }
	Point struct{ X, Y int64 }
	Loop  struct {
		*Loop
		A int64
	}
	Deep struct{ *Base }
)

func TestEmbeddedStructsAreFilledAllocatedOrLeftOut(t *testing.T) {
	seven := columnOf(t, arrow.PrimitiveTypes.Int64, `[7]`)
	require.EqualValues(t, 7, oneRow[struct{ *Base }](t, seven).A)
	require.EqualValues(t, 7, oneRow[struct{ base }](t, seven).A)
	require.EqualValues(t, 7, oneRow[struct{ *Deep }](t, seven).A)
	require.EqualValues(t, 7, oneRow[Loop](t, seven).A)
	require.EqualValues(t, 7, oneRow[struct {
		A     int64
		Audit `arrow:"-"`
	}](t, seven).A)
	refused[struct{ *base }](t, "field base: an embedded pointer to a type that is not exported", seven)
	refused[struct {
		A int64
		Audit
	}](t, `field CreatedAt: the result has no column "CreatedAt"`, seven)

	point := columnOf(t, arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int64}, arrow.Field{Name: "y", Type: arrow.PrimitiveTypes.Int64}), `[{"x": 1, "y": 2}]`)
	require.Equal(t, Point{1, 2}, oneRow[struct {
		Point `arrow:"a"`
	}](t, point).Point)
	require.Equal(t, Point{1, 2}, *oneRow[struct {
		*Point `arrow:"a"`
	}](t, point).Point)

	hides := oneRow[struct { // as Go does
		A int32
		Base
	}](t, seven)
	require.EqualValues(t, 7, hides.A)
	require.Zero(t, hides.Base.A)

	at := columnOf(t, arrow.FixedWidthTypes.Date32, `["2026-03-04"]`)
	require.Equal(t, 2026, oneRow[struct {
		time.Time `arrow:"a"`
	}](t, at).Year())
}

func TestNumbersArriveExactlyOrNotAtAll(t *testing.T) {
	i64, f64 := arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Float64
	refused[struct{ A float64 }](t, "9007199254740993 (int64) does not fit float64: the nearest float is another number", columnOf(t, i64, `[9007199254740993]`))
	require.EqualValues(t, 1<<60, oneRow[struct{ A float64 }](t, columnOf(t, i64, `[1152921504606846976]`)).A)
	refused[struct{ A float32 }](t, "does not fit float32", columnOf(t, i64, `[16777217]`))
	refused[struct{ A float32 }](t, "1e+300 (float64) does not fit float32", columnOf(t, f64, `[1e300]`))
	refused[struct{ A float32 }](t, "0.1 (float64) does not fit float32", columnOf(t, f64, `[0.1]`))
	require.EqualValues(t, 0.5, oneRow[struct{ A float32 }](t, columnOf(t, f64, `[0.5]`)).A)
	refused[struct{ A int64 }](t, "does not fit int64", columnOf(t, f64, `[1]`))
	refused[struct{ A uint }](t, "-1 (int64) does not fit uint", columnOf(t, i64, `[-1]`))

	seconds := columnOf(t, arrow.FixedWidthTypes.Duration_s, `["1099511627776s"]`)
	refused[struct{ A time.Duration }](t, "1099511627776s (duration[s]) does not fit time.Duration", seconds)
	require.Equal(t, "1099511627776s", Value(seconds, 0), "not a duration of another length")
	require.Equal(t, "1099511627776s", oneRow[struct{ A string }](t, seconds).A)

	decimals := func(s string, scale int32) arrow.Array {
		c, _ := new(big.Int).SetString(s, 10)
		columns := decimalColumns(c, scale)
		return columns[len(columns)-1]
	}
	sum := decimals("42", 0) // as DuckDB gives sum(int)
	require.EqualValues(t, 42, oneRow[struct{ A int64 }](t, sum).A)
	require.EqualValues(t, 42, oneRow[struct{ A uint8 }](t, sum).A)
	require.EqualValues(t, 42, oneRow[struct{ A int }](t, decimals("4200", 2)).A)
	refused[struct{ A int64 }](t, "42.50 (decimal256(76, 2)) does not fit int64", decimals("4250", 2))
	refused[struct{ A int64 }](t, "does not fit int64", decimals("9223372036854775808", 0))
	require.Equal(t, 123.45, oneRow[struct{ A float64 }](t, decimals("12345", 2)).A)
	require.Equal(t, 0.1, oneRow[struct{ A float64 }](t, decimals("10000000000000000000", 20)).A)
	require.Equal(t, float32(0.1), oneRow[struct{ A float32 }](t, decimals("1", 1)).A)
	refused[struct{ A float64 }](t, "does not fit float64", decimals("12345678901234567890123", 5))
	require.Equal(t, "12.50", oneRow[struct{ A string }](t, decimals("1250", 2)).A)
	require.Equal(t, "0.00001", oneRow[struct{ A Decimal }](t, decimals("1", 5)).A.String())
	require.Equal(t, "7", oneRow[struct{ A Decimal }](t, columnOf(t, i64, `[7]`)).A.String())
	require.Equal(t, "12.50", oneRow[struct{ A *Decimal }](t, columnOf(t, arrow.BinaryTypes.String, `["12.50"]`)).A.String())
	refused[struct{ A Decimal }](t, "no Decimal", columnOf(t, arrow.BinaryTypes.String, `["twelve"]`))
	refused[struct{ A Decimal }](t, "does not fit rowscan.Decimal", columnOf(t, f64, `[0.1]`))
}

func TestScannersGetWhatDatabaseSQLGives(t *testing.T) {
	i32 := columnOf(t, arrow.PrimitiveTypes.Int32, `[1]`)
	require.Equal(t, pgtype.Int4{Int32: 1, Valid: true}, oneRow[struct{ A pgtype.Int4 }](t, i32).A)
	require.Equal(t, pgtype.Int8{Int64: 1, Valid: true}, oneRow[struct{ A pgtype.Int8 }](t, columnOf(t, arrow.PrimitiveTypes.Uint64, `[1]`)).A)
	cents := decimalColumns(big.NewInt(42), 2)[0]
	n := oneRow[struct{ A pgtype.Numeric }](t, cents).A
	require.Equal(t, []any{int64(42), int32(-2)}, []any{n.Int.Int64(), n.Exp})
	require.Equal(t, sql.Null[time.Duration]{V: 90 * time.Minute, Valid: true}, oneRow[struct{ A sql.Null[time.Duration] }](t, columnOf(t, arrow.FixedWidthTypes.Time64us, `["01:30:00"]`)).A)
	require.Equal(t, sql.Null[uint64]{V: math.MaxUint64, Valid: true}, oneRow[struct{ A sql.Null[uint64] }](t, columnOf(t, arrow.PrimitiveTypes.Uint64, `[18446744073709551615]`)).A)
	require.Equal(t, sql.NullString{String: `[1,null]`, Valid: true}, oneRow[struct{ A sql.NullString }](t, columnOf(t, arrow.ListOf(arrow.PrimitiveTypes.Int8), `[[1,null]]`)).A)
	require.Equal(t, sql.NullFloat64{Float64: 0.42, Valid: true}, oneRow[struct{ A sql.NullFloat64 }](t, cents).A)
}

// A json.RawMessage is JSON whatever the column is: a list of small integers would fit its
// bytes too, and be no JSON.
func TestJSONIsMadeOfWhatIsNoText(t *testing.T) {
	point := arrow.StructOf(arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int32, Nullable: true}, arrow.Field{Name: "b", Type: arrow.ListOf(arrow.BinaryTypes.String), Nullable: true})
	for _, c := range []struct {
		column arrow.Array
		want   string
	}{
		{columnOf(t, arrow.ListOf(arrow.PrimitiveTypes.Uint8), `[[1,2]]`), `[1,2]`},
		{columnOf(t, arrow.ListOf(arrow.PrimitiveTypes.Int64), `[[1,null,300]]`), `[1,null,300]`},
		{columnOf(t, point, `[{"a":null,"b":["x"]}]`), `{"a":null,"b":["x"]}`},
		{columnOf(t, arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int8), `[[{"key":"k","value":1}]]`), `{"k":1}`},
		{columnOf(t, arrow.PrimitiveTypes.Int64, `[9007199254740993]`), `9007199254740993`},
		{columnOf(t, arrow.FixedWidthTypes.Boolean, `[true]`), `true`},
		{columnOf(t, arrow.FixedWidthTypes.Date32, `["2024-01-02"]`), `"2024-01-02"`},
		{columnOf(t, arrow.BinaryTypes.Binary, `["WzFd"]`), `[1]`},
	} {
		require.Equal(t, json.RawMessage(c.want), oneRow[struct{ A json.RawMessage }](t, c.column).A, c.column.DataType().String())
	}
	require.Equal(t, map[string]json.RawMessage{"a": json.RawMessage(`1`), "b": nil}, oneRow[struct{ A map[string]json.RawMessage }](t, columnOf(t, point, `[{"a":1,"b":null}]`)).A, "a level of JSON")
	null := columnOf(t, point, `[null]`)
	require.Nil(t, oneRow[struct{ A json.RawMessage }](t, null).A)
}

func TestBytesTextsAndArraysAreWhatTheyAre(t *testing.T) {
	type flag bool
	type raw []byte
	text, binary := columnOf(t, arrow.BinaryTypes.String, `["{\"a\":1}"]`), columnOf(t, arrow.BinaryTypes.Binary, `["/wBh"]`)
	require.Equal(t, json.RawMessage(`{"a":1}`), oneRow[struct{ A json.RawMessage }](t, text).A)
	require.Equal(t, []byte(`{"a":1}`), oneRow[struct{ A []byte }](t, text).A)
	require.Equal(t, "\xff\x00a", oneRow[struct{ A string }](t, binary).A, "not base64")
	require.Equal(t, raw("\xff\x00a"), oneRow[struct{ A raw }](t, binary).A)
	require.Equal(t, [3]byte{0xff, 0, 'a'}, oneRow[struct{ A [3]byte }](t, binary).A)
	refused[struct{ A [4]byte }](t, "3 bytes (binary) do not fit [4]uint8: it has 3 bytes", binary)
	require.True(t, bool(oneRow[struct{ A flag }](t, columnOf(t, arrow.FixedWidthTypes.Boolean, `[true]`)).A))
	pair := columnOf(t, arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Float32), `[[1, 2]]`)
	require.Equal(t, [2]float32{1, 2}, oneRow[struct{ A [2]float32 }](t, pair).A)
	refused[struct{ A [3]float32 }](t, "it has 2 elements", pair)
	empty := columnOf(t, arrow.BinaryTypes.Binary, `["", null]`)
	rows, err := rowsOf[struct{ A []byte }](t, empty)
	require.NoError(t, err)
	require.NotNil(t, rows[0].A, "an empty value is not NULL")
	require.Nil(t, rows[1].A)
	id := valuegen.Extension("arrow.uuid", columnOf(t, &arrow.FixedSizeBinaryType{ByteWidth: 16}, `["ABEiM0RVZneImaq7zN3u/w=="]`))
	require.Equal(t, "00112233-4455-6677-8899-aabbccddeeff", oneRow[struct{ A string }](t, id).A)
	require.Equal(t, byte(0xff), oneRow[struct{ A [16]byte }](t, id).A[15])
}

func TestMapsTakeTheKeysThatTheyCanHold(t *testing.T) {
	binary := columnOf(t, arrow.MapOf(arrow.BinaryTypes.Binary, arrow.PrimitiveTypes.Int64), `[[{"key": "aw==", "value": 1}]]`)
	refused[struct{ A map[any]int64 }](t, "no key of a Go map can be one; use string keys", binary)
	require.Equal(t, map[string]int64{"k": 1}, oneRow[struct{ A map[string]int64 }](t, binary).A)
	require.Equal(t, map[[1]byte]int64{{'k'}: 1}, oneRow[struct{ A map[[1]byte]int64 }](t, binary).A)
	type entry struct {
		Key   []byte
		Value int64
	}
	require.Equal(t, []entry{{[]byte("k"), 1}}, oneRow[struct{ A []entry }](t, binary).A)
	twice := columnOf(t, arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64), `[[{"key": "k", "value": 1}, {"key": "k", "value": 2}]]`)
	refused[struct{ A map[string]int }](t, `the key "k" comes twice`, twice)
	require.Equal(t, []any{map[string]any{"key": "k", "value": int64(1)}, map[string]any{"key": "k", "value": int64(2)}}, Value(twice, 0), "none is lost")
	refused[struct{ A map[*string]int }](t, "its keys are pointers", twice)
	one := columnOf(t, arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int64}), `[{"x": 1}]`)
	require.Equal(t, map[string]int8{"x": 1}, oneRow[struct{ A map[string]int8 }](t, one).A)
}

func TestOneColumnGoesIntoAnyType(t *testing.T) {
	numbers, err := rowsOf[int64](t, columnOf(t, arrow.PrimitiveTypes.Int32, `[1, 2]`))
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2}, numbers)
	pointers, err := rowsOf[*string](t, columnOf(t, arrow.BinaryTypes.String, `["x", null]`))
	require.NoError(t, err)
	require.Equal(t, "x", *pointers[0])
	require.Nil(t, pointers[1])
	require.Equal(t, 2026, oneRow[time.Time](t, columnOf(t, arrow.FixedWidthTypes.Date32, `["2026-03-04"]`)).Year())
	require.Equal(t, "0.07", oneRow[Decimal](t, decimalColumns(big.NewInt(7), 2)[0]).String())
	require.Equal(t, sql.NullString{String: "x", Valid: true}, oneRow[sql.NullString](t, columnOf(t, arrow.BinaryTypes.String, `["x"]`)))
	require.Equal(t, []int{1}, oneRow[[]int](t, columnOf(t, arrow.ListOf(arrow.PrimitiveTypes.Int8), `[[1]]`)))
	require.Equal(t, int8(7), oneRow[any](t, columnOf(t, arrow.PrimitiveTypes.Int8, `[7]`)))
	refused[int64](t, `row 0: column "a": NULL does not fit int64`, columnOf(t, arrow.PrimitiveTypes.Int8, `[null]`))
	refused[string](t, "the result has 2 columns, and string takes one", array.NewNull(1), array.NewNull(1))
	refused[chan int](t, "cannot hold a column", array.NewNull(1))

	rows, err := rowsOf[*Base](t, columnOf(t, arrow.PrimitiveTypes.Int8, `[1, 2]`))
	require.NoError(t, err)
	require.Equal(t, []*Base{{1}, {2}}, rows)
}

func TestAColumnOfTheVeryNameIsPreferred(t *testing.T) {
	one, two := columnOf(t, arrow.PrimitiveTypes.Int8, `[1]`), columnOf(t, arrow.PrimitiveTypes.Int8, `[2]`)
	schema := arrow.NewSchema([]arrow.Field{{Name: "id", Type: one.DataType()}, {Name: "ID", Type: two.DataType()}}, nil)
	for v, err := range Rows[struct{ ID int }](resultOf(array.NewRecordBatch(schema, []arrow.Array{one, two}, 1))) {
		require.NoError(t, err)
		require.Equal(t, 2, v.ID)
	}
}

func TestARecursiveTypeTakesWhatIsNested(t *testing.T) {
	type node struct {
		V    int
		Next []struct{ V int }
	}
	inner := arrow.StructOf(arrow.Field{Name: "v", Type: arrow.PrimitiveTypes.Int8})
	col := columnOf(t, arrow.StructOf(arrow.Field{Name: "v", Type: arrow.PrimitiveTypes.Int8}, arrow.Field{Name: "next", Type: arrow.ListOf(inner)}), `[{"v": 1, "next": [{"v": 2}]}]`)
	require.Equal(t, 2, oneRow[struct{ A node }](t, col).A.Next[0].V)
	type chain struct {
		V    int
		Next *chain
	}
	refused[struct{ A chain }](t, "does not fit", col)
}

func TestTimesKeepTheirInstantAndTheirPrecision(t *testing.T) {
	zone := &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "No/Where"}
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	b := array.NewTimestampBuilder(memory.DefaultAllocator, zone)
	b.AppendTime(at)
	require.Equal(t, at, oneRow[struct{ A time.Time }](t, b.NewArray()).A, "in UTC where the zone is not known")
	days := array.NewDate64Builder(memory.DefaultAllocator)
	days.Append(arrow.Date64(at.UnixMilli()))
	require.Equal(t, at, Value(days.NewArray(), 0), "a date64 that is no whole day")
	clock := array.NewTime64Builder(memory.DefaultAllocator, &arrow.Time64Type{Unit: arrow.Microsecond})
	clock.Append(arrow.Time64(24 * time.Hour / time.Microsecond))
	midnight := clock.NewArray()
	require.Equal(t, "24:00:00.000000", oneRow[string](t, midnight))
	require.Equal(t, 24*time.Hour, oneRow[time.Duration](t, midnight))
}

func TestIntervalsOfFixedLengthAreDurations(t *testing.T) {
	interval := func(months, days int32, nanos int64) arrow.Array {
		b := array.NewMonthDayNanoIntervalBuilder(memory.DefaultAllocator)
		b.Append(arrow.MonthDayNanoInterval{Months: months, Days: days, Nanoseconds: nanos})
		return b.NewArray()
	}
	require.Equal(t, 90*time.Second, oneRow[time.Duration](t, interval(0, 0, 90e9)))
	refused[time.Duration](t, "months and days have no fixed length", interval(0, 1, 90e9))
	refused[time.Duration](t, "months and days have no fixed length", interval(1, 0, 0))

	dayTime := func(days, milliseconds int32) arrow.Array {
		b := array.NewDayTimeIntervalBuilder(memory.DefaultAllocator)
		b.Append(arrow.DayTimeInterval{Days: days, Milliseconds: milliseconds})
		return b.NewArray()
	}
	require.Equal(t, -90*time.Second, oneRow[time.Duration](t, dayTime(0, -90e3)))
	require.Equal(t, math.MaxInt32*time.Millisecond, oneRow[time.Duration](t, dayTime(0, math.MaxInt32)))
	refused[time.Duration](t, "months and days have no fixed length", dayTime(1, 0))
	months := array.NewMonthIntervalBuilder(memory.DefaultAllocator)
	months.AppendValues([]arrow.MonthInterval{1}, nil)
	refused[time.Duration](t, "months and days have no fixed length", months.NewArray())
}

func TestWhatARowHoldsIsNotLeftToTheNext(t *testing.T) {
	rows, err := rowsOf[struct {
		A any
		B *int
		C []int
		D map[string]*int
	}](t, columnOf(t, arrow.PrimitiveTypes.Int8, `[1, null]`), columnOf(t, arrow.PrimitiveTypes.Int8, `[1, null]`), columnOf(t, arrow.ListOf(arrow.PrimitiveTypes.Int8), `[[1], null]`),
		columnOf(t, arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int8), `[[{"key": "x", "value": 1}, {"key": "y", "value": null}], null]`))
	require.NoError(t, err)
	require.Zero(t, rows[1])
	require.Equal(t, 1, *rows[0].D["x"])
	require.Nil(t, rows[0].D["y"], "nor is a value to the next key")
}

// picky is a Scanner that refuses everything.
type picky struct{}

func (*picky) Scan(any) error { return errors.New("not this one") }

func TestErrorsNameWhatIsWrong(t *testing.T) {
	one := columnOf(t, arrow.PrimitiveTypes.Int8, `[1]`)
	refused[picky](t, "not this one", one)
	refused[struct {
		A chan int
		B chan int
	}](t, "field A: type chan int cannot hold a column; field B: type chan int cannot hold a column", one, one)
	for _, err := range []error{failed[struct{ A *chan int }](t, one), failed[struct{ A []chan int }](t, one), failed[struct{ A [2]chan int }](t, one), failed[struct{ A map[chan int]int }](t, one), failed[struct{ A map[string]chan int }](t, one), failed[struct{ A struct{ B chan int } }](t, one)} {
		require.ErrorContains(t, err, "chan int cannot hold a column")
	}
	refused[struct{ A struct{ hidden int } }](t, "no exported field", one)
	refused[struct{ A [2]int }](t, "element 0: NULL does not fit int", columnOf(t, arrow.ListOf(arrow.PrimitiveTypes.Int8), `[[null, 1]]`))
	refused[struct{ A float32 }](t, "does not fit", columnOf(t, arrow.BinaryTypes.String, `["1"]`))
	refused[struct{ A Decimal }](t, "1234567890…", columnOf(t, arrow.BinaryTypes.String, `["1234567890123456789012345678901234567890123456789012345678901234567890x"]`))
	encoded := array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String},
		columnOf(t, arrow.PrimitiveTypes.Int8, `[0, 1]`), columnOf(t, arrow.BinaryTypes.String, `["x", null]`))
	keyed := array.NewData(arrow.MapOf(encoded.DataType(), arrow.PrimitiveTypes.Int8), 1, []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes([]int32{0, 2}))},
		[]arrow.ArrayData{array.NewData(arrow.StructOf(arrow.Field{Name: "key", Type: encoded.DataType()}, arrow.Field{Name: "value", Type: arrow.PrimitiveTypes.Int8}), 2, []*memory.Buffer{nil},
			[]arrow.ArrayData{encoded.Data(), columnOf(t, arrow.PrimitiveTypes.Int8, `[1, 2]`).Data()}, 0, 0)}, 0, 0)
	m := array.NewMapData(keyed)
	refused[struct{ A map[string]int }](t, "a key is NULL; use a slice of structs", m)
	require.Equal(t, []any{map[string]any{"key": "x", "value": int8(1)}, map[string]any{"key": nil, "value": int8(2)}}, Value(m, 0))
	require.JSONEq(t, `[{"key": "x", "value": 1}, {"key": null, "value": 2}]`, oneRow[string](t, m))
}

func failed[T any](t *testing.T, columns ...arrow.Array) error {
	_, err := rowsOf[T](t, columns...)
	return err
}

type (
	Left  struct{ Base }
	Right struct{ Base }
	Outer struct {
		Inner
		A int64
	}
	Inner struct{ A, B int64 }
	ID    int64
)

func TestFieldsOfEmbeddedStructsAreFoundByDepth(t *testing.T) {
	one, two := columnOf(t, arrow.PrimitiveTypes.Int64, `[1]`), columnOf(t, arrow.PrimitiveTypes.Int64, `[2]`)
	both := oneRow[struct {
		Left
		Right
	}](t, one)
	require.EqualValues(t, 1, both.Left.A)
	require.EqualValues(t, 1, both.Right.A, "on one level each gets it")
	outer := oneRow[Outer](t, one, two)
	require.Equal(t, Outer{Inner: Inner{B: 2}, A: 1}, outer)
	schema := func(name string, col arrow.Array) *memoryResult {
		return resultOf(array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: name, Type: col.DataType()}}, nil), []arrow.Array{col}, 1))
	}
	for v, err := range Rows[struct{ time.Time }](schema("time", columnOf(t, arrow.FixedWidthTypes.Date32, `["2026-03-04"]`))) {
		require.NoError(t, err)
		require.Equal(t, 2026, v.Year(), "a time is one value, embedded too")
	}
	for v, err := range Rows[struct{ ID }](schema("id", two)) {
		require.NoError(t, err)
		require.EqualValues(t, 2, v.ID)
	}
}

func TestTextsSayWhatTheyStandFor(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 800_000_000, time.UTC)
	text := func(t *testing.T, dt *arrow.TimestampType, at time.Time) string {
		b := array.NewTimestampBuilder(memory.DefaultAllocator, dt)
		b.AppendTime(at)
		return oneRow[string](t, b.NewArray())
	}
	require.Equal(t, "2026-03-04T05:06:07.8", text(t, &arrow.TimestampType{Unit: arrow.Microsecond}, at), "no zone, no offset")
	require.Equal(t, "2026-03-04T06:06:07.8+01:00", text(t, &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "Europe/Berlin"}, at))
	require.Equal(t, "1890-01-01T00:53:28+00:53:28", text(t, &arrow.TimestampType{Unit: arrow.Second, TimeZone: "Europe/Berlin"}, time.Date(1890, 1, 1, 0, 0, 0, 0, time.UTC)), "before zones had whole minutes")
	days := array.NewDate64Builder(memory.DefaultAllocator)
	days.AppendValues([]arrow.Date64{arrow.Date64(at.Truncate(24 * time.Hour).UnixMilli()), arrow.Date64(at.UnixMilli())}, nil)
	got, err := rowsOf[string](t, days.NewArray())
	require.NoError(t, err)
	require.Equal(t, []string{"2026-03-04", "2026-03-04T05:06:07.8"}, got)
	clock := array.NewTime32Builder(memory.DefaultAllocator, &arrow.Time32Type{Unit: arrow.Second})
	clock.AppendValues([]arrow.Time32{-3661, 0}, nil)
	got, err = rowsOf[string](t, clock.NewArray())
	require.NoError(t, err)
	require.Equal(t, []string{"-01:01:01", "00:00:00"}, got)
	odd := &arrow.Decimal128Type{Precision: 38, Scale: 1001}
	b := array.NewDecimal128Builder(memory.DefaultAllocator, odd)
	b.AppendValues([]decimal128.Num{decimal128.FromI64(-7)}, nil)
	require.Equal(t, "-7e-1001", Value(b.NewArray(), 0), "beyond the scale of Decimal")
	html := columnOf(t, arrow.ListOf(arrow.BinaryTypes.String), `[["<a&b>", "\"", null]]`)
	require.Equal(t, `["<a&b>","\"",null]`, oneRow[string](t, html))
	floats := columnOf(t, arrow.ListOf(arrow.PrimitiveTypes.Float64), `[["NaN", "+Inf", "-Inf", 0.5]]`)
	require.Equal(t, `["NaN","+Inf","-Inf",0.5]`, oneRow[string](t, floats))
}

// arrow-go's Float32 of halves below 2^-14 is another number, near zero.
func TestEveryHalfFloatIsTheNumberThatItIs(t *testing.T) {
	b := array.NewFloat16Builder(memory.DefaultAllocator)
	for bits := range 1 << 16 {
		b.Append(float16.FromBits(uint16(bits)))
	}
	col := b.NewArray()
	for bits := range 1 << 16 {
		fraction, exponent := bits&0x3ff, bits>>10&0x1f
		want := math.Ldexp(float64(fraction+1024), exponent-25)
		switch {
		case exponent == 0:
			want = math.Ldexp(float64(fraction), -24)
		case exponent == 0x1f && fraction > 0:
			require.True(t, math.IsNaN(float64(Value(col, bits).(float32))), "%#x", bits)
			continue
		case exponent == 0x1f:
			want = math.Inf(1)
		}
		want = math.Copysign(want, float64(1-2*(bits>>15)))
		require.Equal(t, math.Float32bits(float32(want)), math.Float32bits(Value(col, bits).(float32)), "%#x is %g", bits, want)
	}
	for text, bits := range map[string]int{"5.9604645e-08": 1, "-6.097555e-05": 0x83ff, "6.1035156e-05": 0x400, "65504": 0x7bff} {
		require.Equal(t, text, string(AppendJSON(nil, col, bits)))
	}
	require.Equal(t, math.Ldexp(1, -24), oneRow[struct{ A float64 }](t, array.NewSlice(col, 1, 2)).A)
}

// TestAZoneThatIsNotKnownIsLookedForOnce: the instant is that of the value all the same.
func TestAZoneThatIsNotKnownIsLookedForOnce(t *testing.T) {
	at := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	in := func(zone string) arrow.Array {
		b := array.NewTimestampBuilder(memory.DefaultAllocator, &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: zone})
		b.Append(arrow.Timestamp(at.UnixMicro()))
		return b.NewArray()
	}
	known := testing.AllocsPerRun(10, func() { Value(in("UTC"), 0) })
	for n := range 2 * maxUnknownZones {
		zone := "Nowhere/" + strconv.Itoa(n)
		require.Equal(t, at, Value(in(zone), 0))
		require.LessOrEqual(t, testing.AllocsPerRun(10, func() { Value(in(zone), 0) }), known)
		require.LessOrEqual(t, unknownZoneCount.Load(), int64(maxUnknownZones))
	}
}
