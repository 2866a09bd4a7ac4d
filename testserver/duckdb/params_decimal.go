//go:build duckdb_arrow

package duckdb

import (
	"fmt"
	"math/big"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	capi "github.com/duckdb/duckdb-go-bindings"
)

// maxDigits is what a decimal of DuckDB holds.
const maxDigits = 38

// newDecimal makes a value of a decimal of any width, whose digits DuckDB can hold.
func newDecimal(a arrow.Array, t arrow.DecimalType, row int) (capi.Value, error) {
	n := unscaled(a, row)
	precision, scale := int64(t.GetPrecision()), int64(t.GetScale())
	if scale < 0 { // zeroes at the end
		n.Mul(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(-scale), nil))
		precision, scale = precision-scale, 0
	}
	digits := len(new(big.Int).Abs(n).String())
	if digits > maxDigits || scale > maxDigits {
		return capi.Value{}, fmt.Errorf("a %s with %d digits is more than DuckDB holds", t, digits)
	}
	precision = max(min(precision, maxDigits), scale)
	v := decimal128.FromBigInt(n)
	return capi.CreateDecimal(capi.NewDecimal(uint8(precision), uint8(scale), capi.NewHugeInt(v.LowBits(), v.HighBits()))), nil
}

// unscaled is the value as if it had no decimal point.
func unscaled(a arrow.Array, row int) *big.Int {
	switch a := a.(type) {
	case *array.Decimal32:
		return big.NewInt(int64(a.Value(row)))
	case *array.Decimal64:
		return big.NewInt(int64(a.Value(row)))
	case *array.Decimal128:
		return a.Value(row).BigInt()
	default:
		return a.(*array.Decimal256).Value(row).BigInt()
	}
}
