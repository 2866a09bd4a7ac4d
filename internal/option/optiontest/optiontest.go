// Package optiontest holds a table of options against its configuration.
package optiontest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/option"
)

// Covers fails t unless each exported field of C, and of the structs in it, is in
// the table or named in without, and each row is at the field that it names.
func Covers[C any](t *testing.T, table option.Table[C], without ...string) {
	t.Helper()
	c := new(C)
	fields := map[string]reflect.Value{}
	inTable := func(name string) bool {
		return slices.ContainsFunc(table, func(row option.Row[C]) bool { n, _ := row.Names(); return n == name })
	}
	var walk func(prefix string, v reflect.Value)
	walk = func(prefix string, v reflect.Value) {
		for i := range v.NumField() {
			f, name := v.Type().Field(i), prefix+v.Type().Field(i).Name
			switch in, out := inTable(name), slices.Contains(without, name); {
			case !f.IsExported():
			case in || out:
				require.False(t, in && out, "%s is in the table and in the list of those without", name)
				fields[name] = v.Field(i)
			case f.Type.Kind() == reflect.Struct:
				walk(name+".", v.Field(i))
			default:
				require.Fail(t, "a field without options", "%s: give it a row in the table, or say in the list of those without that text cannot set it", name)
			}
		}
	}
	walk("", reflect.ValueOf(c).Elem())
	for _, name := range without {
		require.True(t, fields[name].IsValid(), "no field has the name %s", name)
	}
	keys := map[string]bool{}
	for _, row := range table {
		name, key := row.Names()
		require.True(t, fields[name].IsValid(), "no field has the name %s", name)
		require.Same(t, fields[name].Addr().Interface(), row.Pointer(c), "%s is the name of another field", name)
		require.False(t, key != "" && keys[key], "%s is the key of two rows", key)
		if keys[key] = true; key != "" {
			require.NotPanics(t, func() { _, _ = row.Parse("") }, "%s has no Read", key)
		}
	}
}

// Named fails t unless the text has each of the words as a whole word.
func Named(t *testing.T, text string, words ...string) {
	t.Helper()
	all := strings.FieldsFunc(text, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.", r)
	})
	for i, word := range all {
		all[i] = strings.Trim(word, ".")
	}
	for _, word := range words {
		require.True(t, slices.Contains(all, word), "the text lacks %s", word)
	}
}
