package session

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// GizmoSQL runs the SET alone of a text that begins with one of its own settings, and confirms what stands behind it.
func TestWhatStandsBehindASettingThatIsRunAloneIsRefused(t *testing.T) {
	for text, refused := range map[string]bool{
		"SET gizmosql.query_timeout = 5; INSERT 1":             true,
		`set SESSION "gizmosql.query_timeout" TO 5; SELECT 1`:  true,
		"SET GLOBAL gizmosql.query_timeout = 5; INSERT 1":      true,
		"SET gizmosql.capture_query_profile = 'off'; INSERT 1": true,
		"SET gizmosql.session_token = 'x'; INSERT 1":           true,
		"SET gizmosql.query_timeout = 5;":                      false,
		"SET GLOBAL gizmosql.query_timeout = 5":                false,
		"SET VARIABLE gizmosql = 5; INSERT 1":                  false,
		"SET threads = 5; INSERT 1":                            false,
		"INSERT 1; SET gizmosql.query_timeout = 5":             false,
	} {
		r := newRig(t, &fakeConn{})
		sent := r.conn.Log()
		_, err := r.handle.Update(t.Context(), text)
		var e *backend.Error
		_ = errors.As(err, &e)
		require.Equal(t, refused, e != nil && e.Fault == backend.FaultUsage && e.Unsent, "%s: %v", text, err)
		if refused {
			require.ErrorContains(t, err, "GizmoSQL")
			require.Equal(t, sent, r.conn.Log())
		}
		_ = r.handle.Close()
	}
}
