package adbcconn

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/testserver"
)

// rowsThatFail are so many batches, and an error in the place of the rest.
type rowsThatFail struct {
	array.RecordReader
	given, batches int
	err            error
}

func newRowsThatFail(t *testing.T, batches int, err error) *rowsThatFail {
	batch := int64s(1)
	inner, e := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch, batch, batch})
	require.NoError(t, e)
	return &rowsThatFail{inner, 0, batches, err}
}

func (r *rowsThatFail) Next() bool {
	r.given++
	return r.given <= r.batches && r.RecordReader.Next()
}

func (r *rowsThatFail) Err() error {
	if r.given <= r.batches {
		return nil
	}
	return r.err
}

// As over the native backend: see flightconn. The driver gives its stream up.
func TestRowsThatFailAreNotStoredInPartThroughTheDriver(t *testing.T) {
	stored, refused := 0, 0
	withFake(t, &fake{put: func(s pb.FlightService_DoPutServer) error {
		var schema []byte
		for n := 0; ; n++ {
			m, err := s.Recv()
			if err != nil { // the end, to Arrow's C++ library
				stored = n
				return nil
			}
			if n == 0 {
				schema = m.GetDataHeader()
			} else if bytes.Equal(m.GetDataHeader(), schema) {
				refused++
				return status.Error(codes.Internal, "Header-type of flatbuffer-encoded Message is not RecordBatch.")
			}
		}
	}}, func(t *testing.T, c backend.Conn) {
		broken := errors.New("the file is corrupt")
		_, err := c.Ingest(t.Context(), newRowsThatFail(t, 2, broken), backend.IngestOptions{Table: "t"}, backend.Call{})
		require.ErrorContains(t, err, broken.Error())
		require.False(t, failure(t, err).Unsent)
		require.False(t, failure(t, err).Running, "it has ended")
		synctest.Wait()
		require.Equal(t, []int{0, 1}, []int{stored, refused})
	})
	withFake(t, &fake{put: func(s pb.FlightService_DoPutServer) error { <-s.Context().Done(); return s.Context().Err() }}, func(t *testing.T, c backend.Conn) {
		broken, began := errors.New("the file is corrupt"), time.Now()
		_, err := c.Ingest(t.Context(), newRowsThatFail(t, 1, broken), backend.IngestOptions{Table: "t"}, backend.Call{})
		require.ErrorContains(t, err, broken.Error())
		require.True(t, failure(t, err).Running, "nobody knows")
		require.Equal(t, time.Second, time.Since(began))
	})
}

// A foreign Flight SQL driver gives its stream up as well, and nothing can be sent on it then.
func TestNobodyKnowsTheEndOfAnIngestionThatAForeignDriverHasCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testserver.Strict())
		c, err := s.foreign(t)(t.Context())
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		_, err = c.Update(t.Context(), "CREATE TABLE t (v BIGINT)", backend.Call{})
		require.NoError(t, err)
		for batches, running := range []bool{false, true, true} {
			broken := errors.New("the file is corrupt")
			_, err = c.Ingest(t.Context(), newRowsThatFail(t, batches, broken), backend.IngestOptions{Table: "t"}, backend.Call{})
			require.ErrorIs(t, err, broken)
			require.Equal(t, running, failure(t, err).Running, "%d batches", batches)
		}
	})
}

func rowsOf(t *testing.T, batches ...arrow.RecordBatch) array.RecordReader {
	rows, err := array.NewRecordReader(batches[0].Schema(), batches)
	require.NoError(t, err)
	return rows
}
