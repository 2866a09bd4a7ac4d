package flightpool

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

// What the reservoir says is told in the words of a pool, whichever call it reaches.
func TestNoErrorNamesTheReservoir(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		ended := func(context.Context) (string, time.Time, error) { return "t", time.Now().Add(-time.Hour), nil }
		for name, auth := range map[string]Auth{"opens that fail": {}, "credentials that have ended": TokenAuth(ended)} {
			srv.Faults().Set(testserver.Fault{On: testserver.OnConnect, Do: testserver.Kill()})
			if name != "opens that fail" {
				srv.Faults().Clear()
			}
			p, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, MinIdle: -1, Auth: auth, HealthCheck: HealthCheck{FailureThreshold: -1}})
			require.NoError(t, err)
			for call, err := range map[string]error{
				"WaitReady":             within(t.Context(), func(ctx context.Context) error { return p.WaitReady(ctx, 1) }),
				"Ping":                  within(t.Context(), p.Ping),
				"Ping with no deadline": p.Ping(t.Context()),
				"Update":                within(t.Context(), func(ctx context.Context) error { _, err := p.Update(ctx, "SELECT 1"); return err }),
			} {
				require.Error(t, err, name+": "+call)
				require.NotContains(t, err.Error(), "reservoir", name+": "+call)
			}
			require.NoError(t, p.Close(t.Context()))
			require.NotContains(t, p.Ping(t.Context()).Error(), "reservoir")
		}
	})
}

// An error names the method that was called, and whose fault it was.
func TestErrorsNameTheMethodThatWasCalled(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{}, func(r *rig) {
		ops := map[string]error{
			"Execute": drained(r.pool.Execute(r.Context(), "SELECT * FROM missing")),
			"Query":   drained(r.pool.Query(r.Context(), "SELECT * FROM missing")),
			"Update":  func() error { _, err := r.pool.Update(r.Context(), "DROP TABLE missing"); return err }(),
			"Tables": func() error {
				r.srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, Do: testserver.Fail(codes.Internal, "no")})
				defer r.srv.Faults().Clear()
				return drained(r.pool.Tables(r.Context(), TableFilter{}))
			}(),
		}
		for op, err := range ops {
			var e *Error
			require.ErrorAs(r, err, &e, op)
			require.Equal(r, op, e.Op)
			require.Equal(r, FaultStatement, e.Fault, op)
		}
		s := r.session()
		ended, stop := context.WithCancel(r.Context())
		stop()
		var e *Error
		require.ErrorAs(r, r.pool.Close(ended), &e)
		require.Equal(r, "Close", e.Op)
		require.Equal(r, FaultContext, e.Fault, "it was given no time")
		require.NoError(r, s.Close())
	})
}

// within calls f with a second's time.
func within(ctx context.Context, f func(context.Context) error) error {
	bounded, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	return f(bounded)
}

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
