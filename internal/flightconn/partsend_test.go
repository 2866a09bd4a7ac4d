package flightconn

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/eof"
)

// gate is an allocator in which what is of one size waits.
type gate struct {
	memory.Allocator
	size int
	open chan struct{}
}

func (g *gate) Allocate(size int) []byte {
	if size == g.size {
		<-g.open
	}
	return g.Allocator.Allocate(size)
}

// A part whose rows have all come is read to its end although the result has ended meanwhile, and drops
// what nobody was given: that is no end of the rows, nor do those of a later part follow.
func TestAPartThatDropsRowsHasNotEndedWell(t *testing.T) {
	const large = 1024 // rows of the batch that is being read
	f := &fake{info: infoOf(answer(nil, "0", "1", "2"))}
	f.get = func(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
		w := flight.NewRecordWriter(s, ipc.WithSchema(int64Schema), ipc.WithLZ4()) // decompressed into the allocator
		sizes := map[byte][]int{'0': {1}, '1': {1, 1, large}, '2': {1}}[ticket.GetTicket()[0]]
		for i, size := range sizes {
			values := make([]int64, size)
			values[0] = 10*int64(ticket.GetTicket()[0]-'0') + int64(i)
			batch := int64Batch(values...)
			err := w.Write(batch)
			batch.Release()
			if err != nil {
				return err
			}
		}
		return w.Close()
	}
	for want, end := range map[error]func(c *Conn, cancel context.CancelFunc){
		context.Canceled:       func(_ *Conn, cancel context.CancelFunc) { cancel() },
		backend.ErrSessionLost: func(c *Conn, _ context.CancelFunc) { _ = c.Close() },
	} {
		for range 40 { // it is left to chance whether the last batch is kept, and what is seen first of the end
			var waits *gate
			inBubble(t, f, func(b *bubble) {
				ctx, cancel := context.WithCancel(b.Context())
				defer cancel()
				c := b.open()
				s, err := c.Query(ctx, "q", backend.Call{})
				require.NoError(b, err)
				defer s.Close()
				for _, first := range []int64{0, 10} {
					batch, err := s.Next()
					require.NoError(b, err)
					require.Equal(b, first, batch.Column(0).(*array.Int64).Value(0))
				}
				synctest.Wait() // all rows have come, and the last of the second part are being read
				end(c, cancel)
				close(waits.open)
				synctest.Wait()
				for next := int64(11); err == nil; next++ {
					batch, failed := s.Next()
					if err = failed; err == nil {
						require.Equal(b, next, batch.Column(0).(*array.Int64).Value(0), "rows are missing before it")
					}
				}
				require.False(b, eof.Reached(err), "rows are missing")
				require.ErrorIs(b, err, want)
			}, func(cfg *Config) {
				waits = &gate{memory.DefaultAllocator, 8 * large, make(chan struct{})}
				cfg.Allocator = waits
			})
		}
	}
}
