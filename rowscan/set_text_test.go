package rowscan

import (
	"database/sql"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
)

// point is a row of two columns, and also the text "1;2".
type point struct{ A, B string }

func (p *point) UnmarshalText(text []byte) error {
	p.A, p.B, _ = strings.Cut(string(text), ";")
	return nil
}

// A value that was sent as the text of its MarshalText comes back by its UnmarshalText.
func TestTypesWithUnmarshalTextTakeTexts(t *testing.T) {
	texts := func(json string) arrow.Array { return columnOf(t, arrow.BinaryTypes.String, json) }
	require.Equal(t, netip.MustParseAddr("10.0.0.1"), oneRow[struct{ A netip.Addr }](t, texts(`["10.0.0.1"]`)).A)
	require.Equal(t, netip.MustParseAddr("::1"), oneRow[netip.Addr](t, texts(`["::1"]`)), "the only column, not a row")
	require.Equal(t, net.ParseIP("10.0.0.1"), oneRow[struct{ A net.IP }](t, texts(`["10.0.0.1"]`)).A, "not the bytes of the text")
	require.Nil(t, oneRow[struct{ A net.IP }](t, texts(`[null]`)).A)
	require.Nil(t, oneRow[struct{ A *netip.Addr }](t, texts(`[null]`)).A)
	lists := columnOf(t, arrow.ListOf(arrow.BinaryTypes.String), `[["10.0.0.0/8", "::/0"]]`)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::/0")}, oneRow[struct{ A []netip.Prefix }](t, lists).A)
	require.Equal(t, net.IP{10, 0, 0, 1}, oneRow[struct{ A net.IP }](t, columnOf(t, arrow.BinaryTypes.Binary, `["CgAAAQ=="]`)).A, "bytes are bytes")

	whole := oneRow[struct{ A *big.Int }](t, columnOf(t, arrow.PrimitiveTypes.Uint64, `[18446744073709551615]`)).A
	require.Equal(t, "18446744073709551615", whole.String())
	require.Equal(t, "42", oneRow[struct{ A *big.Int }](t, decimalColumns(big.NewInt(42), 0)[0]).A.String())

	refused[struct{ A netip.Addr }](t, "NULL does not fit netip.Addr: use a pointer", texts(`[null]`))
	refused[struct{ A netip.Addr }](t, `"ten" (utf8) does not fit netip.Addr: `, texts(`["ten"]`))
	refused[struct{ A *big.Int }](t, "0.42 (decimal32(9, 2)) does not fit big.Int: ", decimalColumns(big.NewInt(42), 2)[0])
	refused[struct{ A *big.Float }](t, "does not fit big.Float", columnOf(t, arrow.PrimitiveTypes.Float64, `[0.1]`))
	refused[struct{ A netip.Addr }](t, "does not fit netip.Addr", columnOf(t, arrow.FixedWidthTypes.Boolean, `[true]`))
}

// A struct with exported fields is a row, also where it has the method from a field that it
// embeds; as a field it takes texts too.
func TestAStructWithFieldsAndUnmarshalTextIsARow(t *testing.T) {
	text, number := columnOf(t, arrow.BinaryTypes.String, `["10.0.0.1"]`), columnOf(t, arrow.PrimitiveTypes.Int64, `[7]`)
	type host struct {
		netip.Addr `arrow:"a"`
		B          int
	}
	require.Equal(t, host{netip.MustParseAddr("10.0.0.1"), 7}, oneRow[host](t, text, number))
	require.Equal(t, point{"10.0.0.1", "7"}, oneRow[point](t, text, number))
	both := columnOf(t, arrow.StructOf(arrow.Field{Name: "a", Type: arrow.BinaryTypes.String}, arrow.Field{Name: "b", Type: arrow.BinaryTypes.String}), `[{"a": "1", "b": "2"}]`)
	require.Equal(t, point{"1", "2"}, oneRow[struct{ A point }](t, both).A)
	require.Equal(t, point{"1", "2"}, oneRow[struct{ A point }](t, columnOf(t, arrow.BinaryTypes.String, `["1;2"]`)).A)
	require.Equal(t, []point{{"1", "2"}}, oneRow[struct{ A []point }](t, columnOf(t, arrow.ListOf(arrow.BinaryTypes.String), `[["1;2"]]`)).A)
}

type (
	amount  struct{ *big.Int }
	stamp   struct{ time.Time }
	maybe   struct{ *sql.NullString }
	own     struct{ *sql.NullString }
	clock   struct{ Hour, Minute int }
	within  struct{ amount }
	Within  struct{ amount }
	chained struct{ *Within }
)

func (o *own) Scan(v any) error {
	if v == nil {
		return nil // it stays nil
	}
	o.NullString = &sql.NullString{}
	return o.NullString.Scan(v)
}

func (c *clock) UnmarshalText(text []byte) error {
	_, err := fmt.Sscanf(string(text), "%d:%d", &c.Hour, &c.Minute)
	return err
}

// A method that a type has from what it embeds by a pointer is not called on nil.
func TestAnEmbeddedPointerWithTheMethodIsAllocated(t *testing.T) {
	texts := columnOf(t, arrow.BinaryTypes.String, `["42", "43"]`)
	rows, err := rowsOf[struct{ A amount }](t, texts)
	require.NoError(t, err)
	require.Equal(t, "42 43", rows[0].A.String()+" "+rows[1].A.String())
	one := columnOf(t, arrow.BinaryTypes.String, `["42"]`)
	require.Equal(t, "42", oneRow[struct{ A within }](t, one).A.String())
	require.Equal(t, "42", oneRow[struct{ A chained }](t, one).A.String())
	require.Equal(t, []amount{{big.NewInt(1)}, {big.NewInt(2)}}, oneRow[struct{ A []amount }](t, columnOf(t, arrow.ListOf(arrow.PrimitiveTypes.Int64), `[[1, 2]]`)).A)
	require.Equal(t, "42", oneRow[struct{ A maybe }](t, one).A.String)
	require.False(t, oneRow[struct{ A maybe }](t, columnOf(t, arrow.BinaryTypes.String, `[null]`)).A.Valid)
	require.Equal(t, "42", oneRow[struct{ A own }](t, one).A.String)
	require.Nil(t, oneRow[struct{ A own }](t, columnOf(t, arrow.BinaryTypes.String, `[null]`)).A.NullString, "its own method says so")
	require.Nil(t, oneRow[struct{ A *amount }](t, columnOf(t, arrow.BinaryTypes.String, `[null]`)).A)
	require.Nil(t, oneRow[struct{ A amount }](t, columnOf(t, arrow.BinaryTypes.String, `[null]`)).A.Int)
	refused[struct{ A within }](t, "NULL does not fit", columnOf(t, arrow.BinaryTypes.String, `[null]`))
}

// Times without a zone are what a time.Time makes of them, also in what embeds one.
func TestTimesForTypesWithUnmarshalText(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)
	naive := columnOf(t, &arrow.TimestampType{Unit: arrow.Microsecond}, `["2026-01-02 03:04:05.6"]`)
	require.Equal(t, at, oneRow[struct{ A stamp }](t, naive).A.Time)
	require.Equal(t, at, oneRow[struct{ A stamp }](t, columnOf(t, arrow.FixedWidthTypes.Timestamp_us, `["2026-01-02 03:04:05.6Z"]`)).A.Time)
	require.Equal(t, at.Truncate(24*time.Hour), oneRow[struct{ A *stamp }](t, columnOf(t, arrow.FixedWidthTypes.Date32, `["2026-01-02"]`)).A.Time)
	require.Equal(t, clock{3, 4}, oneRow[struct{ A clock }](t, columnOf(t, arrow.FixedWidthTypes.Time64us, `["03:04:05.6"]`)).A)
	refused[struct{ A clock }](t, "does not fit rowscan.clock", columnOf(t, arrow.FixedWidthTypes.Duration_us, `[1]`))
	refused[struct{ A big.Int }](t, "2026-01-02 (date32) does not fit big.Int: math/big: ", columnOf(t, arrow.FixedWidthTypes.Date32, `["2026-01-02"]`))
	refused[struct{ A stamp }](t, "does not fit rowscan.stamp", columnOf(t, arrow.BinaryTypes.String, `["2026-01-02"]`))
}

type (
	texts struct {
		F *cannot
	}
	cannot struct {
		C chan int
		B *partner
	}
	partner struct{ A *cannot }
)

func (t *texts) UnmarshalText([]byte) error { return nil }

// What contains a type that no column fits fails as that does.
func TestATypeThatHoldsOneWithoutAColumnIsAnError(t *testing.T) {
	made := setters{}
	_, err := made.of(reflect.TypeFor[texts]())
	require.NoError(t, err)
	set, err := made.of(reflect.TypeFor[partner]())
	if err == nil {
		inner := arrow.StructOf(arrow.Field{Name: "c", Type: arrow.PrimitiveTypes.Int64}, arrow.Field{Name: "b", Type: arrow.PrimitiveTypes.Int64})
		col := columnOf(t, arrow.StructOf(arrow.Field{Name: "a", Type: inner}), `[{"a": {"c": 1, "b": 1}}]`)
		err = set(reflect.New(reflect.TypeFor[partner]()).Elem(), valueOf(col, 0))
	}
	require.ErrorContains(t, err, "type chan int cannot hold a column")
}
