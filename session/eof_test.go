package session

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

func TestAnErrorThatWrapsTheEndIsNotTheEnd(t *testing.T) {
	ended := &erringStream{err: fmt.Errorf("the socket: %w", io.EOF)}
	require.Error(t, drain(ended))
}

// erringStream fails with err.
type erringStream struct {
	fakeStream
	err error
}

func (s *erringStream) Next() (arrow.RecordBatch, error) { return nil, s.err }
func (s *erringStream) Close()                           {}

func TestAnErrorDoesNotLeadToTheEndOfAStream(t *testing.T) {
	cause := status.Error(codes.Unavailable, "gone")
	err := error(&backend.Error{Op: "Query", Err: errors.Join(fmt.Errorf("read: %w", io.EOF), cause, backend.ErrSessionLost)})
	require.NotErrorIs(t, err, io.EOF)
	require.ErrorIs(t, err, backend.ErrSessionLost)
	require.ErrorIs(t, err, cause)
	var s interface{ GRPCStatus() *status.Status }
	require.ErrorAs(t, err, &s)
	require.ErrorContains(t, err, "read: EOF")
	require.ErrorIs(t, &backend.Error{Err: io.ErrUnexpectedEOF}, io.ErrUnexpectedEOF)
}
