package flightconn

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/session"
)

// lasting are statements that go on when their RPCs are ended, until the server is
// asked to cancel them.
type lasting struct {
	mu      sync.Mutex
	running int
	asked   int
	stop    chan struct{}
}

func (l *lasting) run() {
	l.mu.Lock()
	l.running++
	l.mu.Unlock()
	select {
	case <-l.stop:
	case <-time.After(time.Hour):
	}
	l.mu.Lock()
	l.running--
	l.mu.Unlock()
}

// cancel ends them.
func (l *lasting) cancel() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked++; l.asked == 1 {
		close(l.stop)
	}
}

func (l *lasting) state() (running, asked int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running, l.asked
}

func TestNoStatementRunsInAConnectionThatIsGivenBack(t *testing.T) {
	text := arrow.NewSchema([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String}}, nil)
	for name, c := range map[string]struct {
		first func(pb.FlightService_DoGetServer, *lasting) error
		info  *pb.FlightInfo
		cfg   func(*Config)
	}{
		"one endpoint fails while another runs": {
			info: answer(nil, "0", "1"),
			first: func(s pb.FlightService_DoGetServer, _ *lasting) error {
				w := flight.NewRecordWriter(s, ipc.WithSchema(int64Schema))
				batch := int64Batch(1)
				defer batch.Release()
				_ = w.Write(batch)
				time.Sleep(time.Second)
				return status.Error(codes.Internal, "boom")
			},
		},
		"the schemas differ": {
			info: answer(nil, "0", "1"),
			first: func(s pb.FlightService_DoGetServer, _ *lasting) error {
				return flight.NewRecordWriter(s, ipc.WithSchema(text)).Close()
			},
		},
		"a location dies": {
			info: elsewhereFirst(answer(nil, "0", "1")),
		},
		"a message is malformed": {
			info: answer(nil, "0"),
			first: func(s pb.FlightService_DoGetServer, l *lasting) error {
				w := flight.NewRecordWriter(s, ipc.WithSchema(int64Schema))
				batch := int64Batch(1)
				defer batch.Release()
				_ = w.Write(batch)
				_ = s.Send(&pb.FlightData{DataHeader: []byte("nonsense")})
				l.run()
				return nil
			},
		},
		"a message is too large": {
			info: answer(nil, "0"),
			first: func(s pb.FlightService_DoGetServer, l *lasting) error {
				w := flight.NewRecordWriter(s, ipc.WithSchema(int64Schema))
				batch := int64Batch(make([]int64, 100_000)...)
				defer batch.Release()
				_ = w.Write(batch)
				l.run()
				return nil
			},
			cfg: func(cfg *Config) { cfg.MaxMessage = 1 << 17 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lasting{}
			f := &fake{}
			f.info = func(ctx context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
				var probe pb.CommandStatementQuery
				if unpack(d.GetCmd(), &probe) == nil && probe.GetQuery() == "SELECT 1" {
					return answer(int64Schema, "p"), nil
				}
				return infoOf(c.info)(ctx, d)
			}
			f.get = func(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
				switch ticket.GetTicket()[0] {
				case 'p':
					return sendBatches(s, 1)
				case '0':
					if c.first != nil {
						return c.first(s, l)
					}
				}
				w := flight.NewRecordWriter(s, ipc.WithSchema(int64Schema))
				batch := int64Batch(2)
				defer batch.Release()
				_ = w.Write(batch)
				l.run()
				return nil
			}
			f.action = func(a *pb.Action, s pb.FlightService_DoActionServer) error {
				if a.GetType() != flight.CancelFlightInfoActionType {
					return status.Error(codes.Unimplemented, "no")
				}
				l.cancel()
				time.Sleep(time.Millisecond) // until they have ended
				return s.Send(&pb.Result{Body: marshal(&pb.CancelFlightInfoResult{Status: pb.CancelStatus_CANCEL_STATUS_CANCELLED})})
			}
			change := func(*Config) {}
			if c.cfg != nil {
				change = c.cfg
			}
			inBubble(t, f, func(b *bubble) {
				l.stop = make(chan struct{}) // of the bubble
				other := b.net.serve(b, "other:1", &fake{get: func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
					defer time.Sleep(time.Second) // which outlasts it
					return sendBatches(s, 1)
				}})
				time.AfterFunc(time.Second/2, func() {
					for _, c := range other.Conns() {
						c.Cut()
					}
				})
				defer l.cancel()
				conn := b.open()
				back := make(chan error, 1)
				policy := &session.Policy{OwnerContext: b.Context()}
				s := session.NewStateless(conn, policy, func(discard error) {
					running, _ := l.state()
					if discard == nil && running > 0 {
						discard = errors.New("given back while its statement runs")
						b.Error(discard)
					}
					back <- discard
				})
				res, err := s.Query(b.Context(), "SELECT n FROM t")
				if err == nil {
					for res.Next() {
						continue
					}
					err = res.Err()
					res.Release()
				}
				require.Error(b, err)
				require.NoError(b, <-back)
				_, asked := l.state()
				require.Equal(b, 1, asked, "the server is asked to stop it")
			}, change)
		})
	}
}

// elsewhereFirst has the first endpoint at another server.
func elsewhereFirst(info *pb.FlightInfo) *pb.FlightInfo {
	info.Endpoint[0].Location = []*pb.Location{{Uri: "grpc://other:1"}}
	return info
}

// gRPC refuses metadata that cannot be sent before the RPC begins, and no answer comes.
func TestAnRPCThatNeverBeganIsNoRoundTrip(t *testing.T) {
	inBubble(t, &fake{info: infoOf(answer(nil, "0"))}, func(b *bubble) {
		c := b.open()
		for _, md := range []metadata.MD{{"x-mine": {"a\nb"}}, {"bad header": {"a"}}} {
			ctx := metadata.NewOutgoingContext(b.Context(), md)
			_, err := c.Query(ctx, "q", backend.Call{})
			require.Error(b, err)
			_, err = c.Update(ctx, "q", backend.Call{})
			require.Error(b, err)
			_, err = c.Begin(ctx)
			require.Error(b, err)
			begun, answered := c.RoundTrips()
			require.Equal(b, begun, answered, "nothing is under way")
			require.NoError(b, c.Lost())
		}
	})
}

// What a probe beside a call can teach depends on where the call is.
func TestRoundTripsTellWhatIsUnderWay(t *testing.T) {
	f := &fake{info: infoOf(answer(nil, "0"))}
	f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
		time.Sleep(time.Second)
		if err := sendBatches(s, 1); err != nil {
			return err
		}
		time.Sleep(time.Second)
		return nil
	}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		before, answered := c.RoundTrips()
		require.Equal(b, before, answered, "nothing is under way")
		done := make(chan struct{})
		go func() {
			defer close(done)
			s, err := c.Query(b.Context(), "q", backend.Call{})
			require.NoError(b, err)
			defer s.Close()
			for err == nil {
				_, err = s.Next()
			}
		}()
		time.Sleep(time.Second / 2)
		at, answered := c.RoundTrips()
		require.Equal(b, before+2, at)
		require.Equal(b, before+1, answered, "the rows are waited for")
		time.Sleep(time.Second)
		_, answered = c.RoundTrips()
		require.Equal(b, before+2, answered, "they have begun to come")
		<-done
		s, err := c.QueryConcurrently(b.Context(), "q", backend.Call{})
		require.NoError(b, err)
		s.Close()
		after, _ := c.RoundTrips()
		require.Equal(b, at, after, "a query beside counts for nothing")
	})
}
