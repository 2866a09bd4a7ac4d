package effect

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestWhatAnAnswerTells(t *testing.T) {
	for _, c := range []struct {
		change Change
		code   codes.Code
		text   string
		want   Meaning
	}{
		{Commit, codes.InvalidArgument, "", Refused},
		{Commit, codes.FailedPrecondition, "connection reset", Refused}, // the status names its reason
		{Commit, codes.PermissionDenied, "transport: the server has answered with HTTP status 403 and content type \"text/html\"", NotKnown},
		{Commit, codes.Unimplemented, "unexpected HTTP status code received from server: 404 (Not Found); transport: received unexpected content-type \"text/html\"", NotKnown},
		{Commit, codes.Internal, "", NotKnown},
		{Commit, codes.Unknown, "Write-Write CONFLICT", Refused},
		{Commit, codes.Internal, "conflict: connection reset", NotKnown},
		{Commit, codes.Internal, "Software caused connection abort (os error 103)", NotKnown},
		{Commit, codes.Internal, "cannot commit the transaction: Software caused connection abort", NotKnown},
		{Commit, codes.Unknown, "The request was aborted.", NotKnown},
		{Commit, codes.Internal, "stream aborted", NotKnown},
		{Commit, codes.Unknown, "failed to commit: context canceled", NotKnown},
		{Commit, codes.Unknown, "failed to commit: context deadline exceeded", NotKnown},
		{Commit, codes.Internal, "Failed to commit: HTTP Error: 502 Bad Gateway", NotKnown},
		{Commit, codes.Internal, "Failed to commit: MySQL server has gone away", NotKnown},
		{Commit, codes.Internal, "response rejected", NotKnown},
		{Commit, codes.Internal, "Transaction was aborted", Refused},
		{Commit, codes.Unknown, "restart: TransactionAbortedError(ABORT_REASON_NEW_LEASE)", Refused},
		{Commit, codes.Canceled, "", NotKnown},
		{Commit, codes.DeadlineExceeded, "could not commit", Refused},
		{Commit, codes.Unavailable, "could not commit", NotKnown},
		{Commit, codes.DataLoss, "rolled back", NotKnown},
		{Commit, codes.ResourceExhausted, "rejected", NotKnown},
		{Commit, codes.Internal, "parser error", NotKnown}, // a word of other changes
		{Begin, codes.Internal, "", NotKnown},
		{Begin, codes.Unknown, "cannot start a transaction: denied", Refused},
		{Begin, codes.Unimplemented, "", Refused},
		{Begin, codes.Internal, "cannot start a transaction within a transaction", NotKnown},
		{Begin, codes.FailedPrecondition, "a transaction is already open", NotKnown},
		{Begin, codes.InvalidArgument, "TransactionContext Error: Current transaction is aborted (please ROLLBACK)", NotKnown},
		{Commit, codes.Internal, "already aborted", Refused},
		{Statement, codes.Internal, "Parser Error: syntax", Refused},
		{Statement, codes.Internal, "", NotKnown},
		{Statement, codes.Internal, "conflict", NotKnown},
		{Statement, codes.NotFound, "", Refused},
	} {
		err := fmt.Errorf("parser error of conflict.example: %w", status.Error(c.code, c.text)) // our words do not count
		require.Equal(t, c.want, Of(c.change, err), "%d: %v", c.change, err)
	}
	require.Equal(t, Done, Of(Commit, nil))
	require.Equal(t, Refused, Of(Commit, errors.New("a driver's")))
}
