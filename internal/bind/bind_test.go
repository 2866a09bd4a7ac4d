package bind

import (
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/rowscan"
)

type (
	colour  string
	weight  float32
	blob    []byte
	uuid    [16]byte
	state   uint8
	refuses struct{}
	endless struct{}
	nested  []nested
	tags    []string
	onPtr   struct{ name string }
	loop    *loop
	amount  struct{ *big.Int }

	zeroAmount struct{ *big.Int }
	zeroValue  struct{ *sql.NullInt64 }
	fussy      struct{ to *int }
)

func (t tags) Value() (driver.Value, error) { return json.Marshal([]string(t)) }
func (p *onPtr) Value() (driver.Value, error) {
	if p == nil {
		return "none", nil
	}
	return p.name, nil
}
func (a zeroAmount) MarshalText() ([]byte, error) {
	if a.Int == nil {
		return []byte("0"), nil
	}
	return a.Int.MarshalText()
}
func (zeroValue) Value() (driver.Value, error) { return int64(0), nil }

func (f fussy) Value() (driver.Value, error) { return int64(*f.to), nil }

func (u uuid) Value() (driver.Value, error)  { return "uuid", nil }
func (s state) Value() (driver.Value, error) { return []string{"off", "on"}[s], nil }
func (refuses) Value() (driver.Value, error) { return nil, errors.New("not today") }
func (endless) Value() (driver.Value, error) { return endless{}, nil }

func ptr[T any](v T) *T { return &v }

// What each Go value is sent as, read back by rowscan.
type level uint8

func TestEveryGoValueHasItsArrowType(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.FixedZone("CET", 3600))
	huge, _ := new(big.Int).SetString("170141183460469231731687303715884105727", 10)
	price, err := rowscan.ParseDecimal("12.50")
	require.NoError(t, err)
	for _, c := range []struct {
		v    any
		as   string
		want any
	}{
		{nil, "utf8", nil},
		{(*int)(nil), "utf8", nil},
		{[]byte(nil), "utf8", nil},
		{[]int(nil), "utf8", nil},
		{[]level{1, 2}, "binary", []byte{1, 2}},
		{[2]level{1, 2}, "binary", []byte{1, 2}},
		{[]state{1, 0}, "list<item: utf8, nullable>", []any{"on", "off"}},
		{[1]state{1}, "list<item: utf8, nullable>", []any{"on"}},
		{[][]state{}, "list<item: list<item: utf8, nullable>, nullable>", []any{}},
		{sql.NullInt64{}, "utf8", nil},
		{(*uuid)(nil), "utf8", nil},           // Value is not called
		{tags(nil), "binary", []byte("null")}, // as database/sql has it
		{(*tags)(nil), "utf8", nil},
		{(*onPtr)(nil), "utf8", "none"},
		{&onPtr{"x"}, "utf8", "x"},
		{Value{v: "read"}, "utf8", "read"},
		{net.IP(nil), "utf8", nil},
		{(*big.Int)(nil), "utf8", nil},
		{amount{nil}, "utf8", nil}, // big.Int has a text for it
		{&amount{nil}, "utf8", nil},
		{amount{big.NewInt(5)}, "utf8", "5"},
		{struct{ *netip.Addr }{}, "utf8", nil}, // the method would panic
		{struct{ *sql.NullInt64 }{}, "utf8", nil},
		{zeroAmount{}, "utf8", "0"}, // a method of its own says what nil is
		{zeroValue{}, "int64", int64(0)},
		{[]amount{{nil}, {big.NewInt(5)}}, "list<item: utf8, nullable>", []any{nil, "5"}},
		{big.NewRat(1, 3), "utf8", "1/3"},
		{big.NewFloat(0.1), "utf8", "0.1"},
		{math.Copysign(0, -1), "float64", math.Copysign(0, -1)},
		{time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC), "timestamp[us, tz=UTC]", time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)},
		{time.Time{}, "timestamp[us, tz=UTC]", time.Time{}},
		{true, "bool", true},
		{ptr(true), "bool", true},
		{int8(-5), "int64", int64(-5)},
		{int64(math.MinInt64), "int64", int64(math.MinInt64)},
		{uint32(math.MaxUint32), "int64", int64(math.MaxUint32)},
		{uint64(math.MaxUint64), "uint64", uint64(math.MaxUint64)},
		{float32(0.1), "float64", float64(float32(0.1))},
		{weight(2.5), "float64", 2.5},
		{"", "utf8", ""},
		{colour("red"), "utf8", "red"},
		{[]byte{}, "binary", []byte{}},
		{blob{1, 2}, "binary", []byte{1, 2}},
		{[3]byte{1, 2, 3}, "binary", []byte{1, 2, 3}},
		{uuid{1}, "utf8", "uuid"},
		{json.RawMessage(`{"a":1}`), "utf8", `{"a":1}`},
		{huge, "utf8", huge.String()},
		{price, "utf8", "12.50"},
		{at, "timestamp[us, tz=UTC]", at.UTC()},
		{ptr(ptr(at)), "timestamp[us, tz=UTC]", at.UTC()},
		{time.Minute, "duration[ns]", time.Minute},
		{sql.NullString{String: "x", Valid: true}, "utf8", "x"},
		{sql.Null[int32]{V: 7, Valid: true}, "int64", int64(7)},
		{netip.MustParseAddr("::1"), "utf8", "::1"},
		{net.ParseIP("10.0.0.1"), "utf8", "10.0.0.1"},
		{[]int32{1, 2}, "list<item: int64, nullable>", []any{int64(1), int64(2)}},
		{[]string{}, "list<item: utf8, nullable>", []any{}},
		{[]float32{}, "list<item: float64, nullable>", []any{}},
		{[]time.Time{}, "list<item: timestamp[us, tz=UTC], nullable>", []any{}},
		{[]*int{nil}, "list<item: int64, nullable>", []any{nil}},
		{[][]byte{}, "list<item: binary, nullable>", []any{}},
		{[][]*int{{nil}, {ptr(4)}}, "list<item: list<item: int64, nullable>, nullable>", []any{[]any{nil}, []any{int64(4)}}},
		{[][1]fussy{}, "list<item: list<item: utf8, nullable>, nullable>", []any{}},
		{[]loop{}, "list<item: utf8, nullable>", []any{}},
		{[]json.RawMessage{}, "list<item: utf8, nullable>", []any{}},
		{[]*big.Int{}, "list<item: utf8, nullable>", []any{}},
		{[]*int{nil, ptr(4)}, "list<item: int64, nullable>", []any{nil, int64(4)}},
		{[]any{nil, 1.5}, "list<item: float64, nullable>", []any{nil, 1.5}},
		{[]any{nil}, "list<item: utf8, nullable>", []any{nil}},
		{[2]bool{true, false}, "list<item: bool, nullable>", []any{true, false}},
		{[][]byte{{1}, nil}, "list<item: binary, nullable>", []any{[]byte{1}, nil}},
		{[]uuid{{1}, {2}}, "list<item: utf8, nullable>", []any{"uuid", "uuid"}},
		{[]any{[]any{}, []any{1}, nil, []any{nil}}, "list<item: list<item: int64, nullable>, nullable>", []any{[]any{}, []any{int64(1)}, nil, []any{nil}}},
		{[]any{[]any{[]any{}}, [][]bool{{true}}, []any{}}, "list<item: list<item: list<item: bool, nullable>, nullable>, nullable>", []any{[]any{[]any{}}, []any{[]any{true}}, []any{}}},
		{[]any{[]int{}, []string{"x"}}, "list<item: list<item: utf8, nullable>, nullable>", []any{[]any{}, []any{"x"}}},
		{[]any{[]int{}, []any{nil}}, "list<item: list<item: int64, nullable>, nullable>", []any{[]any{}, []any{nil}}},
		{[][]int{{1}, {}}, "list<item: list<item: int64, nullable>, nullable>", []any{[]any{int64(1)}, []any{}}},
	} {
		values, err := Of([]any{"before", c.v})
		require.NoError(t, err, "%T %v", c.v, c.v)
		batch, err := values.Batch(nil)
		require.NoError(t, err)
		require.EqualValues(t, 1, batch.NumRows())
		require.Equal(t, c.as, batch.Column(1).DataType().String(), "%T %v", c.v, c.v)
		require.Equal(t, c.want, rowscan.Value(batch.Column(1), 0), "%T %v", c.v, c.v)
		require.Equal(t, "before", rowscan.Value(batch.Column(0), 0))
		batch.Release()
	}
}

func TestWhatCannotBeSentIsToldByItsPosition(t *testing.T) {
	cycle := nested{nil}
	cycle[0] = cycle
	_, err := Of([]any{1, struct{ A int }{}, make(chan int), map[string]int{"a": 1}, []any{1, "x"}, refuses{}, endless{}, cycle, []any{sql.Named("id", 1)}, big.Int{}, []any{[]any{}, 1}, []any{1, []int{}}, []any{[]any{[]any{}}, []any{1}}})
	for _, want := range []string{
		"parameter 2: a value of type struct { A int } cannot be sent", "parameter 3: a value of type chan int", "parameter 4: a value of type map[string]int",
		"parameter 5: element 1 is utf8, others are int64", "parameter 6: not today", "parameter 7: a value of type bind.endless is nested more than 32 deep",
		"parameter 8: element 0:", `parameter 9: element 0: the named parameter "id" stands within another value`, "parameter 10: a value of type big.Int",
		"parameter 11: element 0 is list<item: utf8, nullable>, others are int64", "parameter 12: element 1 is list<item: int64, nullable>, others are int64",
		"parameter 13: element 0 is list<item: list<item: utf8, nullable>, nullable>, others are list<item: int64, nullable>",
	} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "parameter 1:")
}

func TestWhatTheCallerChangesLaterIsNotSent(t *testing.T) {
	raw, text, list := []byte("abc"), json.RawMessage("1"), []int{1}
	values, err := Of([]any{raw, text, list})
	require.NoError(t, err)
	raw[0], text[0], list[0] = 'x', '2', 2
	batch, err := values.Batch(nil)
	require.NoError(t, err)
	defer batch.Release()
	require.Equal(t, []byte("abc"), rowscan.Value(batch.Column(0), 0))
	require.Equal(t, "1", rowscan.Value(batch.Column(1), 0))
	require.Equal(t, []any{int64(1)}, rowscan.Value(batch.Column(2), 0))
}

func TestNanosecondsAreSentWhereTheServerTakesThem(t *testing.T) {
	fine := time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.UTC)
	field := func(t arrow.DataType) *arrow.Schema {
		return arrow.NewSchema([]arrow.Field{{Name: "p", Type: t}}, nil)
	}
	for _, c := range []struct {
		schema *arrow.Schema
		want   time.Time
	}{
		{nil, fine.Truncate(time.Microsecond)},
		{arrow.NewSchema(nil, nil), fine.Truncate(time.Microsecond)},
		{field(arrow.FixedWidthTypes.Timestamp_us), fine.Truncate(time.Microsecond)},
		{field(arrow.FixedWidthTypes.Timestamp_ns), fine},
		{field(arrow.BinaryTypes.String), fine.Truncate(time.Microsecond)},
		{field(&arrow.TimestampType{Unit: arrow.Nanosecond}), fine},
	} {
		values, err := Of([]any{fine})
		require.NoError(t, err)
		batch, err := values.Batch(c.schema)
		require.NoError(t, err)
		require.Equal(t, c.want, rowscan.Value(batch.Column(0), 0))
		batch.Release()
	}
	for _, c := range []struct{ arg, want any }{
		{[]time.Time{fine.Truncate(time.Second), fine}, []any{fine.Truncate(time.Second), fine}},
		{[]*time.Time{nil, &fine}, []any{nil, fine}},
		{[]time.Time{}, []any{}},
	} {
		values, err := Of([]any{c.arg})
		require.NoError(t, err)
		batch, err := values.Batch(field(arrow.ListOf(arrow.FixedWidthTypes.Timestamp_ns)))
		require.NoError(t, err)
		require.Equal(t, c.want, rowscan.Value(batch.Column(0), 0))
		batch.Release()
		if batch, err = values.Batch(field(arrow.ListOf(arrow.FixedWidthTypes.Timestamp_us))); err == nil {
			require.Equal(t, "list<item: timestamp[us, tz=UTC], nullable>", batch.Column(0).DataType().String())
			batch.Release()
		}
		require.NoError(t, err)
	}
	nested, err := Of([]any{[][]time.Time{{}, {fine}}})
	require.NoError(t, err)
	batch, err := nested.Batch(field(arrow.ListOf(arrow.ListOf(arrow.FixedWidthTypes.Timestamp_ns))))
	require.NoError(t, err)
	require.Equal(t, []any{[]any{}, []any{fine}}, rowscan.Value(batch.Column(0), 0))
	batch.Release()
	tooEarly, err := Of([]any{time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)})
	require.NoError(t, err)
	_, err = tooEarly.Batch(field(arrow.FixedWidthTypes.Timestamp_ns))
	require.ErrorContains(t, err, "parameter 1: the time is out of the range of its unit")
}

// What is read is read once, and what database/sql knows stays what it knows.
func TestReadArgumentsAreAsThoseGiven(t *testing.T) {
	calls := 0
	count := countedValue{&calls}
	args := []any{count, []any{count, count}, uint64(7), nil, make(chan int)}
	read := Read(args)
	require.Equal(t, 3, calls)
	require.Equal(t, count, args[0])
	require.Equal(t, args[4], read[4])
	_, err := Of(read)
	require.ErrorContains(t, err, "parameter 5:")
	for i := range 4 {
		v, err := ValueOf(read[i])
		require.NoError(t, err)
		again, err := ValueOf(v.Go())
		require.NoError(t, err)
		require.Equal(t, v, again)
	}
	require.Equal(t, 3, calls)
	v, err := ValueOf([]byte("x"))
	require.NoError(t, err)
	require.Equal(t, []byte("x"), v.Go())
}

type countedValue struct{ calls *int }

func (c countedValue) Value() (driver.Value, error) {
	*c.calls++
	return "v", nil
}

// Named parameters go where the server's names say, or nowhere.
func TestNamedParametersGoInTheServersOrder(t *testing.T) {
	told := func(names ...string) *arrow.Schema {
		var fields []arrow.Field
		for _, name := range names {
			fields = append(fields, arrow.Field{Name: name, Type: arrow.Null})
		}
		return arrow.NewSchema(fields, nil)
	}
	id, name := sql.Named("id", 7), sql.Named("name", nil)
	for _, c := range []struct {
		args  []any
		told  *arrow.Schema
		want  []any
		fault string
	}{
		{[]any{id, name}, told("name", "id"), []any{nil, int64(7)}, ""},
		{[]any{id}, told("id", "id"), []any{int64(7), int64(7)}, ""},
		{[]any{id, name}, told("$name", "$id"), []any{nil, int64(7)}, ""}, // DataFusion's, in no order
		{[]any{id}, told("$other"), nil, `parameter "$other" of the statement is not given`},
		{[]any{sql.Named("2", 7), sql.Named("1", nil)}, told("$2", "$1"), []any{int64(7), nil}, ""},
		{[]any{id, name}, nil, nil, "does not tell the names"},
		{[]any{id, name}, told(), nil, "does not tell the names"},
		{[]any{id, name}, told("1", "2"), nil, `parameter "1" of the statement is not given`},
		{[]any{id, name}, told("id"), nil, `the statement has no parameter "name"`},
		{[]any{id, 8}, told("id", "2"), nil, "given twice, or beside others"},
		{[]any{id, id}, told("id"), nil, "given twice, or beside others"},
	} {
		values, err := Of(Read(c.args))
		require.NoError(t, err)
		batch, err := values.Batch(c.told)
		if c.fault != "" {
			require.ErrorContains(t, err, c.fault)
			continue
		}
		require.NoError(t, err)
		for i, want := range c.want {
			require.Equal(t, want, rowscan.Value(batch.Column(i), 0))
			require.Equal(t, strings.TrimPrefix(c.told.Field(i).Name, "$"), batch.ColumnName(i), "InfluxDB knows id, not $id")
		}
		batch.Release()
	}
}

// InfluxDB 3 tells the parameters of a statement in another order each time, and other servers made with DataFusion in
// that of their names as texts. Their numbers say which is which.
func TestAValueIsSentInTheFormOfItsOwnParameter(t *testing.T) {
	at := time.Date(2026, 1, 2, 23, 4, 5, 678_901_234, time.UTC)
	fine, date, text := &arrow.TimestampType{Unit: arrow.Nanosecond}, arrow.FixedWidthTypes.Date32, arrow.BinaryTypes.String
	for _, c := range []struct {
		names string
		types []arrow.DataType
		args  []any
		want  []string
	}{
		{"$2 $1", []arrow.DataType{fine, text}, []any{"host", at}, []string{"utf8", "timestamp[ns]"}},
		{"$1 $2", []arrow.DataType{text, fine}, []any{"host", at}, []string{"utf8", "timestamp[ns]"}},
		{"2 1", []arrow.DataType{date, fine}, []any{at, at}, []string{"timestamp[ns]", "date32"}},
		{"$1 $10 $2 $3 $4 $5 $6 $7 $8 $9", []arrow.DataType{text, fine, date, text, text, text, text, text, text, text},
			[]any{"", at, "", "", "", "", "", "", "", at}, []string{"utf8", "date32", "utf8", "utf8", "utf8", "utf8", "utf8", "utf8", "utf8", "timestamp[ns]"}},
		{"b a", []arrow.DataType{date, fine}, []any{at, at}, []string{"date32", "timestamp[ns]"}}, // in the server's order
		{"1 1", []arrow.DataType{date, fine}, []any{at, at}, []string{"date32", "timestamp[ns]"}},
		{"0 1", []arrow.DataType{date, fine}, []any{at, at}, []string{"date32", "timestamp[ns]"}},
		{"$3 $1", []arrow.DataType{date, fine}, []any{at, at}, []string{"date32", "timestamp[ns]"}},
	} {
		var told []arrow.Field
		for i, name := range strings.Fields(c.names) {
			told = append(told, arrow.Field{Name: name, Type: c.types[i]})
		}
		values, err := Of(c.args)
		require.NoError(t, err)
		batch, err := values.Batch(arrow.NewSchema(told, nil))
		require.NoError(t, err)
		for i, want := range c.want {
			require.Equal(t, want, batch.Column(i).DataType().String(), "%s: parameter %d", c.names, i+1)
			require.Equal(t, strconv.Itoa(i+1), batch.ColumnName(i), "by which these servers know it")
		}
		batch.Release()
	}
}

// A server that knows no zones would store the clock of its session's zone.
func TestATimeForATypeWithoutZoneIsTheClockOfUTC(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("CET", 3600))
	values, err := Of([]any{at, []time.Time{at}, []time.Time{}, at})
	require.NoError(t, err)
	naive, zoned := &arrow.TimestampType{Unit: arrow.Millisecond}, &arrow.TimestampType{Unit: arrow.Second, TimeZone: "Europe/Berlin"}
	batch, err := values.Batch(arrow.NewSchema([]arrow.Field{{Type: naive}, {Type: arrow.ListOf(naive)}, {Type: arrow.ListOf(naive)}, {Type: zoned}}, nil))
	require.NoError(t, err)
	defer batch.Release()
	for i, want := range []string{"timestamp[us]", "list<item: timestamp[us], nullable>", "list<item: timestamp[us], nullable>", "timestamp[us, tz=UTC]"} {
		require.Equal(t, want, batch.Column(i).DataType().String())
	}
	require.Equal(t, at.UTC(), rowscan.Value(batch.Column(0), 0))
}

// A server compares a column of dates, or of times of day, with the whole of a timestamp.
func TestATimeForADateOrATimeOfDayIsOne(t *testing.T) {
	zone := time.FixedZone("CET", 3600)
	at, old := time.Date(2026, 1, 2, 0, 4, 5, 123456789, zone), time.Date(-44, 3, 15, 23, 59, 59, 999999999, zone)
	clock := 4*time.Minute + 5*time.Second
	f := arrow.FixedWidthTypes
	for _, c := range []struct {
		v    any
		told arrow.DataType
		want any // read back
	}{
		{at, f.Date32, time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)},
		{at, f.Date64, time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)},
		{old, f.Date32, time.Date(-44, 3, 15, 0, 0, 0, 0, time.UTC)},
		{old, f.Date64, time.Date(-44, 3, 15, 0, 0, 0, 0, time.UTC)},
		{at, f.Time32s, clock},
		{at, f.Time32ms, clock + 123*time.Millisecond},
		{at, f.Time64us, clock + 123456*time.Microsecond},
		{at, f.Time64ns, clock + 123456789*time.Nanosecond},
		{old, f.Time64ns, 24*time.Hour - 1},
		{clock, f.Time64us, clock},
		{&clock, f.Time32s, clock},
		{time.Duration(0), f.Time64us, time.Duration(0)},
		{24 * time.Hour, f.Time64us, 24 * time.Hour}, // is none: the server says so
		{-time.Second, f.Time64us, -time.Second},
		{clock, f.Date32, clock},
		{[]time.Time{at, old}, arrow.ListOf(f.Date32), []any{time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), time.Date(-44, 3, 15, 0, 0, 0, 0, time.UTC)}},
		{[]time.Time{}, arrow.ListOf(f.Date32), []any{}},
		{[]*time.Time{nil}, arrow.ListOf(f.Time64us), []any{nil}},
		{[]time.Duration{clock}, arrow.ListOf(f.Time64us), []any{clock}},
		{[]time.Time{at}, f.Date32, []any{time.Date(2026, 1, 2, 0, 4, 5, 123456000, time.UTC)}},
		{at, arrow.ListOf(f.Date32), time.Date(2026, 1, 2, 0, 4, 5, 123456000, time.UTC)},
		{nil, f.Date32, nil},
		{"2026-01-02", f.Date32, "2026-01-02"},
	} {
		values, err := Of([]any{c.v})
		require.NoError(t, err)
		batch, err := values.Batch(arrow.NewSchema([]arrow.Field{{Type: c.told}}, nil))
		require.NoError(t, err)
		require.Equal(t, c.want, rowscan.Value(batch.Column(0), 0), "%v as %v", c.v, c.told)
		if _, isTime := c.v.(time.Time); isTime && !arrow.IsNested(c.told.ID()) {
			require.Equal(t, c.told, batch.Column(0).DataType())
		}
		batch.Release()
	}
	far, err := Of([]any{time.Unix(1<<40*86400, 0)})
	require.NoError(t, err)
	_, err = far.Batch(arrow.NewSchema([]arrow.Field{{Type: f.Date32}}, nil))
	require.ErrorContains(t, err, "out of the range")
}

// A batch may be the parameters of several calls at once, which retain it.
func TestNobodyLooksIntoABatch(t *testing.T) {
	batch := array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 0)
	defer batch.Release()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				batch.Retain()
				if Read([]any{batch})[0] != any(batch) {
					t.Error("it is another")
				}
				batch.Release()
			}
		})
	}
	all.Wait()
}
