package bind

import (
	"database/sql"
	"fmt"
	"math/big"
	"reflect"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"

	"github.com/flightpool/flightpool/rowscan"
)

const (
	narrowDigits = 38 // of Arrow's decimal128, which nearly all servers have
	wideDigits   = 76 // of its decimal256
	usualScale   = 18 // of a column of which no value is known
)

// isDecimalField reports whether a field has Decimals or NULL.
func isDecimalField(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t == reflect.TypeFor[rowscan.Decimal]() || t == reflect.TypeFor[sql.Null[rowscan.Decimal]]()
}

// decimalColumn is the type of a column of Decimals that holds those of these rows: with the
// largest of their scales, and with 38 digits, or 76 where they need more.
func decimalColumn(rows [][]Value, column int) arrow.DataType {
	known, scale, whole := false, int32(0), 0
	for _, row := range rows {
		if d, ok := row[column].v.(rowscan.Decimal); ok {
			before, _, _ := strings.Cut(d.String(), ".")
			known, scale, whole = true, max(scale, d.Scale()), max(whole, len(strings.TrimLeft(before, "-0")))
		}
	}
	switch {
	case !known:
		return &arrow.Decimal128Type{Precision: narrowDigits, Scale: usualScale}
	case whole+int(scale) <= narrowDigits:
		return &arrow.Decimal128Type{Precision: narrowDigits, Scale: scale}
	default:
		return &arrow.Decimal256Type{Precision: wideDigits, Scale: min(scale, wideDigits)}
	}
}

// asNumber is a Decimal, or a text that is one, as a number, and its type, where a server made with DataFusion has told that the
// parameter is a number. That server compares a number with a text as texts: 10 is below '9.5', and 9.50 is not 9.5. ok is
// false for all else, and for what no such type holds.
func (v Value) asNumber(told arrow.Field) (_ Value, t arrow.DataType, ok bool) {
	if !strings.HasPrefix(told.Name, parameterMark) {
		return v, nil, false
	}
	d, ok := v.v.(rowscan.Decimal)
	if text, isText := v.v.(string); isText {
		read, err := rowscan.ParseDecimal(text)
		d, ok = read, err == nil
	}
	if !ok {
		return v, nil, false
	}
	id := told.Type.ID()
	if whole, err := strconv.ParseInt(d.String(), 10, 64); err == nil && arrow.IsInteger(id) {
		v.v = whole
		return v, arrow.PrimitiveTypes.Int64, true
	}
	switch {
	case arrow.IsFloating(id):
		f, err := strconv.ParseFloat(d.String(), 64)
		v.v = f
		return v, arrow.PrimitiveTypes.Float64, err == nil
	case arrow.IsDecimal(id), arrow.IsInteger(id):
		whole, _, _ := strings.Cut(d.String(), ".")
		scale := max(d.Scale(), 0)
		digits := max(int32(len(strings.TrimLeft(whole, "-0")))+scale, 1) //nolint:gosec // a Decimal has few
		v.v = d
		if digits <= narrowDigits {
			return v, &arrow.Decimal128Type{Precision: digits, Scale: scale}, true
		}
		return v, &arrow.Decimal256Type{Precision: digits, Scale: scale}, digits <= wideDigits
	default:
		return v, nil, false
	}
}

// appendDecimal appends d to a column of decimals, if that holds it exactly.
func appendDecimal(b array.Builder, d rowscan.Decimal) error {
	t := b.Type().(arrow.DecimalType)
	v, rest := d.BigInt(), new(big.Int)
	if shift := int64(t.GetScale()) - int64(d.Scale()); shift >= 0 {
		v.Mul(v, powerOfTen(shift))
	} else {
		v.QuoRem(v, powerOfTen(-shift), rest)
	}
	if rest.Sign() != 0 || v.CmpAbs(powerOfTen(int64(t.GetPrecision()))) >= 0 {
		return fmt.Errorf("is a number that the column, which is %v by the first rows, does not hold exactly", t)
	}
	switch b := b.(type) {
	case *array.Decimal128Builder:
		b.Append(decimal128.FromBigInt(v))
	case *array.Decimal256Builder:
		b.Append(decimal256.FromBigInt(v))
	}
	return nil
}

func powerOfTen(n int64) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(n), nil) }
