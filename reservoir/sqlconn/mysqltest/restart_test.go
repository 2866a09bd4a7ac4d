package mysqltest

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// lossy is a way to a server. What goes over it at one time is lost from then on, and
// nobody is told, as when a machine is gone; what comes later arrives.
type lossy struct {
	net.Listener
	mu    sync.Mutex
	ends  []net.Conn
	pipes sync.WaitGroup
	lost  chan struct{} // closed for the connections of now
}

func newLossy(t *testing.T, to string) *lossy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &lossy{Listener: listener, lost: make(chan struct{})}
	l.pipes.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if d, err := net.Dial("tcp", to); err == nil {
				l.join(c, d)
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		l.mu.Lock()
		for _, c := range l.ends {
			_ = c.Close()
		}
		l.mu.Unlock()
		l.pipes.Wait()
	})
	return l
}

func (l *lossy) join(a, b net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = append(l.ends, a, b)
	lost := l.lost
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		l.pipes.Go(func() {
			_, _ = io.Copy(way[1], way[0])
			select {
			case <-lost:
			default:
				_ = way[1].Close()
			}
		})
	}
}

// lose loses the connections that there are.
func (l *lossy) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.lost)
	l.lost = make(chan struct{})
}

// A machine is gone and comes back, and a statement of before is given up then: its
// number is another session's.
func TestNoSessionOfARestartedServerIsStopped(t *testing.T) {
	r := newRig(t, nil)
	way := newLossy(t, r.server.Addr())
	cfg, err := mysql.ParseDSN(r.server.DSN())
	require.NoError(t, err)
	cfg.Addr = way.Addr().String()
	connector, err := mysql.NewConnector(cfg)
	require.NoError(t, err)
	wrapper := sqlconn.NewWrapper()
	defer wrapper.Close() //nolint:errcheck // it has nothing open
	target, err := sqlconn.New(wrapper, sqlconn.Config{Connector: connector, Kind: sqlconn.MySQL, Stopped: func(err error) { r.told <- err }})
	require.NoError(t, err)
	c, err := target.Open(t.Context())
	require.NoError(t, err)
	conn, err := c.Lend(t.Context())
	require.NoError(t, err)
	number := r.ask(conn, "SELECT CONNECTION_ID()")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := conn.ExecContext(ctx, "SELECT SLEEP(100)")
		ended <- err
	}()
	admin := r.admin()
	for running := ""; running != "1"; { // for so long that a server that counts full seconds knows
		running = r.ask(admin, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO = 'SELECT SLEEP(100)' AND TIME_MS > 2500 + SLEEP(0.1)")
	}
	way.lose()
	r.server.Kill()
	require.NoError(t, r.server.Start(t.Context()))
	for { // sessions come until one has the number
		neighbour, err := admin.Conn(t.Context())
		require.NoError(t, err)
		defer neighbour.Close() //nolint:errcheck // it has done its work
		if r.ask(neighbour, "SELECT CONNECTION_ID()") != number {
			continue
		}
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.NoError(t, sqlconn.Return(t.Context(), conn))
		require.NoError(t, target.Close(c))
		require.ErrorContains(t, <-r.told, "its server runs for")
		require.Equal(t, "1", r.ask(neighbour, "SELECT 1"), "the neighbour goes on")
		return
	}
}
