package flightconn

import (
	"encoding/binary"
	"io"
	"testing"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// readBatches runs a query that is answered by data, reads its result to the
// end and counts the batches.
func readBatches(t testing.TB, data []*pb.FlightData, mem memory.Allocator) (n int, err error) {
	cfg := Config{Address: here, Allocator: mem, Prefetch: 1, MaxMessage: 1 << 20, RequestLimit: DefaultRequestLimit}
	c := answering(cfg, &scriptedServer{info: marshal(answer(nil, "t")), data: data})
	s, err := c.Query(t.Context(), "q", backend.Call{})
	if err != nil {
		return 0, err
	}
	defer s.Close()
	for ; ; n++ {
		if _, err := s.Next(); err == io.EOF { //nolint:errorlint // the end itself
			return n, nil
		} else if err != nil {
			return n, err
		}
	}
}

// TestACorruptBatchNeverEndsAResult damages the second of three compressed
// batches everywhere: a decompressor that runs out of input says io.EOF, which
// Arrow's reader takes for the end of the stream.
func TestACorruptBatchNeverEndsAResult(t *testing.T) {
	batch := int64Batch(make([]int64, 1000)...)
	defer batch.Release()
	for name, opt := range map[string]ipc.Option{"lz4": ipc.WithLZ4(), "zstd": ipc.WithZstd()} {
		clean := send(t, batch, opt)
		require.Len(t, clean, 2)
		refused := 0
		read := func(header, body []byte) {
			mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
			n, err := readBatches(t, []*pb.FlightData{clean[0], clean[1], {DataHeader: header, DataBody: body}, clean[1]}, mem)
			if err == nil {
				require.Equal(t, 3, n, "%s: a short result", name)
			} else {
				require.ErrorIs(t, err, errMalformed)
				require.NotErrorIs(t, err, io.EOF, "whoever reads must not take it for the end")
				refused++
			}
			mem.AssertSize(t, 0)
		}
		header, body := clean[1].GetDataHeader(), clean[1].GetDataBody()
		for at := 0; at+4 <= len(body); at++ {
			for _, value := range []uint32{0, 0x7fffffff, 0xffffffff} {
				bad := append([]byte(nil), body...)
				binary.LittleEndian.PutUint32(bad[at:], value)
				read(header, bad)
			}
		}
		for at := 0; at+8 <= len(header); at += 4 {
			for _, value := range []uint64{0, 8, 9, 16, 24} { // sizes of buffers among them
				bad := append([]byte(nil), header...)
				binary.LittleEndian.PutUint64(bad[at:], value)
				read(bad, body)
			}
		}
		require.Greater(t, refused, 100, name)
	}
}

// TestRowsWithoutAHeaderAreNotPassedOver: a message of metadata alone has no header
// either, but no body.
func TestRowsWithoutAHeaderAreNotPassedOver(t *testing.T) {
	batch := int64Batch(1, 2, 3)
	defer batch.Release()
	clean := send(t, batch)
	read := func(second *pb.FlightData) (int, error) {
		return readBatches(t, []*pb.FlightData{clean[0], clean[1], second, clean[1]}, memory.DefaultAllocator)
	}
	n, err := read(&pb.FlightData{AppMetadata: []byte("progress")})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	_, err = read(&pb.FlightData{DataBody: clean[1].GetDataBody()})
	require.ErrorIs(t, err, errMalformed)
}
