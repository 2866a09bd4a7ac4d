package flightconn

import (
	"testing"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/session"
)

// A server that names every transaction the same ends one session's with
// another's.
func TestATransactionIDThatIsOpenInAnotherSessionIsRefused(t *testing.T) {
	for _, ignores := range []bool{false, true} {
		begins, ends := 0, 0
		f := &fake{action: func(a *pb.Action, s pb.FlightService_DoActionServer) error {
			switch a.GetType() {
			case "BeginTransaction":
				begins++
				return s.Send(&pb.Result{Body: pack(&pb.ActionBeginTransactionResult{TransactionId: []byte("the only one")})})
			case "EndTransaction":
				var req pb.ActionEndTransactionRequest
				if err := unpack(a.GetBody(), &req); err != nil {
					return err
				}
				if string(req.GetTransactionId()) != "the only one" && !ignores {
					return status.Error(codes.InvalidArgument, "unknown transaction")
				}
				ends++
				return nil
			}
			return status.Error(codes.Unimplemented, a.GetType())
		}}
		inBubble(t, f, func(b *bubble) {
			one, two := b.open(), b.open()
			tx, err := one.Begin(b.Context())
			require.NoError(b, err)
			ended := ends
			_, err = two.Begin(b.Context())
			require.Equal(b, session.FaultSession, session.FaultIn(err), "the connection is given up")
			require.ErrorContains(b, err, "two sessions at once")
			require.Equal(b, ended, ends, "the other session's is not ended")
			require.NoError(b, one.EndTx(b.Context(), tx, true))
			tx, err = two.Begin(b.Context())
			require.NoError(b, err, "it is free again")
			require.NoError(b, two.Close())
			_, err = one.Begin(b.Context())
			require.NoError(b, err, "a closed connection has none")
			_ = tx
		})
	}
}

// What the pool begins for itself must not stay open under later statements.
func TestATransactionByWhichIDsAreLearnedIsEndedOrTheSessionGivenUp(t *testing.T) {
	for name, begin := range map[string]func(b *bubble, c *Conn) error{
		"Begin":       func(b *bubble, c *Conn) error { _, err := c.Begin(b.Context()); return err },
		"TrustsTxIDs": func(b *bubble, c *Conn) error { _, err := c.TrustsTxIDs(b.Context()); return err },
	} {
		for _, failures := range []int{0, 1, 2, 3, 4} {
			ts := &txServer{ignores: true}
			ends := 0
			f := &fake{action: func(a *pb.Action, s pb.FlightService_DoActionServer) error {
				if a.GetType() == "EndTransaction" {
					if ends++; ends <= failures {
						return status.Error(codes.ResourceExhausted, "not now")
					}
				}
				return ts.action(a, s)
			}}
			inBubble(t, f, func(b *bubble) {
				err := begin(b, b.open())
				switch {
				case err == nil:
					require.Zero(b, failures, name)
				case failures == 1:
					require.Empty(b, ts.open, name)
					require.NotEqual(b, session.FaultSession, session.FaultIn(err), name)
				default:
					require.Equal(b, session.FaultSession, session.FaultIn(err), name)
					require.ErrorIs(b, err, session.ErrSessionLost, name)
				}
			})
		}
	}
}
