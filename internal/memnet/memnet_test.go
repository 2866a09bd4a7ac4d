package memnet_test

import (
	"context"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/flightpool/flightpool/internal/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns both ends of a connection through l.
func pair(t *testing.T, l *memnet.Listener, dial func() (net.Conn, error)) (client net.Conn, server *memnet.Conn) {
	t.Helper()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			close(accepted)
			return
		}
		accepted <- c
	}()
	client, err := dial()
	require.NoError(t, err)
	server, _ = (<-accepted).(*memnet.Conn)
	require.NotNil(t, server)
	return client, server
}

func memory(t *testing.T) (client net.Conn, server *memnet.Conn, l *memnet.Listener) {
	t.Helper()
	l = memnet.New("test")
	client, server = pair(t, l, func() (net.Conn, error) { return l.Dial(t.Context(), "") })
	t.Cleanup(func() { _, _, _ = client.Close(), server.Close(), l.Close() })
	return client, server, l
}

func TestBytesArriveInOrderAndTheEndAfterThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server, _ := memory(t)
		sent := make([]byte, 1<<20) // many windows
		for i := range sent {
			sent[i] = byte(i * 7)
		}
		go func() {
			_, _ = client.Write(sent)
			_ = client.Close()
		}()
		got, err := io.ReadAll(server)
		require.NoError(t, err)
		require.Equal(t, sent, got)
	})
}

func TestAWriterWaitsForTheWindowAndNotForTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server, _ := memory(t)
		n, err := client.Write(make([]byte, 64<<10))
		require.NoError(t, err)
		require.Equal(t, 64<<10, n)

		wrote := make(chan error, 1)
		go func() { _, err := client.Write([]byte{1}); wrote <- err }()
		synctest.Wait()
		require.Empty(t, wrote)
		_, err = server.Read(make([]byte, 1))
		require.NoError(t, err)
		require.NoError(t, <-wrote)
	})
}

func TestDeadlinesEndReadsAndWritesAtTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server, _ := memory(t)
		start := time.Now()
		require.NoError(t, client.SetDeadline(start.Add(3*time.Second)))
		_, err := client.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(start))
		_, err = client.Write([]byte{1})
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)

		require.NoError(t, client.SetDeadline(time.Time{}))
		go func() { _, _ = server.Write([]byte{9}) }()
		b := make([]byte, 1)
		_, err = client.Read(b)
		require.NoError(t, err)
		require.Equal(t, byte(9), b[0])
	})
}

func TestCutResetsTheOtherSideAndDropsWhatWasUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server, l := memory(t)
		_, err := server.Write([]byte("lost"))
		require.NoError(t, err)
		require.Len(t, l.Conns(), 1)
		server.Cut()
		require.Empty(t, l.Conns())
		require.Equal(t, 1, l.Accepted())
		_, err = client.Read(make([]byte, 8))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = client.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
}

func TestFreezeHoldsBothDirectionsUntilThawAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server, _ := memory(t)
		server.Freeze()
		start := time.Now()
		time.AfterFunc(time.Hour, server.Thaw)

		_, err := client.Write([]byte("up")) // the window takes it
		require.NoError(t, err)
		require.Zero(t, time.Since(start))
		go func() { _, _ = server.Write([]byte("down")) }()

		b := make([]byte, 8)
		n, err := server.Read(b)
		require.NoError(t, err)
		require.Equal(t, "up", string(b[:n]))
		n, err = client.Read(b)
		require.NoError(t, err)
		require.Equal(t, "down", string(b[:n]))
		require.Equal(t, time.Hour, time.Since(start))
	})
}

func TestCloseFreesWhoeverWaitsAtAFrozenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server, _ := memory(t)
		server.Freeze()
		_, err := client.Write([]byte("x"))
		require.NoError(t, err)
		ended := make(chan error, 2)
		go func() { _, err := server.Read(make([]byte, 1)); ended <- err }()
		go func() { _, err := server.Write([]byte("y")); ended <- err }()
		synctest.Wait()
		require.Empty(t, ended)
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-ended, net.ErrClosed)
		require.ErrorIs(t, <-ended, net.ErrClosed)
		require.NoError(t, server.Close())
	})
}

func TestDialIsRefusedAfterCloseAndEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memnet.New("test")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := l.Dial(ctx, "") // nobody accepts
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, l.Close())
		require.NoError(t, l.Close())
		_, err = l.Dial(t.Context(), "")
		require.ErrorContains(t, err, "refused")
		_, err = l.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

func TestTheControlsWorkOverARealListener(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := memnet.Over(tcp)
	defer func() { require.NoError(t, l.Close()) }()
	_, err = l.Dial(t.Context(), "")
	require.ErrorIs(t, err, memnet.ErrInMemoryOnly)

	client, server := pair(t, l, func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) })
	defer func() { _ = client.Close() }()
	require.Len(t, l.Conns(), 1)
	server.Freeze()
	_, err = client.Write([]byte("held"))
	require.NoError(t, err)
	server.Thaw()
	b := make([]byte, 8)
	n, err := server.Read(b)
	require.NoError(t, err)
	require.Equal(t, "held", string(b[:n]))

	server.Cut()
	_, err = client.Read(b)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Empty(t, l.Conns())
}
