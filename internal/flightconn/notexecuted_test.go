package flightconn

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
)

// takesParameters is a server that takes the parameters of whatever was prepared, and answers by a handle: Spice executes a
// prepared change as it does a query, by a DoGet.
func takesParameters() *fake {
	return &fake{
		action: func(_ *pb.Action, s pb.FlightService_DoActionServer) error {
			return s.Send(&pb.Result{Body: pack(&pb.ActionCreatePreparedStatementResult{PreparedStatementHandle: []byte("h1")})})
		},
		put: func(s pb.FlightService_DoPutServer) error {
			if _, err := take(s); err != nil {
				return err
			}
			return s.Send(&pb.PutResult{AppMetadata: marshal(&pb.DoPutPreparedStatementResult{PreparedStatementHandle: []byte("h2")})})
		},
	}
}

// A change whose parameters were taken is not done by that: a handle is no count of zero.
func TestAChangeWhoseParametersWereTakenIsNotDone(t *testing.T) {
	for name, transport := range transports {
		inBubble(t, takesParameters(), func(b *bubble) {
			c := b.open()
			p, err := c.Prepare(b.Context(), "INSERT", backend.Call{})
			require.NoError(b, err)
			for _, params := range []arrow.RecordBatch{int64Batch(1), nil} {
				n, err := p.Update(b.Context(), params, backend.Call{})
				require.ErrorContains(b, err, "not executed it", "%s: %d", name, n)
				require.ErrorContains(b, err, "RouteQuery")
				require.Equal(b, backend.FaultUnsupported, failure(b, err).Fault, "%v", err)
				require.False(b, failure(b, err).Unsent, "%v", err)
			}
			require.NoError(b, c.Ping(b.Context()))
		}, transport)
	}
}
