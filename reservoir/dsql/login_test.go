package dsql

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

func TestNothingCanTurnAnOpenToAnotherAddressOrToPlainText(t *testing.T) {
	cfg, err := Config{Host: someHost, RuntimeParams: map[string]string{"search_path": "mine"}, Pgx: func(c *pgx.ConnConfig) {
		c.Host, c.Port, c.User, c.Password, c.TLSConfig = "other", 1, "other", "other", nil
		c.Fallbacks = []*pgconn.FallbackConfig{{Host: "other", Port: 1}}
		c.DefaultQueryExecMode = pgx.QueryExecModeExec
	}}.resolve(environ(nil))
	require.NoError(t, err)
	login, err := loginConfig(cfg)
	require.NoError(t, err)
	require.Equal(t, someHost, login.Host)
	require.EqualValues(t, 5432, login.Port)
	require.Equal(t, "admin", login.User)
	require.Empty(t, login.Password)
	require.Empty(t, login.Fallbacks)
	require.Equal(t, someHost, login.TLSConfig.ServerName)
	require.False(t, login.TLSConfig.InsecureSkipVerify)
	require.Equal(t, map[string]string{"application_name": "flightpool", "search_path": "mine"}, login.RuntimeParams)
	require.Equal(t, pgx.QueryExecModeExec, login.DefaultQueryExecMode, "the rest is the user's")
	addresses, err := login.LookupFunc(t.Context(), someHost)
	require.NoError(t, err)
	require.Equal(t, []string{someHost}, addresses, "one attempt an open")
}
