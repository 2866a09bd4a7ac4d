package flightconn

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
)

// flapping is a server before which a proxy refuses every other RPC, as one does that deals them
// out to two servers of which it has lost one.
type flapping struct {
	refusal error // nil: the proxy is well
	rpcs    int
	tried   map[string]int
}

func (p *flapping) refuse() error {
	p.rpcs++
	if p.refusal != nil && p.rpcs%2 == 0 {
		return p.refusal
	}
	return nil
}

// server ignores transaction ids.
func (p *flapping) server() *fake {
	p.tried = map[string]int{}
	return &fake{
		info: func(context.Context, *pb.FlightDescriptor) (*pb.FlightInfo, error) {
			return answer(int64Schema), p.refuse()
		},
		action: func(a *pb.Action, s pb.FlightService_DoActionServer) error {
			if err := p.refuse(); err != nil {
				return err
			}
			p.tried[a.GetType()]++
			if a.GetType() == "BeginTransaction" {
				return s.Send(&pb.Result{Body: pack(&pb.ActionBeginTransactionResult{TransactionId: []byte("tx-1234567890")})})
			}
			return s.Send(&pb.Result{})
		},
	}
}

func TestRefusalsOfEveryOtherRPCTeachNoLackForGood(t *testing.T) {
	for name, c := range map[string]struct {
		refusal error
		holds   time.Duration
	}{
		"page":  {status.Error(codes.Unimplemented, "unexpected HTTP status code received from server: 404 (Not Found)"), 0},
		"reply": {status.Error(codes.Unimplemented, "no route"), lackHolds},
	} {
		t.Run(name, func(t *testing.T) {
			p := &flapping{}
			inBubble(t, p.server(), func(b *bubble) {
				first, second := b.open(), b.open()
				p.refusal = c.refusal
				p.rpcs = 1 // the cancel is refused, the harmless question not
				do(b.Context(), first, operation())
				p.rpcs = 1
				_ = first.Close()
				p.refusal = nil
				time.Sleep(c.holds)
				require.Len(b, second.CancelSteps(operation()), 2)
				ended := p.tried["CloseSession"]
				require.NoError(b, second.Close())
				require.Equal(b, ended+1, p.tried["CloseSession"], "its session is ended")
			})
		})
		t.Run(name+" to a Begin", func(t *testing.T) {
			p := &flapping{}
			inBubble(t, p.server(), func(b *bubble) {
				conn := b.open()
				p.refusal, p.rpcs = c.refusal, 1
				_, _ = conn.RejectsUnknownTx(b.Context())
				p.refusal = nil
				repeats, err := conn.RepeatsQueries(b.Context())
				require.NoError(b, err)
				if c.holds == 0 {
					require.True(b, repeats)
				}
				tx, err := conn.Begin(b.Context())
				require.NoError(b, err)
				repeats, err = conn.RepeatsQueries(b.Context())
				require.NoError(b, err)
				require.True(b, repeats, "the server has transactions, and ignores their ids")
				require.NoError(b, conn.EndTx(b.Context(), tx, false))
			})
		})
	}
}

// A page in place of a poll's answer is no lack of polls.
func TestAPageInPlaceOfAPollTeachesNoLack(t *testing.T) {
	page, polls := true, 0
	f := &fake{
		info: func(context.Context, *pb.FlightDescriptor) (*pb.FlightInfo, error) { return answer(int64Schema), nil },
		poll: func(context.Context, *pb.FlightDescriptor) (*pb.PollInfo, error) {
			if polls++; page {
				return nil, status.Error(codes.Unimplemented, "unexpected HTTP status code received from server: 404 (Not Found)")
			}
			return &pb.PollInfo{Info: answer(int64Schema)}, nil
		},
	}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		for range 2 {
			s, err := c.Query(b.Context(), "SELECT 1", backend.Call{Progress: func(float64, bool) {}})
			require.NoError(b, err)
			s.Close()
			page = false
		}
		require.Equal(b, 2, polls)
	})
}
