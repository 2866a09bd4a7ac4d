package flightpool

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/flightpool/flightpool/internal/printing"
)

// What Auth, Config and FlightSQLPool print is decided here: under every verb
// of fmt, in slog and in JSON they show names and settings, never a secret.
// What fmt cannot be told (a Config in an unexported field of somebody's
// struct, a dump by reflection) finds closures in the place of secrets.

// secret is a text that no print of the value that holds it can reach.
type secret func() string

func newSecret(text string) secret { return func() string { return text } }

// reveal gives the text; that of nil is empty.
func (s secret) reveal() string {
	if s == nil {
		return ""
	}
	return s()
}

// String names the method and, where there is a password, the user.
func (a Auth) String() string {
	if a.method == nil {
		return "none"
	}
	return a.method.String()
}

// Format prints String under every verb.
func (a Auth) Format(f fmt.State, _ rune) { printing.Format(f, a.String()) }

// LogValue is String, for slog.
func (a Auth) LogValue() slog.Value { return slog.StringValue(a.String()) }

// MarshalJSON gives String.
func (a Auth) MarshalJSON() ([]byte, error) { return printing.JSON(a.String()) }

// String lists the fields that are set. Of Headers it shows the names, of Auth
// the method and the user, of what has no short text that it is set.
func (c Config) String() string {
	var b strings.Builder
	b.WriteString("flightpool.Config{")
	for i, f := range c.printedFields() {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s: %v", f.name, f.value)
	}
	b.WriteString("}")
	return b.String()
}

// Format prints String under every verb.
func (c Config) Format(f fmt.State, _ rune) { printing.Format(f, c.String()) }

// LogValue gives slog what String shows, as a group.
func (c Config) LogValue() slog.Value {
	var attrs []slog.Attr
	for _, f := range c.printedFields() {
		attrs = append(attrs, slog.Any(f.name, f.value))
	}
	return slog.GroupValue(attrs...)
}

// MarshalJSON gives what String shows, as an object. It cannot be read back.
func (c Config) MarshalJSON() ([]byte, error) {
	object := map[string]any{}
	for _, f := range c.printedFields() {
		object[f.name] = f.value
	}
	return json.Marshal(object)
}

// printedField is a field of a Config with what may be shown of it: a number,
// a bool or a text.
type printedField struct {
	name  string
	value any
}

// printedFields gives the fields that are not zero. A field whose type is not known
// to be harmless is only said to be set.
func (c Config) printedFields() []printedField {
	var fields []printedField
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		for i := range v.NumField() {
			f, name := v.Field(i), path+v.Type().Field(i).Name
			if f.IsZero() {
				continue
			}
			switch f.Type() {
			case reflect.TypeFor[HealthCheck](), reflect.TypeFor[CancelPolicy]():
				walk(f, name+".")
			default:
				fields = append(fields, printedField{name, printedValue(f)})
			}
		}
	}
	walk(reflect.ValueOf(c), "")
	if len(c.Headers) > 0 {
		i := slices.IndexFunc(fields, func(f printedField) bool { return f.name == "Headers" })
		fields[i].value = strings.Join(slices.Sorted(maps.Keys(c.Headers)), " ")
	}
	return fields
}

func printedValue(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.String()
	case Auth:
		return x.String()
	case SessionReset:
		return x.String() // the statements of ResetSQL are not shown
	case HealthKind, Exhaustion:
		return fmt.Sprint(x)
	}
	switch v.Kind() {
	case reflect.Bool, reflect.Int, reflect.String:
		return v.Interface()
	default:
		return "set"
	}
}

// Target is the server's address, host and port or the path of a socket; empty where a
// driver opens the connections.
func (p *FlightSQLPool) Target() string { return p.target }

// String names the target.
func (p *FlightSQLPool) String() string { return "flightpool " + p.target }

// Format prints String under every verb.
func (p *FlightSQLPool) Format(f fmt.State, _ rune) { printing.Format(f, p.String()) }

// LogValue is String, for slog.
func (p *FlightSQLPool) LogValue() slog.Value { return slog.StringValue(p.String()) }

// MarshalJSON gives String.
func (p *FlightSQLPool) MarshalJSON() ([]byte, error) { return printing.JSON(p.String()) }
