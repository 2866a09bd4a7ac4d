package adbcpool

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/driverapi"
)

// Bind is part of adbc.Statement.
func (s *statement) Bind(_ context.Context, values arrow.RecordBatch) error {
	return s.bind(values, nil)
}

// BindStream is part of adbc.Statement.
func (s *statement) BindStream(_ context.Context, stream array.RecordReader) error {
	return s.bind(nil, stream)
}

func (s *statement) bind(params arrow.RecordBatch, stream array.RecordReader) error {
	if s.closed {
		return errStatementClosed
	}
	s.unbind()
	s.params, s.stream = params, stream
	if params != nil {
		params.Retain()
	}
	if stream != nil {
		stream.Retain()
	}
	return nil
}

func (s *statement) unbind() {
	if s.params != nil {
		s.params.Release()
	}
	if s.stream != nil {
		s.stream.Release()
	}
	s.params, s.stream, s.hasRun = nil, nil, false
}

// ExecuteQuery is part of adbc.Statement. A statement without rows gives an
// empty reader and the rows affected, or -1.
func (s *statement) ExecuteQuery(ctx context.Context) (array.RecordReader, int64, error) {
	if err := s.begin(ctx); err != nil {
		return nil, -1, err
	}
	if s.ingest.Table != "" {
		n, err := s.ingestBound(ctx)
		return nil, n, err
	}
	params, err := s.boundBatch(ctx)
	if err != nil {
		return nil, -1, err
	}
	if params != nil {
		defer params.Release()
	}
	own, stop := context.WithCancel(ctx)
	result, err := s.query(own, params)
	if err != nil {
		stop()
		return nil, -1, toADBC(err)
	}
	s.lastReader = newReader(s.conn, result, stop)
	n, known := result.RowsAffected()
	if !known {
		n = -1
	}
	return s.lastReader, n, nil
}

func (s *statement) query(ctx context.Context, params arrow.RecordBatch) (*flightpool.QueryResult, error) {
	opts := flightpool.QueryOptions{Params: params, Headers: s.headers, Route: s.route}
	if s.prepared != nil {
		return s.prepared.QueryWithOptions(ctx, opts)
	}
	return s.conn.handle.QueryWithOptions(ctx, s.sql, opts)
}

// ExecuteUpdate is part of adbc.Statement.
func (s *statement) ExecuteUpdate(ctx context.Context) (int64, error) {
	if err := s.begin(ctx); err != nil {
		return -1, err
	}
	if s.ingest.Table != "" {
		return s.ingestBound(ctx)
	}
	params, err := s.boundBatch(ctx)
	if err != nil {
		return -1, err
	}
	if params != nil {
		defer params.Release()
	}
	opts := flightpool.QueryOptions{Params: params, Headers: s.headers}
	var done flightpool.UpdateResult
	if s.prepared != nil {
		done, err = s.prepared.UpdateWithOptions(ctx, opts)
	} else {
		done, err = s.conn.handle.UpdateWithOptions(ctx, s.sql, opts)
	}
	if err != nil {
		return -1, toADBC(err)
	}
	return done.RowsAffected, nil
}

// ingestBound ingests what is bound, which is bound no longer then: a stream is read
// once, and a batch must not be taken for the next execution's parameters.
func (s *statement) ingestBound(ctx context.Context) (int64, error) {
	defer s.unbind()
	rows := s.stream
	if s.params != nil {
		var err error
		if rows, err = array.NewRecordReader(s.params.Schema(), []arrow.RecordBatch{s.params}); err != nil {
			return -1, newADBCError(adbc.StatusInternal, err.Error())
		}
		defer rows.Release()
	}
	if rows == nil {
		return -1, newADBCError(adbc.StatusInvalidState, "an ingestion needs Bind or BindStream")
	}
	opts := s.ingest
	opts.Headers = s.headers
	n, err := s.conn.handle.Ingest(ctx, opts.Table, rows, opts)
	if err != nil {
		return -1, toADBC(err)
	}
	return n, nil
}

// boundBatch is what is bound as one batch, which the caller releases, or nil. A
// stream is read once, in a goroutine of its own: when ctx ends while it does not
// return, it is let go when it does.
func (s *statement) boundBatch(ctx context.Context) (arrow.RecordBatch, error) {
	s.hasRun = true
	if s.params != nil {
		s.params.Retain()
	}
	stream := s.stream
	if stream == nil {
		return s.params, nil
	}
	s.stream = nil
	read, inTime := callback.Within(ctx, 0, func() (arrow.RecordBatch, error) { return readAll(ctx, stream) },
		arrow.RecordBatch.Release, stream.Release)
	if !inTime {
		return nil, toADBC(ctxerr.Of(ctx))
	}
	read.Resume()
	return read.Value, toADBC(read.Err)
}

// readAll reads a stream to its end.
func readAll(ctx context.Context, stream array.RecordReader) (arrow.RecordBatch, error) {
	var batches []arrow.RecordBatch
	defer func() {
		for _, b := range batches {
			b.Release()
		}
	}()
	for stream.Next() {
		b := stream.RecordBatch()
		if !b.Schema().Equal(stream.Schema()) {
			return nil, driverapi.BadArgument("BindStream", fmt.Errorf("a batch has the schema %v, and its stream %v", b.Schema(), stream.Schema()))
		}
		b.Retain()
		batches = append(batches, b)
		if err := ctxerr.Of(ctx); err != nil {
			return nil, err
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	if len(batches) == 1 {
		batches[0].Retain()
		return batches[0], nil
	}
	joined, err := concat(stream.Schema(), batches)
	if err != nil {
		return nil, driverapi.BadArgument("BindStream", err)
	}
	return joined, nil
}

func concat(schema *arrow.Schema, batches []arrow.RecordBatch) (arrow.RecordBatch, error) {
	table := array.NewTableFromRecords(schema, batches)
	defer table.Release()
	columns := make([]arrow.Array, table.NumCols())
	defer func() {
		for _, c := range columns {
			if c != nil {
				c.Release()
			}
		}
	}()
	for i := range columns {
		chunks := slices.Clone(table.Column(i).Data().Chunks())
		for n, chunk := range chunks {
			data := joinable(chunk.Data(), false)
			chunks[n] = array.MakeFromData(data)
			defer chunks[n].Release()
			data.Release()
		}
		var err error
		if len(chunks) == 0 {
			columns[i] = array.MakeArrayOfNull(memory.DefaultAllocator, schema.Field(i).Type, 0)
		} else if columns[i], err = array.Concatenate(chunks, memory.DefaultAllocator); err != nil {
			return nil, err
		}
	}
	return array.NewRecordBatch(schema, columns, table.NumRows()), nil
}

// joinable is d with what Concatenate takes for granted of what is encoded by run-ends, or a dictionary, at any depth: that
// there are buffers. In an array that was built empty, as in a list of which all rows are, there is none, and the next
// one is joined as if it had the length of that, or it panics.
func joinable(d arrow.ArrayData, runEnds bool) arrow.ArrayData {
	dt := d.DataType()
	if e, ok := dt.(arrow.ExtensionType); ok {
		dt = e.StorageType()
	}
	buffers := slices.Clone(d.Buffers())
	_, hasDictionary := dt.(*arrow.DictionaryType)
	if (hasDictionary || runEnds) && buffers[1] == nil {
		buffers = []*memory.Buffer{memory.NewBufferBytes([]byte{}), memory.NewBufferBytes([]byte{})}
	}
	if hasDictionary {
		return array.NewDataWithDictionary(d.DataType(), d.Len(), buffers, d.NullN(), d.Offset(), d.Dictionary().(*array.Data))
	}
	children := make([]arrow.ArrayData, len(d.Children()))
	_, encoded := dt.(*arrow.RunEndEncodedType)
	for i, child := range d.Children() {
		children[i] = joinable(child, encoded && i == 0)
		defer children[i].Release()
	}
	return array.NewData(d.DataType(), d.Len(), buffers, children, d.NullN(), d.Offset())
}
