package flightconn

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// polled queries a server whose n-th poll is answered by poll.
func polled(t *testing.T, poll func(n int) (*pb.PollInfo, error), test func(b *bubble, heard *[]float64, ask func(ctx context.Context) (backend.Stream, error), polls *int)) {
	polls := 0
	f := &fake{get: byTicket, info: infoOf(answer(int64Schema, "0"))}
	f.poll = func(context.Context, *pb.FlightDescriptor) (*pb.PollInfo, error) {
		polls++
		return poll(polls)
	}
	inBubble(t, f, func(b *bubble) {
		polls = 0
		var heard []float64
		c := b.open()
		test(b, &heard, func(ctx context.Context) (backend.Stream, error) {
			return c.Query(ctx, "q", backend.Call{Progress: func(fraction float64, known bool) {
				if !known {
					fraction = -1
				}
				heard = append(heard, fraction)
			}})
		}, &polls)
	})
}

var going = &pb.FlightDescriptor{Type: pb.FlightDescriptor_CMD, Cmd: []byte("go on")}

func TestAServerThatNeverGetsDoneIsPolledEverMoreSlowlyUntilTheContextEnds(t *testing.T) {
	polled(t, func(int) (*pb.PollInfo, error) { return &pb.PollInfo{FlightDescriptor: going}, nil },
		func(b *bubble, _ *[]float64, ask func(context.Context) (backend.Stream, error), polls *int) {
			ctx, stop := context.WithTimeout(b.Context(), time.Minute)
			defer stop()
			start := time.Now()
			_, err := ask(ctx)
			require.Equal(b, backend.FaultContext, failure(b, err).Fault)
			require.Equal(b, time.Minute, time.Since(start))
			require.Less(b, *polls, 70)
			require.Greater(b, *polls, 50)
		})
}

func TestProgressThatIsNoneIsUnknown(t *testing.T) {
	grpcText := []float64{0.5, math.NaN(), -1, -0.5, 2, math.Inf(1), 0.25, 0, 1}
	polled(t, func(n int) (*pb.PollInfo, error) {
		if n > len(grpcText) {
			return &pb.PollInfo{Info: answer(int64Schema, "0")}, nil
		}
		return &pb.PollInfo{FlightDescriptor: going, Progress: &grpcText[n-1]}, nil
	}, func(b *bubble, heard *[]float64, ask func(context.Context) (backend.Stream, error), _ *int) {
		s, err := ask(b.Context())
		require.NoError(b, err)
		require.Equal(b, upTo(10), values(b, s))
		require.Equal(b, []float64{0.5, -1, -1, -1, -1, -1, 0.25, 0, 1, 1}, *heard)
	})
}

func TestPollsThatMakeNoSenseAreErrors(t *testing.T) {
	for name, poll := range map[string]func(n int) (*pb.PollInfo, error){
		"complete, but nothing is there": func(int) (*pb.PollInfo, error) { return &pb.PollInfo{}, nil },
		"refused half-way": func(n int) (*pb.PollInfo, error) {
			if n == 1 {
				return &pb.PollInfo{FlightDescriptor: going}, nil
			}
			return nil, status.Error(codes.Unimplemented, "what poll?")
		},
	} {
		polled(t, poll, func(b *bubble, _ *[]float64, ask func(context.Context) (backend.Stream, error), _ *int) {
			plans := b.fake.plans.Load()
			_, err := ask(b.Context())
			require.ErrorIs(b, err, errMalformed, name)
			require.Equal(b, plans, b.fake.plans.Load(), "%s: the query is not run again", name)
		})
	}
	polled(t, func(int) (*pb.PollInfo, error) { return nil, status.Error(codes.InvalidArgument, "no such table") },
		func(b *bubble, _ *[]float64, ask func(context.Context) (backend.Stream, error), polls *int) {
			for range 2 {
				_, err := ask(b.Context())
				require.Equal(b, backend.FaultStatement, failure(b, err).Fault)
			}
			require.Equal(b, 2, *polls, "a statement that fails says nothing of polls")
		})
}

// A server that has something to tell is asked again soon.
func TestAServerThatTellsOfProgressIsPolledSoon(t *testing.T) {
	const polls, takes = 100, 30 * time.Millisecond
	for name, progress := range map[string]func(n int) *pb.PollInfo{
		"its fraction grows": func(n int) *pb.PollInfo {
			fraction := float64(n) / polls
			return &pb.PollInfo{FlightDescriptor: going, Progress: &fraction}
		},
		"its endpoints grow": func(n int) *pb.PollInfo {
			return &pb.PollInfo{FlightDescriptor: going, Info: answer(int64Schema, make([]string, n)...)}
		},
	} {
		polled(t, func(n int) (*pb.PollInfo, error) {
			time.Sleep(takes)
			if n > polls {
				return &pb.PollInfo{Info: answer(int64Schema, "0")}, nil
			}
			return progress(n), nil
		}, func(b *bubble, heard *[]float64, ask func(context.Context) (backend.Stream, error), _ *int) {
			start := time.Now()
			s, err := ask(b.Context())
			require.NoError(b, err, name)
			s.Close()
			require.Equal(b, polls*minPollInterval+takes, time.Since(start), name)
			require.Len(b, *heard, polls+1)
		})
	}
}

// A server that refuses everything for a while lacks no poll. One that refuses the poll
// alone does, for all connections to it.
func TestARefusedPollTeachesALackOnlyWhereTheQueryIsAnsweredOtherwise(t *testing.T) {
	refusal := status.Error(codes.Unimplemented, "not here")
	pollFails, queryFails, polls := true, true, 0
	f := &fake{get: byTicket}
	f.info = func(context.Context, *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		if queryFails {
			return nil, refusal
		}
		return answer(int64Schema, "0"), nil
	}
	f.poll = func(context.Context, *pb.FlightDescriptor) (*pb.PollInfo, error) {
		polls++
		if pollFails {
			return nil, refusal
		}
		return &pb.PollInfo{Info: answer(int64Schema, "0")}, nil
	}
	inBubble(t, f, func(b *bubble) {
		queryFails = false // opening asked already
		ask := func(c *Conn) (polled int, told []float64, err error) {
			polls = 0
			_, err = c.Query(b.Context(), "q", backend.Call{Progress: func(fraction float64, _ bool) { told = append(told, fraction) }})
			return polls, told, err
		}
		first, second := b.open(), b.open()
		queryFails = true
		for range 2 {
			n, told, err := ask(first)
			require.Equal(b, backend.FaultUnsupported, failure(b, err).Fault)
			require.Equal(b, 1, n, "nothing is learned from a refusal of everything")
			require.Empty(b, told)
		}
		queryFails, pollFails = false, false
		n, told, err := ask(first)
		require.NoError(b, err)
		require.Equal(b, 1, n)
		require.Equal(b, []float64{1}, told)
		pollFails = true
		for i, c := range []*Conn{first, first, second} {
			n, told, err = ask(c)
			require.NoError(b, err)
			require.Equal(b, i == 0, n == 1, "asked in vain once")
			require.Empty(b, told)
		}
	})
}

// A query that was answered a poll runs until the server says otherwise.
func TestAPollThatFailsLeavesItsQueryRunning(t *testing.T) {
	for name, c := range map[string]struct {
		answered int // polls before
		answer   error
		running  bool
	}{
		"the server is busy":        {1, status.Error(codes.ResourceExhausted, "too many polls"), true},
		"the token has expired":     {2, status.Error(codes.Unauthenticated, "expired"), true},
		"polls are refused":         {1, status.Error(codes.Unimplemented, "what poll?"), true},
		"the query has failed":      {1, status.Error(codes.InvalidArgument, "division by zero"), false},
		"the query was never begun": {0, status.Error(codes.ResourceExhausted, "too many queries"), false},
	} {
		polled(t, func(n int) (*pb.PollInfo, error) {
			if n <= c.answered {
				return &pb.PollInfo{FlightDescriptor: going, Info: answer(int64Schema, "0")}, nil
			}
			return nil, c.answer
		}, func(b *bubble, _ *[]float64, ask func(context.Context) (backend.Stream, error), _ *int) {
			_, err := ask(b.Context())
			require.Equal(b, c.running, failure(b, err).Running, name)
		})
	}
}
