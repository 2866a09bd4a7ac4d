package rowscan

import (
	"math/big"
	"net"
	"net/netip"
	"strings"
	"testing"

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
