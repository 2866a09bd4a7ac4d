package dsql

import (
	"fmt"
	"log/slog"

	"github.com/flightpool/flightpool/internal/printing"
)

// String shows the settings; of Credentials and the like only that they are set.
func (c Config) String() string { return printing.Struct("dsql.Config", c) }

// GoString is String.
func (c Config) GoString() string { return c.String() }

// Format prints String under every verb: fmt would walk into Credentials, where
// those of a static provider stand.
func (c Config) Format(f fmt.State, _ rune) { printing.Format(f, c.String()) }

// LogValue is String, for slog.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON gives String. It cannot be read back.
func (c Config) MarshalJSON() ([]byte, error) { return printing.JSON(c.String()) }
