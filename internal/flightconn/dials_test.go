package flightconn

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatComesOfADialTooLateIsClosed(t *testing.T) {
	d := &dials{}
	ctx, stop := context.WithCancel(t.Context())
	mine, its := net.Pipe()
	_, err := d.do(ctx, func() (net.Conn, error) { stop(); return mine, nil })
	require.ErrorIs(t, err, context.Canceled)
	_, err = its.Read(make([]byte, 1))
	require.Error(t, err, "it is closed")
	require.Zero(t, d.close(1))
	_, err = d.do(t.Context(), nil)
	require.ErrorIs(t, err, errClosed)
}
