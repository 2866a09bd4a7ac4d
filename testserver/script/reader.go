package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// reader makes batches as they are asked for.
type reader struct {
	refs     atomic.Int64
	schema   *arrow.Schema
	affected int64
	next     func() (arrow.RecordBatch, error) // io.EOF at the end
	batch    arrow.RecordBatch
	err      error
}

// newReader returns a reader of what next makes, or of nothing if it is
// nil. ctx ends it.
func newReader(ctx context.Context, schema *arrow.Schema, affected int64, next func() (arrow.RecordBatch, error)) *reader {
	r := &reader{schema: schema, affected: affected}
	r.refs.Store(1)
	r.next = func() (arrow.RecordBatch, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if next == nil {
			return nil, io.EOF
		}
		return next()
	}
	return r
}

func (r *reader) Retain() { r.refs.Add(1) }

func (r *reader) Release() {
	if r.refs.Add(-1) == 0 {
		r.drop()
	}
}

func (r *reader) drop() {
	if r.batch != nil {
		r.batch.Release()
		r.batch = nil
	}
}

func (r *reader) Next() bool {
	r.drop()
	if r.err != nil {
		return false
	}
	r.batch, r.err = r.next()
	return r.err == nil
}

func (r *reader) Err() error {
	if errors.Is(r.err, io.EOF) {
		return nil
	}
	return r.err
}

func (r *reader) Schema() *arrow.Schema          { return r.schema }
func (r *reader) RecordBatch() arrow.RecordBatch { return r.batch }
func (r *reader) Record() arrow.RecordBatch      { return r.batch }
func (r *reader) RowsAffected() int64            { return r.affected }

// abortingReader aborts its session's transaction when it fails.
type abortingReader struct {
	array.RecordReader
	session *session
}

func (r *abortingReader) Next() bool {
	more := r.RecordReader.Next()
	if err := r.Err(); !more && err != nil {
		_ = r.session.abort(err)
	}
	return more
}

// fromRows reads rows of values.
func fromRows(ctx context.Context, schema *arrow.Schema, rows [][]any) array.RecordReader {
	at := 0
	return newReader(ctx, schema, 0, func() (arrow.RecordBatch, error) {
		if at >= len(rows) {
			return nil, io.EOF
		}
		end := min(at+batchRows, len(rows))
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		defer b.Release()
		for _, row := range rows[at:end] {
			for c, v := range row {
				appendValue(b.Field(c), v)
			}
		}
		at = end
		return b.NewRecordBatch(), nil
	})
}

func appendValue(b array.Builder, v any) {
	switch b := b.(type) {
	case *array.Int64Builder:
		if n, ok := v.(int64); ok {
			b.Append(n)
			return
		}
	case *array.Float64Builder:
		if f, ok := v.(float64); ok {
			b.Append(f)
			return
		}
	case *array.StringBuilder:
		if s, ok := v.(string); ok {
			b.Append(s)
			return
		}
	case *array.BooleanBuilder:
		if t, ok := v.(bool); ok {
			b.Append(t)
			return
		}
	}
	b.AppendNull()
}

// numbers is a batch of n numbers from first on.
func numbers(first, n int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, numberSchema)
	defer b.Release()
	col, _ := b.Field(0).(*array.Int64Builder)
	col.Reserve(int(n))
	for i := range n {
		col.UnsafeAppend(first + i)
	}
	return b.NewRecordBatch()
}

// generate is generate(rows[, batch]).
func generate(ctx context.Context, st *parsed) (array.RecordReader, error) {
	args := []int64{0, batchRows}
	for i, it := range st.args {
		n, ok := it.value.(int64)
		if !ok || n < 0 || i >= len(args) {
			return nil, errors.New("generate takes one or two numbers: rows and rows of a batch")
		}
		args[i] = n
	}
	rows, size := args[0], max(args[1], 1)
	at := int64(0)
	return newReader(ctx, numberSchema, 0, func() (arrow.RecordBatch, error) {
		if at >= rows {
			return nil, io.EOF
		}
		n := min(size, rows-at)
		at += n
		return numbers(at-n, n), nil
	}), nil
}

// endless is endless('interval').
func endless(ctx context.Context, st *parsed) (array.RecordReader, error) {
	text, _ := st.args[0].value.(string)
	interval, err := time.ParseDuration(text)
	if err != nil {
		return nil, fmt.Errorf("endless: %w", err)
	}
	at := int64(-1)
	return newReader(ctx, numberSchema, 0, func() (arrow.RecordBatch, error) {
		if err := sleep(ctx, interval); err != nil {
			return nil, err
		}
		at++
		return numbers(at, 1), nil
	}), nil
}
