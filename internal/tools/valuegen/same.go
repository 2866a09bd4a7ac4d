package valuegen

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Scanner is an sql.Scanner that takes what database/sql may give it.
type Scanner struct{ Got any }

// Scan is part of sql.Scanner.
func (s *Scanner) Scan(src any) error {
	switch src.(type) {
	case nil, int64, float64, bool, []byte, string, time.Time:
		s.Got = src
		return nil
	default:
		return fmt.Errorf("BREACH of the contract of sql.Scanner: %T", src)
	}
}

// Same reports whether a Go value is the logical value and no other.
func Same(got reflect.Value, want any) bool {
	if s, ok := got.Interface().(Scanner); ok {
		return sameScanned(s.Got, want)
	}
	switch got.Kind() {
	case reflect.Pointer, reflect.Interface:
		if got.IsNil() {
			return want == nil
		}
		if got.Kind() == reflect.Interface && isText(got.Elem()) {
			return samePlainText(got.Elem().String(), want)
		}
		return want != nil && Same(got.Elem(), want)
	case reflect.Slice, reflect.Map:
		if got.IsNil() {
			return want == nil
		}
	}
	switch want := want.(type) {
	case nil:
		return false
	case bool:
		return got.Kind() == reflect.Bool && got.Bool() == want || isText(got) && got.String() == strconv.FormatBool(want)
	case number:
		return sameNumber(got, want.Rat)
	case notANumber:
		if isText(got) {
			f, err := strconv.ParseFloat(got.String(), 64)
			return err == nil && sameFloat(f, float64(want))
		}
		return got.CanFloat() && sameFloat(got.Float(), float64(want))
	case text:
		return sameBytes(got, string(want)) || isText(got) && got.String() == string(want) || sameText(got, string(want))
	case blob:
		return sameBytes(got, string(want)) || isText(got) && got.String() == string(want)
	case uuid:
		return sameBytes(got, string(want)) || isText(got) && strings.ReplaceAll(got.String(), "-", "") == hex.EncodeToString([]byte(want)) && len(got.String()) == 36
	case moment:
		at, ok := got.Interface().(time.Time)
		return ok && at.Equal(want.Time) || isText(got) && sameMoment(got.String(), want.Time)
	case ticks:
		return sameTicks(got, want.Int)
	case untyped:
		return isText(got) && got.String() != ""
	default:
		return sameNested(got, want)
	}
}

// samePlainText is Same for the text in an any: only a text has to be one, and
// what Go has no type for.
func samePlainText(got string, want any) bool {
	switch want := want.(type) {
	case text:
		return got == string(want)
	case untyped:
		return got != ""
	case uuid:
		return len(got) == 36
	case ticks:
		return !want.IsInt64() && sameTickText(got, want.Int)
	default:
		return false
	}
}

func isText(v reflect.Value) bool { return v.Kind() == reflect.String }

func sameFloat(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

func sameBytes(got reflect.Value, want string) bool {
	if k := got.Kind(); k != reflect.Slice && k != reflect.Array || got.Type().Elem().Kind() != reflect.Uint8 {
		return false
	}
	if got.Len() != len(want) {
		return false
	}
	for i := range len(want) {
		if byte(got.Index(i).Uint()) != want[i] {
			return false
		}
	}
	return true
}

// sameText is for a text that went into a number.
func sameText(got reflect.Value, want string) bool {
	return isDecimal(got) && fmt.Sprint(got.Interface()) == want
}

func sameNumber(got reflect.Value, want *big.Rat) bool {
	switch {
	case isText(got):
		r, ok := new(big.Rat).SetString(got.String())
		if !ok || r.Cmp(want) == 0 {
			return ok
		}
		f, _ := want.Float64() // the shortest text of a float is not all of its digits
		back, err := strconv.ParseFloat(got.String(), 64)
		short, err32 := strconv.ParseFloat(got.String(), 32)
		exact := new(big.Rat).SetFloat64(f).Cmp(want) == 0
		return exact && (err == nil && back == f || err32 == nil && short == f)
	case got.CanInt():
		return want.IsInt() && want.Num().IsInt64() && want.Num().Int64() == got.Int()
	case got.CanUint():
		return want.IsInt() && want.Num().IsUint64() && want.Num().Uint64() == got.Uint()
	case got.CanFloat():
		exact := new(big.Rat).SetFloat64(got.Float())
		shortest, _ := new(big.Rat).SetString(strconv.FormatFloat(got.Float(), 'g', -1, got.Type().Bits()))
		return exact != nil && exact.Cmp(want) == 0 || shortest != nil && shortest.Cmp(want) == 0
	}
	if !isDecimal(got) {
		return false
	}
	r, ok := new(big.Rat).SetString(fmt.Sprint(got.Interface()))
	return ok && r.Cmp(want) == 0
}

func sameTicks(got reflect.Value, want *big.Int) bool {
	if isText(got) {
		return sameTickText(got.String(), want)
	}
	return got.Type() == reflect.TypeFor[time.Duration]() && want.IsInt64() && want.Int64() == got.Int()
}

// isDecimal knows a rowscan.Decimal, without importing what imports this.
func isDecimal(v reflect.Value) bool { return v.Type().Name() == "Decimal" }
