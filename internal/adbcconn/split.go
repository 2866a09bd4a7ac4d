package adbcconn

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// headroom is left in a message for the statement's descriptor and the
// lengths that frame the batch.
const headroom = 1 << 10

// tooLargeError says that a row cannot be sent in one message.
type tooLargeError struct{ row, size, limit int64 }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("row %d is %d bytes when encoded, above the limit of %d for one message", e.row, e.size, e.limit)
}

// split cuts a batch into parts whose messages stay below limit. All of them
// are made before any is sent.
func split(batch arrow.RecordBatch, limit int) (array.RecordReader, error) {
	parts, err := pieces(batch, int64(limit-headroom))
	defer release(parts)
	if err != nil {
		return nil, err
	}
	return array.NewRecordReader(batch.Schema(), parts)
}

// pieces cuts a batch in halves until each part fits. The caller must release
// the parts, also those that come with an error.
func pieces(batch arrow.RecordBatch, limit int64) ([]arrow.RecordBatch, error) {
	var parts []arrow.RecordBatch
	var cut func(from, to int64) error
	cut = func(from, to int64) error {
		part := batch.NewSlice(from, to)
		size, err := encodedSize(part)
		if err == nil && size <= limit {
			parts = append(parts, part)
			return nil
		}
		part.Release()
		switch {
		case err != nil:
			return err
		case to-from <= 1:
			return &tooLargeError{row: from, size: size, limit: limit}
		}
		middle := from + (to-from)/2
		if err := cut(from, middle); err != nil {
			return err
		}
		return cut(middle, to)
	}
	err := cut(0, batch.NumRows())
	return parts, err
}

func release(parts []arrow.RecordBatch) {
	for _, p := range parts {
		p.Release()
	}
}

// encodedSize is the size of the largest message that batch is sent in.
func encodedSize(batch arrow.RecordBatch) (int64, error) {
	var size measure
	w := ipc.NewWriterWithPayloadWriter(&size, ipc.WithSchema(batch.Schema()))
	err := w.Write(batch)
	if closeErr := w.Close(); err == nil {
		err = closeErr
	}
	return int64(size), err
}

// measure is an ipc.PayloadWriter that keeps the size of the largest payload.
type measure int64

// Start is part of ipc.PayloadWriter.
func (m *measure) Start() error { return nil }

// Close is part of ipc.PayloadWriter.
func (m *measure) Close() error { return nil }

// WritePayload is part of ipc.PayloadWriter.
func (m *measure) WritePayload(p ipc.Payload) error {
	meta := p.Meta()
	defer meta.Release()
	body := counter(0)
	if err := p.SerializeBody(&body); err != nil {
		return err
	}
	*m = max(*m, measure(int64(meta.Len())+int64(body)))
	return nil
}

type counter int64

var _ io.Writer = (*counter)(nil)

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// splitReader cuts the batches of a reader as they are read. It does not
// release the reader.
type splitReader struct {
	array.RecordReader
	limit   int64
	current arrow.RecordBatch
	pending []arrow.RecordBatch
	err     error
}

func newSplitReader(rows array.RecordReader, limit int) *splitReader {
	rows.Retain()
	return &splitReader{RecordReader: rows, limit: int64(limit - headroom)}
}

// Next is part of array.RecordReader.
func (r *splitReader) Next() bool {
	r.drop()
	for len(r.pending) == 0 {
		if r.err != nil || !r.RecordReader.Next() {
			return false
		}
		r.pending, r.err = pieces(r.RecordReader.RecordBatch(), r.limit)
	}
	r.current, r.pending = r.pending[0], r.pending[1:]
	return true
}

func (r *splitReader) drop() {
	if r.current != nil {
		r.current.Release()
		r.current = nil
	}
}

// RecordBatch is part of array.RecordReader.
func (r *splitReader) RecordBatch() arrow.RecordBatch { return r.current }

// Err is part of array.RecordReader.
func (r *splitReader) Err() error {
	if r.err != nil {
		return r.err
	}
	return r.RecordReader.Err()
}

// tooLarge is why the reading ended early, or nil.
func (r *splitReader) tooLarge() error { return r.err }

// finish lets go of what was not read, when nobody reads any more.
func (r *splitReader) finish() {
	r.drop()
	release(r.pending)
	r.pending = nil
	r.Release()
}
