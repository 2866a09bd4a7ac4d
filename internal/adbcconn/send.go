package adbcconn

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/flightconn"
)

// setIngest makes stmt an ingestion. Options that are not set are left to the
// driver's defaults. It makes no RPC; the error is the caller's fault.
func setIngest(stmt adbc.Statement, opts backend.IngestOptions) error {
	if opts.Table == "" {
		return errors.New("no table")
	}
	modes := map[backend.IngestMode]string{
		backend.IngestCreateAppend: adbc.OptionValueIngestModeCreateAppend,
		backend.IngestCreate:       adbc.OptionValueIngestModeCreate,
		backend.IngestAppend:       adbc.OptionValueIngestModeAppend,
		backend.IngestReplace:      adbc.OptionValueIngestModeReplace,
	}
	mode, ok := modes[opts.Mode]
	if !ok {
		return errors.New("the ingest mode does not exist")
	}
	set := []struct{ key, value string }{
		{adbc.OptionKeyIngestTargetTable, opts.Table}, {adbc.OptionKeyIngestMode, mode},
		{adbc.OptionValueIngestTargetCatalog, opts.Catalog}, {adbc.OptionValueIngestTargetDBSchema, opts.Schema},
	}
	if opts.Temporary {
		set = append(set, struct{ key, value string }{adbc.OptionValueIngestTemporary, adbc.OptionValueEnabled})
	}
	for _, option := range set {
		if option.value == "" {
			continue
		}
		if err := stmt.SetOption(option.key, option.value); err != nil {
			return err
		}
	}
	return nil
}

// headroom is left in a message for the statement's descriptor and the lengths
// that frame the batch. It is subtracted from the limit before a batch is
// measured.
const headroom = 1 << 10

// tooLargeError says that a row cannot be sent in one message.
type tooLargeError struct{ row, size, limit int64 }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("row %d is %d bytes when encoded, above the limit of %d for one message", e.row, e.size, e.limit)
}

// split cuts a batch into parts whose messages stay below limit. All of them
// are made before any is sent.
//
// The reader that it returns is the caller's to release; batch stays the
// caller's too.
func split(batch arrow.RecordBatch, limit int) (array.RecordReader, error) {
	parts, err := splitToFit(batch, int64(limit-headroom))
	defer release(parts)
	if err != nil {
		return nil, err
	}
	return array.NewRecordReader(batch.Schema(), parts)
}

// splitToFit cuts a batch in halves until each part fits. The caller must release
// the parts, also those that come with an error.
func splitToFit(batch arrow.RecordBatch, limit int64) ([]arrow.RecordBatch, error) {
	var parts []arrow.RecordBatch
	var splitRange func(from, to int64, cut bool) error
	splitRange = func(from, to int64, cut bool) error {
		part, err := flightconn.Part(batch, from, to, cut)
		if err != nil {
			return err
		}
		size, err := encodedSize(part)
		if err == nil && size <= limit {
			parts = append(parts, part)
			return nil
		}
		part.Release()
		switch {
		case err != nil:
			return err
		case !cut:
			return splitRange(from, to, true)
		case to-from <= 1:
			return &tooLargeError{row: from, size: size, limit: limit}
		}
		middle := from + (to-from)/2
		if err := splitRange(from, middle, true); err != nil {
			return err
		}
		return splitRange(middle, to, true)
	}
	err := splitRange(0, batch.NumRows(), false)
	return parts, err
}

func release(parts []arrow.RecordBatch) {
	for _, p := range parts {
		p.Release()
	}
}

// encodedSize is the size of the largest message that batch is sent in. The
// schema and each dictionary are messages too. Nothing is kept of what is
// encoded.
func encodedSize(batch arrow.RecordBatch) (int64, error) {
	largest := int64(0)
	w := ipc.NewWriterWithPayloadWriter(flightconn.PayloadFunc(func(header []byte, body func(io.Writer) error) error {
		size := byteCounter(len(header))
		err := body(&size)
		largest = max(largest, int64(size))
		return err
	}), ipc.WithSchema(batch.Schema()))
	err := w.Write(batch)
	return largest, cmp.Or(err, w.Close())
}

// byteCounter counts what is written to it.
type byteCounter int64

var _ io.Writer = (*byteCounter)(nil)

func (c *byteCounter) Write(p []byte) (int, error) {
	*c += byteCounter(len(p))
	return len(p), nil
}

// splitReader cuts the batches of a reader as they are read. It does not
// release the reader. The driver reads it in a goroutine of its own, and
// retains it as it likes; releaseUnread may be called only when the driver has
// returned.
type splitReader struct {
	array.RecordReader
	limit   int64
	most    int64 // of a row, which may be above limit
	current arrow.RecordBatch
	pending []arrow.RecordBatch
	given   bool // a part was given out
	op      *backend.Operation
	err     error
}

// newSplitReader reads rows in parts of at most limit bytes. It holds rows
// until releaseUnread. op is told of a batch that is cut, before a part of it is given out.
func newSplitReader(rows array.RecordReader, limit int, op *backend.Operation) *splitReader {
	rows.Retain()
	return &splitReader{RecordReader: rows, limit: int64(limit - headroom), most: int64(limit - headroom), op: op}
}

// Next is part of array.RecordReader. A batch that cannot be split ends the
// reading: the parts before it may have been given out.
func (r *splitReader) Next() bool {
	r.releaseCurrent()
	for len(r.pending) == 0 {
		if r.err != nil || !r.RecordReader.Next() {
			return false
		}
		batch := r.RecordReader.RecordBatch()
		if r.pending, r.err = splitToFit(batch, r.limit); r.limit < r.most && errors.As(r.err, new(*tooLargeError)) {
			release(r.pending)
			r.pending, r.err = splitToFit(batch, r.most)
		}
		if len(r.pending) > 1 {
			r.op.MarkSplit()
		}
	}
	r.current, r.pending = r.pending[0], r.pending[1:]
	r.given = true
	return true
}

func (r *splitReader) releaseCurrent() {
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

// splitErr is why the reading ended early, or nil.
func (r *splitReader) splitErr() error { return r.err }

// releaseUnread lets go of what was not read, when nobody reads any more.
func (r *splitReader) releaseUnread() {
	r.releaseCurrent()
	release(r.pending)
	r.pending = nil
	r.Release()
}
