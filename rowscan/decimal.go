package rowscan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/decimal256"
)

// Decimal is an exact decimal number: an integer, the coefficient, and a scale,
// which is how many of its digits stand behind the point. 12.50 has the
// coefficient 1250 and the scale 2. A negative scale stands for zeros before
// the point: 12000 may have the coefficient 12 and the scale -3.
//
// The zero value is 0. Values may be copied, used from many goroutines, and
// compared with ==, which tells 12.5 from 12.50; Cmp does not.
//
// It can be a field of a struct for Rows, the destination of a Scan of
// database/sql, an argument, and a part of JSON.
type Decimal struct {
	coef  decimal256.Num
	scale int32
}

const (
	// maxDecimalDigits is the precision of Arrow's widest decimal.
	maxDecimalDigits = 76
	// maxDecimalScale bounds the length of the text of a Decimal. What a server
	// claims is bounded by it, too.
	maxDecimalScale = 1000
)

// NewDecimal makes the Decimal coefficient × 10^-scale. The coefficient may
// have 76 digits and the scale lie between -1000 and 1000.
func NewDecimal(coefficient *big.Int, scale int32) (Decimal, error) {
	if coefficient == nil {
		return Decimal{}, errors.New("a Decimal needs a coefficient, not nil")
	}
	if scale < -maxDecimalScale || scale > maxDecimalScale {
		return Decimal{}, fmt.Errorf("the scale %d of a Decimal is not between -%d and %[2]d", scale, maxDecimalScale)
	}
	if coefficient.CmpAbs(powerOfTen(maxDecimalDigits)) >= 0 {
		return Decimal{}, fmt.Errorf("a Decimal has at most %d digits", maxDecimalDigits)
	}
	return Decimal{coef: coefficientOf(coefficient), scale: scale}, nil
}

// ParseDecimal reads a number such as "12.50", "-7" or "1.5e-3". The scale is
// the number of digits behind the point, after an exponent was applied, and
// never negative. Text that is no number, has more than 76 digits, or a scale
// above 1000 is an error.
func ParseDecimal(s string) (Decimal, error) {
	d, err := parseDecimal(s)
	if err != nil {
		return Decimal{}, fmt.Errorf("%q is no Decimal: %w", shortened(s), err)
	}
	return d, nil
}

func parseDecimal(s string) (Decimal, error) {
	number, exponent := s, 0
	if at := strings.IndexAny(s, "eE"); at >= 0 {
		var err error
		if exponent, err = strconv.Atoi(s[at+1:]); err != nil || exponent < -maxDecimalScale || exponent > maxDecimalScale {
			return Decimal{}, fmt.Errorf("the exponent is no integer between -%d and %[1]d", maxDecimalScale)
		}
		number = s[:at]
	}
	negative := strings.HasPrefix(number, "-")
	number = strings.TrimPrefix(number, "-")
	if !negative {
		number = strings.TrimPrefix(number, "+")
	}
	whole, fraction, _ := strings.Cut(number, ".")
	digits := whole + fraction
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return Decimal{}, errors.New("expected digits with at most one point")
	}
	scale := len(fraction) - exponent
	digits = strings.TrimLeft(digits, "0")
	if scale < 0 {
		if digits != "" {
			digits += strings.Repeat("0", -scale)
		}
		scale = 0
	}
	if len(digits) > maxDecimalDigits {
		return Decimal{}, fmt.Errorf("it has more than %d digits", maxDecimalDigits)
	}
	if scale > maxDecimalScale {
		return Decimal{}, fmt.Errorf("it has more than %d digits behind the point", maxDecimalScale)
	}
	coefficient := new(big.Int)
	if digits != "" {
		coefficient.SetString(digits, 10)
	}
	if negative {
		coefficient.Neg(coefficient)
	}
	return NewDecimal(coefficient, int32(scale))
}

// decimalOf is the decimal of a column. Not ok means that the column claims a
// scale out of any bounds.
func decimalOf(coef decimal256.Num, scale int32) (d Decimal, ok bool) {
	return Decimal{coef, scale}, scale >= -maxDecimalScale && scale <= maxDecimalScale
}

// BigInt is the coefficient: the number without its point. Shift it by Scale
// digits for the value.
func (d Decimal) BigInt() *big.Int {
	n := d.coef
	if n.Sign() < 0 {
		n = n.Negate()
	}
	var raw [32]byte
	for i, word := range n.Array() {
		binary.BigEndian.PutUint64(raw[24-8*i:], word)
	}
	v := new(big.Int).SetBytes(raw[:])
	if d.coef.Sign() < 0 {
		v.Neg(v)
	}
	return v
}

// coefficientOf is the inverse of BigInt.
func coefficientOf(v *big.Int) decimal256.Num {
	var raw [32]byte
	v.FillBytes(raw[:])
	word := func(i int) uint64 { return binary.BigEndian.Uint64(raw[8*i:]) }
	n := decimal256.New(word(0), word(1), word(2), word(3))
	if v.Sign() < 0 {
		n = n.Negate()
	}
	return n
}

// Scale is how many digits of the coefficient stand behind the point.
func (d Decimal) Scale() int32 { return d.scale }

// String is the exact number with all digits of its scale, never with an
// exponent.
func (d Decimal) String() string {
	var digits string
	negative := d.coef.Sign() < 0
	if v, ok := d.coefInt64(); ok {
		digits = strconv.FormatUint(magnitude(v), 10)
	} else {
		digits = strings.TrimPrefix(d.BigInt().String(), "-")
	}
	switch scale := int(d.scale); {
	case scale < 0 && digits != "0":
		digits += strings.Repeat("0", -scale)
	case scale > 0:
		if missing := scale + 1 - len(digits); missing > 0 {
			digits = strings.Repeat("0", missing) + digits
		}
		digits = digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
	}
	if negative {
		return "-" + digits
	}
	return digits
}

// coefInt64 is the coefficient if it fits an int64.
func (d Decimal) coefInt64() (int64, bool) {
	words := d.coef.Array()
	v := int64(words[0])
	sign := uint64(v >> 63)
	return v, words[1] == sign && words[2] == sign && words[3] == sign
}

// integer is the number as an integer, if it is one. The result is the caller's
// to change.
func (d Decimal) integer() (*big.Int, bool) {
	v := d.BigInt()
	if d.scale <= 0 {
		return v.Mul(v, powerOfTen(-d.scale)), true
	}
	rest := new(big.Int)
	v.QuoRem(v, powerOfTen(d.scale), rest)
	return v, rest.Sign() == 0
}

// Int64 is the number if it is an integer that fits; 12.00 is one.
func (d Decimal) Int64() (v int64, ok bool) {
	if d.scale == 0 {
		if v, ok := d.coefInt64(); ok {
			return v, true
		}
	}
	whole, ok := d.integer()
	if !ok || !whole.IsInt64() {
		return 0, false
	}
	return whole.Int64(), true
}

// uint64 is Int64 for unsigned integers.
func (d Decimal) uint64() (v uint64, ok bool) {
	whole, ok := d.integer()
	if !ok || !whole.IsUint64() {
		return 0, false
	}
	return whole.Uint64(), true
}

// Float64 is the nearest float64, or an infinity beyond their range.
func (d Decimal) Float64() float64 { return d.float(64) }

// floatPowers are the powers of ten that a float64 holds exactly.
var floatPowers = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// float is the nearest float of so many bits. One division of exact floats
// rounds once, and so gives the nearest float64.
func (d Decimal) float(size int) float64 {
	if v, ok := d.coefInt64(); size == 64 && ok && d.scale >= 0 && int(d.scale) < len(floatPowers) && magnitude(v) <= 1<<53 {
		return float64(v) / floatPowers[d.scale]
	}
	f, _ := strconv.ParseFloat(d.String(), size) // the only fault left is an infinity
	return f
}

// exactFloat is the float of so many bits that stands for the number: one that
// has its value, or whose shortest text is the number.
func (d Decimal) exactFloat(size int) (f float64, ok bool) {
	f = d.float(size)
	if v, small := d.coefInt64(); size == 64 && small && d.scale >= 0 && int(d.scale) < len(floatPowers) && magnitude(v) < 1e15 {
		return f, true // fifteen digits always come back
	}
	if math.IsInf(f, 0) {
		return 0, false
	}
	if shortest, err := ParseDecimal(strconv.FormatFloat(f, 'f', -1, size)); err == nil && shortest.Cmp(d) == 0 {
		return f, true
	}
	return f, new(big.Rat).SetFloat64(f).Cmp(d.rat()) == 0
}

// rat is the number as a fraction.
func (d Decimal) rat() *big.Rat {
	if d.scale < 0 {
		whole, _ := d.integer()
		return new(big.Rat).SetInt(whole)
	}
	return new(big.Rat).SetFrac(d.BigInt(), powerOfTen(d.scale))
}

// Cmp is -1, 0 or 1 as d is less than, equal to or greater than o; 12.5 and
// 12.50 are equal.
func (d Decimal) Cmp(o Decimal) int {
	if d.scale == o.scale {
		return d.coef.Cmp(o.coef)
	}
	return d.rat().Cmp(o.rat())
}

// powerOfTen is 10^n; n is not negative.
func powerOfTen(n int32) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
}

// magnitude is |v|, also of the least int64.
func magnitude(v int64) uint64 {
	if v < 0 {
		return -uint64(v)
	}
	return uint64(v)
}

// significantBits is how many bits of a float's mantissa an integer takes.
func significantBits(v uint64) int {
	if v == 0 {
		return 0
	}
	return bits.Len64(v) - bits.TrailingZeros64(v)
}

// shortened is s as an error shows it. A cut leaves no half of a character.
func shortened(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
