package flightconn

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/session"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
)

// sessionActions answers the actions on the options of the session that arrow-go's middleware finds.
func sessionActions(a *pb.Action, s pb.FlightService_DoActionServer) error {
	found, err := session.GetSessionFromContext(s.Context())
	if err != nil {
		return err
	}
	switch a.GetType() {
	case flight.SetSessionOptionsActionType:
		var req pb.SetSessionOptionsRequest
		if err := unmarshal(a.GetBody(), &req); err != nil {
			return err
		}
		for name, value := range req.GetSessionOptions() {
			if value.GetOptionValue() == nil {
				found.EraseSessionOption(name)
			} else {
				found.SetSessionOption(name, value)
			}
		}
		return s.Send(&pb.Result{Body: marshal(&pb.SetSessionOptionsResult{})})
	case flight.GetSessionOptionsActionType:
		return s.Send(&pb.Result{Body: marshal(&pb.GetSessionOptionsResult{SessionOptions: found.GetSessionOptions()})})
	case flight.CloseSessionActionType:
		return found.Close()
	}
	return status.Error(codes.Unimplemented, a.GetType())
}

// The cookie of arrow-go's stateless sessions holds all of the session, in an order that changes.
func TestASessionThatIsInItsCookieIsNotReplacedByItsChanges(t *testing.T) {
	for name, manager := range map[string]session.ServerSessionManager{
		"stateless": session.NewStatelessServerSessionManager(), "stateful": session.NewStatefulServerSessionManager(),
	} {
		sessions := flight.CreateServerMiddleware(session.NewServerSessionMiddleware(manager))
		addr := listenReal(t, &fake{action: sessionActions}, "tcp", "127.0.0.1:0", grpc.UnaryInterceptor(sessions.Unary), grpc.StreamInterceptor(sessions.Stream))
		c, err := openReal(t, Config{Address: addr})
		require.NoError(t, err)
		want := map[string]any{}
		for _, option := range []string{"catalog", "schema", "role", "zone", "limit"} {
			want[option] = "of " + option
			require.NoError(t, c.SetOptions(t.Context(), map[string]any{option: want[option]}), name)
			for range 5 {
				require.NoError(t, c.Ping(t.Context()), name)
				got, err := c.Options(t.Context())
				require.NoError(t, err, name)
				require.Equal(t, want, got, name)
			}
		}
		require.NoError(t, c.Lost(), name)
		require.NoError(t, c.SetOptions(t.Context(), map[string]any{"catalog": nil, "schema": nil, "role": nil, "zone": nil, "limit": nil}), name)
		got, err := c.Options(t.Context())
		require.NoError(t, err, name)
		require.Empty(t, got, name)
		require.NoError(t, c.Lost(), name)
		require.NoError(t, c.Close(), name)
	}
}
