package adbcconn

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// allocated are the bytes that do allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestASchemaThatTheDriverDecodesTakesNoMoreThanItHas: it comes in a FlightInfo, or with the handle of
// a prepared statement, and the driver decodes it by Arrow's reader, which makes room for what it claims.
func TestASchemaThatTheDriverDecodesTakesNoMoreThanItHas(t *testing.T) {
	claims := binary.LittleEndian.AppendUint32([]byte{0xff, 0xff, 0xff, 0xff}, 256<<20)
	none := func(*pb.Ticket, pb.FlightService_DoGetServer) error { return nil }
	for name, info := range map[string]*pb.FlightInfo{
		"no endpoint": {Schema: claims},
		"one":         {Schema: claims, Endpoint: []*pb.FlightEndpoint{{Ticket: &pb.Ticket{Ticket: []byte("t")}}}},
		"several":     {Schema: claims, Endpoint: []*pb.FlightEndpoint{{Ticket: &pb.Ticket{Ticket: []byte("t")}}, {Ticket: &pb.Ticket{Ticket: []byte("u")}}}},
	} {
		withFake(t, &fake{info: info, get: none}, func(t *testing.T, c backend.Conn) {
			require.Less(t, allocated(func() {
				stream, err := c.Query(t.Context(), "q", backend.Call{})
				if err == nil {
					_, err = stream.Next()
					stream.Close()
				}
				require.Error(t, err, name)
			}), uint64(64<<20), name)
		})
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil)
	good := flight.SerializeSchema(schema, memory.DefaultAllocator)
	for _, f := range []*fake{{dataset: claims, params: good}, {dataset: good, params: claims}} {
		withFake(t, f, func(t *testing.T, c backend.Conn) {
			require.Less(t, allocated(func() {
				p, err := c.Prepare(t.Context(), "q", backend.Call{})
				require.NoError(t, err, "it is as good as not told")
				require.Equal(t, f.params != nil && &f.params[0] == &good[0], p.ParameterSchema() != nil)
				_ = p.Close(t.Context()) // which the fake does not know
			}), uint64(64<<20))
		})
	}
}
