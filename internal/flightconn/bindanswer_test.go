package flightconn

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"

	"github.com/flightpool/flightpool/backend"
)

// bindAnswers is a server that answers a bind by these messages.
func bindAnswers(planned *pb.CommandPreparedStatementQuery, closed *[]string, answers ...*pb.DoPutPreparedStatementResult) *fake {
	f := &fake{action: preparing(nil, closed), get: byTicket}
	f.put = func(s pb.FlightService_DoPutServer) error {
		if _, err := take(s); err != nil {
			return err
		}
		for _, a := range answers {
			put := &pb.PutResult{}
			if a != nil {
				put.AppMetadata = marshal(a)
			}
			if err := s.Send(put); err != nil {
				return err
			}
		}
		return nil
	}
	f.info = func(_ context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		if isProbe(d) {
			return &pb.FlightInfo{}, nil
		}
		proto.Reset(planned)
		return answer(int64Schema, "0"), unpack(d.GetCmd(), planned)
	}
	return f
}

// An empty handle names other statements on some servers: the latest (SwanLake), or all (ClickHouse,
// when it is closed).
func TestTheHandleOfABindIsTheLastThatIsTold(t *testing.T) {
	handle := func(h string) *pb.DoPutPreparedStatementResult {
		return &pb.DoPutPreparedStatementResult{PreparedStatementHandle: []byte(h)}
	}
	for _, c := range []struct {
		answers []*pb.DoPutPreparedStatementResult
		want    string
	}{
		{nil, "h1"},
		{[]*pb.DoPutPreparedStatementResult{nil}, "h1"},
		{[]*pb.DoPutPreparedStatementResult{handle("")}, "h1"},
		{[]*pb.DoPutPreparedStatementResult{handle("h2")}, "h2"},
		{[]*pb.DoPutPreparedStatementResult{nil, handle("h2")}, "h2"},
		{[]*pb.DoPutPreparedStatementResult{nil, nil, handle("h2"), nil}, "h2"},
	} {
		var closed []string
		var planned pb.CommandPreparedStatementQuery
		inBubble(t, bindAnswers(&planned, &closed, c.answers...), func(b *bubble) {
			p, err := b.open().Prepare(b.Context(), "select ?", backend.Call{})
			require.NoError(b, err)
			batch := texts("x")
			defer batch.Release()
			s, err := p.Query(b.Context(), batch, backend.Call{})
			require.NoError(b, err)
			require.Equal(b, upTo(10), values(b, s))
			require.Equal(b, c.want, string(planned.GetPreparedStatementHandle()), "%v", c.answers)
			require.NoError(b, p.Close(b.Context()))
			require.Equal(b, []string{c.want}, closed)
		})
	}
}

func TestAStatementWithoutAHandleIsNone(t *testing.T) {
	f := &fake{action: func(_ *pb.Action, s pb.FlightService_DoActionServer) error {
		return s.Send(&pb.Result{Body: pack(&pb.ActionCreatePreparedStatementResult{})})
	}}
	inBubble(t, f, func(b *bubble) {
		_, err := b.open().Prepare(b.Context(), "select 1", backend.Call{})
		require.ErrorContains(b, err, "an empty prepared statement handle")
		require.Equal(b, backend.FaultUnknown, failure(b, err).Fault)
	})
}
