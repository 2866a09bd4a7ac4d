package registry

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A driver that is given no user logs in with the account that the program runs under.
func TestAMappingOfSQLServerNamesItsUser(t *testing.T) {
	_, err := mssqlSource(ConnectParams{Options: map[string]string{"host": "db"}})
	require.ErrorIs(t, err, errNoUser)
	for _, r := range []ConnectParams{
		{User: "ann", Options: map[string]string{"host": "db"}},
		{Options: map[string]string{"host": "db", "authenticator": "krb5"}},
		{Options: map[string]string{"host": "db", "driver": "azuresql"}},
		{Target: "sqlserver://db"},
	} {
		_, err := mssqlSource(r)
		require.NoError(t, err)
	}
}
