// Package structfields lists the fields of a struct type that stand for columns, for
// those who read rows into structs and those who make rows of them.
package structfields

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/flightpool/flightpool/internal/errjoin"
)

// Field is a field of a struct. A promoted field has the indices of the embedded structs
// in its path before its own.
type Field struct {
	Name     string // of its column: by its tag `arrow:"name"` or `db:"name"`, else as GoName
	GoName   string
	Path     []int
	Type     reflect.Type
	Tagged   bool // Name is the tag's
	Optional bool // the tag ends in ",optional": it may be without a column
}

// Of lists the fields of a struct type that stand for columns, those of
// embedded structs among them. A field hides those of the same column in
// structs embedded deeper; on one level, each gets the column.
//
// That is how Go itself promotes fields, but for equal names on one level, of
// which Go promotes none. The comparison is without case, as columns are found
// without it. isValue reports whether a struct type is one value, so that an embedded
// one, such as time.Time, promotes nothing. All faults are joined.
func Of(t reflect.Type, isValue func(reflect.Type) bool) ([]Field, error) {
	w := walk{isValue: isValue, depths: make(map[string]int)}
	w.walk(t, nil, map[reflect.Type]bool{})
	fields := w.fields[:0]
	for _, f := range w.fields {
		if w.depths[strings.ToLower(f.Name)] == len(f.Path) {
			fields = append(fields, f)
		}
	}
	return fields, errjoin.Join(w.faults...)
}

// IsOpaque reports whether t is a struct of which nobody else can set a field. With methods
// that read and write its text such a one is a value; with fields to set, it is a row.
func IsOpaque(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	for i := range t.NumField() {
		if t.Field(i).IsExported() {
			return false
		}
	}
	return true
}

// IsEmbeddedPointer reports whether t is a struct of nothing but an embedded pointer, from
// which it has its methods: nil, it stands for NULL.
func IsEmbeddedPointer(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.NumField() == 1 && t.Field(0).Anonymous && t.Field(0).Type.Kind() == reflect.Pointer
}

// walk collects the fields of a struct type. It is used for one call of Of.
type walk struct {
	isValue func(reflect.Type) bool
	fields  []Field
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
func (w *walk) walk(t reflect.Type, path []int, above map[reflect.Type]bool) {
	if above[t] {
		return
	}
	above[t] = true
	defer delete(above, t)
	for i := range t.NumField() {
		f := t.Field(i)
		name, optional := tagOf(f)
		if name == "-" {
			continue
		}
		at := append(path[:len(path):len(path)], i)
		if inner, promoted := w.embedded(f); promoted && name == "" {
			if f.Type.Kind() == reflect.Pointer && !f.IsExported() {
				w.faults = append(w.faults, fmt.Errorf("field %s: an embedded pointer to a type that is not exported cannot be set: embed the struct, or tag the field `arrow:\"-\"`", f.Name))
				continue
			}
			w.walk(inner, at, above)
			continue
		}
		if f.IsExported() {
			w.add(Field{Name: name, GoName: f.Name, Path: at, Type: f.Type, Tagged: name != "", Optional: optional})
		}
	}
}

// tagOf is the name that a field's tag gives its column: the tag arrow, or else db, which
// structs have that pgx and sqlx read. What follows a comma in db is theirs.
func tagOf(f reflect.StructField) (name string, optional bool) {
	if tag, tagged := f.Tag.Lookup("arrow"); tagged {
		return strings.CutSuffix(tag, ",optional")
	}
	name, _, _ = strings.Cut(f.Tag.Get("db"), ",")
	return name, false
}

// embedded is the struct whose fields f promotes, if it is such a field. A
// struct that takes a whole column, such as an embedded time.Time, promotes
// nothing.
func (w *walk) embedded(f reflect.StructField) (reflect.Type, bool) {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t, f.Anonymous && t.Kind() == reflect.Struct && !w.isValue(t)
}

// add notes a field that takes the column of its tag, or else of its own name.
func (w *walk) add(f Field) {
	if !f.Tagged {
		f.Name = f.GoName
	}
	w.fields = append(w.fields, f)
	column := strings.ToLower(f.Name)
	if depth, seen := w.depths[column]; !seen || len(f.Path) < depth {
		w.depths[column] = len(f.Path)
	}
}
