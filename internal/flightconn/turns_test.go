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
	for name, test := range map[string]struct {
		first, second []*pb.Location
		opts          []grpc.ServerOption // of the location
		locked        bool                // handlers run one at a time, as those of one session or of a small pool of threads
	}{
		// A proxy or server with SETTINGS_MAX_CONCURRENT_STREAMS. The first part is late since its first location is dead.
		"the connection takes one stream": {loc("grpc://nobody:1", "grpc://remote:2"), loc("grpc://remote:2"), []grpc.ServerOption{grpc.MaxConcurrentStreams(1)}, false},
		"the server runs one at a time":   {loc("grpc://remote:2"), loc("grpc://remote:2"), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			info := answer(nil, "0", "1")
			info.Endpoint[0].Location, info.Endpoint[1].Location = test.first, test.second
			f := &fake{info: infoOf(info)}
			f.get = func(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
				if test.locked {
					return sendInTurn(&mu, ticket, s, rows, batches)
				}
				return sendLarge(s, rows, batches)
			}
			inBubble(t, f, func(b *bubble) {
				b.net.serve(b, "remote:2", f, test.opts...)
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
				require.ErrorIs(b, err, io.EOF)
				require.EqualValues(b, 2*rows*batches, got)
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
