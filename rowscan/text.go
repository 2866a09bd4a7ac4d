package rowscan

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// text is the value as a string gets it: texts and binary values as they are,
// numbers in full, times as RFC 3339 has them, lists, structs and maps as JSON.
// NULL is "NULL", which only errors show: setters and JSON treat NULL before. A
// float has the fewest digits that give it back, in the precision of its
// column. It has memory of its own: that of a batch goes with the batch.
func (v *value) text() string {
	switch v.kind {
	case nullKind:
		return "NULL"
	case boolKind:
		return strconv.FormatBool(v.bool())
	case intKind:
		return strconv.FormatInt(v.int(), 10)
	case uintKind:
		return strconv.FormatUint(v.num, 10)
	case floatKind:
		return strconv.FormatFloat(v.float(), 'g', -1, int(v.size))
	case textKind:
		return strings.Clone(v.str)
	case binaryKind:
		return string(v.bytes())
	case uuidKind:
		b := v.bytes()
		return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	case timeKind:
		return v.timeText()
	case decimalKind:
		d, _ := v.decimal()
		return d.String()
	case listKind, structKind, mapKind:
		return string(v.appendJSON(nil))
	default:
		return v.textOnlyText()
	}
}

// textOnlyText is the text of what has a unit, and of what no Go type holds. A
// number beyond Decimal's scale is its coefficient with an exponent, and a
// timestamp beyond time.Time its number with the unit. Durations and intervals
// are as Arrow writes them.
func (v *value) textOnlyText() string {
	switch a := v.col.(type) {
	case *array.Time32:
		return clockText(int64(a.Value(v.row)), a.DataType().(*arrow.Time32Type).Unit)
	case *array.Time64:
		return clockText(int64(a.Value(v.row)), a.DataType().(*arrow.Time64Type).Unit)
	case *array.Timestamp:
		return fmt.Sprintf("%d%s", a.Value(v.row), a.DataType().(*arrow.TimestampType).Unit)
	case *array.Decimal32, *array.Decimal64, *array.Decimal128, *array.Decimal256:
		whole := Decimal{coef: v.coefficient()}
		return fmt.Sprintf("%se%d", whole, -int64(v.col.DataType().(arrow.DecimalType).GetScale()))
	default:
		return v.col.ValueStr(v.row)
	}
}

const (
	dayLayout  = "2006-01-02"
	timeLayout = "2006-01-02T15:04:05.999999999"
)

// timeText is a date as a day, and a timestamp with its offset where the column
// has a zone. Offsets of historical zones have seconds, for which RFC 3339 has
// no room: they are added. A Date64 that is no whole day shows its time, which
// would be lost otherwise.
func (v *value) timeText() string {
	at := v.time()
	switch t := v.col.DataType().(type) {
	case *arrow.Date32Type:
		return at.Format(dayLayout)
	case *arrow.Date64Type:
		if at.Truncate(24 * time.Hour).Equal(at) {
			return at.Format(dayLayout)
		}
	case *arrow.TimestampType:
		if _, offset := at.Zone(); t.TimeZone != "" && offset%60 != 0 {
			return at.Format(timeLayout + "Z07:00:00")
		} else if t.TimeZone != "" {
			return at.Format(time.RFC3339Nano)
		}
	}
	return at.Format(timeLayout)
}

// clockText is a time of day with the digits that its unit has. 24:00:00, which
// some databases know, stays what it is. A negative one has a sign. Hours may
// have more than two digits, since nothing bounds them in Arrow.
func clockText(units int64, unit arrow.TimeUnit) string {
	sign := ""
	if units < 0 {
		sign = "-"
	}
	second := uint64(time.Second / unit.Multiplier())
	whole, part := magnitude(units)/second, magnitude(units)%second
	s := fmt.Sprintf("%s%02d:%02d:%02d", sign, whole/3600, whole/60%60, whole%60)
	if digits := 3 * int(unit); digits > 0 {
		s += fmt.Sprintf(".%0*d", digits, part)
	}
	return s
}

// AppendJSON appends the value of col at row as JSON, as a string gets the nested
// values of a row from Rows: NULL is null; times, durations, decimals, what Go has no
// type for and floats that are no numbers are strings, binary values strings in base64,
// and integers numbers in full. A map with NULL or equal keys is the array of its
// entries, and members of a struct that come again get #2, #3 and so on added. Texts
// that are no UTF-8 are escaped as in Go's source, for which there is no JSON.
func AppendJSON(b []byte, col arrow.Array, row int) []byte {
	v := valueOf(col, row)
	return v.appendJSON(b)
}

// appendJSON appends the value as JSON: times, durations, decimals and floats
// that are no numbers as strings, binary values in base64. Decimals are strings
// because most readers of JSON make floats of numbers. Integers are numbers in
// full, also beyond 2^53. It cannot fail.
func (v *value) appendJSON(b []byte) []byte {
	switch v.kind {
	case nullKind:
		return append(b, "null"...)
	case boolKind, intKind, uintKind:
		return append(b, v.text()...)
	case floatKind:
		if f := v.float(); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return append(b, v.text()...)
		}
		return appendQuoted(b, v.text())
	case binaryKind:
		return appendQuoted(b, base64.StdEncoding.EncodeToString(v.bytes()))
	case listKind:
		return v.appendList(b)
	case structKind:
		b = append(b, '{')
		for i, name := range uniqueNames(v.fields().Fields()) {
			m := v.member(i)
			b = append(appendQuoted(appendComma(b, i), name), ':')
			b = m.appendJSON(b)
		}
		return append(b, '}')
	case mapKind:
		return v.appendMap(b)
	default:
		return appendQuoted(b, v.text())
	}
}

// appendList appends the elements of a list as an array, or the entries of a
// map as an array of objects.
func (v *value) appendList(b []byte) []byte {
	elements, from, to := v.list()
	b = append(b, '[')
	for i := from; i < to; i++ {
		element := valueOf(elements, i)
		b = element.appendJSON(appendComma(b, i-from))
	}
	return append(b, ']')
}

// appendMap appends an object, or the list of entries that goMap makes of the
// same map. What it has begun to append is dropped then: b has not been changed
// up to its length.
func (v *value) appendMap(b []byte) []byte {
	keys, items, from, to := v.entries()
	taken := make(map[string]bool, to-from)
	out := append(b, '{')
	for i := from; i < to; i++ {
		key, item := valueOf(keys, i), valueOf(items, i)
		name := key.text()
		if key.kind == binaryKind {
			name = base64.StdEncoding.EncodeToString(key.bytes())
		}
		if taken[name] || key.kind == nullKind {
			return v.appendList(b)
		}
		taken[name] = true
		out = append(appendQuoted(appendComma(out, i-from), name), ':')
		out = item.appendJSON(out)
	}
	return append(out, '}')
}

// appendComma appends a comma before all elements but the first, which has the
// number 0.
func appendComma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

// appendQuoted appends a JSON string. Bytes that are no UTF-8 are escaped as Go
// does, so that they are not lost, although no reader of JSON knows them.
func appendQuoted(b []byte, s string) []byte {
	if !utf8.ValidString(s) {
		return strconv.AppendQuote(b, s)
	}
	if !strings.ContainsFunc(s, isEscaped) {
		b = append(b, '"')
		b = append(b, s...)
		return append(b, '"')
	}
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string can always be encoded
	return append(b, strings.TrimSuffix(out.String(), "\n")...)
}

// isEscaped reports whether JSON, as encoding/json writes it, may not have r as it is.
func isEscaped(r rune) bool {
	return r < ' ' || r == '"' || r == '\\' || r == '\u2028' || r == '\u2029' || r == utf8.RuneError
}
