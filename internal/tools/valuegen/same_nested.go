package valuegen

import (
	"reflect"
)

func sameNested(got reflect.Value, want any) bool {
	if isText(got) {
		return SameJSON(got.String(), want)
	}
	switch want := want.(type) {
	case sequence:
		return sameElements(got, want)
	case members:
		if got.Kind() == reflect.Map {
			return got.Len() == len(want) && sameKeys(got, func(name string) (any, bool) {
				at := int(name[0]) - 'a'
				return want[at], at < len(want)
			})
		}
		if got.Kind() != reflect.Struct || got.NumField() > len(want) {
			return false
		}
		for i := range got.NumField() {
			if !Same(got.Field(i), want[i]) {
				return false
			}
		}
		return true
	case pairs:
		return samePairs(got, want)
	default:
		return false
	}
}

func sameElements(got reflect.Value, want []any) bool {
	if k := got.Kind(); k != reflect.Slice && k != reflect.Array || got.Len() != len(want) {
		return false
	}
	for i := range want {
		if !Same(got.Index(i), want[i]) {
			return false
		}
	}
	return true
}

func sameKeys(got reflect.Value, want func(string) (any, bool)) bool {
	for iter := got.MapRange(); iter.Next(); {
		if item, ok := want(iter.Key().String()); !ok || !Same(iter.Value(), item) {
			return false
		}
	}
	return true
}

func samePairs(got reflect.Value, want pairs) bool {
	if k := got.Kind(); k == reflect.Slice || k == reflect.Array { // of entries, as structs, maps or JSON
		if got.Len() != len(want) {
			return false
		}
		for i, pair := range want {
			entry := got.Index(i)
			for entry.Kind() == reflect.Interface || entry.Kind() == reflect.Pointer {
				entry = entry.Elem()
			}
			switch entry.Kind() {
			case reflect.String:
				if !sameEntryJSON(entry.String(), pair) {
					return false
				}
			case reflect.Struct:
				if s, scanned := entry.Interface().(Scanner); scanned {
					if text, ok := s.Got.(string); !ok || !sameEntryJSON(text, pair) {
						return false
					}
					continue
				}
				if entry.NumField() != 2 || !Same(entry.Field(0), pair[0]) || !Same(entry.Field(1), pair[1]) {
					return false
				}
			case reflect.Map:
				for name, part := range map[string]any{"key": pair[0], "value": pair[1]} {
					if !Same(entry.MapIndex(reflect.ValueOf(name)), part) {
						return false
					}
				}
			default:
				return false
			}
		}
		return true
	}
	if got.Kind() != reflect.Map || got.Len() != len(want) {
		return false
	}
	for _, pair := range want {
		found := false
		for iter := got.MapRange(); iter.Next(); {
			found = found || sameKey(iter.Key(), pair[0]) && Same(iter.Value(), pair[1])
		}
		if !found {
			return false
		}
	}
	return true
}

// sameKey is Same for a key, of which a map[string]any has the text.
func sameKey(got reflect.Value, want any) bool {
	return got.Kind() == reflect.Interface && got.Elem().Kind() != reflect.String && Same(got.Elem(), want) || Same(got, want)
}

// sameScanned is Same for what a Scanner was given.
func sameScanned(got, want any) bool {
	switch want := want.(type) {
	case ticks:
		if n, ok := got.(int64); ok {
			return want.IsInt64() && want.Int64() == n
		}
		return !want.IsInt64() && got != ""
	case nil:
		return got == nil
	}
	return got != nil && Same(reflect.ValueOf(got), want)
}
