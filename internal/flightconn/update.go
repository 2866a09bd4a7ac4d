package flightconn

import (
	"context"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/protobuf/proto"

	"github.com/flightpool/flightpool/internal/eof"
	"github.com/flightpool/flightpool/session"
)

// Update is part of session.Conn. It goes by DoPut and never as a query: some
// servers run what they plan, and run it again when it is fetched.
func (c *Conn) Update(ctx context.Context, sql string, call session.Call) (int64, error) {
	ctx, r, err := c.begin(ctx, "Update", call.Headers)
	if err != nil {
		return 0, err
	}
	defer r.end()
	desc, err := r.descriptor(&pb.CommandStatementUpdate{Query: sql, TransactionId: r.txID(call.Tx)})
	if err != nil {
		return 0, r.fail(session.StageExecute, err)
	}
	n, err := r.putCount(ctx, only(&pb.FlightData{FlightDescriptor: desc}))
	if err != nil {
		return 0, r.fail(session.StageExecute, err)
	}
	return n, nil
}

// feed gives the messages of a DoPut one after another, then nil.
type feed func() (*pb.FlightData, error)

// only feeds messages that are all there.
func only(messages ...*pb.FlightData) feed {
	return func() (*pb.FlightData, error) {
		if len(messages) == 0 {
			return nil, nil
		}
		next := messages[0]
		messages = messages[1:]
		return next, nil
	}
}

// put sends the messages and returns the first answer, nil without one. The
// first message is made before the RPC. The stream is read to its end, which
// alone says that all went well.
func (r *run) put(ctx context.Context, messages feed) (*pb.PutResult, error) {
	message, err := messages()
	if err != nil {
		return nil, err
	}
	stream, err := r.conn.flight.DoPut(r.rpc(ctx))
	if err != nil {
		return nil, err
	}
	for message != nil {
		if err := stream.Send(message); eof.Reached(err) {
			break // the server has answered already: Recv has it
		} else if err != nil {
			return nil, err
		}
		if message, err = messages(); err != nil {
			return nil, err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	var first *pb.PutResult
	for {
		result, err := stream.Recv()
		if eof.Reached(err) {
			return first, nil
		}
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = result
		}
	}
}

// putCount is put for commands that are answered by a row count. It is -1 when
// the server does not tell.
func (r *run) putCount(ctx context.Context, messages feed) (int64, error) {
	answer, err := r.put(ctx, messages)
	if err != nil {
		return 0, err
	}
	if answer == nil {
		return -1, nil
	}
	var result pb.DoPutUpdateResult
	if err := proto.Unmarshal(answer.GetAppMetadata(), &result); err != nil {
		return 0, malformed("update count: %w", err)
	}
	return max(result.GetRecordCount(), -1), nil
}
