package flightconn

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestADeadLinkIsNoticedBySocketOptions(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	cfg := Config{DialTimeout: time.Second}
	c, err := cfg.dial(context.WithoutCancel(t.Context()), "tcp", l.Addr().String(), nil)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	raw, err := c.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	got := map[string]int{}
	require.NoError(t, raw.Control(func(fd uintptr) {
		for name, option := range map[string]int{"user timeout": tcpUserTimeout, "idle": syscall.TCP_KEEPIDLE, "interval": syscall.TCP_KEEPINTVL, "count": syscall.TCP_KEEPCNT} {
			got[name], _ = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, option)
		}
	}))
	require.Equal(t, map[string]int{"user timeout": 75_000, "idle": 15, "interval": 15, "count": 4}, got)
}
