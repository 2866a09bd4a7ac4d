package mysqltest

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
)

// A proxy whose database is gone takes connections and closes them, of which the
// driver has words of its own.
func TestAProxyWithoutAServerIsUnhealthy(t *testing.T) {
	for name, greeting := range map[string]string{"nothing": "", "half a greeting": "\x40\x00\x00\x00\x0a5.7"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte(greeting))
				_ = c.Close()
			}
		}()
		turned := make(chan *registry.UnhealthyError, 1)
		r, err := registry.NewWith(registry.Config{Health: func(_ string, down *registry.UnhealthyError) { turned <- down }})
		require.NoError(t, err)
		address := l.Addr().(*net.TCPAddr) //nolint:forcetypeassert // so it was asked for
		require.NoError(t, r.ApplyDDL(t.Context(), fmt.Sprintf(`
			CREATE SERVER maria FOREIGN DATA WRAPPER mariadb_fdw OPTIONS (host '127.0.0.1', port '%d', dbname 'test', warmup_connections '0', min_connections '0', failure_threshold '2');
			CREATE USER MAPPING FOR ann SERVER maria OPTIONS (user 'app', password 'one')`, address.Port)))
		for range 2 {
			_, err := r.Acquire(t.Context(), "maria", "ann")
			require.Error(t, err, name)
		}
		require.NotNil(t, <-turned, name) // the last open is noted behind its caller
		require.False(t, r.Healthy("maria"), name)
		require.Error(t, r.CheckNow(t.Context(), "maria"), name)
		require.False(t, r.Healthy("maria"), "a probe that is closed is no answer: "+name)
		require.NoError(t, r.Close(t.Context()))
		require.NoError(t, l.Close())
		<-ended
	}
}
