package session

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
)

type (
	namedBool   bool
	namedInt    int32
	namedText   string
	namedBytes  []byte
	namedByte   byte
	contractual struct{ got any } // a Scanner that takes what database/sql allows
)

func (s *contractual) Scan(src any) error {
	switch src.(type) {
	case nil, int64, float64, bool, []byte, string, time.Time:
		s.got = src
		return nil
	default:
		return fmt.Errorf("BREACH of the contract of sql.Scanner: %T", src)
	}
}

type (
	oneMember  struct{ A any }
	twoMembers struct {
		A *string
		B any `arrow:"b"`
	}
	mapEntry struct {
		Key   any
		Value any
	}
)

// destinations are Go types of every kind that Rows takes.
var destinations = []reflect.Type{
	reflect.TypeFor[any](), reflect.TypeFor[bool](), reflect.TypeFor[*bool](), reflect.TypeFor[namedBool](),
	reflect.TypeFor[int](), reflect.TypeFor[int8](), reflect.TypeFor[int16](), reflect.TypeFor[int32](), reflect.TypeFor[int64](), reflect.TypeFor[namedInt](),
	reflect.TypeFor[uint](), reflect.TypeFor[uint8](), reflect.TypeFor[uint16](), reflect.TypeFor[uint32](), reflect.TypeFor[uint64](), reflect.TypeFor[*int64](),
	reflect.TypeFor[float32](), reflect.TypeFor[float64](), reflect.TypeFor[**float64](),
	reflect.TypeFor[string](), reflect.TypeFor[*string](), reflect.TypeFor[namedText](),
	reflect.TypeFor[[]byte](), reflect.TypeFor[json.RawMessage](), reflect.TypeFor[namedBytes](), reflect.TypeFor[[]namedByte](), reflect.TypeFor[[4]byte](), reflect.TypeFor[[4]namedByte](),
	reflect.TypeFor[time.Time](), reflect.TypeFor[*time.Time](), reflect.TypeFor[time.Duration](), reflect.TypeFor[Decimal](), reflect.TypeFor[*Decimal](),
	reflect.TypeFor[contractual](), reflect.TypeFor[*contractual](),
	reflect.TypeFor[[]any](), reflect.TypeFor[[]int64](), reflect.TypeFor[[]*string](), reflect.TypeFor[[2]any](), reflect.TypeFor[[][]any](), reflect.TypeFor[[]contractual](),
	reflect.TypeFor[map[string]any](), reflect.TypeFor[map[any]any](), reflect.TypeFor[map[string]int64](), reflect.TypeFor[map[int64]string](), reflect.TypeFor[map[[4]byte]any](),
	reflect.TypeFor[map[Decimal]any](), reflect.TypeFor[map[namedText]*int64](),
	reflect.TypeFor[oneMember](), reflect.TypeFor[*twoMembers](), reflect.TypeFor[[]oneMember](), reflect.TypeFor[[]mapEntry](), reflect.TypeFor[map[string]oneMember](),
}

// FuzzValues reads columns of every type, nested and encoded, into every kind
// of Go type: each value must arrive exactly, or be an error.
func FuzzValues(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed, uint8(seed%4))
	}
	f.Fuzz(func(t *testing.T, seed uint64, depth uint8) {
		g := valueGen{Rand: rand.New(rand.NewPCG(seed, 0))}
		col, want := g.column(1+g.IntN(6), int(depth%4))
		checkColumn(t, col, want)
	})
}

// TestEveryColumnFitsExactlyOrNotAtAll is FuzzValues over many seeds.
func TestEveryColumnFitsExactlyOrNotAtAll(t *testing.T) {
	fits := make(map[reflect.Type]int)
	for seed := range uint64(1500) {
		g := valueGen{Rand: rand.New(rand.NewPCG(seed, 1))}
		col, want := g.column(1+g.IntN(6), int(seed%4))
		for to, n := range checkColumn(t, col, want) {
			fits[to] += n
		}
		if t.Failed() {
			t.Fatalf("seed %d: %s", seed, col)
		}
	}
	for _, to := range destinations {
		require.Positive(t, fits[to], "nothing has ever fitted %s", to)
	}
}

func checkColumn(t *testing.T, col arrow.Array, want []any) map[reflect.Type]int {
	t.Helper()
	require.Equal(t, len(want), col.Len())
	fits := make(map[reflect.Type]int)
	made := make(setters)
	for row, logical := range want {
		if got := Value(col, row); !same(reflect.ValueOf(&got).Elem(), logical) {
			t.Errorf("%s: Value is %#v, not %v", col.DataType(), got, logical)
		}
		if owned := valueOf(col, row).plain(true); !same(reflect.ValueOf(&owned).Elem(), logical) {
			t.Errorf("%s: the owned value is %#v, not %v", col.DataType(), owned, logical)
		}
		for _, to := range destinations {
			set, err := made.of(to)
			require.NoError(t, err, to)
			dst := reflect.New(to).Elem()
			if set(dst, valueOf(col, row)) != nil {
				if takesAll(to, logical) {
					t.Errorf("%s: %v does not fit %s: %v", col.DataType(), logical, to, set(dst, valueOf(col, row)))
				}
				continue
			}
			fits[to]++
			if !same(dst, logical) {
				t.Errorf("%s: %v arrives in %s as %#v", col.DataType(), logical, to, dst.Interface())
			}
		}
	}
	return fits
}

// takesAll reports whether a value may not be refused: the types that take all.
func takesAll(to reflect.Type, logical any) bool {
	switch to {
	case reflect.TypeFor[any](), reflect.TypeFor[*string](), reflect.TypeFor[contractual]():
		return true
	case reflect.TypeFor[string]():
		return logical != nil
	default:
		return false
	}
}

// same reports whether a Go value is the logical value and no other.
func same(got reflect.Value, want any) bool {
	if s, ok := got.Interface().(contractual); ok {
		return sameScanned(s.got, want)
	}
	switch got.Kind() {
	case reflect.Pointer, reflect.Interface:
		if got.IsNil() {
			return want == nil
		}
		if got.Kind() == reflect.Interface && isText(got.Elem()) {
			return samePlainText(got.Elem().String(), want)
		}
		return want != nil && same(got.Elem(), want)
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
		return ok && at.Equal(want.Time) || isText(got) && got.String() != ""
	case ticks:
		return sameTicks(got, want.Int)
	case untyped:
		return isText(got) && got.String() != ""
	default:
		return sameNested(got, want)
	}
}

// samePlainText is same for the text in an any: only a text has to be one, and
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
		return !want.IsInt64() && got != ""
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
	d, ok := got.Interface().(Decimal)
	return ok && d.String() == want
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
	d, ok := got.Interface().(Decimal)
	return ok && d.rat().Cmp(want) == 0
}

func sameTicks(got reflect.Value, want *big.Int) bool {
	if isText(got) {
		return got.String() != ""
	}
	return got.Type() == durationType && want.IsInt64() && want.Int64() == got.Int()
}

func sameNested(got reflect.Value, want any) bool {
	if isText(got) {
		return got.String() != ""
	}
	switch want := want.(type) {
	case sequence:
		return sameElements(got, want)
	case members:
		if got.Kind() == reflect.Map {
			return got.Len() == len(want) && sameKeys(got, func(name string) (any, bool) {
				at := int(name[0]) - 'a'
				return want[at], at < len(want)
			})
		}
		if got.Kind() != reflect.Struct || got.NumField() > len(want) {
			return false
		}
		for i := range got.NumField() {
			if !same(got.Field(i), want[i]) {
				return false
			}
		}
		return true
	case pairs:
		return samePairs(got, want)
	default:
		return false
	}
}

func sameElements(got reflect.Value, want []any) bool {
	if k := got.Kind(); k != reflect.Slice && k != reflect.Array || got.Len() != len(want) {
		return false
	}
	for i := range want {
		if !same(got.Index(i), want[i]) {
			return false
		}
	}
	return true
}

func sameKeys(got reflect.Value, want func(string) (any, bool)) bool {
	for iter := got.MapRange(); iter.Next(); {
		if item, ok := want(iter.Key().String()); !ok || !same(iter.Value(), item) {
			return false
		}
	}
	return true
}

func samePairs(got reflect.Value, want pairs) bool {
	if k := got.Kind(); k == reflect.Slice || k == reflect.Array { // of entries, as structs, maps or JSON
		if got.Len() != len(want) {
			return false
		}
		for i, pair := range want {
			entry := got.Index(i)
			for entry.Kind() == reflect.Interface || entry.Kind() == reflect.Pointer {
				entry = entry.Elem()
			}
			switch entry.Kind() {
			case reflect.String:
			case reflect.Struct:
				if _, scanned := entry.Interface().(contractual); scanned {
					continue
				}
				if entry.NumField() != 2 || !same(entry.Field(0), pair[0]) || !same(entry.Field(1), pair[1]) {
					return false
				}
			case reflect.Map:
				for name, part := range map[string]any{"key": pair[0], "value": pair[1]} {
					if !same(entry.MapIndex(reflect.ValueOf(name)), part) {
						return false
					}
				}
			default:
				return false
			}
		}
		return true
	}
	if got.Kind() != reflect.Map || got.Len() != len(want) {
		return false
	}
	for _, pair := range want {
		found := false
		for iter := got.MapRange(); iter.Next(); {
			found = found || sameKey(iter.Key(), pair[0]) && same(iter.Value(), pair[1])
		}
		if !found {
			return false
		}
	}
	return true
}

// sameKey is same for a key, of which a map[string]any has the text.
func sameKey(got reflect.Value, want any) bool {
	return got.Kind() == reflect.Interface && got.Elem().Kind() != reflect.String && same(got.Elem(), want) || same(got, want)
}

// sameScanned is same for what a Scanner was given.
func sameScanned(got, want any) bool {
	switch want := want.(type) {
	case ticks:
		if n, ok := got.(int64); ok {
			return want.IsInt64() && want.Int64() == n
		}
		return !want.IsInt64() && got != ""
	case nil:
		return got == nil
	}
	return got != nil && same(reflect.ValueOf(got), want)
}

func TestASliceOfAMapsEntriesIsReadFromItsBeginning(t *testing.T) {
	g := valueGen{Rand: rand.New(rand.NewPCG(3, 3))}
	for range 200 {
		col, want := g.maps(5, 1)
		part := array.NewSlice(col, 2, 5)
		checkColumn(t, part, want[2:])
	}
}
