package flightconn

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/internal/ipcwrite"
)

// tooLargeError says that something cannot be sent in one message. Where
// nothing of the call was sent before, it is the caller's fault (wrapError).
type tooLargeError struct {
	what        string
	size, limit int
}

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("%s is %d bytes when encoded, above the limit of %d for one message", e.what, e.size, e.limit)
}

// unencodableError says that something cannot be sent in any message. Where nothing of the call was sent
// before, it is the caller's fault (wrapError).
type unencodableError struct{ err error }

func (e *unencodableError) Error() string { return "it cannot be sent: " + e.err.Error() }
func (e *unencodableError) Unwrap() error { return e.err }

// encoder turns batches of one schema into FlightData of at most limit bytes.
// It sends nothing, so that what is too large is found before anything leaves.
//
// Servers refuse a larger message with RESOURCE_EXHAUSTED, and on a stream of
// several messages only after they have taken those before it. So sizes are
// measured, not estimated: a message that is too large is encoded again with
// fewer rows, and its first encoding is dropped.
//
// The messages are valid as long as their batch, whose memory their bodies are in. What the
// writer makes anew for them, their headers and offsets that begin with zero, comes from
// Go's own allocator: the writer gives it up, and does not use it again.
//
// It belongs to one goroutine, and close must be called.
type encoder struct {
	limit   int
	writer  ipcwrite.Writer
	pending []*putMessage        // what the writer wrote last
	desc    *pb.FlightDescriptor // goes with the first message
	rows    int64                // to try next, 0 at the start
	cuts    bool                 // a batch took several messages

	compacts   bool // a column has a type that compaction applies to
	compaction compaction
}

// newEncoder makes an encoder for one DoPut. desc tells the server what the
// stream is for. limit is that of Config.RequestLimit, and opts compress the
// bodies.
func newEncoder(desc *pb.FlightDescriptor, schema *arrow.Schema, limit int, opts ...ipc.Option) *encoder {
	e := &encoder{limit: limit, desc: desc}
	e.compacts = e.compaction.appliesTo(schema)
	e.writer = ipcwrite.New(PayloadFunc(e.keepPending), schema, append(opts, ipc.WithSchema(schema), ipc.WithAllocator(memory.NewGoAllocator()))...)
	return e
}

// encode returns the messages of a batch, split by rows as needed; those of the
// schema and of dictionaries precede the first that needs them. It does not
// release batch.
//
// How many rows go into a message is kept from one batch to the next, so that
// most batches of a stream are not encoded twice. A batch without rows is one
// message without rows. An error is Arrow's, or a *tooLargeError for a single
// row, schema or dictionary; the encoder is of no use after one, since a
// dictionary that the writer has given out is not sent.
func (e *encoder) encode(batch arrow.RecordBatch) ([]*putMessage, error) {
	var out []*putMessage
	total := batch.NumRows()
	if e.rows == 0 {
		e.rows = max(total, 1)
	}
	for from := int64(0); ; {
		to := min(from+e.rows, total)
		before, message, err := e.slice(batch, from, to)
		if err != nil {
			return nil, err
		}
		// They stay although the batch may have to be encoded again: the writer
		// does not give them twice.
		out = append(out, before...)
		switch size := message.size(); {
		case size <= e.limit:
			out = append(out, message)
			if to == total {
				return out, nil
			}
			from, e.cuts = to, true
			if size <= e.limit/2 {
				e.rows *= 2 // the large rows are behind us
			}
		case !e.compaction.views && (compaction{views: true}).appliesTo(batch.Schema()): // views are sent with all that they are in
			e.compacts, e.compaction.views = true, true
		case to-from <= 1:
			return nil, &tooLargeError{what: fmt.Sprintf("row %d", from), size: size, limit: e.limit}
		default: // aim a little below what the size so far suggests
			e.rows = max(1, min((to-from)/2, (to-from)*int64(e.limit)*9/10/int64(size)))
		}
	}
}

// slice encodes some rows: their own message, and those that must precede it.
// The writer gives the schema with the first call, and a dictionary whenever it
// differs from the one that was sent. They cannot be split, so that a large one
// is an error.
func (e *encoder) slice(batch arrow.RecordBatch, from, to int64) (before []*putMessage, message *putMessage, err error) {
	part := batch.NewSlice(from, to)
	if e.compacts {
		if part, err = e.compaction.batch(part); err != nil {
			return nil, nil, err
		}
	}
	defer part.Release()
	e.pending = nil
	if err := e.writer.Write(part); err != nil {
		return nil, nil, err
	}
	last := len(e.pending) - 1
	before, message = e.pending[:last], e.pending[last]
	for _, m := range before {
		if size := m.size(); size > e.limit {
			return nil, nil, &tooLargeError{what: "a schema or dictionary", size: size, limit: e.limit}
		}
	}
	return before, message, nil
}

// close releases what the writer holds. It writes nothing that is sent.
func (e *encoder) close() { _ = e.writer.Close() }

// keepPending keeps a message.
func (e *encoder) keepPending(header []byte, writeBody func(io.Writer) error) error {
	m := &putMessage{desc: e.desc, header: header}
	if err := writeBody(m); err != nil {
		return err
	}
	e.pending = append(e.pending, m)
	e.desc = nil
	return nil
}

// PayloadFunc is an ipc.PayloadWriter: it is given each message, as its header and what
// writes its body. Both are valid during the call.
type PayloadFunc func(header []byte, writeBody func(io.Writer) error) error

// Start is part of ipc.PayloadWriter.
func (PayloadFunc) Start() error { return nil }

// Close is part of ipc.PayloadWriter.
func (PayloadFunc) Close() error { return nil }

// WritePayload is part of ipc.PayloadWriter.
func (f PayloadFunc) WritePayload(p ipc.Payload) error {
	meta := p.Meta()
	defer meta.Release()
	return f(meta.Bytes(), p.SerializeBody)
}
