package flightconn

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// TestADecompressorsWindowIsBounded: a frame of a few bytes has its decompressor
// allocate whatever it says, half a gigabyte at most.
func TestADecompressorsWindowIsBounded(t *testing.T) {
	join := func(parts ...[]byte) []byte { return slices.Concat(parts...) }
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd}
	window := func(descriptor byte) []byte { return join(magic, []byte{0, descriptor}) }
	content := []byte{8<<3 | 1, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0} // the last block: 8 bytes as they are
	nothing := []byte{1, 0, 0}                                // the last block: none
	skipped := []byte{0x5f, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3}
	const m128, m144, m512 = 17 << 3, 17<<3 | 1, 19 << 3

	data := send(t, int64Batch(7), ipc.WithZstd())
	const length = 29 // padded to 32
	require.Len(t, data[1].GetDataBody(), 32)
	read := func(frames []byte) error {
		body := binary.LittleEndian.AppendUint64(nil, 8)
		body = append(body, frames...)
		require.LessOrEqual(t, len(body), 64)
		header := slices.Clone(data[1].GetDataHeader())
		span := binary.LittleEndian.AppendUint64(nil, uint64(length)) // of the only buffer
		binary.LittleEndian.PutUint64(header[bytes.Index(header, span):], uint64(len(body)))
		_, err := readBatches(t, []*pb.FlightData{data[0], {DataHeader: header, DataBody: append(body, make([]byte, 64-len(body))...)}}, memory.DefaultAllocator)
		return err
	}
	for name, frames := range map[string][]byte{
		"the largest":             join(window(m128), content),
		"after an empty one":      join(window(0), nothing, window(0), content),
		"after one to be skipped": join(skipped, window(0), content),
		"one segment":             join(magic, []byte{1 << 5, 8}, content),
	} {
		require.NoError(t, read(frames), name)
	}
	for name, frames := range map[string][]byte{
		"more":                       join(window(m144), content),
		"much more":                  join(window(m512), content),
		"in the second frame":        join(window(0), nothing, window(m512), content),
		"after one to be skipped":    join(skipped, window(m512), content),
		"after a checksum":           join(magic, []byte{4, 0}, nothing, []byte{0, 0, 0, 0}, window(m512), content),
		"after a repeated byte":      join(window(0), []byte{5<<3 | 1<<1, 0, 0, 9}, nothing, window(m512), content),
		"one segment":                join(magic, []byte{2<<6 | 1<<5, 1, 0, 0, 0x10}, content),
		"one segment of eight bytes": join(magic, []byte{3<<6 | 1<<5, 1, 0, 0, 0x10, 0, 0, 0, 0}, content),
		"with a dictionary":          join(magic, []byte{3, m512, 1, 2, 3, 4}, content),
		"with its length":            join(magic, []byte{1 << 6, 0, 8, 0}, nothing, window(m512), content),
	} {
		require.ErrorContains(t, read(frames), "needs a window of", name)
	}
}

func TestNoFrameMakesTheWalkFail(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		b := make([]byte, rnd.IntN(60))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		for at := 0; at+4 <= len(b) && rnd.IntN(3) > 0; at += rnd.IntN(12) {
			copy(b[at:], []byte{0x28, 0xb5, 0x2f, 0xfd, byte(rnd.Uint32()) & 0xf7})
		}
		_ = zstdWindow(b)
	}
	require.Equal(t, uint64(256+0xffff), zstdWindow([]byte{0x28, 0xb5, 0x2f, 0xfd, 1<<6 | 1<<5, 0xff, 0xff}))
}
