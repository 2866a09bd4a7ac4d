package rowscan

import (
	"fmt"
	"reflect"

	"github.com/apache/arrow-go/v18/arrow"
)

// pointerSetter makes NULL a nil pointer, and anything else a new value to
// which dst points.
func (s setters) pointerSetter(t reflect.Type) (setter, error) {
	set, err := s.of(t.Elem())
	if err != nil {
		return nil, err
	}
	return func(dst reflect.Value, v value) error {
		if v.kind == nullKind {
			return nil
		}
		to := reflect.New(t.Elem())
		if err := set(to.Elem(), v); err != nil {
			return err
		}
		dst.Set(to)
		return nil
	}, nil
}

// holdsBytes reports whether a slice or array type is one of plain bytes. A
// byte type with a Scan method takes elements one by one instead.
func holdsBytes(t reflect.Type) bool {
	return t.Elem().Kind() == reflect.Uint8 && !isScalar(t.Elem())
}

// rawBytes is the bytes that a value is made of, if it is. The bytes of a
// binary value are its column's: they must be copied before they are given out.
func (v *value) rawBytes() ([]byte, bool) {
	switch v.kind {
	case binaryKind, uuidKind:
		return v.bytes(), true
	case textKind:
		return []byte(v.str), true
	default:
		return nil, false
	}
}

// sliceSetter takes lists, and maps as the list of their entries; a slice of
// bytes also what has bytes. NULL leaves nil, and an empty list is an empty
// slice that is not nil, so that the two can be told apart. Elements are set
// one by one, so that a list of structs or of lists works in the same way.
// Bytes are copied.
func (s setters) sliceSetter(t reflect.Type) (setter, error) {
	set, err := s.of(t.Elem())
	if err != nil {
		return nil, err
	}
	bytes := holdsBytes(t)
	return func(dst reflect.Value, v value) error {
		switch v.kind {
		case nullKind:
			return nil
		case listKind, mapKind:
			_, from, to := v.list()
			out := reflect.MakeSlice(t, to-from, to-from)
			if err := setElements(out, v, set); err != nil {
				return err
			}
			dst.Set(out)
			return nil
		default:
			if raw, ok := v.rawBytes(); ok && bytes {
				dst.SetBytes(append([]byte{}, raw...))
				return nil
			}
			return v.typeMismatch(t, "")
		}
	}, nil
}

// setRawJSON takes texts and binary values byte by byte, since servers send JSON as such,
// and makes JSON of everything else. NULL leaves nil.
func setRawJSON(dst reflect.Value, v value) error {
	switch v.kind {
	case nullKind:
	case textKind:
		dst.SetBytes([]byte(v.str))
	case binaryKind:
		dst.SetBytes(append([]byte{}, v.bytes()...))
	default:
		dst.SetBytes(v.appendJSON(nil))
	}
	return nil
}

// arraySetter takes what sliceSetter takes, of exactly its length. A shorter
// list would leave elements that look like zeros, so it is an error. NULL needs
// a pointer to the array.
func (s setters) arraySetter(t reflect.Type) (setter, error) {
	set, err := s.of(t.Elem())
	if err != nil {
		return nil, err
	}
	bytes := holdsBytes(t)
	return func(dst reflect.Value, v value) error {
		switch v.kind {
		case nullKind:
			return nullMismatch(v, t)
		case listKind, mapKind:
			if _, from, to := v.list(); to-from != t.Len() {
				return v.typeMismatch(t, fmt.Sprintf("it has %d elements", to-from))
			}
			return setElements(dst, v, set)
		default:
			raw, ok := v.rawBytes()
			if !ok || !bytes {
				return v.typeMismatch(t, "")
			}
			if len(raw) != t.Len() {
				return v.typeMismatch(t, fmt.Sprintf("it has %d bytes", len(raw)))
			}
			for i, b := range raw {
				dst.Index(i).SetUint(uint64(b))
			}
			return nil
		}
	}, nil
}

// setElements sets the elements of a slice or array to those of a list. dst has
// as many as the list. An element that is NULL is for the setter of the
// elements to judge.
func setElements(dst reflect.Value, v value, set setter) error {
	elements, from, _ := v.list()
	for i := range dst.Len() {
		if err := set(dst.Index(i), valueOf(elements, from+i)); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return nil
}

// mapSetter takes maps, and structs where the keys are strings.
//
// Keys that are pointers are refused when the plan is made: each value would be
// a key of its own, so that none could be looked up. NULL leaves a nil map.
func (s setters) mapSetter(t reflect.Type) (setter, error) {
	if t.Key().Kind() == reflect.Pointer {
		return nil, fmt.Errorf("type %s cannot hold a column: its keys are pointers", t)
	}
	setKey, err := s.of(t.Key())
	if err != nil {
		return nil, err
	}
	setItem, err := s.of(t.Elem())
	if err != nil {
		return nil, err
	}
	return func(dst reflect.Value, v value) error {
		switch {
		case v.kind == nullKind:
			return nil
		case v.kind == mapKind:
			return setMap(dst, v, setKey, setItem)
		case v.kind == structKind && t.Key().Kind() == reflect.String:
			return setStructAsMap(dst, v, setItem)
		default:
			return v.typeMismatch(t, "")
		}
	}, nil
}

// setMap fills a map from the entries of a map. Arrow allows keys that a Go map
// cannot have: NULL, equal ones, and in a map with keys of type any, lists. All
// are errors, since an entry would be lost. The key and the item are set in two
// variables that all entries share; SetMapIndex copies them.
func setMap(dst reflect.Value, v value, setKey, setItem setter) error {
	t := dst.Type()
	keys, items, from, to := v.entries()
	out := reflect.MakeMapWithSize(t, to-from)
	k, e := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
	for i := from; i < to; i++ {
		k.SetZero()
		e.SetZero()
		key, item := valueOf(keys, i), valueOf(items, i)
		if key.kind == nullKind {
			return v.typeMismatch(t, "a key is NULL; use a slice of structs")
		}
		if err := setKey(k, key); err != nil {
			return fmt.Errorf("key: %w", err)
		}
		if !k.Comparable() {
			return key.typeMismatch(t, "no key of a Go map can be one; use string keys, or a slice of structs")
		}
		if out.MapIndex(k).IsValid() {
			return v.typeMismatch(t, fmt.Sprintf("the key %q comes twice; use a slice of structs", shortened(key.text())))
		}
		if err := setItem(e, item); err != nil {
			return fmt.Errorf("value of key %q: %w", shortened(key.text()), err)
		}
		out.SetMapIndex(k, e)
	}
	dst.Set(out)
	return nil
}

// setStructAsMap fills a map from the members of a struct. Members of equal
// names get numbers (uniqueNames).
func setStructAsMap(dst reflect.Value, v value, setItem setter) error {
	t := dst.Type()
	names := uniqueNames(v.fields().Fields())
	out := reflect.MakeMapWithSize(t, len(names))
	e := reflect.New(t.Elem()).Elem()
	for i, name := range names {
		e.SetZero()
		if err := setItem(e, v.member(i)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		out.SetMapIndex(reflect.ValueOf(name).Convert(t.Key()), e)
	}
	dst.Set(out)
	return nil
}

// maxPlans bounds what is remembered of a column that describes its structs
// anew with every batch. They are forgotten all at once, and made again as
// needed: the common case is one.
const maxPlans = 32

// structSetter takes structs, by the names of their members. The plan for the
// type of a column is found by its address: all batches of a stream share it,
// as a rule. Members without a field are passed over, and a field without a
// member is an error, as for the columns of a row.
func (s setters) structSetter(t reflect.Type) (setter, error) {
	fields, err := s.fieldsOf(t)
	if err != nil {
		return nil, err
	}
	plans := make(map[*arrow.StructType][]columnPlan, 1)
	return func(dst reflect.Value, v value) error {
		switch v.kind {
		case nullKind:
			return nullMismatch(v, t)
		case structKind:
		default:
			return v.typeMismatch(t, "")
		}
		plan, known := plans[v.fields()]
		if !known {
			var err error
			if plan, err = planFields(fields, v.fields().Fields()); err != nil {
				return err
			}
			if len(plans) >= maxPlans {
				clear(plans)
			}
			plans[v.fields()] = plan
		}
		for i := range plan {
			c := &plan[i]
			member := v.member(c.column)
			if err := c.set(c.locate(dst), member); err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
		}
		return nil
	}, nil
}
