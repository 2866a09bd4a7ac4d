package adbcconn

import (
	"bytes"
	"errors"
	"sync/atomic"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/flightpool/flightpool/internal/eof"
	"github.com/flightpool/flightpool/internal/flightconn"
)

// commandStream is a DoPut or DoAction of the driver's. It stands between the
// driver and the stream of the native connection. One goroutine may send while
// another receives.
type commandStream struct {
	grpc.ClientStream
	call  *call
	opts  []grpc.CallOption // the driver's
	sends int

	counts bool // it is a prepared change, which is answered by a count

	schema []byte // of an ingestion: the header of its first message

	ended error       // set once the stream has ended; io.EOF if well
	early atomic.Bool // it has ended before what the server must read was sent
}

var errEndedEarly = errors.New("malformed reply: the server ended the stream, as if all were well, before everything was sent")

// SendMsg puts the first message into the call's transaction. That a server
// has answered before the first message was sent is for RecvMsg to tell: the
// driver would give up with a bare EOF.
//
// What a server must read before it says that all went well is the first message, all rows, and
// of an ingestion the end, too.
func (c *commandStream) SendMsg(m any) error {
	if c.sends++; c.sends == 1 {
		if first, ok := m.(*pb.FlightData); ok && c.call.ingests {
			c.call.put, c.schema = c, bytes.Clone(first.GetDataHeader()) // the driver's memory is used again
		} else if ok {
			c.counts = isPreparedUpdate(first.GetFlightDescriptor())
		}
		var err error
		if m, err = messageInTx(m, c.call.tx); err != nil {
			return c.call.recordRPCError(err)
		}
	}
	err := c.ClientStream.SendMsg(m)
	if !eof.Reached(err) {
		return c.call.recordRPCError(err)
	}
	if c.sends == 1 || c.call.sendsRows {
		c.early.Store(true)
	}
	if c.sends == 1 {
		return nil
	}
	return err
}

// CloseSend is part of grpc.ClientStream.
func (c *commandStream) CloseSend() error {
	if c.call.ingests && c.call.external.HasEnded(c.ClientStream) {
		c.early.Store(true)
	}
	return c.ClientStream.CloseSend()
}

// RecvMsg hands out the answer of a DoPut when its stream has ended, which
// alone says that all went well. The driver itself would not look. An end is
// remembered, so that it is given as often as it is asked for.
func (c *commandStream) RecvMsg(m any) error {
	if c.ended != nil {
		return c.ended
	}
	err := c.ClientStream.RecvMsg(m)
	if result, isPut := m.(*pb.PutResult); isPut {
		err = c.receiveAll(result, err)
	} else if err != nil {
		c.ended = err
	}
	if eof.Reached(c.ended) && c.early.Load() {
		c.ended = errEndedEarly
		err = c.ended
	}
	if err != nil {
		c.copyMetadata()
	} else if result, ok := m.(*pb.Result); ok {
		err = c.call.recordHandle(result)
	}
	return c.call.recordRPCError(err)
}

// isPreparedUpdate reports whether a DoPut that begins with desc is a prepared change.
func isPreparedUpdate(desc *pb.FlightDescriptor) bool {
	var envelope anypb.Any
	return proto.Unmarshal(desc.GetCmd(), &envelope) == nil && envelope.MessageIs(&pb.CommandPreparedStatementUpdate{})
}

// receiveAll reads a DoPut to its end, where the first answer has come in result with err. What all answers say together takes its
// place, as the native connection understands them: a count is none where there are several, or none at all; the handle of a
// bind is the last that is told, and none that is empty, by which servers know others.
func (c *commandStream) receiveAll(result *pb.PutResult, err error) error {
	count, telling, said := 0, 0, []byte(nil)
	for answer := result; err == nil; err = c.ClientStream.RecvMsg(answer) {
		if count++; len(answer.GetAppMetadata()) > 0 {
			telling, said = telling+1, answer.GetAppMetadata()
		}
		answer = &pb.PutResult{}
	}
	c.ended = err
	switch {
	case !eof.Reached(err), count == 0 && c.call.binds:
		return err
	case c.call.binds:
		var bound pb.DoPutPreparedStatementResult
		if proto.Unmarshal(said, &bound) == nil && len(bound.GetPreparedStatementHandle()) == 0 {
			said = nil
		}
	case c.counts && flightconn.CheckExecuted(said) != nil:
		return flightconn.CheckExecuted(said)
	case count == 0, telling > 1, count > 1 && telling == 0:
		said, _ = proto.Marshal(&pb.DoPutUpdateResult{RecordCount: -1}) // of a number
	}
	result.AppMetadata = said
	return nil
}

// load executes an ingestion of rows. Where these fail the driver gives its stream up, and the end of the call would cut it, which
// servers may take for the end of the rows.
func (k *call) load(stmt adbc.Statement, rows array.RecordReader) (int64, error) {
	n, err := stmt.ExecuteUpdate(k.ctx)
	if err == nil {
		return max(n, -1), nil
	}
	if failed := rows.Err(); failed != nil && k.put != nil {
		k.external.Spoil(k.put.ClientStream, k.put.schema, failed)
	}
	return 0, k.wrapError(backend.StageExecute, err)
}

var errNoHandle = errors.New("malformed reply: an empty prepared statement handle") // as over the native backend

// recordHandle keeps the handle of a statement that the server has prepared. Without one it is none: there are servers to which an
// empty one names the latest, or all. Schemas that the driver must not decode are taken out: that is as good as not told.
func (k *call) recordHandle(result *pb.Result) error {
	var envelope anypb.Any
	var reply pb.ActionCreatePreparedStatementResult
	if proto.Unmarshal(result.GetBody(), &envelope) != nil || envelope.UnmarshalTo(&reply) != nil {
		return nil
	}
	if k.preparedHandle = string(reply.GetPreparedStatementHandle()); k.preparedHandle == "" {
		return errNoHandle
	}
	changed := false
	for _, schema := range []*[]byte{&reply.DatasetSchema, &reply.ParameterSchema} {
		if flightconn.CheckSchema(*schema) != nil {
			*schema, changed = nil, true
		}
	}
	if changed && envelope.MarshalFrom(&reply) == nil {
		result.Body, _ = proto.Marshal(&envelope) // it has just been decoded
	}
	return nil
}

// copyMetadata gives the driver the headers and trailers that it asked for. gRPC
// would write them from another goroutine when a context ends, while the
// driver reads them.
func (c *commandStream) copyMetadata() {
	for _, o := range c.opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr, _ = c.Header()
		case grpc.TrailerCallOption:
			*o.TrailerAddr = c.Trailer()
		}
	}
}

// messageInTx puts the transaction into a message that begins a DoPut or
// DoAction, if its command can have one.
func messageInTx(m any, tx backend.TxID) (any, error) {
	switch m := m.(type) {
	case *pb.FlightData:
		desc, err := inTx(m.GetFlightDescriptor(), tx)
		if err != nil || desc == m.GetFlightDescriptor() {
			return m, err
		}
		return &pb.FlightData{FlightDescriptor: desc, DataHeader: m.DataHeader, DataBody: m.DataBody, AppMetadata: m.AppMetadata}, nil
	case *pb.Action:
		body, err := commandInTx(m.GetBody(), tx)
		if err != nil {
			return nil, err
		}
		return &pb.Action{Type: m.GetType(), Body: body}, nil
	default:
		return m, nil
	}
}

// inTx puts the transaction into a descriptor's command. The driver would
// only do so for transactions of its own, which it begins without a context,
// loses when a commit fails, and forgets for bulk ingestion.
func inTx(desc *pb.FlightDescriptor, tx backend.TxID) (*pb.FlightDescriptor, error) {
	if tx == "" || desc == nil {
		return desc, nil
	}
	cmd, err := commandInTx(desc.GetCmd(), tx)
	if err != nil {
		return nil, err
	}
	return &pb.FlightDescriptor{Type: desc.GetType(), Cmd: cmd, Path: desc.GetPath()}, nil
}

// commandInTx puts the transaction into a packed command. Commands that have no
// field for it are left byte by byte as they are.
func commandInTx(packed []byte, tx backend.TxID) ([]byte, error) {
	if tx == "" {
		return packed, nil
	}
	var envelope anypb.Any
	if err := proto.Unmarshal(packed, &envelope); err != nil {
		return nil, err
	}
	cmd, err := envelope.UnmarshalNew()
	if err != nil {
		return nil, err
	}
	switch cmd := cmd.(type) {
	case *pb.CommandStatementQuery:
		cmd.TransactionId = []byte(tx)
	case *pb.CommandStatementUpdate:
		cmd.TransactionId = []byte(tx)
	case *pb.CommandStatementIngest:
		cmd.TransactionId = []byte(tx)
	case *pb.ActionCreatePreparedStatementRequest:
		cmd.TransactionId = []byte(tx)
	default:
		return packed, nil // it acts on a handle, which knows its transaction
	}
	if err := envelope.MarshalFrom(cmd); err != nil {
		return nil, err
	}
	return proto.Marshal(&envelope)
}
