//go:build duckdb_arrow

package duckdb

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	capi "github.com/duckdb/duckdb-go-bindings"
)

// rows reads the results of a statement, one execution for each row of its
// parameters, one after another. It is an array.RecordReader for one goroutine.
type rows struct {
	refs    atomic.Int64
	ctx     context.Context //nolint:containedctx // it covers the reading too, and RecordReader has no place for it
	session *session
	st      *statement
	mode    resultMode
	params  arrow.RecordBatch // nil: none
	row     int64             // the next one to run
	unguard func()

	schema   *arrow.Schema
	res      *result // of the last execution; nil before the first and after the end
	batch    arrow.RecordBatch
	affected int64
	err      error
}

var _ array.RecordReader = (*rows)(nil)

// newRows starts the first execution. It takes over st and unguard.
func newRows(ctx context.Context, s *session, st *statement, params arrow.RecordBatch, unguard func()) (*rows, error) {
	r := &rows{ctx: ctx, session: s, st: st, params: params, unguard: unguard}
	r.refs.Store(1)
	if params != nil {
		params.Retain()
	}
	if st.kind() == capi.StatementTypeSelect {
		r.mode = streaming
	}
	if err := r.begin(); err != nil {
		r.Release()
		return nil, withContextError(ctx, err)
	}
	return r, nil
}

// begin runs the first execution and learns the schema. Without one, because
// params have no rows, the schema is as described.
func (r *rows) begin() (err error) {
	if runCount(r.params) == 0 {
		d, err := r.st.describe()
		if r.schema = d.Rows; r.schema == nil {
			r.schema = arrow.NewSchema(nil, nil)
		}
		return err
	}
	if err := r.execute(); err != nil {
		return err
	}
	r.schema, err = r.res.schema(r.st.conn)
	return err
}

func (r *rows) execute() error {
	if err := r.st.bind(r.params, int(r.row)); err != nil {
		return err
	}
	r.row++
	res, err := r.session.run(r.ctx, r.st, r.mode)
	if err != nil {
		return err
	}
	r.res = res
	r.affected += res.affected()
	return nil
}

// Next moves to the next batch.
func (r *rows) Next() bool {
	r.dropBatch()
	for r.err == nil && r.res != nil {
		if r.err = r.ctx.Err(); r.err != nil {
			return false
		}
		r.batch, r.err = r.res.next(r.schema)
		if r.err != nil {
			r.err = withContextError(r.ctx, r.err)
			return false
		}
		if r.batch != nil {
			return true
		}
		r.dropResult()
		if r.row < runCount(r.params) {
			r.err = withContextError(r.ctx, r.executeAgain())
		}
	}
	return false
}

// executeAgain runs the next execution, whose rows must look like those before.
func (r *rows) executeAgain() error {
	if err := r.execute(); err != nil {
		return err
	}
	schema, err := r.res.schema(r.st.conn)
	if err == nil && !schema.Equal(r.schema) {
		err = fmt.Errorf("duckdb error: parameter row %d changes the result's schema", r.row)
	}
	return err
}

// Schema of the rows; without fields for a statement that has none.
func (r *rows) Schema() *arrow.Schema { return r.schema }

// RecordBatch is the current batch, valid until the following Next.
func (r *rows) RecordBatch() arrow.RecordBatch { return r.batch }

// Record is RecordBatch by its old name.
func (r *rows) Record() arrow.RecordBatch { return r.batch }

// Err tells why Next returned false, nil at the end of the rows.
func (r *rows) Err() error { return r.err }

// RowsAffected is the count of a statement without rows.
func (r *rows) RowsAffected() int64 { return r.affected }

// Retain adds a reference.
func (r *rows) Retain() { r.refs.Add(1) }

// Release drops a reference; the last one ends the statement.
func (r *rows) Release() {
	if r.refs.Add(-1) != 0 {
		return
	}
	r.dropBatch()
	r.dropResult()
	r.st.close()
	if r.params != nil {
		r.params.Release()
	}
	r.unguard()
}

func (r *rows) dropBatch() {
	if r.batch != nil {
		r.batch.Release()
		r.batch = nil
	}
}

func (r *rows) dropResult() {
	if r.res != nil {
		r.res.close()
		r.res = nil
	}
}
