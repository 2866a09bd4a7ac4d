package rowscan

import (
	"database/sql"
	"encoding/json"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// decimalColumns is one number in each width of decimal that holds it.
func decimalColumns(coefficient *big.Int, scale int32) (columns []arrow.Array) {
	add := func(t arrow.DataType, fill func(b array.Builder)) {
		b := array.NewBuilder(memory.DefaultAllocator, t)
		defer b.Release()
		fill(b)
		columns = append(columns, b.NewArray())
	}
	if coefficient.CmpAbs(powerOfTen(9)) < 0 {
		add(&arrow.Decimal32Type{Precision: 9, Scale: scale}, func(b array.Builder) {
			b.(*array.Decimal32Builder).Append(decimal.Decimal32(coefficient.Int64()))
		})
	}
	if coefficient.CmpAbs(powerOfTen(18)) < 0 {
		add(&arrow.Decimal64Type{Precision: 18, Scale: scale}, func(b array.Builder) {
			b.(*array.Decimal64Builder).Append(decimal.Decimal64(coefficient.Int64()))
		})
	}
	if coefficient.CmpAbs(powerOfTen(38)) < 0 {
		add(&arrow.Decimal128Type{Precision: 38, Scale: scale}, func(b array.Builder) {
			b.(*array.Decimal128Builder).Append(decimal128.FromBigInt(coefficient))
		})
	}
	add(&arrow.Decimal256Type{Precision: 76, Scale: scale}, func(b array.Builder) {
		b.(*array.Decimal256Builder).Append(decimal256.FromBigInt(coefficient))
	})
	return columns
}

func TestDecimalsOfEveryWidthAreExact(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		digits := make([]byte, 1+rnd.IntN(76))
		for i := range digits {
			digits[i] = byte('0' + rnd.IntN(10))
		}
		coefficient, _ := new(big.Int).SetString(string(digits), 10)
		if rnd.IntN(2) == 0 {
			coefficient.Neg(coefficient)
		}
		scale := int32(rnd.IntN(90) - 10)
		want := new(big.Rat).SetFrac(coefficient, big.NewInt(1))
		if scale > 0 {
			want.Quo(want, new(big.Rat).SetInt(powerOfTen(scale)))
		} else {
			want.Mul(want, new(big.Rat).SetInt(powerOfTen(-scale)))
		}
		for _, col := range decimalColumns(coefficient, scale) {
			d, ok := Value(col, 0).(Decimal)
			require.True(t, ok, col.DataType())
			require.Equal(t, want.FloatString(int(max(0, scale))), d.String(), "%s, scale %d", coefficient, scale)
			require.Equal(t, scale, d.Scale())
			require.Zero(t, coefficient.Cmp(d.BigInt()))
			nearest, _ := want.Float64()
			require.Equal(t, nearest, d.Float64(), d)
			if back, err := ParseDecimal(d.String()); scale >= 0 && len(digits) <= maxDecimalDigits {
				require.NoError(t, err)
				require.Equal(t, d, back)
			} else if err == nil {
				require.Zero(t, d.Cmp(back))
			}
			made, err := NewDecimal(coefficient, scale)
			require.NoError(t, err)
			require.True(t, d == made)
		}
	}
}

func TestParseDecimalKeepsTheScaleAndRefusesWhatIsNoNumber(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "-0": "0", "+7": "7", "007": "7", "12.50": "12.50", ".5": "0.5", "5.": "5", "-0.05": "-0.05", "1e3": "1000", "1.5E-3": "0.0015",
		"1.50e1": "15.0", "0e50": "0", "0.000": "0.000", "1e75": "1" + strings.Repeat("0", 75), strings.Repeat("9", 76): strings.Repeat("9", 76),
		"1e-1000": "0." + strings.Repeat("0", 999) + "1",
	} {
		d, err := ParseDecimal(text)
		require.NoError(t, err, text)
		require.Equal(t, want, d.String(), text)
	}
	for _, text := range []string{"", "-", ".", "e5", "1e", "1e1.5", "--1", "+-1", "1 ", "1_000", "0x10", "NaN", "Inf", "1e1001", "1e-1001", "1.2.3", strings.Repeat("9", 77), "1e76", "12a", "٣"} {
		_, err := ParseDecimal(text)
		require.Error(t, err, text)
		require.ErrorContains(t, err, "no Decimal")
	}
	_, err := NewDecimal(nil, 0)
	require.Error(t, err)
	_, err = NewDecimal(big.NewInt(1), 1001)
	require.Error(t, err)
	_, err = NewDecimal(new(big.Int).Neg(powerOfTen(76)), 0)
	require.Error(t, err)
	require.Equal(t, "0", Decimal{}.String())
}

func FuzzParseDecimal(f *testing.F) {
	for _, s := range []string{"12.50", "-1e-5", "1E+3", ".", "99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDecimal(s)
		if err != nil {
			return
		}
		want, ok := new(big.Rat).SetString(s)
		require.True(t, ok, "%q is a number for nobody else", s)
		require.Zero(t, want.Cmp(d.rat()), s)
		again, err := ParseDecimal(d.String())
		require.NoError(t, err)
		require.Equal(t, d, again)
		text, err := json.Marshal(d)
		require.NoError(t, err)
		var back Decimal
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, d, back)
	})
}

func TestDecimalsGoThroughJSONAndDatabaseSQL(t *testing.T) {
	type invoice struct {
		Total Decimal
		Tip   *Decimal
		By    map[Decimal]int
	}
	fare, err := ParseDecimal("12.50")
	require.NoError(t, err)
	text, err := json.Marshal(invoice{Total: fare, By: map[Decimal]int{fare: 1}})
	require.NoError(t, err)
	require.JSONEq(t, `{"Total":"12.50","Tip":null,"By":{"12.50":1}}`, string(text))
	var back invoice
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, invoice{Total: fare, By: map[Decimal]int{fare: 1}}, back)
	require.NoError(t, json.Unmarshal([]byte(`{"Total": 0.00001234567890123456789, "Tip": 1e2}`), &back))
	require.Equal(t, "0.00001234567890123456789", back.Total.String())
	require.Equal(t, "100", back.Tip.String())
	require.Error(t, json.Unmarshal([]byte(`{"Total": true}`), &back))

	for _, src := range []any{"12.50", []byte("12.50"), fare} {
		var d Decimal
		require.NoError(t, d.Scan(src))
		require.Equal(t, fare, d)
	}
	var d Decimal
	require.NoError(t, d.Scan(int64(math.MinInt64)))
	require.Equal(t, strconv.Itoa(math.MinInt64), d.String())
	require.NoError(t, d.Scan(12.5))
	require.Equal(t, "12.5", d.String())
	for _, src := range []any{nil, math.NaN(), math.Inf(1), true, "twelve"} {
		require.Error(t, d.Scan(src), "%v", src)
	}
	var none sql.Null[Decimal]
	require.NoError(t, none.Scan(nil))
	require.False(t, none.Valid)
	v, err := fare.Value()
	require.NoError(t, err)
	require.Equal(t, "12.50", v)
}

func TestDecimalsCompareByValueAndAreIntegersWhereTheyAreWhole(t *testing.T) {
	parse := func(s string) Decimal {
		d, err := ParseDecimal(s)
		require.NoError(t, err)
		return d
	}
	require.Zero(t, parse("12.5").Cmp(parse("12.50")))
	require.Equal(t, -1, parse("-3").Cmp(parse("2.9")))
	require.Equal(t, 1, parse("3.01").Cmp(parse("3")))
	for text, want := range map[string]int64{"12.00": 12, "-9223372036854775808.0": math.MinInt64, "9223372036854775807": math.MaxInt64} {
		n, ok := parse(text).Int64()
		require.True(t, ok, text)
		require.Equal(t, want, n)
	}
	for _, text := range []string{"12.5", "9223372036854775808", "0.1"} {
		_, ok := parse(text).Int64()
		require.False(t, ok, text)
	}
	thousands, err := NewDecimal(big.NewInt(12), -3)
	require.NoError(t, err)
	n, ok := thousands.Int64()
	require.True(t, ok)
	require.EqualValues(t, 12000, n)
	require.Equal(t, "12000", thousands.String())
}
