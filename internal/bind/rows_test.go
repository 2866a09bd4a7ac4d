package bind

import (
	"database/sql"
	"fmt"
	"math/big"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/rowscan"
)

// rowsOf reads all batches of rows.
func rowsOf[T any](t *testing.T, rows ...T) ([]map[string]any, []string, error) {
	t.Helper()
	stopped := 0
	r, err := RowsOf(reflect.TypeFor[T](), func() (reflect.Value, bool) {
		if len(rows) == 0 {
			return reflect.Value{}, false
		}
		row := reflect.ValueOf(rows[0])
		rows = rows[1:]
		return row, true
	}, func() { stopped++ })
	if err != nil {
		return nil, nil, err
	}
	var types []string
	for _, f := range r.Schema().Fields() {
		types = append(types, f.Name+" "+f.Type.String())
	}
	var read []map[string]any
	for r.Next() {
		for i := range int(r.RecordBatch().NumRows()) {
			row := make(map[string]any)
			for c, col := range r.RecordBatch().Columns() {
				row[r.RecordBatch().ColumnName(c)] = rowscan.Value(col, i)
			}
			read = append(read, row)
		}
	}
	require.False(t, r.Next())
	err = r.Err()
	r.Retain()
	r.Release()
	require.Zero(t, stopped)
	r.Release()
	require.Equal(t, 1, stopped)
	return read, types, err
}

type Plane struct {
	TailNo string
	Seats  *int32
}

func TestStructsAreRows(t *testing.T) {
	type flight struct {
		FlightNo  int
		Origin    sql.NullString
		HTTPProxy sql.Null[int64]
		Fare      float32 `arrow:"price,optional"`
		Legs      []string
		At        time.Time
		Left      string `arrow:"-"`
		hidden    int
		*Plane
	}
	at, seats := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), int32(180)
	rows, types, err := rowsOf(t, flight{FlightNo: 1, hidden: 1}, flight{2, sql.NullString{String: "BER", Valid: true}, sql.Null[int64]{}, 9.5, []string{"a"}, at, "x", 0, &Plane{"D-A", &seats}})
	require.NoError(t, err)
	require.Equal(t, []string{"flight_no int64", "origin utf8", "http_proxy int64", "price float64", "legs list<item: utf8, nullable>", "at timestamp[us, tz=UTC]", "tail_no utf8", "seats int64"}, types)
	require.Equal(t, []map[string]any{
		{"flight_no": int64(1), "origin": nil, "http_proxy": nil, "price": 0.0, "legs": nil, "at": time.Time{}, "tail_no": nil, "seats": nil},
		{"flight_no": int64(2), "origin": "BER", "http_proxy": nil, "price": 9.5, "legs": []any{"a"}, "at": at, "tail_no": "D-A", "seats": int64(180)},
	}, rows)

	none, types, err := rowsOf[*Plane](t)
	require.NoError(t, err)
	require.Empty(t, none)
	require.Equal(t, []string{"tail_no utf8", "seats int64"}, types)
}

// What IngestRows says of the type of a column that has no value in the first batch.
func TestAColumnWithoutAValueInTheFirstBatchHasTheTypeOfItsField(t *testing.T) {
	type row struct {
		Text  string
		Known *int64
		Null  sql.NullInt64
		Loose any
	}
	seven := int64(7)
	first := row{Text: strings.Repeat("x", batchBytes)}
	rows, types, err := rowsOf(t, first, row{"y", &seven, sql.NullInt64{Int64: 7, Valid: true}, "7"})
	require.NoError(t, err)
	require.Equal(t, []string{"text utf8", "known int64", "null int64", "loose utf8"}, types)
	require.Equal(t, map[string]any{"text": "y", "known": seven, "null": seven, "loose": "7"}, rows[1])
	_, _, err = rowsOf(t, first, row{Loose: 7})
	require.ErrorContains(t, err, "row 1: field Loose: is int64, the rows before are utf8")
	_, types, err = rowsOf(t, row{}, row{Loose: 7}) // in one batch
	require.NoError(t, err)
	require.Equal(t, "loose int64", types[3])
}

func TestARowThatCannotBeSentIsNamed(t *testing.T) {
	type loose struct{ Value any }
	many := make([]loose, 200_000) // more than one batch
	for i := range many {
		many[i].Value = i
	}
	many[len(many)-1].Value = "text"
	rows, _, err := rowsOf(t, many...)
	require.ErrorContains(t, err, "row 199999: field Value: is utf8, the rows before are int64")
	require.NotEmpty(t, rows, "what came before")

	_, _, err = rowsOf(t, loose{1}, loose{make(chan int)})
	require.ErrorContains(t, err, "row 1: field Value: a value of type chan int cannot be sent")
	_, _, err = rowsOf(t, &loose{1}, nil)
	require.ErrorContains(t, err, "row 1: is a nil *bind.loose")
	_, _, err = rowsOf(t, loose{refuses{}})
	require.ErrorContains(t, err, "row 0: field Value: not today")
}

func TestWhatIsNoRowIsRefused(t *testing.T) {
	type twice struct {
		FlightNo int
		Other    int `arrow:"flight_no"`
	}
	type empty struct{ _ int }
	for _, one := range []error{
		fault[int](t), fault[time.Time](t), fault[sql.NullInt64](t), fault[map[string]any](t), fault[empty](t), fault[twice](t),
	} {
		require.Error(t, one)
	}
	require.ErrorContains(t, fault[twice](t), `fields FlightNo and Other are both column "flight_no"`)
}

func fault[T any](t *testing.T) error {
	_, _, err := rowsOf[T](t)
	return err
}

// A batch is as large as its values are.
func TestBatchesOfRowsAreBounded(t *testing.T) {
	type text struct{ Text string }
	left, most := 100, int64(0)
	r, err := RowsOf(reflect.TypeFor[text](), func() (reflect.Value, bool) {
		left--
		return reflect.ValueOf(text{strings.Repeat("x", 100_000)}), left >= 0
	}, func() {})
	require.NoError(t, err)
	defer r.Release()
	rows := int64(0)
	for r.Next() {
		most = max(most, r.RecordBatch().NumRows())
		rows += r.RecordBatch().NumRows()
	}
	require.NoError(t, r.Err())
	require.EqualValues(t, 100, rows)
	require.EqualValues(t, 11, most)
}

func TestNamesOfColumns(t *testing.T) {
	for name, want := range map[string]string{"ID": "id", "UserID": "user_id", "FlightNo": "flight_no", "HTTPPort": "http_port", "A": "a", "Snake_Case": "snake_case", "X1Y": "x1_y", "Ärger": "ärger"} {
		require.Equal(t, want, snakeCase(name), name)
	}
}

func decimals(t *testing.T, texts ...string) (all []rowscan.Decimal) {
	t.Helper()
	for _, text := range texts {
		d, err := rowscan.ParseDecimal(text)
		require.NoError(t, err)
		all = append(all, d)
	}
	return all
}

// A column of Decimals is a decimal that holds each exactly, by the scales and digits of the
// first batch.
func TestColumnsOfDecimalsAreDecimals(t *testing.T) {
	type prices struct {
		Plain   rowscan.Decimal
		Pointer *rowscan.Decimal
		Null    sql.Null[rowscan.Decimal]
		Any     any
		Never   *rowscan.Decimal
		Absent  sql.Null[rowscan.Decimal]
		Text    string
		List    []rowscan.Decimal
	}
	d := decimals(t, "12.5", "-0.125", "1e3", "0.00")
	rows, types, err := rowsOf(t, prices{Plain: d[0], Null: sql.Null[rowscan.Decimal]{V: d[1], Valid: true}, Text: "1.5", List: d[:2]}, prices{Plain: d[1], Pointer: &d[2], Any: d[3]}, prices{})
	require.NoError(t, err)
	require.Equal(t, []string{"plain decimal(38, 3)", "pointer decimal(38, 0)", "null decimal(38, 3)", "any decimal(38, 2)", "never decimal(38, 18)", "absent decimal(38, 18)",
		"text utf8", "list list<item: utf8, nullable>"}, types)
	said := func(column string) (all []string) {
		for _, row := range rows {
			all = append(all, fmt.Sprint(row[column]))
		}
		return all
	}
	require.Equal(t, []string{"12.500", "-0.125", "0.000"}, said("plain"))
	require.Equal(t, []string{"<nil>", "1000", "<nil>"}, said("pointer"))
	require.Equal(t, []string{"-0.125", "<nil>", "<nil>"}, said("null"))
	require.Equal(t, []string{"<nil>", "0.00", "<nil>"}, said("any"))
	require.Equal(t, []any{"12.5", "-0.125"}, rows[0]["list"])

	negative, err := rowscan.NewDecimal(big.NewInt(12), -3)
	require.NoError(t, err)
	for want, texts := range map[string][]string{
		"decimal(38, 0)":  {strings.Repeat("9", 38), "-" + strings.Repeat("9", 38)},
		"decimal(38, 38)": {"0." + strings.Repeat("9", 38)}, "decimal(38, 1)": {strings.Repeat("9", 37) + ".0", "1"},
		"decimal256(76, 0)": {strings.Repeat("9", 39)}, "decimal256(76, 1)": {strings.Repeat("9", 38), "0.5"}, "decimal256(76, 76)": {"0." + strings.Repeat("9", 76)},
	} {
		var all []prices
		for _, d := range decimals(t, texts...) {
			all = append(all, prices{Plain: d})
		}
		rows, types, err = rowsOf(t, append(all, prices{Plain: decimals(t, "0")[0]})...)
		require.NoError(t, err, want)
		require.Equal(t, "plain "+strings.Replace(want, "256", "", 1), strings.Replace(types[0], "256", "", 1))
		for i, text := range texts {
			require.Zero(t, decimals(t, text)[0].Cmp(rows[i]["plain"].(rowscan.Decimal)), want)
		}
	}
	rows, types, err = rowsOf(t, prices{Plain: negative})
	require.NoError(t, err)
	require.Equal(t, "plain decimal(38, 0) 12000", types[0]+" "+fmt.Sprint(rows[0]["plain"]))
}

// What a column of decimals does not hold exactly is not sent.
func TestADecimalThatDoesNotFitItsColumnIsNamed(t *testing.T) {
	type price struct{ Price any }
	for last, fault := range map[string]string{
		"0.50": "", "-7": "", "0.25": "does not hold exactly", strings.Repeat("9", 37): "", "1" + strings.Repeat("0", 37): "does not hold exactly", strings.Repeat("9", 76): "does not hold exactly",
	} {
		many := slices.Repeat([]price{{decimals(t, "12.5")[0]}}, 66_000) // more than one batch
		many[len(many)-1].Price = decimals(t, last)[0]
		rows, _, err := rowsOf(t, many...)
		if fault == "" {
			require.NoError(t, err, last)
			require.Zero(t, decimals(t, last)[0].Cmp(rows[len(rows)-1]["price"].(rowscan.Decimal)))
		} else {
			require.ErrorContains(t, err, "row 65999: field Price: ", last)
			require.ErrorContains(t, err, fault, last)
			require.NotContains(t, err.Error(), last)
		}
	}
	_, _, err := rowsOf(t, price{decimals(t, "1")[0]}, price{"1"})
	require.ErrorContains(t, err, "row 1: field Price: is utf8, the rows before are decimal(38, 0)")
	_, _, err = rowsOf(t, price{1}, price{decimals(t, "1")[0]})
	require.ErrorContains(t, err, "row 1: field Price: is utf8, the rows before are int64")
	_, _, err = rowsOf(t, price{decimals(t, "0."+strings.Repeat("0", 80)+"1")[0]})
	require.ErrorContains(t, err, "row 0: field Price: ")
}

// Base has a MarshalText method from what it embeds.
type Base struct {
	time.Time `arrow:"created"`
	By        string
}

// What rowscan reads as the columns of a row is sent as them, whatever methods it has.
func TestAStructWithFieldsAndMarshalTextIsARow(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rows, types, err := rowsOf(t, Base{at, "ann"})
	require.NoError(t, err)
	require.Equal(t, []string{"created timestamp[us, tz=UTC]", "by utf8"}, types)
	require.Equal(t, []map[string]any{{"created": at, "by": "ann"}}, rows)
	type row struct {
		Base
		*netip.Addr
		N int
	}
	addr := netip.MustParseAddr("::1")
	rows, _, err = rowsOf(t, row{Base{at, "ann"}, &addr, 7}, row{Base{at, "bob"}, nil, 8})
	require.NoError(t, err)
	require.Equal(t, []map[string]any{{"created": at, "by": "ann", "addr": "::1", "n": int64(7)}, {"created": at, "by": "bob", "addr": nil, "n": int64(8)}}, rows)
}

func TestAListWithoutAValueFitsTheListsOfItsColumn(t *testing.T) {
	type row struct{ L []any }
	for want, rows := range map[string][]row{
		"int64": {{[]any{1}}, {[]any{}}, {[]any{nil}}, {nil}}, "float64": {{[]any{}}, {[]any{nil}}, {[]any{1.5}}}, "utf8": {{[]any{}}, {[]any{nil}}},
	} {
		read, types, err := rowsOf(t, rows...)
		require.NoError(t, err)
		require.Equal(t, []string{"l list<item: " + want + ", nullable>"}, types)
		require.Len(t, read, len(rows))
	}
	_, types, err := rowsOf(t, struct{ L any }{[]any{}})
	require.NoError(t, err)
	require.Equal(t, []string{"l list<item: utf8, nullable>"}, types)
	_, _, err = rowsOf(t, row{[]any{1}}, row{[]any{"a"}})
	require.ErrorContains(t, err, "the rows before are list<item: int64, nullable>")
}
