package optiontest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/option"
)

// saidDefault is how a comment says a default that is a number or a duration:
// (5s; negative: never), Default 5s, or 5s by default.
var saidDefault = regexp.MustCompile(`\((\d[\w.,]*(?: MiB)?)[;,):]|\b[Dd]efault (\d[\w.,]*(?: (?:ms|s)\b)?)|(\d[\w.,]*)\s+by\s+default`)

// Said returns the defaults that the comments of a struct's fields say, by the names of the
// fields, where those are numbers or durations. A field without a comment of its own is
// looked for by its name in the one before.
func Said(t *testing.T, file, typ string) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	require.NoError(t, err)
	said := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != typ {
			return true
		}
		before := ""
		for _, field := range spec.Type.(*ast.StructType).Fields.List {
			comment := field.Doc.Text() + field.Comment.Text()
			own := comment != ""
			if !own {
				comment = before
			}
			before = comment
			for _, name := range field.Names {
				_, after, named := strings.Cut(comment, name.Name)
				if !named && own {
					after = comment
				}
				if m := saidDefault.FindStringSubmatch(after); m != nil {
					said[name.Name] = strings.TrimRight(m[1]+m[2]+m[3], ".,")
				}
			}
		}
		return false
	})
	require.NotEmpty(t, said, "%s says no default of %s", file, typ)
	return said
}

// Hold fails t unless each default that is said is the one of a configuration in which all
// are filled in, and each number or duration there that is not zero has one that is said.
// The fields named in without have defaults that depend on others.
func Hold(t *testing.T, said map[string]string, resolved any, without ...string) {
	t.Helper()
	c := reflect.ValueOf(resolved)
	unsaid := map[string]bool{}
	for _, name := range without {
		require.True(t, c.FieldByName(name).IsValid(), "no field has the name %s", name)
		unsaid[name] = true
	}
	for i := range c.NumField() {
		name, v := c.Type().Field(i).Name, c.Field(i)
		text, is := said[name]
		switch {
		case unsaid[name] || !c.Type().Field(i).IsExported():
		case is && (v.CanInt() || v.CanFloat()):
			require.Equal(t, v.Interface(), valueOf(t, text, v), "what is said of %s", name)
		case v.IsZero() || v.Type().PkgPath() != "" && v.Type() != reflect.TypeFor[time.Duration](): // none, or one with a name
		case v.CanInt() || v.CanFloat():
			require.Fail(t, "a default that no comment says", "%s: %v", name, v)
		}
	}
}

// valueOf reads what is said as the type of v.
func valueOf(t *testing.T, text string, v reflect.Value) any {
	t.Helper()
	if v.Type() == reflect.TypeFor[time.Duration]() {
		d, err := time.ParseDuration(strings.ReplaceAll(text, " ", ""))
		require.NoError(t, err)
		return d
	}
	number, unit, _ := strings.Cut(text, " ")
	f, err := strconv.ParseFloat(strings.ReplaceAll(number, ",", ""), 64)
	require.NoError(t, err)
	if unit == "MiB" {
		f *= 1 << 20
	}
	return reflect.ValueOf(f).Convert(v.Type()).Interface()
}

// Parsed fails t unless each text that a document gives as the default of a key means what
// the table fills in. "none" and "never" are no text of a key: its field is off or zero then,
// and a key in backquotes is the field of that one.
func Parsed[C any](t *testing.T, table option.Table[C], filled *C, said map[string]string) {
	t.Helper()
	value := func(c *C, row option.Row[C]) any { return reflect.ValueOf(row.Pointer(c)).Elem().Interface() }
	for key, text := range said {
		row, ok := table.Find(key)
		require.True(t, ok, "there is no %s", key)
		at := value(filled, row)
		if other, isKey := table.Find(strings.Trim(text, "`")); isKey {
			require.Equal(t, value(filled, other), at, key)
			continue
		}
		if text == "none" || text == "never" || text == "off" || text == "-" {
			v := reflect.ValueOf(at)
			require.True(t, v.IsZero() || v.CanInt() && v.Int() <= 0, "%s: %v is not off", key, at)
			continue
		}
		set, err := row.Parse(strings.ReplaceAll(text, " ", ""))
		require.NoError(t, err, key)
		c := *filled
		set(&c)
		got := value(&c, row)
		if fmt.Sprint(got) == fmt.Sprint(option.Off) {
			row.Fill(&c)
			got = value(&c, row)
		}
		require.Equal(t, at, got, "what is said of %s", key)
	}
}
