package optiontest

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FaultsNameFields sets each duration of a configuration to 5ns, whose unit is missing, and
// fails t unless what resolve finds begins with the name of a field of C, tells of that one
// and no more than once.
func FaultsNameFields[C any](t *testing.T, valid C, resolve func(C) error) {
	t.Helper()
	names := map[string][]int{}
	var walk func(prefix string, typ reflect.Type, at []int)
	walk = func(prefix string, typ reflect.Type, at []int) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			index := append(append([]int{}, at...), i)
			if f.IsExported() {
				names[prefix+f.Name] = index
			}
			if f.IsExported() && f.Type.Kind() == reflect.Struct {
				walk(prefix+f.Name+".", f.Type, index)
			}
		}
	}
	walk("", reflect.TypeFor[C](), nil)
	refused := 0
	for name, index := range names {
		c := valid
		field := reflect.ValueOf(&c).Elem().FieldByIndex(index)
		if field.Type() != reflect.TypeFor[time.Duration]() {
			continue
		}
		field.SetInt(5)
		err := resolve(c)
		if err == nil {
			continue
		}
		refused++
		told := map[string]bool{}
		for _, fault := range strings.Split(err.Error(), "; ") {
			of, _, _ := strings.Cut(fault, ": ")
			require.Contains(t, names, of, "%s: %s", name, fault)
			require.False(t, told[of], "%s is told twice: %v", of, err)
			told[of] = true
		}
		require.True(t, told[name], "%s: %v", name, err)
	}
	require.GreaterOrEqual(t, refused, 5)
}
