package flightconn

import (
	"bytes"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/protobuf/proto"
)

// tooLargeError says that something cannot be sent in one message.
type tooLargeError struct {
	what        string
	size, limit int
}

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("%s is %d bytes when encoded, above the limit of %d for one message", e.what, e.size, e.limit)
}

// encoder turns batches of one schema into FlightData of at most limit bytes.
// It sends nothing, so that what is too large is found before anything leaves.
type encoder struct {
	limit   int
	writer  *ipc.Writer
	pending []*pb.FlightData
	desc    *pb.FlightDescriptor // goes with the first message
	rows    int64                // that fitted last time, or 0
}

func newEncoder(desc *pb.FlightDescriptor, schema *arrow.Schema, limit int, opts ...ipc.Option) *encoder {
	e := &encoder{limit: limit, desc: desc}
	e.writer = ipc.NewWriterWithPayloadWriter((*capture)(e), append(opts, ipc.WithSchema(schema))...)
	return e
}

// encode returns the messages of a batch, split by rows as needed; those of
// the schema and of dictionaries precede the first that needs them.
func (e *encoder) encode(batch arrow.RecordBatch) ([]*pb.FlightData, error) {
	var out []*pb.FlightData
	total := batch.NumRows()
	if e.rows == 0 {
		e.rows = max(total, 1)
	}
	for from := int64(0); from < total || total == 0; {
		to := min(from+e.rows, total)
		messages, size, err := e.slice(batch, from, to)
		if err != nil {
			return nil, err
		}
		out = append(out, messages...)
		switch {
		case size <= e.limit:
			out = append(out, e.pending...)
			from = to
		case to-from <= 1:
			return nil, &tooLargeError{what: fmt.Sprintf("row %d", from), size: size, limit: e.limit}
		default: // aim a little below what the size so far suggests
			e.rows = max(1, min((to-from)/2, (to-from)*int64(e.limit)*9/10/int64(size)))
		}
		e.pending = nil
		if total == 0 {
			break
		}
	}
	return out, nil
}

// encodeEmpty returns the messages of a batch without rows.
func (e *encoder) encodeEmpty(schema *arrow.Schema) ([]*pb.FlightData, error) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	empty := b.NewRecordBatch()
	defer empty.Release()
	return e.encode(empty)
}

// slice encodes some rows. It returns what precedes the rows' own message,
// which is left in pending with its size.
func (e *encoder) slice(batch arrow.RecordBatch, from, to int64) ([]*pb.FlightData, int, error) {
	part := batch.NewSlice(from, to)
	defer part.Release()
	if err := e.writer.Write(part); err != nil {
		return nil, 0, err
	}
	last := len(e.pending) - 1
	before := e.pending[:last]
	for _, message := range before {
		if size := proto.Size(message); size > e.limit {
			return nil, 0, &tooLargeError{what: "a schema or dictionary", size: size, limit: e.limit}
		}
	}
	e.pending = e.pending[last:]
	return before, proto.Size(e.pending[0]), nil
}

func (e *encoder) close() { _ = e.writer.Close() }

// capture is the encoder as the place where the IPC writer writes.
type capture encoder

// Start is part of ipc.PayloadWriter.
func (c *capture) Start() error { return nil }

// Close is part of ipc.PayloadWriter.
func (c *capture) Close() error { return nil }

// WritePayload is part of ipc.PayloadWriter.
func (c *capture) WritePayload(p ipc.Payload) error {
	meta := p.Meta()
	defer meta.Release()
	var body bytes.Buffer
	if err := p.SerializeBody(&body); err != nil {
		return err
	}
	c.pending = append(c.pending, &pb.FlightData{
		FlightDescriptor: c.desc, DataHeader: bytes.Clone(meta.Bytes()), DataBody: body.Bytes(),
	})
	c.desc = nil
	return nil
}
