package flightconn

import (
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
)

// A server that refuses an ingest while it is sent is believed, also by way of gRPC's client, which
// tells its statistics of no error then.
func TestARefusalOfWhatIsStillSentIsTheServers(t *testing.T) {
	f := &fake{put: func(pb.FlightService_DoPutServer) error { return status.Error(codes.NotFound, "no such table") }}
	for name, options := range map[string][]grpc.DialOption{"own": nil, "gRPC's": {grpc.WithReadBufferSize(1 << 14)}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, f, func(b *bubble) {
				batch := int64Batch(make([]int64, 10_000)...)
				defer batch.Release()
				rows, err := array.NewRecordReader(int64Schema, slices.Repeat([]arrow.RecordBatch{batch}, 50))
				require.NoError(b, err)
				defer rows.Release()
				_, err = b.open().Ingest(b.Context(), rows, backend.IngestOptions{Table: "t"}, backend.Call{})
				require.ErrorContains(b, err, "no such table")
				require.Equal(b, backend.FaultStatement, failure(b, err).Fault, "%v", err)
				require.False(b, failure(b, err).Running)
			}, func(cfg *Config) { cfg.DialOptions = options })
		})
	}
}
