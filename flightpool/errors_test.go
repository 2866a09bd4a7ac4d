package flightpool

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

// A log has one line for an error, however many went wrong.
func TestErrorsOfTwoFailuresAreOneLine(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{}, func(r *rig) {
		boom := errors.New("boom")
		check := func(err, first error) {
			r.Helper()
			require.ErrorIs(r, err, first)
			require.ErrorContains(r, err, "no way back")
			require.NotContains(r, err.Error(), "\n")
		}
		learn := r.session() // how the server treats transactions
		require.NoError(r, learn.WithTransaction(r.Context(), func(context.Context, *SessionHandle) error { return nil }))
		require.NoError(r, learn.Close())
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnEnd, Do: testserver.Fail(codes.Internal, "no way back")})
		s := r.session()
		check(s.WithTransaction(r.Context(), func(context.Context, *SessionHandle) error { return boom }), boom)
		_ = s.Close() // the server has kept the transaction

		s = r.session()
		require.NoError(r, s.BeginTransaction(r.Context()))
		_, err := s.Update(r.Context(), "SELEC 1")
		require.Error(r, err)
		check(s.Commit(r.Context()), ErrTxAborted)
		_ = s.Close() // as above
		r.srv.Faults().Clear()
		r.srv.Faults().EvictSessions()
	})
	_, err := New(t.Context(), "grpc://db:1/?max_size=x&idle_ttl=y", Config{MinIdle: 5, MaxSize: 3, DialTimeout: -1, Auth: BasicAuth("", "x")})
	for _, want := range []string{"max_size", "idle_ttl", "MinIdle", "DialTimeout", "BasicAuth"} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "\n")
}
