package bind

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/rowscan"
)

// DataFusion compares a text with a number as texts: 10 is not above '9.5' there.
func TestADecimalIsANumberWhereTheServerWouldCompareTexts(t *testing.T) {
	const wide = "123456789012345678901234567890123456789.5" // 40 digits
	for _, c := range []struct {
		name, value string
		told        arrow.DataType
		as, want    string
	}{
		{"$1", "9.5", arrow.PrimitiveTypes.Float64, "float64", "9.5"},
		{"$1", "9.5", arrow.PrimitiveTypes.Float32, "float64", "9.5"},
		{"$1", "9.5", &arrow.Decimal128Type{Precision: 10, Scale: 2}, "decimal(2, 1)", "9.5"},
		{"$1", "-0.05", &arrow.Decimal128Type{Precision: 10, Scale: 2}, "decimal(2, 2)", "-0.05"},
		{"$1", "0", &arrow.Decimal128Type{Precision: 10, Scale: 2}, "decimal(1, 0)", "0"},
		{"$1", "1.5e3", arrow.PrimitiveTypes.Int64, "int64", "1500"}, // as LIMIT needs it
		{"$1", "1e20", arrow.PrimitiveTypes.Int64, "decimal(21, 0)", "100000000000000000000"},
		{"$1", "9.5", arrow.PrimitiveTypes.Int32, "decimal(2, 1)", "9.5"},
		{"$1", wide, &arrow.Decimal256Type{Precision: 50, Scale: 2}, "decimal256(40, 1)", wide},
		{"$1", "1e-80", &arrow.Decimal128Type{Precision: 10, Scale: 2}, "utf8", "0." + strings.Repeat("0", 79) + "1"}, // no decimal holds it
		{"$1", "9.5", arrow.BinaryTypes.String, "utf8", "9.5"},
		{"$1", "9.5", arrow.Null, "utf8", "9.5"},
		{"1", "9.5", arrow.PrimitiveTypes.Float64, "utf8", "9.5"}, // DuckDB reads the text, exactly
		{"price", "9.5", &arrow.Decimal128Type{Precision: 10, Scale: 2}, "utf8", "9.5"},
	} {
		d, err := rowscan.ParseDecimal(c.value)
		require.NoError(t, err)
		sent := func(arg any) (as, text string) {
			values, err := Of([]any{arg})
			require.NoError(t, err)
			batch, err := values.Batch(arrow.NewSchema([]arrow.Field{{Name: c.name, Type: c.told}}, nil))
			require.NoError(t, err, "%v", c)
			defer batch.Release()
			return batch.Column(0).DataType().String(), batch.Column(0).ValueStr(0)
		}
		as, text := sent(d)
		require.Equal(t, c.as, as, "%v", c)
		require.Equal(t, c.want, text, "%v", c)
		as, text = sent(c.value) // as other types of decimals are sent
		require.Equal(t, c.as, as, "%v", c)
		if as != "utf8" {
			require.Equal(t, c.want, text, "%v", c)
		}
		for _, other := range []string{"", "abc", " 9.5", "NaN", "0x10"} {
			as, text = sent(other)
			require.Equal(t, "utf8", as, "%v", c)
			require.Equal(t, other, text, "%v", c)
		}
	}
}
