// Package printing is how values that hold secrets print themselves: under
// every verb of fmt, in slog and in JSON the same text, without the secrets.
package printing

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Struct is the text of a struct: its name and the fields that are not zero.
// Bools, numbers, durations and texts are shown as they are, of maps with string
// keys the keys, of all else, and of the fields that are named secret, only that
// they are set.
func Struct(name string, v any, secret ...string) string {
	var b strings.Builder
	b.WriteString(name)
	b.WriteByte('{')
	separator := ""
	all := reflect.ValueOf(v)
	for i := range all.NumField() {
		f, value := all.Type().Field(i), all.Field(i)
		if !f.IsExported() || value.IsZero() {
			continue
		}
		text := "set"
		if !slices.Contains(secret, f.Name) {
			text = fieldText(value)
		}
		b.WriteString(separator + f.Name + ": " + text)
		separator = ", "
	}
	b.WriteByte('}')
	return b.String()
}

func fieldText(v reflect.Value) string {
	if d, ok := v.Interface().(time.Duration); ok {
		return d.String()
	}
	switch v.Kind() {
	case reflect.String:
		return fmt.Sprintf("%q", v.String())
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return fmt.Sprint(v.Interface())
	case reflect.Map:
		if v.Type().Key().Kind() == reflect.String {
			return Keys(v)
		}
	default:
	}
	return "set"
}

// Keys lists the keys of a map, in order.
func Keys(m reflect.Value) string {
	names := make([]string, 0, m.Len())
	for _, key := range m.MapKeys() {
		names = append(names, key.String())
	}
	slices.Sort(names)
	return "[" + strings.Join(names, " ") + "]"
}

// Format writes text, whatever the verb.
func Format(f fmt.State, text string) { _, _ = f.Write([]byte(text)) }

// JSON is text as a JSON string.
func JSON(text string) ([]byte, error) { return json.Marshal(text) }
