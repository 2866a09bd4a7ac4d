package adbcconn

import (
	"errors"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"

	"github.com/flightpool/flightpool/backend"
)

// The driver takes a handle, by which Spice answers the parameters of a prepared change, for a count of zero.
func TestAChangeWhoseParametersWereTakenIsNotDoneThroughTheDriver(t *testing.T) {
	withFake(t, &fake{put: func(s pb.FlightService_DoPutServer) error {
		for {
			if _, err := s.Recv(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
		}
		handle, err := proto.Marshal(&pb.DoPutPreparedStatementResult{PreparedStatementHandle: []byte("h2")})
		require.NoError(t, err)
		return s.Send(&pb.PutResult{AppMetadata: handle})
	}}, func(t *testing.T, c backend.Conn) {
		stmt, err := c.Prepare(t.Context(), "INSERT", backend.Call{})
		require.NoError(t, err)
		b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int64}}, nil))
		b.Field(0).(*array.Int64Builder).Append(1)
		for _, params := range []arrow.RecordBatch{b.NewRecordBatch(), nil} {
			n, err := stmt.Update(t.Context(), params, backend.Call{})
			require.ErrorContains(t, err, "not executed it", "%d", n)
			require.Equal(t, backend.FaultUnsupported, failure(t, err).Fault, "%v", err)
			require.False(t, failure(t, err).Unsent, "%v", err)
		}
		require.NoError(t, c.Ping(t.Context()))
	})
}
