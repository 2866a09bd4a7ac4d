package rowscan

import (
	"math"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
)

// kind is what a value is, whatever array holds it. A setter decides by it
// alone, but for setDuration. What a type of Arrow maps to is decided in
// scalarOf, temporalOf and extensionOf; a type that they do not know is
// textOnlyKind, so that it can at least be shown.
type kind uint8

const (
	nullKind kind = iota
	boolKind
	intKind
	uintKind
	floatKind
	textKind
	binaryKind
	uuidKind
	timeKind     // a date or a timestamp
	durationKind // a duration or a time of day that fits time.Duration
	decimalKind  // one that fits Decimal
	textOnlyKind // what Go has no type for, an interval for example: its text
	listKind     // any kind of list
	structKind   //
	mapKind      //
)

// value is one logical value. Rows, Maps and Value read columns through it and
// through nothing else.
//
// INVARIANT: kind is nullKind exactly if the value is NULL, whether the NULL
// stands in the column, in a dictionary, a run, or a member of a union.
//
// It is made for one row and used at once: what it has of text or bytes is in
// the memory of the column. Which of size, num and str are set depends on the
// kind; col and row always are, also for NULL, so that an error can name the
// type.
type value struct {
	kind kind
	size uint8  // bits of an integer or float
	num  uint64 // bool, integer, bits of the float64, nanoseconds of a duration
	str  string // of textKind

	// col and row are where the value stands once its encodings are undone.
	col arrow.Array
	row int
}

// valueOf is the value of col at row. Dictionaries, run-ends, unions and
// extensions are the value that they stand for. The loop ends because each turn
// goes one level deeper into an array. NULL is looked for on each level, since
// any of them may have it.
func valueOf(col arrow.Array, row int) value {
	for {
		if col.IsNull(row) {
			return value{col: col, row: row}
		}
		if v, ok := scalarOf(col, row); ok {
			return v
		}
		switch a := col.(type) {
		case *array.Dictionary:
			col, row = a.Dictionary(), a.GetValueIndex(row)
		case *array.RunEndEncoded:
			col, row = a.Values(), a.GetPhysicalIndex(row)
		case *array.DenseUnion:
			col, row = a.Field(a.ChildID(row)), int(a.ValueOffset(row))
		case *array.SparseUnion:
			col = a.Field(a.ChildID(row))
		case array.ExtensionArray:
			if v, ok := extensionOf(a, row); ok {
				return v
			}
			col = a.Storage()
		case *array.Map:
			return value{kind: mapKind, col: col, row: row}
		case array.ListLike:
			return value{kind: listKind, col: col, row: row}
		case *array.Struct:
			return value{kind: structKind, col: col, row: row}
		case *array.Null: // its IsNull says false
			return value{col: col, row: row}
		default:
			return value{kind: textOnlyKind, col: col, row: row}
		}
	}
}

// extensionOf knows the extensions that are more than their storage.
//
// An extension that the program has not registered with Arrow does not come
// here: its column has the type of its storage.
func extensionOf(a array.ExtensionArray, row int) (value, bool) {
	t, ok := a.DataType().(arrow.ExtensionType)
	if !ok {
		return value{}, false
	}
	v := valueOf(a.Storage(), row)
	switch name := t.ExtensionName(); {
	case name == "arrow.uuid" && v.kind == binaryKind && len(v.bytes()) == 16:
		v.kind = uuidKind
		return v, true
	case name == "arrow.bool8" && v.kind == intKind:
		v.kind, v.num = boolKind, boolBit(v.num != 0)
		return v, true
	default:
		return value{}, false
	}
}

// scalarOf reads the types without parts. Numbers are read at once; bytes and
// nested values are fetched when they are needed. Not ok means that the type
// has parts, or is not known. A float16 is read as the float32 that it is equal
// to.
func scalarOf(col arrow.Array, row int) (v value, ok bool) {
	v = value{col: col, row: row}
	switch a := col.(type) {
	case *array.Int64:
		v.kind, v.size, v.num = intKind, 64, uint64(a.Value(row))
	case *array.Int32:
		v.kind, v.size, v.num = intKind, 32, uint64(a.Value(row))
	case *array.Int16:
		v.kind, v.size, v.num = intKind, 16, uint64(a.Value(row))
	case *array.Int8:
		v.kind, v.size, v.num = intKind, 8, uint64(a.Value(row))
	case *array.Uint64:
		v.kind, v.size, v.num = uintKind, 64, a.Value(row)
	case *array.Uint32:
		v.kind, v.size, v.num = uintKind, 32, uint64(a.Value(row))
	case *array.Uint16:
		v.kind, v.size, v.num = uintKind, 16, uint64(a.Value(row))
	case *array.Uint8:
		v.kind, v.size, v.num = uintKind, 8, uint64(a.Value(row))
	case *array.Float64:
		v.kind, v.size, v.num = floatKind, 64, math.Float64bits(a.Value(row))
	case *array.Float32:
		v.kind, v.size, v.num = floatKind, 32, math.Float64bits(float64(a.Value(row)))
	case *array.Float16:
		v.kind, v.size, v.num = floatKind, 32, math.Float64bits(halfFloat(a.Value(row)))
	case *array.Boolean:
		v.kind, v.num = boolKind, boolBit(a.Value(row))
	case *array.String:
		v.kind, v.str = textKind, a.Value(row)
	case *array.LargeString:
		v.kind, v.str = textKind, a.Value(row)
	case *array.StringView:
		v.kind, v.str = textKind, a.Value(row)
	case *array.Binary, *array.LargeBinary, *array.BinaryView, *array.FixedSizeBinary:
		v.kind = binaryKind
	case *array.Decimal128, *array.Decimal256, *array.Decimal64, *array.Decimal32:
		v.kind = textOnlyKind
		if _, fits := v.decimal(); fits {
			v.kind = decimalKind
		}
	default:
		return temporalOf(v)
	}
	return v, true
}

// maxSeconds is how far from 1970 a time.Time can be, nearly. Seconds beyond it
// would wrap round in time.Unix; smaller units do not reach it.
const maxSeconds = 1 << 62

// temporalOf reads dates, times and intervals. Of intervals only the text is
// kept, since months and days have no fixed length; setDuration looks at the
// column itself.
func temporalOf(v value) (_ value, ok bool) {
	switch a := v.col.(type) {
	case *array.Date32, *array.Date64:
		v.kind = timeKind
	case *array.Timestamp:
		v.kind = timeKind
		if at := int64(a.Value(v.row)); at > maxSeconds || at < -maxSeconds {
			if a.DataType().(*arrow.TimestampType).Unit == arrow.Second {
				v.kind = textOnlyKind
			}
		}
	case *array.Time32:
		v.fillDuration(int64(a.Value(v.row)), a.DataType().(*arrow.Time32Type).Unit)
	case *array.Time64:
		v.fillDuration(int64(a.Value(v.row)), a.DataType().(*arrow.Time64Type).Unit)
	case *array.Duration:
		v.fillDuration(int64(a.Value(v.row)), a.DataType().(*arrow.DurationType).Unit)
	case *array.MonthInterval, *array.DayTimeInterval, *array.MonthDayNanoInterval:
		v.kind = textOnlyKind
	default:
		return v, false
	}
	return v, true
}

// fillDuration makes v so many units, or text if they do not fit time.Duration.
func (v *value) fillDuration(units int64, unit arrow.TimeUnit) {
	nanos := units * int64(unit.Multiplier())
	v.kind, v.num = durationKind, uint64(nanos)
	if nanos/int64(unit.Multiplier()) != units {
		v.kind = textOnlyKind
	}
}

const secondsOfDay = 24 * 60 * 60

// boolBit is a boolean as value.num has it.
func boolBit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// int, float and bool read num as what the kind says it is.
func (v *value) int() int64     { return int64(v.num) }
func (v *value) float() float64 { return math.Float64frombits(v.num) }
func (v *value) bool() bool     { return v.num != 0 }

// bytes is a binary value in the memory of its column.
func (v *value) bytes() []byte { return v.col.(interface{ Value(int) []byte }).Value(v.row) }

// time is a date or a timestamp.
func (v *value) time() time.Time {
	switch a := v.col.(type) {
	case *array.Date32:
		return time.Unix(int64(a.Value(v.row))*secondsOfDay, 0).UTC()
	case *array.Date64: // its ToTime cuts off what is no whole day
		return time.UnixMilli(int64(a.Value(v.row))).UTC()
	default:
		ts := v.col.(*array.Timestamp)
		t := ts.DataType().(*arrow.TimestampType)
		return ts.Value(v.row).ToTime(t.Unit).In(zoneOf(t))
	}
}

// decimal is a decimal value. Not ok means that Decimal cannot hold it.
func (v *value) decimal() (Decimal, bool) {
	t := v.col.DataType().(arrow.DecimalType)
	return decimalOf(v.coefficient(), t.GetScale())
}

// coefficient is the integer of a decimal, of whichever width, as the widest
// one.
func (v *value) coefficient() decimal256.Num {
	switch a := v.col.(type) {
	case *array.Decimal32:
		return decimal256.FromI64(int64(a.Value(v.row)))
	case *array.Decimal64:
		return decimal256.FromI64(int64(a.Value(v.row)))
	case interface{ Value(int) decimal128.Num }:
		return decimal256.FromDecimal128(a.Value(v.row))
	default:
		return v.col.(interface{ Value(int) decimal.Decimal256 }).Value(v.row)
	}
}

// list is where the elements of a list, or the entries of a map, are. A list of
// fixed size, a list view and a sliced array all come out alike.
func (v *value) list() (elements arrow.Array, from, to int) {
	a := v.col.(array.ListLike)
	begin, end := a.ValueOffsets(v.row)
	return a.ListValues(), int(begin), int(end)
}

// member is one value of a struct.
func (v *value) member(i int) value { return valueOf(v.col.(*array.Struct).Field(i), v.row) }

// fields describes the members of a struct.
func (v *value) fields() *arrow.StructType { return v.col.DataType().(*arrow.StructType) }

// entries are the keys and values of a map, and where its own begin and end.
// The arrays that array.Map calls Keys and Items do not know where a slice of
// its entries begins.
func (v *value) entries() (keys, items arrow.Array, from, to int) {
	pairs, from, to := v.list()
	s := pairs.(*array.Struct)
	return s.Field(0), s.Field(1), from, to
}
