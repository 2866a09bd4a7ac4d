package flightconn

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// TestReadingAheadIsBoundedInBytes has endpoints of few compressed bytes, of
// which each batch takes a quarter of what may wait.
func TestReadingAheadIsBoundedInBytes(t *testing.T) {
	const batches, bytes = 2, maxReadAhead / 4
	big := int64Batch(make([]int64, bytes/8)...)
	defer big.Release()
	f := &fake{info: infoOf(answer(nil, "0", "1", "2", "3", "4", "5", "6", "7", "8"))}
	var part sent // compressed once, since the compression takes longest
	w := flight.NewRecordWriter(&part, ipc.WithSchema(int64Schema), ipc.WithZstd())
	for range batches {
		require.NoError(t, w.Write(big))
	}
	require.NoError(t, w.Close())
	f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
		for _, message := range part {
			if err := s.Send(message); err != nil {
				return err
			}
		}
		return nil
	}
	mem := &highest{Allocator: memory.DefaultAllocator}
	inBubble(t, f, func(b *bubble) {
		s, err := b.open().Query(b.Context(), "q", backend.Call{})
		require.NoError(b, err)
		for range 9 * batches {
			synctest.Wait() // whoever reads ahead has what there is room for
			_, err := s.Next()
			require.NoError(b, err)
		}
		s.Close()
		synctest.Wait()
		require.LessOrEqual(b, mem.most.Load(), int64(maxReadAhead+3*bytes), "what waits, the batch that is next, and the one that is read")
		require.GreaterOrEqual(b, mem.most.Load(), int64(maxReadAhead), "it is made use of")
		require.Zero(b, mem.now.Load())
	}, func(c *Config) { c.Allocator = mem })
}

// sent are the messages that a writer has sent.
type sent []*pb.FlightData

func (s *sent) Send(message *pb.FlightData) error {
	*s = append(*s, proto.Clone(message).(*pb.FlightData)) // the writer uses its message again
	return nil
}

// highest is an allocator that counts.
type highest struct {
	memory.Allocator
	now, most atomic.Int64
}

func (h *highest) add(n int) {
	now := h.now.Add(int64(n))
	for most := h.most.Load(); now > most && !h.most.CompareAndSwap(most, now); most = h.most.Load() {
		continue
	}
}

func (h *highest) Allocate(size int) []byte { h.add(size); return h.Allocator.Allocate(size) }
func (h *highest) Free(b []byte)            { h.add(-len(b)); h.Allocator.Free(b) }
func (h *highest) Reallocate(size int, b []byte) []byte {
	h.add(size - len(b))
	return h.Allocator.Reallocate(size, b)
}

// TestNobodyWaitsForABatchThatWaitsForRoom reads random parts of random batches,
// many of which are larger than all that may wait, with dictionaries before them
// and readers that are slow, fast or leave.
func TestNobodyWaitsForABatchThatWaitsForRoom(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			ctx, leave := context.WithCancel(t.Context())
			var reading sync.WaitGroup
			defer reading.Wait()
			defer leave()
			const limit = 100
			a := newReadAheadBudget(limit)
			parts := make([]*part, 1+rnd.IntN(6))
			left := make([]int, len(parts))
			for i := range parts {
				parts[i] = &part{batches: make(chan queuedBatch, 1+rnd.IntN(4))}
				left[i] = rnd.IntN(8)
			}
			a.setCurrent(&parts[0].usage)
			for i, p := range parts {
				rnd := rand.New(rand.NewPCG(seed, uint64(i)+2))
				batches := left[i]
				reading.Go(func() {
					defer close(p.batches)
					defer a.partEnded(&p.usage)
					for range batches {
						for range 1 + rnd.IntN(3) { // the last is the batch
							time.Sleep(time.Duration(rnd.IntN(3)))
							if a.reserve(ctx, &p.usage, rnd.Int64N(2*limit)) != nil {
								return
							}
						}
						select {
						case p.batches <- queuedBatch{bytes: a.batchQueued(&p.usage)}:
						case <-ctx.Done():
							return
						}
					}
					_ = a.reserve(ctx, &p.usage, rnd.Int64N(limit)) // it fails before its end
				})
			}
			stopAt := rnd.IntN(60)
			for i, p := range parts {
				a.setCurrent(&p.usage)
				for batch := range p.batches { // the bubble finds who waits for ever
					a.batchDelivered(&p.usage, batch.bytes)
					left[i]--
					if stopAt--; stopAt == 0 {
						return
					}
					time.Sleep(time.Duration(rnd.IntN(3)))
				}
				require.Zero(t, left[i], "seed %d: part %d", seed, i)
			}
			require.Zero(t, a.mu.used, "seed %d", seed)
		})
	}
}
