package backend

import (
	"fmt"
	"log/slog"

	"github.com/flightpool/flightpool/internal/printing"
)

// String shows the call, of Headers the names only.
func (c Call) String() string { return printing.Struct("backend.Call", c) }

// GoString is String.
func (c Call) GoString() string { return c.String() }

// Format prints String under every verb.
func (c Call) Format(f fmt.State, _ rune) { printing.Format(f, c.String()) }

// LogValue is String, for slog.
func (c Call) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON gives String.
func (c Call) MarshalJSON() ([]byte, error) { return printing.JSON(c.String()) }

// String shows the options, of Headers and of the server's own the names only.
func (o IngestOptions) String() string { return printing.Struct("flightpool.IngestOptions", o) }

// GoString is String.
func (o IngestOptions) GoString() string { return o.String() }

// Format prints String under every verb.
func (o IngestOptions) Format(f fmt.State, _ rune) { printing.Format(f, o.String()) }

// LogValue is String, for slog.
func (o IngestOptions) LogValue() slog.Value { return slog.StringValue(o.String()) }

// MarshalJSON gives String. It cannot be read back.
func (o IngestOptions) MarshalJSON() ([]byte, error) { return printing.JSON(o.String()) }
