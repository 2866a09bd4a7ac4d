package rowscan

import (
	"encoding/json"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/tools/valuegen"
)

type (
	namedBool  bool
	namedInt   int32
	namedText  string
	namedBytes []byte
	namedByte  byte
)

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

// textual is what UnmarshalText was given.
type textual struct{ given string }

func (s *textual) UnmarshalText(text []byte) error {
	s.given = string(text)
	return nil
}

// destinations are Go types of every kind that Rows takes.
var destinations = []reflect.Type{
	reflect.TypeFor[any](), reflect.TypeFor[bool](), reflect.TypeFor[*bool](), reflect.TypeFor[namedBool](),
	reflect.TypeFor[int](), reflect.TypeFor[int8](), reflect.TypeFor[int16](), reflect.TypeFor[int32](), reflect.TypeFor[int64](), reflect.TypeFor[namedInt](),
	reflect.TypeFor[uint](), reflect.TypeFor[uint8](), reflect.TypeFor[uint16](), reflect.TypeFor[uint32](), reflect.TypeFor[uint64](), reflect.TypeFor[*int64](),
	reflect.TypeFor[float32](), reflect.TypeFor[float64](), reflect.TypeFor[**float64](),
	reflect.TypeFor[string](), reflect.TypeFor[*string](), reflect.TypeFor[namedText](),
	reflect.TypeFor[[]byte](), reflect.TypeFor[json.RawMessage](), reflect.TypeFor[namedBytes](), reflect.TypeFor[[]namedByte](), reflect.TypeFor[[4]byte](), reflect.TypeFor[[4]namedByte](),
	reflect.TypeFor[time.Time](), reflect.TypeFor[*time.Time](), reflect.TypeFor[time.Duration](), reflect.TypeFor[Decimal](), reflect.TypeFor[*Decimal](),
	reflect.TypeFor[valuegen.Scanner](), reflect.TypeFor[*valuegen.Scanner](), reflect.TypeFor[textual](), reflect.TypeFor[[]*textual](),
	reflect.TypeFor[[]any](), reflect.TypeFor[[]int64](), reflect.TypeFor[[]*string](), reflect.TypeFor[[2]any](), reflect.TypeFor[[][]any](), reflect.TypeFor[[]valuegen.Scanner](),
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
		g := valuegen.New(seed)
		col, want := g.Column(1+g.IntN(6), int(depth%4))
		checkColumn(t, col, want)
	})
}

// TestEveryColumnFitsExactlyOrNotAtAll is FuzzValues over many seeds.
func TestEveryColumnFitsExactlyOrNotAtAll(t *testing.T) {
	fits := make(map[reflect.Type]int)
	for seed := range uint64(1500) {
		g := valuegen.New(seed)
		col, want := g.Column(1+g.IntN(6), int(seed%4))
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
	made, column := setters{}, Column(col)
	for row, logical := range want {
		if got := column(row); !valuegen.Same(reflect.ValueOf(&got).Elem(), logical) || reflect.TypeOf(got) != reflect.TypeOf(Value(col, row)) {
			t.Errorf("%s: Column gives %#v, not %v", col.DataType(), got, logical)
		}
		if got := Value(col, row); !valuegen.Same(reflect.ValueOf(&got).Elem(), logical) {
			t.Errorf("%s: Value is %#v, not %v", col.DataType(), got, logical)
		}
		for _, to := range destinations {
			set, err := made.of(to)
			require.NoError(t, err, to)
			dst := reflect.New(to).Elem()
			failed := set(dst, valueOf(col, row)) != nil
			checkDirect(t, col, row, dst, failed)
			if failed {
				if mustFit(to, valueOf(col, row), logical) {
					t.Errorf("%s: %v does not fit %s: %v", col.DataType(), logical, to, set(dst, valueOf(col, row)))
				}
				continue
			}
			fits[to]++
			if !valuegen.Same(plainOf(t, dst, valueOf(col, row)), logical) {
				t.Errorf("%s: %v arrives in %s as %#v", col.DataType(), logical, to, dst.Interface())
			}
		}
	}
	return fits
}

// plainOf is dst; or, where dst is a text by its UnmarshalText or JSON made of a value that
// is no text, what a string gets of it, which valuegen knows.
func plainOf(t *testing.T, dst reflect.Value, v value) reflect.Value {
	t.Helper()
	if one, is := dst.Interface().(textual); is {
		return reflect.ValueOf(one.given)
	}
	if many, is := dst.Interface().([]*textual); is && many != nil {
		texts := make([]*string, len(many))
		for i, one := range many {
			if one != nil {
				texts[i] = &one.given
			}
		}
		return reflect.ValueOf(texts)
	}
	raw, is := dst.Interface().(json.RawMessage)
	switch v.kind {
	case nullKind, textKind, binaryKind:
		return dst
	default:
	}
	if !is {
		return dst
	}
	text := string(raw)
	if v.kind != listKind && v.kind != mapKind && v.kind != structKind && strings.HasPrefix(text, `"`) {
		require.NoError(t, json.Unmarshal(raw, &text))
	}
	return reflect.ValueOf(text)
}

// checkDirect holds the directCopy of a value, where there is one, against what the setter
// has set.
func checkDirect(t *testing.T, col arrow.Array, row int, set reflect.Value, failed bool) {
	t.Helper()
	dst := reflect.New(set.Type())
	direct := directOf(dst.Interface(), col)
	switch {
	case direct == nil:
	case !direct(row):
		require.True(t, dst.Elem().IsZero(), "%s to %s: set, and said not to be", col.DataType(), set.Type())
	default:
		require.False(t, failed, "%s to %s: %v must not fit", col.DataType(), set.Type(), dst.Elem().Interface())
		want, _ := bitsOfFloat(set)
		got, isFloat := bitsOfFloat(dst.Elem())
		require.True(t, isFloat && got == want || reflect.DeepEqual(set.Interface(), dst.Elem().Interface()), "%s to %s: %v instead of %v", col.DataType(), set.Type(), dst.Elem().Interface(), set.Interface())
	}
}

// bitsOfFloat tells NaN from NaN.
func bitsOfFloat(v reflect.Value) (uint64, bool) {
	if v.Kind() == reflect.Float64 {
		return math.Float64bits(v.Float()), true
	}
	return 0, false
}

// mustFit reports whether a value may not be refused.
func mustFit(to reflect.Type, v value, logical any) bool {
	n, whole := big.NewInt(0), false
	f32, f64 := v.kind == floatKind && v.size == 32, v.kind == floatKind
	if r := valuegen.Rat(logical); r != nil {
		n, whole = r.Num(), r.IsInt() && v.kind != floatKind
		single, _ := r.Float32()
		double, _ := r.Float64()
		f32, f64 = r.Cmp(exactly(float64(single))) == 0, r.Cmp(exactly(double)) == 0
	}
	switch to {
	case reflect.TypeFor[any](), reflect.TypeFor[*string](), reflect.TypeFor[valuegen.Scanner]():
		return true
	case reflect.TypeFor[string]():
		return logical != nil
	case reflect.TypeFor[int64]():
		return whole && n.IsInt64()
	case reflect.TypeFor[uint64]():
		return whole && n.IsUint64()
	case reflect.TypeFor[int8]():
		return whole && n.IsInt64() && n.Int64() >= math.MinInt8 && n.Int64() <= math.MaxInt8
	case reflect.TypeFor[float64]():
		return f64
	case reflect.TypeFor[float32]():
		return f32
	case reflect.TypeFor[[]any]():
		return v.kind == listKind || v.kind == mapKind
	case reflect.TypeFor[map[string]any]():
		return v.kind == structKind
	case reflect.TypeFor[json.RawMessage]():
		return true
	case decimalType:
		return v.kind == decimalKind || v.kind == intKind || v.kind == uintKind
	case reflect.TypeFor[textual]():
		switch v.kind {
		case textKind, intKind, uintKind, decimalKind, timeKind, uuidKind:
			return true
		default:
			return false
		}
	case timeType:
		return v.kind == timeKind
	case durationType:
		return v.kind == durationKind
	default:
		return false
	}
}

// exactly is a float as a number; zero for an infinity, which is none here.
func exactly(f float64) *big.Rat {
	if r := new(big.Rat).SetFloat64(f); r != nil {
		return r
	}
	return new(big.Rat)
}

func TestASliceOfAMapsEntriesIsReadFromItsBeginning(t *testing.T) {
	g := valuegen.New(3)
	for range 200 {
		col, want := g.Maps(5, 1)
		part := array.NewSlice(col, 2, 5)
		checkColumn(t, part, want[2:])
	}
}
