package adbcconn

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// To Arrow's reference server in Java equal texts of all clients are one statement, with one set of parameters: the handle is the text.
func TestNoTwoStatementsOfTheDriverAreOneOnTheServer(t *testing.T) {
	f := &fake{textHandles: func(text string) string { return text }}
	withFake(t, f, func(t *testing.T, c backend.Conn) {
		const sql = "SELECT v FROM t WHERE k = ?"
		var made []string
		for range 3 {
			p, err := c.Prepare(t.Context(), sql, backend.Call{})
			require.NoError(t, err)
			handle := p.(backend.HandleTeller).FirstHandle()
			require.NotEqual(t, sql, handle)
			require.True(t, strings.HasPrefix(handle, sql), handle)
			require.NotContains(t, made, handle)
			made = append(made, handle)
		}
		require.Equal(t, []string{sql}, f.used, "it is closed, and not executed")
		name, err := c.Prepare(t.Context(), "orders", backend.Call{})
		require.NoError(t, err)
		require.Equal(t, "orders", name.(backend.HandleTeller).FirstHandle(), "it is no SQL")
	})
	f = &fake{textHandles: func(text string) string { text, _, _ = strings.Cut(text, "\n/*"); return text }}
	withFake(t, f, func(t *testing.T, c backend.Conn) {
		for range 2 {
			_, err := c.Prepare(t.Context(), "SELECT 1", backend.Call{})
			require.ErrorContains(t, err, "equal texts are one prepared statement")
			require.Equal(t, backend.FaultStatement, failure(t, err).Fault)
		}
	})
	f = &fake{textHandles: func(text string) string { return "h of " + text }}
	withFake(t, f, func(t *testing.T, c backend.Conn) {
		for range 2 {
			p, err := c.Prepare(t.Context(), "SELECT 1", backend.Call{})
			require.NoError(t, err)
			require.Equal(t, "h of SELECT 1", p.(backend.HandleTeller).FirstHandle())
		}
		require.Empty(t, f.used)
	})
}
