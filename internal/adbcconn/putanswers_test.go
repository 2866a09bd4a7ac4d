package adbcconn

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"

	"github.com/flightpool/flightpool/backend"
)

// answering reads what is put, and answers by so many messages.
func answering(said ...proto.Message) func(pb.FlightService_DoPutServer) error {
	return func(s pb.FlightService_DoPutServer) error {
		for {
			if _, err := s.Recv(); err != nil {
				break
			}
		}
		for _, m := range said {
			result := &pb.PutResult{}
			if m != nil {
				result.AppMetadata, _ = proto.Marshal(m)
			}
			if err := s.Send(result); err != nil {
				return err
			}
		}
		return nil
	}
}

// As over the native backend. The driver takes the first answer, and an empty handle, by which servers know other statements.
func TestTheHandleOfABindThroughTheDriverIsTheLastThatIsTold(t *testing.T) {
	handle := func(h string) proto.Message {
		return &pb.DoPutPreparedStatementResult{PreparedStatementHandle: []byte(h)}
	}
	for _, c := range []struct {
		answers []proto.Message
		want    string
	}{
		{nil, "p"},
		{[]proto.Message{nil}, "p"},
		{[]proto.Message{handle("")}, "p"},
		{[]proto.Message{handle("h2")}, "h2"},
		{[]proto.Message{nil, handle("h2")}, "h2"},
		{[]proto.Message{nil, nil, handle("h2"), nil}, "h2"},
	} {
		f := &fake{put: answering(c.answers...)}
		withFake(t, f, func(t *testing.T, conn backend.Conn) {
			p, err := conn.Prepare(t.Context(), "q", backend.Call{})
			require.NoError(t, err)
			batch := int64s(1)
			defer batch.Release()
			_, err = p.Query(t.Context(), batch, backend.Call{})
			require.Equal(t, codes.NotFound, status.Code(err), "%v", err)
			require.Error(t, p.Close(t.Context()), "the fake does not")
			require.Equal(t, []string{c.want, c.want}, f.used, "%v", c.answers)
		})
	}
}

func TestAStatementWithoutAHandleIsNoneThroughTheDriver(t *testing.T) {
	withFake(t, &fake{noHandle: true}, func(t *testing.T, c backend.Conn) {
		_, err := c.Prepare(t.Context(), "select 1", backend.Call{})
		require.ErrorContains(t, err, "an empty prepared statement handle")
		require.Equal(t, backend.FaultUnknown, failure(t, err).Fault)
	})
}

// Of several counts nobody knows whether they add up, and a server need not tell any.
func TestTheCountOfAChangeThroughTheDriverIsTheOneThatIsTold(t *testing.T) {
	count := func(n int64) proto.Message { return &pb.DoPutUpdateResult{RecordCount: n} }
	for _, c := range []struct {
		answers []proto.Message
		want    int64
	}{
		{nil, -1},
		{[]proto.Message{nil}, 0}, // the bytes of a zero
		{[]proto.Message{count(7)}, 7},
		{[]proto.Message{nil, count(7)}, 7},
		{[]proto.Message{count(7), nil}, 7},
		{[]proto.Message{count(7), count(2)}, -1},
		{[]proto.Message{nil, nil}, -1},
	} {
		withFake(t, &fake{put: answering(c.answers...)}, func(t *testing.T, conn backend.Conn) {
			n, err := conn.Update(t.Context(), "u", backend.Call{})
			require.NoError(t, err, "%v", c.answers)
			require.Equal(t, c.want, n, "%v", c.answers)
			p, err := conn.Prepare(t.Context(), "u", backend.Call{})
			require.NoError(t, err)
			batch := int64s(1)
			defer batch.Release()
			n, err = p.Update(t.Context(), batch, backend.Call{})
			require.NoError(t, err, "%v", c.answers)
			require.Equal(t, c.want, n, "%v", c.answers)
		})
	}
}
