package flightconn

import (
	"context"
	"errors"
	"time"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/protobuf/proto"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/eof"
)

// Update is part of backend.Conn. It goes by DoPut and never as a query: some
// servers run what they plan, and run it again when it is fetched. The count is
// -1 where the server does not tell it.
func (c *Conn) Update(ctx context.Context, sql string, call backend.Call) (int64, error) {
	ctx, r, err := c.begin(ctx, "Update", call.Headers)
	if err != nil {
		return 0, err
	}
	defer r.end()
	desc, err := r.descriptor(&pb.CommandStatementUpdate{Query: sql, TransactionId: r.txID(call.Tx)})
	if err != nil {
		return 0, r.wrapError(backend.StageExecute, err)
	}
	n, err := r.putCount(ctx, fixedMessages(&putMessage{desc: desc}), readsCommand)
	if err != nil {
		return 0, r.wrapError(backend.StageExecute, err)
	}
	return n, nil
}

// messageSource gives the messages of a DoPut one after another, then nil. It
// is asked for the next when the one before was given to the transport, which needs its
// memory no longer, and not again after nil or an error.
type messageSource func() (*putMessage, error)

// fixedMessages feeds messages that are all there.
func fixedMessages(messages ...*putMessage) messageSource {
	return func() (*putMessage, error) {
		if len(messages) == 0 {
			return nil, nil
		}
		next := messages[0]
		messages = messages[1:]
		return next, nil
	}
}

// mustRead is what a server has to have read when it says that all went well.
type mustRead uint8

const (
	readsCommand mustRead = iota // the first message: the others hold nothing
	readsAll                     // all messages
	readsEnd                     // all messages, and that there are no more
)

// put sends the messages and returns the answers. The first message is made
// before the RPC. The stream is read to its end, which alone says that all went
// well, and only if what must be read was sent before: a server that ends it earlier has
// not read the rest, whatever it says.
//
// INVARIANT: of several messages, the answers are read while they are sent. A
// server that answers each before it reads the next would otherwise wait for us
// once its answers fill the stream's window, and we for it.
//
// An error while messages are sent returns no answers: the goroutine that reads
// them may still be at it then, until the end of the call.
func (r *rpcCall) put(ctx context.Context, messages messageSource, must mustRead) (putAnswers, error) {
	var answers putAnswers
	message, err := messages()
	if err != nil {
		return answers, err
	}
	rpc := r.statementContext(ctx)
	rpc.mayChange = true
	stream, err := r.conn.flight.DoPut(rpc)
	if err != nil {
		return answers, err
	}
	var received *callback.Call[struct{}]
	endedEarly, schema := false, message.header
	for first := true; message != nil; first = false {
		if err := r.sendPut(stream, message); eof.Reached(err) {
			endedEarly = first || must > readsCommand // the server has answered already: Recv has it
			break
		} else if err != nil {
			return putAnswers{}, err
		}
		if message, err = messages(); err != nil {
			if must == readsEnd {
				r.spoilOwn(err, stream, schema, received)
			}
			return putAnswers{}, err
		}
		if message != nil && received == nil {
			answers := &answers
			received = callback.Go(callback.NoValue(func() error { return answers.receive(stream) })) // the end of the call ends it
		}
	}
	endedEarly = endedEarly || must == readsEnd && rpc.trailed.Load()
	if err := stream.CloseSend(); err != nil {
		return putAnswers{}, err
	}
	if received != nil {
		<-received.Done
		received.Resume() // as an interceptor has ended
		err = received.Err
	} else {
		err = answers.receive(stream)
	}
	if err == nil && endedEarly {
		err = malformed("the server ended the stream, as if all were well, before everything was sent")
	}
	return answers, err
}

// spoilOwn is spoil on a stream of put's, whose answers received receives, or nobody yet.
func (r *rpcCall) spoilOwn(cause error, stream pb.FlightService_DoPutClient, schema []byte, received *callback.Call[struct{}]) {
	r.spoil(cause, func() error { return r.sendPut(stream, &putMessage{header: schema}) }, func() error {
		if received == nil {
			return new(putAnswers).receive(stream)
		}
		<-received.Done
		return nil
	})
}

// spoil has the server fail what it has been sent, where the rest of it fails here in cause: by a schema in the place of a
// batch, which it refuses. Those of Arrow's C++ library cannot tell a stream that is cut from one that has ended, and would store
// what came before as all there is. What the server answers says no more than that it has ended. Where nobody waits for the call,
// it has until the end of that.
func (r *rpcCall) spoil(cause error, sendSchema, receive func() error) {
	refused := callback.Go(callback.NoValue(func() error { // the end of the call ends it
		if err := sendSchema(); err != nil {
			return err
		}
		return receive()
	}))
	if errors.As(cause, new(callerLeft)) {
		<-refused.Done
		return
	}
	callback.EndsWithin(refused.Done, spoilTimeout)
}

// callerLeft is the error of rows that have ended since nobody waits for their ingestion any more.
type callerLeft interface{ CallerLeft() }

// spoilTimeout is how long a server has to refuse it, while the caller waits.
const spoilTimeout = time.Second

// sendPut sends a message in the form that the connection's transport knows.
func (r *rpcCall) sendPut(stream pb.FlightService_DoPutClient, message *putMessage) error {
	if r.conn.transport.own == nil {
		return stream.Send(message.flightData())
	}
	return stream.SendMsg(message)
}

// putAnswers is what a DoPut was answered by. A bind is answered by one
// message, a row count too; some servers answer each message that they are
// sent.
type putAnswers struct {
	count        int
	metadata     []byte // the last that there was
	withMetadata int    // how many have any
}

// receive reads the stream to its end. It returns nil only for the status OK.
// One goroutine may be in it.
func (a *putAnswers) receive(stream pb.FlightService_DoPutClient) error {
	for {
		result, err := stream.Recv()
		if eof.Reached(err) {
			return nil
		}
		if err != nil {
			return err
		}
		a.count++
		if metadata := result.GetAppMetadata(); len(metadata) > 0 {
			a.withMetadata++
			a.metadata = metadata
		}
	}
}

// putCount is put for commands that are answered by a row count. It is -1 when
// the server does not tell: whether several counts add up or are so far is not
// known. A server that gives -1, or anything below, does not tell either.
func (r *rpcCall) putCount(ctx context.Context, messages messageSource, must mustRead) (int64, error) {
	answers, err := r.put(ctx, messages, must)
	if err != nil {
		return 0, err
	}
	if answers.count == 0 || answers.withMetadata > 1 || answers.count > 1 && answers.withMetadata == 0 {
		return -1, nil
	}
	if err := CheckExecuted(answers.metadata); err != nil {
		return 0, err
	}
	var result pb.DoPutUpdateResult // no bytes are a count of zero
	if err := proto.Unmarshal(answers.metadata, &result); err != nil {
		return 0, malformed("update count: %w", err)
	}
	return max(result.GetRecordCount(), -1), nil
}

// errNotExecuted is told of a change that a server has taken the parameters of, and no more.
var errNotExecuted = errors.New("the server has taken the parameters of the change and not executed it: it executes a prepared statement as a query alone (QueryOptions.Route: RouteQuery)")

// CheckExecuted fails for the answer to a change that is one to the parameters of a query: a handle in the place of the
// count, with which the server (Spice) waits for the query. A reader of counts takes it for one of zero.
func CheckExecuted(metadata []byte) error {
	const fieldHandle = 1 // of DoPutPreparedStatementResult, and the count of DoPutUpdateResult
	if handle, err := lastBytes(metadata, fieldHandle); err == nil && handle != nil {
		return errNotExecuted
	}
	return nil
}
