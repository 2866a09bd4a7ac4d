package localdeps

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMariaDBComesBackOnItsPortAndIsGoneAfterClose(t *testing.T) {
	server, err := StartMariaDB(t.Context(), MariaDBOptions{MaxConnections: 20, Init: []string{"CREATE DATABASE IF NOT EXISTS mine"}})
	require.NoError(t, err)
	defer server.Close()
	require.DirExists(t, server.dir+"/data/mine", "the statements of Init have run")
	for _, end := range []func(){server.Stop, server.Kill} {
		require.NoError(t, server.checkGreeting(t.Context()))
		end()
		_, err = net.Dial("tcp", server.Addr())
		require.Error(t, err)
		require.NoError(t, server.Start(t.Context()))
	}
	require.NoError(t, server.checkGreeting(t.Context()))
	server.Close()
	server.Close()
	_, err = net.Dial("tcp", server.Addr())
	require.Error(t, err)
	require.NoDirExists(t, server.dir)
}
