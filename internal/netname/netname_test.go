package netname

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLoopbackIsToldByTheText(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost": true, "127.0.0.1": true, "127.8.9.1": true, "::1": true, "::ffff:127.0.0.1": true, "::1%lo": true,
		"": false, "localhost.example.com": false, "10.0.0.1": false, "::": false, "0.0.0.0": false, "127.0.0.1:80": false, "fe80::1": false,
	} {
		require.Equal(t, want, IsLoopback(host), host)
	}
}
