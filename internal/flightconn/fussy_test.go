package flightconn

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/eof"
)

// fussyMemory is an allocator that panics, or ends the goroutine, at one of its
// uses.
type fussyMemory struct {
	*memory.CheckedAllocator
	left atomic.Int32
	exit bool
}

func (m *fussyMemory) Allocate(size int) []byte {
	if m.left.Add(-1) == 0 {
		if m.exit {
			runtime.Goexit()
		}
		panic("the allocator's")
	}
	return m.CheckedAllocator.Allocate(size)
}

// An allocator that panics or ends the goroutine, at any of its uses and whichever
// goroutine reads, ends the result: nobody waits, no result is short without an
// error, and the memory of all batches is given back.
func TestAnAllocatorThatEndsItsGoroutineEndsTheResult(t *testing.T) {
	for _, tickets := range [][]string{{"0"}, {"0", "1", "2"}} {
		for nth := range int32(len(tickets)*2 + 3) {
			for _, exit := range []bool{false, true} {
				what := fmt.Sprintf("%d endpoints, use %d, exit %t", len(tickets), nth, exit)
				f := &fake{info: infoOf(answer(int64Schema, tickets...))}
				f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
					b := array.NewRecordBuilder(memory.DefaultAllocator, int64Schema)
					defer b.Release()
					b.Field(0).(*array.Int64Builder).AppendValues(upTo(10), []bool{true, false, true, true, true, true, true, true, true, true})
					batch := b.NewRecordBatch()
					defer batch.Release()
					w := flight.NewRecordWriter(s, ipc.WithSchema(int64Schema), ipc.WithLZ4()) // decompressed into the allocator, in two pieces
					if err := w.Write(batch); err != nil {
						return err
					}
					return w.Close()
				}
				mem := &fussyMemory{CheckedAllocator: memory.NewCheckedAllocator(memory.DefaultAllocator), exit: exit}
				inBubble(t, f, func(b *bubble) {
					ctx, stop := context.WithTimeout(b.Context(), time.Minute)
					defer stop()
					mem.left.Store(nth)
					c := b.open()
					rows, ended, returned := int64(0), false, false
					var stream backend.Stream
					done := make(chan struct{})
					go func() {
						defer close(done)
						defer func() { _ = recover() }()
						s, err := c.Query(ctx, "q", backend.Call{})
						for stream = s; err == nil; {
							batch, failed := s.Next()
							if err = failed; err == nil {
								rows += batch.NumRows()
							}
						}
						ended = eof.Reached(err)
						returned = true
					}()
					<-done
					require.NoError(b, ctx.Err(), what)
					if ended {
						require.EqualValues(b, 10*len(tickets), rows, what)
						require.False(b, nth > 0 && mem.left.Load() <= 0, what)
					}
					if !returned {
						_, err := stream.Next()
						require.ErrorIs(b, err, backend.ErrHandleClosed, what)
					}
					if stream != nil {
						stream.Close()
					}
					synctest.Wait()
					mem.AssertSize(b, 0)
				}, func(c *Config) { c.Allocator = mem })
			}
		}
	}
}
