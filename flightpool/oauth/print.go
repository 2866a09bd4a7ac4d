package oauth

import (
	"fmt"
	"log/slog"

	"github.com/flightpool/flightpool/internal/printing"
)

// String names the client and the endpoint.
func (c Client) String() string {
	return fmt.Sprintf("client %q of %s", c.ID, endpointName(c.TokenURL))
}

// GoString is String.
func (c Client) GoString() string { return c.String() }

// Format prints String under every verb.
func (c Client) Format(f fmt.State, _ rune) { printing.Format(f, c.String()) }

// LogValue is String, for slog.
func (c Client) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON gives String. It cannot be read back.
func (c Client) MarshalJSON() ([]byte, error) { return printing.JSON(c.String()) }

// String names who exchanges.
func (x Exchange) String() string { return "exchange by " + x.Client.String() }

// GoString is String.
func (x Exchange) GoString() string { return x.String() }

// Format prints String under every verb.
func (x Exchange) Format(f fmt.State, _ rune) { printing.Format(f, x.String()) }

// LogValue is String, for slog.
func (x Exchange) LogValue() slog.Value { return slog.StringValue(x.String()) }

// MarshalJSON gives String.
func (x Exchange) MarshalJSON() ([]byte, error) { return printing.JSON(x.String()) }
