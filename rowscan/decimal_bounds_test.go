package rowscan

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

func TestADecimalIsRefusedJustBeyondItsBounds(t *testing.T) {
	for text, why := range map[string]string{
		"0e1000": "", "0e1001": "the exponent is no integer between", "0e2000": "the exponent is no integer between",
		"1e-1000": "", "1e-1001": "the exponent is no integer between", "1.5e-1000": "more than 1000 digits behind the point",
		strings.Repeat("9", 76): "", strings.Repeat("9", 77): "more than 76 digits", "e5": "expected digits", "": "expected digits",
	} {
		_, err := ParseDecimal(text)
		if why == "" {
			require.NoError(t, err, text)
		} else {
			require.ErrorContains(t, err, why, text)
		}
	}
	for scale, ok := range map[int32]bool{-1001: false, -1000: true, 1000: true, 1001: false} {
		_, err := NewDecimal(big.NewInt(1), scale)
		require.Equal(t, ok, err == nil, scale)
		b := array.NewDecimal256Builder(memory.DefaultAllocator, &arrow.Decimal256Type{Precision: 76, Scale: scale})
		b.Append(decimal256.FromI64(7))
		v := Value(b.NewArray(), 0)
		_, isDecimal := v.(Decimal)
		require.Equal(t, ok, isDecimal, "%d: %v", scale, v)
	}
	require.Error(t, new(Decimal).UnmarshalJSON([]byte(`"1\q"`)))
	_, err := ParseDecimal(strings.Repeat("x", 60))
	require.ErrorContains(t, err, `"`+strings.Repeat("x", 60)+`"`)
	_, err = ParseDecimal(strings.Repeat("x", 61))
	require.ErrorContains(t, err, `"`+strings.Repeat("x", 60)+`…"`)
}

func TestDecimalsOfManyWordsAreThemselves(t *testing.T) {
	for _, shift := range []uint{63, 64, 127, 128, 191, 192, 250} {
		for _, sign := range []int64{1, -1} {
			n := new(big.Int).Lsh(big.NewInt(sign), shift)
			d, err := NewDecimal(n, 0)
			require.NoError(t, err)
			require.Equal(t, n.String(), d.String())
			_, fits := d.Int64()
			require.Equal(t, n.IsInt64(), fits, "%s", n)
			f, _ := new(big.Float).SetInt(n).Float64()
			require.Equal(t, f, d.Float64())
		}
	}
	zero, err := NewDecimal(big.NewInt(0), -3)
	require.NoError(t, err)
	require.Equal(t, "0", zero.String())
}

func TestADecimalBeyondTheFloatsIsNone(t *testing.T) {
	for _, scale := range []int32{-400, 400} {
		d, err := NewDecimal(big.NewInt(1), scale)
		require.NoError(t, err)
		f, fits := d.exactFloat(64)
		require.False(t, fits, "10^%d is %g", -scale, f)
	}
	for text, want := range map[string]float64{"0.1": 0.1, "1e22": 1e22, "1e-22": 1e-22, "1e-23": 1e-23, "9007199254740992": 1 << 53} {
		d, err := ParseDecimal(text)
		require.NoError(t, err)
		f, fits := d.exactFloat(64)
		require.True(t, fits, text)
		require.Equal(t, math.Float64bits(want), math.Float64bits(f), text)
	}
}
