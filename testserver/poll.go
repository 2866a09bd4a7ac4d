package testserver

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// PollFlightInfoStatement answers as often as the profile says that the query
// is under way. How often it has is in the descriptor that the client polls
// with next, where nothing looks for it but this.
func (h *handlers) PollFlightInfoStatement(ctx context.Context, q flightsql.StatementQuery, d *flight.FlightDescriptor) (*flight.PollInfo, error) {
	total := h.srv.profile.Polls
	done := 0
	if len(d.GetPath()) == 1 {
		_, _ = fmt.Sscan(d.GetPath()[0], &done)
	}
	if done >= total {
		info, err := h.GetFlightInfoStatement(ctx, q, d)
		if err != nil {
			return nil, err
		}
		return &flight.PollInfo{Info: info, Progress: h.progress(1)}, nil
	}
	select {
	case <-time.After(h.srv.profile.PollEvery):
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	packed, err := anypb.New(&pb.CommandStatementQuery{Query: q.GetQuery(), TransactionId: q.GetTransactionId()})
	if err != nil {
		return nil, err
	}
	cmd, err := proto.Marshal(packed)
	if err != nil {
		return nil, err
	}
	next := &flight.FlightDescriptor{Type: d.GetType(), Cmd: cmd, Path: []string{fmt.Sprint(done + 1)}}
	return &flight.PollInfo{FlightDescriptor: next, Progress: h.progress(float64(done+1) / float64(total+1))}, nil
}

func (h *handlers) progress(fraction float64) *float64 {
	if h.srv.profile.NoProgress {
		return nil
	}
	return &fraction
}
