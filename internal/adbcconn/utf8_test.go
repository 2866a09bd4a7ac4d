package adbcconn

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

func TestATextThatIsNotUTF8IsTheCallersFaultThroughTheDriver(t *testing.T) {
	const text = "SELECT 'caf\xe9'"
	withFake(t, &fake{}, func(t *testing.T, c backend.Conn) {
		for name, call := range map[string]func() error{
			"query":   func() error { _, err := c.Query(t.Context(), text, backend.Call{}); return err },
			"update":  func() error { _, err := c.Update(t.Context(), text, backend.Call{}); return err },
			"prepare": func() error { _, err := c.Prepare(t.Context(), text, backend.Call{}); return err },
		} {
			var e *backend.Error
			require.ErrorAs(t, call(), &e, name)
			require.Equal(t, backend.FaultUsage, e.Fault, "%s: %v", name, e)
			require.True(t, e.Unsent, name)
		}
	})
}
