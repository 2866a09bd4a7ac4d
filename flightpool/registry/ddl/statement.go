package ddl

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/flightpool/flightpool/internal/printing"
)

// Position is a place in a text: line and column, in characters, from 1.
type Position struct{ Line, Column int }

// Error says what is wrong with a text, and where. It repeats no text in quotes and
// no name that is not of the grammar or known: any of them may be a password.
type Error struct {
	Position
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("registry: line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// Public is the User of a mapping FOR PUBLIC, which holds for every local user who
// has none of their own.
const Public = "PUBLIC"

// Action is what a statement, or an option in it, does.
type Action uint8

// The actions. Statements create, alter and drop; options are added, set and
// dropped.
const (
	Create Action = iota
	Alter
	Drop
	Set
)

// Statement is one of CREATE, ALTER and DROP SERVER, or of CREATE, ALTER and DROP
// USER MAPPING.
type Statement struct {
	Position
	Action Action
	Server string
	// User is whose mapping it is; empty in statements on a server.
	User string
	// Kind is TYPE of CREATE SERVER, or else its FOREIGN DATA WRAPPER.
	Kind string
	// Lenient is IF EXISTS or IF NOT EXISTS.
	Lenient bool
	// Cascade is CASCADE of DROP SERVER. User mappings go with their server
	// anyway.
	Cascade bool
	Options []Option
}

// Option is one of OPTIONS (…). Create is ADD, and the only action in a
// CREATE.
type Option struct {
	Position
	Action      Action
	Name, Value string
}

// What statements and options print is said here: values may be passwords and tokens,
// so that of options the names are shown.

// String shows the statement, of its options the names.
func (s Statement) String() string {
	names := make([]string, len(s.Options))
	for i, o := range s.Options {
		names[i] = o.Name
	}
	s.Options = nil
	return printing.Struct("ddl.Statement", s) + " of the options [" + strings.Join(names, " ") + "]"
}

// Format prints String under every verb.
func (s Statement) Format(f fmt.State, _ rune) { printing.Format(f, s.String()) }

// LogValue is String, for slog.
func (s Statement) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalJSON gives String.
func (s Statement) MarshalJSON() ([]byte, error) { return printing.JSON(s.String()) }

// String shows the option without its value.
func (o Option) String() string {
	return printing.Struct("ddl.Option", o, "Value")
}

// Format prints String under every verb.
func (o Option) Format(f fmt.State, _ rune) { printing.Format(f, o.String()) }

// LogValue is String, for slog.
func (o Option) LogValue() slog.Value { return slog.StringValue(o.String()) }

// MarshalJSON gives String.
func (o Option) MarshalJSON() ([]byte, error) { return printing.JSON(o.String()) }
