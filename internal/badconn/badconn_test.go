package badconn

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyErrBadConnIsHidden(t *testing.T) {
	require.NoError(t, Hide(nil))
	require.Equal(t, io.EOF, Hide(io.EOF))
	require.False(t, Hidden(io.EOF))
	address := &net.AddrError{Err: "none"}
	hidden := Hide(fmt.Errorf("%w: %w", driver.ErrBadConn, errors.Join(io.EOF, address)))
	wrapped := fmt.Errorf("sent nothing: %w", hidden)
	require.NotErrorIs(t, wrapped, driver.ErrBadConn)
	require.ErrorIs(t, wrapped, io.EOF)
	require.True(t, Hidden(wrapped))
	var found *net.AddrError
	require.ErrorAs(t, wrapped, &found)
	require.ErrorContains(t, wrapped, driver.ErrBadConn.Error())
}
