package flightconn

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// TestALocationThatServesOneStreamAtATimeDoesNotDeadlock is TestASessionThatRunsOneStreamAtATimeDoesNotDeadlock
// for parts that are at another location: nothing orders who asks there first, and a later part
// holds the only stream until its turn comes, which is after that of the part that waits for it.
func TestALocationThatServesOneStreamAtATimeDoesNotDeadlock(t *testing.T) {
	const rows, batches = 200_000, 20
	loc := func(uris ...string) (out []*pb.Location) {
		for _, uri := range uris {
			out = append(out, &pb.Location{Uri: uri})
		}
		return out
	}
	late := loc("grpc://nobody:1", "grpc://remote:2") // its first location is dead, which takes a second
	one := []grpc.ServerOption{grpc.MaxConcurrentStreams(1)}
	for name, test := range map[string]struct {
		parts  [][]*pb.Location
		opts   []grpc.ServerOption // of the location
		locked bool                // handlers run one at a time, as those of one session or of a small pool of threads
		fails  bool                // the second part, elsewhere
	}{
		// A proxy or server with SETTINGS_MAX_CONCURRENT_STREAMS.
		"the connection takes one stream": {parts: [][]*pb.Location{late, loc("grpc://remote:2")}, opts: one},
		"the server runs one at a time":   {parts: [][]*pb.Location{loc("grpc://remote:2"), loc("grpc://remote:2")}, locked: true},
		"one between is elsewhere":        {parts: [][]*pb.Location{late, loc("grpc://other:3", "grpc://remote:2"), loc("grpc://remote:2")}, opts: one},
		"one between fails elsewhere":     {parts: [][]*pb.Location{late, loc("grpc://other:3", "grpc://remote:2"), loc("grpc://remote:2")}, opts: one, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			info := answer(nil, []string{"0", "1", "2"}[:len(test.parts)]...)
			for i, locations := range test.parts {
				info.Endpoint[i].Location = locations
			}
			f := &fake{info: infoOf(info)}
			f.get = func(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
				switch {
				case test.fails && ticket.GetTicket()[0] == '1':
					return status.Error(codes.NotFound, "no such part")
				case test.locked:
					return sendInTurn(&mu, ticket, s, rows, batches)
				default:
					return sendLarge(s, rows, batches)
				}
			}
			inBubble(t, f, func(b *bubble) {
				b.net.serve(b, "remote:2", f, test.opts...)
				b.net.serve(b, "other:3", f)
				ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
				defer cancel()
				s, err := b.open().Query(ctx, "q", backend.Call{})
				require.NoError(b, err)
				defer s.Close()
				got := int64(0)
				for err == nil {
					var batch arrow.RecordBatch
					if batch, err = s.Next(); err == nil {
						got += batch.NumRows()
					}
				}
				if test.fails {
					require.EqualValues(b, rows*batches, got)
					require.ErrorContains(b, err, "no such part")
					return
				}
				require.ErrorIs(b, err, io.EOF)
				require.EqualValues(b, len(test.parts)*rows*batches, got)
			}, func(cfg *Config) {
				dial := cfg.Dialer
				cfg.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
					if addr == "nobody:1" {
						time.Sleep(time.Second)
					}
					return dial(ctx, addr)
				}
			})
		})
	}
}
