package sqlconn

import (
	"fmt"
	"log/slog"

	"github.com/flightpool/flightpool/internal/printing"
)

// Connectors hold credentials, so that only what they are set for is printed.

// String shows the settings, and of the connector that it is set.
func (c Config) String() string { return printing.Struct("sqlconn.Config", c) }

// Format prints String under every verb.
func (c Config) Format(f fmt.State, _ rune) { printing.Format(f, c.String()) }

// LogValue is String, for slog.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON gives String. It cannot be read back.
func (c Config) MarshalJSON() ([]byte, error) { return printing.JSON(c.String()) }

// Format prints the name of the kind under every verb.
func (t *Lifecycle) Format(f fmt.State, _ rune) {
	printing.Format(f, fmt.Sprintf("sqlconn.Lifecycle{%s}", t.cfg.Kind.Name))
}
