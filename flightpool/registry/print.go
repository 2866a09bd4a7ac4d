package registry

import (
	"fmt"
	"log/slog"

	"github.com/flightpool/flightpool/internal/printing"
)

// What definitions and mappings print is said here: options and
// targets may hold passwords and tokens, so of options the names are shown and
// of targets that they are set.

// String shows the settings, of Options and Users the names.
func (d ServerDefinition) String() string {
	return printing.Struct("registry.ServerDefinition", d, "Target")
}

// Format prints String under every verb.
func (d ServerDefinition) Format(f fmt.State, _ rune) { printing.Format(f, d.String()) }

// LogValue is String, for slog.
func (d ServerDefinition) LogValue() slog.Value { return slog.StringValue(d.String()) }

// MarshalJSON gives String. It cannot be read back.
func (d ServerDefinition) MarshalJSON() ([]byte, error) { return printing.JSON(d.String()) }

// String keeps the password out of logs.
func (m UserMapping) String() string { return fmt.Sprintf("remote user %q", m.User) }

// Format prints String under every verb.
func (m UserMapping) Format(f fmt.State, _ rune) { printing.Format(f, m.String()) }

// LogValue is String, for slog.
func (m UserMapping) LogValue() slog.Value { return slog.StringValue(m.String()) }

// MarshalJSON gives String. It cannot be read back.
func (m UserMapping) MarshalJSON() ([]byte, error) { return printing.JSON(m.String()) }

// String shows server and user, of Options the names.
func (r ConnectParams) String() string {
	return printing.Struct("registry.ConnectParams", r, "Target", "Password")
}

// Format prints String under every verb.
func (r ConnectParams) Format(f fmt.State, _ rune) { printing.Format(f, r.String()) }

// LogValue is String, for slog.
func (r ConnectParams) LogValue() slog.Value { return slog.StringValue(r.String()) }

// MarshalJSON gives String.
func (r ConnectParams) MarshalJSON() ([]byte, error) { return printing.JSON(r.String()) }
