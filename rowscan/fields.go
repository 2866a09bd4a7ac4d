package rowscan

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/flightpool/flightpool/internal/errjoin"
)

// fieldsOf lists the fields of a struct type that take columns, those of
// embedded structs among them. A field hides those of the same column in
// structs embedded deeper; on one level, each gets the column.
//
// That is how Go itself promotes fields, but for equal names on one level, of
// which Go promotes none.
//
// The comparison is without case, as columns are found without it. All faults
// are joined: a field of a type that no column fits is one, unless its tag
// leaves it out.
func (s setters) fieldsOf(t reflect.Type) ([]field, error) {
	w := fieldWalk{setters: s, depths: make(map[string]int)}
	w.walk(t, nil, map[reflect.Type]bool{})
	fields := w.fields[:0]
	for _, f := range w.fields {
		if w.depths[strings.ToLower(f.name)] == len(f.path) {
			fields = append(fields, f)
		}
	}
	return fields, errjoin.Join(w.faults...)
}

// fieldWalk collects the fields of a struct type. It is used for one call of
// fieldsOf.
type fieldWalk struct {
	setters setters
	fields  []field
	faults  []error
	depths  map[string]int // the least depth of each column's fields
}

// walk adds the fields of t, which stands at path. above are the types around
// it: a struct that embeds a pointer to itself ends there. A type may come
// twice side by side, but not within itself.
//
// A field that is not exported is passed over without a fault, since a package
// cannot expect others to set it. Only a struct that is embedded by a pointer
// to a type that is not exported is a fault: reflection cannot allocate it, and
// its fields look as if they could be set.
func (w *fieldWalk) walk(t reflect.Type, path []int, above map[reflect.Type]bool) {
	if above[t] {
		return
	}
	above[t] = true
	defer delete(above, t)
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("arrow")
		if name == "-" {
			continue
		}
		at := append(path[:len(path):len(path)], i)
		if inner, promoted := embedded(f); promoted && name == "" {
			if f.Type.Kind() == reflect.Pointer && !f.IsExported() {
				w.faults = append(w.faults, fmt.Errorf("field %s: an embedded pointer to a type that is not exported cannot be set: embed the struct, or tag the field `arrow:\"-\"`", f.Name))
				continue
			}
			w.walk(inner, at, above)
			continue
		}
		if f.IsExported() {
			w.add(f, name, at)
		}
	}
}

// embedded is the struct whose fields f promotes, if it is such a field. A
// struct that takes a whole column, such as an embedded time.Time, promotes
// nothing.
func embedded(f reflect.StructField) (reflect.Type, bool) {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t, f.Anonymous && t.Kind() == reflect.Struct && !isScalar(t)
}

// add notes a field that takes the column of its tag, or else of its own name.
func (w *fieldWalk) add(f reflect.StructField, name string, path []int) {
	if name == "" {
		name = f.Name
	}
	set, err := w.setters.of(f.Type)
	if err != nil {
		w.faults = append(w.faults, fmt.Errorf("field %s: %w", f.Name, err))
		return
	}
	w.fields = append(w.fields, field{name: name, goName: f.Name, path: path, set: set})
	column := strings.ToLower(name)
	if depth, seen := w.depths[column]; !seen || len(path) < depth {
		w.depths[column] = len(path)
	}
}
