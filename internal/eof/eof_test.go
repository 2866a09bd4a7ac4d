package eof

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyTheSentinelItselfIsTheEnd(t *testing.T) {
	require.True(t, Reached(io.EOF))
	for _, err := range []error{nil, io.ErrUnexpectedEOF, fmt.Errorf("transport: %w", io.EOF), errors.Join(io.EOF)} {
		require.False(t, Reached(err), "%v", err)
	}
}

func TestAHiddenEndLeavesTheRestOfTheChain(t *testing.T) {
	op := &net.OpError{Op: "read", Err: net.ErrClosed}
	whole := fmt.Errorf("%w, then %w", op, io.EOF)
	err := Hide(whole)
	require.NotErrorIs(t, err, io.EOF)
	require.NotErrorIs(t, fmt.Errorf("wrapped: %w", err), io.EOF)
	require.ErrorIs(t, err, net.ErrClosed)
	var found *net.OpError
	require.ErrorAs(t, err, &found)
	require.Same(t, op, found)
	require.Equal(t, whole.Error(), err.Error())
	require.NoError(t, Hide(nil))
	require.Equal(t, error(op), Hide(op), "what does not lead there is left alone")
}
