package valuegen

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"time"
)

// sameMoment is for the text of a time. Years that time.Parse does not read are
// believed.
func sameMoment(got string, want time.Time) bool {
	if y := want.Year(); y < 1 || y > 9998 {
		return got != ""
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02T15:04:05.999999999Z07:00:00", "2006-01-02"} {
		if at, err := time.Parse(layout, got); err == nil {
			return at.Equal(want)
		}
	}
	return false
}

// sameTickText is for the text of a duration, a number and its unit, or of a
// time of day.
func sameTickText(got string, want *big.Int) bool {
	text, negative := strings.CutPrefix(got, "-")
	nanos := new(big.Int)
	units := []struct {
		name string
		size int64
	}{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}
	for _, unit := range units {
		if digits, ok := strings.CutSuffix(text, unit.name); ok {
			if _, ok := nanos.SetString(digits, 10); !ok {
				return false
			}
			nanos.Mul(nanos, big.NewInt(unit.size))
			return sign(nanos, negative).Cmp(want) == 0
		}
	}
	clock, fraction, _ := strings.Cut(text, ".")
	var hours, minutes, seconds, rest int64
	if _, err := fmt.Sscanf(clock, "%d:%d:%d", &hours, &minutes, &seconds); err != nil || minutes > 59 || seconds > 59 {
		return false
	}
	if _, err := fmt.Sscanf((fraction + "000000000")[:9], "%d", &rest); err != nil {
		return false
	}
	nanos.Mul(big.NewInt(hours*3600+minutes*60+seconds), big.NewInt(1e9))
	return sign(nanos.Add(nanos, big.NewInt(rest)), negative).Cmp(want) == 0
}

func sign(v *big.Int, negative bool) *big.Int {
	if negative {
		return v.Neg(v)
	}
	return v
}

// SameJSON reports whether a text is the JSON of the logical value and no other.
func SameJSON(got string, want any) bool {
	d := json.NewDecoder(strings.NewReader(got))
	d.UseNumber()
	var v any
	return d.Decode(&v) == nil && !d.More() && sameDecoded(v, want)
}

func sameEntryJSON(got string, pair [2]any) bool {
	d := json.NewDecoder(strings.NewReader(got))
	d.UseNumber()
	var v any
	return d.Decode(&v) == nil && sameEntry(v, pair)
}

func sameEntry(got any, pair [2]any) bool {
	entry, ok := got.(map[string]any)
	return ok && len(entry) == 2 && sameDecoded(entry["key"], pair[0]) && sameDecoded(entry["value"], pair[1])
}

func sameDecoded(got, want any) bool {
	switch want := want.(type) {
	case nil:
		return got == nil
	case bool:
		return got == want
	case blob:
		text, ok := got.(string)
		raw, err := base64.StdEncoding.DecodeString(text)
		return ok && err == nil && string(raw) == string(want)
	case number:
		if n, ok := got.(json.Number); ok {
			got = string(n)
		}
	case sequence:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			return false
		}
		for i := range want {
			if !sameDecoded(list[i], want[i]) {
				return false
			}
		}
		return true
	case members:
		object, ok := got.(map[string]any)
		if !ok || len(object) != len(want) {
			return false
		}
		for i := range want {
			if !sameDecoded(object[string(rune('a'+i))], want[i]) {
				return false
			}
		}
		return true
	case pairs:
		return sameDecodedPairs(got, want)
	}
	text, ok := got.(string)
	return ok && Same(reflect.ValueOf(text), want)
}

func sameDecodedPairs(got any, want pairs) bool {
	if list, ok := got.([]any); ok {
		for i := range list {
			if len(list) != len(want) || !sameEntry(list[i], want[i]) {
				return false
			}
		}
		return true
	}
	object, ok := got.(map[string]any)
	if !ok || len(object) != len(want) {
		return false
	}
	for _, pair := range want {
		found := false
		for key, item := range object {
			name, binary := pair[0].(blob)
			sameName := binary && key == base64.StdEncoding.EncodeToString([]byte(name)) || !binary && Same(reflect.ValueOf(key), pair[0])
			found = found || sameName && sameDecoded(item, pair[1])
		}
		if !found {
			return false
		}
	}
	return true
}
