package flightconn

import (
	"bytes"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

func TestSizesOfBodies(t *testing.T) {
	require.Equal(t, 64<<20, bytesOfSize(bodySizes-1))
	require.Equal(t, noPool, bodySizeOf(64<<20+1))
	for size := range bodySizes {
		for _, n := range []int{bytesOfSize(size) - 1, bytesOfSize(size)} {
			require.Equal(t, size, bodySizeOf(n), n)
		}
		if size > 0 {
			require.LessOrEqual(t, bytesOfSize(size)-bytesOfSize(size-1), bytesOfSize(size-1)/4)
		}
	}
	require.Zero(t, bodySizeOf(0))
}

func TestABodyIsAlignedAndAsLongAsItMustBe(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 65, 257, 1 << 15, 1<<15 + 1, 64<<20 + 1} {
		b := newBody(n)
		require.Equal(t, n, b.Len())
		if n > 0 {
			require.Zero(t, misalignment(b.Bytes()), n)
			require.Equal(t, n, cap(b.Bytes()), "who appends must not write to what is another's")
		}
		b.Release()
	}
}

// TestABodyIsUsedAgain: with the race detector sync.Pool forgets a quarter, at random.
func TestABodyIsUsedAgain(t *testing.T) {
	seen := map[*byte]int{}
	for range 100 {
		b := newBody(1000)
		seen[&b.Bytes()[0]]++
		b.Release()
	}
	require.Less(t, len(seen), 80)
}

// TestWhatIsFreedIsOverwritten in builds that look for batches used too late.
func TestWhatIsFreedIsOverwritten(t *testing.T) {
	b := newBody(64<<20 + 1) // too large for a pool: nobody else gets it
	kept := b.Bytes()
	kept[5] = 1
	b.Release()
	require.Equal(t, poisonFreed, bytes.Equal(kept[:64], bytes.Repeat([]byte{0xdb}, 64)))
}

// numbered are messages of batches of 1,000 rows and a text each; row i of batch n is n.
func numbered(t testing.TB, batches int) (messages []*pb.FlightData) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}, {Name: "s", Type: arrow.BinaryTypes.String}}, nil)
	e := newEncoder(nil, schema, DefaultRequestLimit)
	defer e.close()
	for n := range batches {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		for range 1000 {
			b.Field(0).(*array.Int64Builder).Append(int64(n))
			b.Field(1).(*array.StringBuilder).Append(string(rune('A' + n)))
		}
		out, err := e.flightData(b.NewRecordBatch())
		require.NoError(t, err)
		messages = append(messages, out...)
	}
	return messages
}

// TestAKeptColumnStaysWhatItIs while later batches are received into what others have
// freed, and after the reader has ended. Columns are kept without their batch, and
// released by other goroutines.
func TestAKeptColumnStaysWhatItIs(t *testing.T) {
	const batches = 20
	e := &Endpoint{cfg: Config{Allocator: memory.DefaultAllocator, MaxMessage: 1 << 20}}
	var readers sync.WaitGroup
	for range 4 {
		rd, err := openReader(t.Context(), scriptedRows(numbered(t, batches)), nil, e, nil)
		require.NoError(t, err)
		readers.Go(func() {
			var others sync.WaitGroup
			for n := range batches {
				batch, err := rd.next()
				if err != nil {
					t.Error(err)
					return
				}
				if n%2 == 0 {
					continue // its memory is free with the next
				}
				numbers, texts := batch.Column(0).(*array.Int64), batch.Column(1).(*array.String)
				numbers.Retain()
				texts.Retain()
				others.Go(func() {
					for i := range numbers.Len() {
						if numbers.Value(i) != int64(n) || texts.Value(i) != string(rune('A'+n)) {
							t.Errorf("batch %d, row %d: %d and %q", n, i, numbers.Value(i), texts.Value(i))
							break
						}
					}
					numbers.Release()
					texts.Release()
				})
			}
			rd.release()
			others.Wait()
		})
	}
	readers.Wait()
}
