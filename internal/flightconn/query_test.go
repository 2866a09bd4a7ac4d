package flightconn

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
)

func TestQueryStreamsTheBatchesOfOneEndpoint(t *testing.T) {
	f := &fake{info: infoOf(answer(int64Schema, "a"))}
	f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error { return sendBatches(s, 3) }
	inBubble(t, f, func(b *bubble) {
		op := &backend.Operation{}
		s, err := b.open().Query(b.Context(), "q", backend.Call{Op: op})
		require.NoError(b, err)
		require.True(b, s.Schema().Equal(int64Schema))
		require.Equal(b, []int64{0, 1, 2}, values(b, s))
		require.IsType(b, &Info{}, op.Name())
	})
}

func TestNextReturnsAtTheEndOfTheCallersContext(t *testing.T) {
	f := &fake{info: infoOf(answer(int64Schema, "a"))}
	f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
		_ = sendBatches(s, 1)
		return silence(s.Context())
	}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		s, err := c.Query(ctx, "q", backend.Call{})
		require.NoError(b, err)
		defer s.Close()
		_, err = s.Next()
		require.NoError(b, err)
		began := time.Now()
		_, err = s.Next()
		require.Equal(b, time.Second, time.Since(began))
		e := failure(b, err)
		require.Equal(b, backend.FaultContext, e.Fault)
		require.ErrorIs(b, err, context.DeadlineExceeded)
		require.NoError(b, c.Lost())
		synctest.Wait()
	})
}

func TestAStreamThatTheServerEndsBecauseTimeIsUpIsNotComplete(t *testing.T) {
	f := &fake{info: infoOf(answer(int64Schema, "a"))}
	f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
		_ = sendBatches(s, 1)
		<-s.Context().Done()
		return nil // as if that had been all
	}
	inBubble(t, f, func(b *bubble) {
		ctx := lateTimer{b.Context(), time.Now().Add(time.Second)}
		s, err := b.open().Query(ctx, "q", backend.Call{})
		require.NoError(b, err)
		defer s.Close()
		_, err = s.Next()
		require.NoError(b, err)
		_, err = s.Next()
		require.ErrorIs(b, err, context.DeadlineExceeded)
		require.Equal(b, backend.FaultContext, failure(b, err).Fault)
	})
}

// lateTimer is a context whose timer has not fired yet at its deadline, as it
// may be on a busy machine: the server's is first.
type lateTimer struct {
	context.Context
	at time.Time
}

func (l lateTimer) Deadline() (time.Time, bool) { return l.at, true }

// SwanLake counts the rows of a change that was sent as a query in a header.
func TestARowCountInTheHeaderIsTold(t *testing.T) {
	for says, want := range map[string]struct {
		n       int64
		counted bool
	}{"": {}, "7": {7, true}, "seven": {}} {
		f := &fake{info: infoOf(answer(int64Schema, "0"))}
		f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
			if says != "" {
				_ = s.SetHeader(metadata.Pairs(affectedRowsKey, says))
			}
			return sendBatches(s, 0)
		}
		inBubble(t, f, func(b *bubble) {
			s, err := b.open().Query(b.Context(), "q", backend.Call{})
			require.NoError(b, err)
			require.Empty(b, values(b, s))
			n, counted := s.(interface{ RowsAffected() (int64, bool) }).RowsAffected()
			require.Equal(b, want.counted, counted, says)
			require.Equal(b, want.n, n, says)
		})
	}
}
