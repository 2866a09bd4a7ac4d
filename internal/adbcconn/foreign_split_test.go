package adbcconn

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/memnet"
)

// texts is a batch of texts of so many MiB each.
func texts(mebibytes ...int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "1", Type: arrow.BinaryTypes.String}}, nil))
	defer b.Release()
	for _, n := range mebibytes {
		b.Field(0).(*array.StringBuilder).Append(strings.Repeat("x", n<<20))
	}
	return b.NewRecordBatch()
}

// counting is a server that counts the rows of each DoPut, as Arrow's C++ library reads them: a stream that is cut has ended.
func counting(t *testing.T, counts *[]int64) backend.Conn {
	l, server := memnet.New("fake:1"), grpc.NewServer(grpc.WaitForHandlers(true), grpc.MaxRecvMsgSize(64<<20))
	pb.RegisterFlightServiceServer(server, &fake{put: func(s pb.FlightService_DoPutServer) error {
		rows := int64(0)
		if r, err := flight.NewRecordReader(s); err == nil {
			for r.Next() {
				rows += r.RecordBatch().NumRows()
			}
		}
		*counts = append(*counts, rows)
		return answering(&pb.DoPutUpdateResult{RecordCount: rows})(s)
	}})
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		_ = l.Close()
	})
	c, err := openForeign(flightDatabase(t, "127.0.0.1:1", grpc.WithContextDialer(l.Dial)))(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ADBC's driver begins to send what it cannot send whole. To servers of Arrow's C++ library a stream that is cut has ended: they
// execute the statement without parameters, or with those of the last time.
func TestParametersThatAForeignDriverCannotSendAreNotSentInPart(t *testing.T) {
	for name, tc := range map[string]struct {
		params arrow.RecordBatch
		rows   []int64 // of each execution
	}{
		"several messages":  {texts(3, 3, 3, 3, 3, 3), []int64{6}},
		"one large row":     {texts(8), []int64{1}},
		"a row that is too": {texts(1, 17), nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			var executed []int64
			c := counting(t, &executed)
			p, err := c.Prepare(t.Context(), "u", backend.Call{})
			require.NoError(t, err)
			n, err := p.Update(t.Context(), tc.params, backend.Call{})
			synctest.Wait()
			require.Equal(t, tc.rows, executed, name)
			if tc.rows == nil {
				require.Equal(t, backend.FaultUsage, failure(t, err).Fault)
				require.True(t, failure(t, err).Unsent)
				require.NoError(t, c.Lost())
				return
			}
			require.NoError(t, err, name)
			require.Equal(t, tc.rows[0], n)
		})
	}
}

// So it is with a batch of an ingestion, where what came before would be stored as all there is.
func TestABatchThatAForeignDriverCannotSendIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stored []int64
		c := counting(t, &stored)
		n, err := c.Ingest(t.Context(), rowsOf(t, texts(1), texts(3, 3, 3, 3, 3, 3), texts(8)), backend.IngestOptions{Table: "t"}, backend.Call{})
		require.NoError(t, err)
		require.EqualValues(t, 8, n)
		_, err = c.Ingest(t.Context(), rowsOf(t, texts(1), texts(17)), backend.IngestOptions{Table: "t"}, backend.Call{})
		require.ErrorContains(t, err, "row 0 is")
		require.True(t, failure(t, err).Running, "nobody knows")
		synctest.Wait()
		require.EqualValues(t, 8, stored[0])
	})
}
