package bind

import (
	"database/sql"
	"reflect"
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
