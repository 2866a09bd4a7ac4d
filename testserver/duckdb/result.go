//go:build duckdb_arrow

package duckdb

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	capi "github.com/duckdb/duckdb-go-bindings"
)

// result is the outcome of one execution.
type result struct{ handle capi.Result }

func (r *result) close() { capi.DestroyResult(&r.handle) }

// hasRows is false for statements that are run for their effect.
func (r *result) hasRows() bool {
	return capi.ResultReturnType(r.handle) == capi.ResultTypeQueryResult
}

// affected is the count of rows changed, 0 for a result with rows.
func (r *result) affected() int64 {
	if capi.ResultReturnType(r.handle) != capi.ResultTypeChangedRows {
		return 0
	}
	return int64(capi.RowsChanged(&r.handle))
}

// drain reads the rows of a result to their end and counts them.
func (r *result) drain() (rows int64, err error) {
	for {
		chunk := capi.FetchChunk(r.handle)
		if chunk.Ptr == nil {
			if msg := capi.ResultError(&r.handle); msg != "" {
				return rows, explained(capi.ResultErrorType(&r.handle), msg)
			}
			return rows, nil
		}
		rows += int64(capi.DataChunkGetSize(chunk))
		capi.DestroyDataChunk(&chunk)
	}
}

// schema of the rows, without fields if there are none.
func (r *result) schema(conn capi.Connection) (*arrow.Schema, error) {
	if !r.hasRows() {
		return arrow.NewSchema(nil, nil), nil
	}
	n := capi.ColumnCount(&r.handle)
	names, types := make([]string, n), make([]capi.LogicalType, n)
	defer destroyTypes(types)
	for i := range n {
		names[i], types[i] = capi.ColumnName(&r.handle, i), capi.ColumnLogicalType(&r.handle, i)
	}
	return arrowSchema(conn, names, types)
}

// next returns the next batch, or nil at the end.
func (r *result) next(schema *arrow.Schema) (arrow.RecordBatch, error) {
	if !r.hasRows() {
		return nil, nil
	}
	chunk := capi.FetchChunk(r.handle)
	if chunk.Ptr == nil {
		if msg := capi.ResultError(&r.handle); msg != "" {
			return nil, explained(capi.ResultErrorType(&r.handle), msg)
		}
		return nil, nil
	}
	defer capi.DestroyDataChunk(&chunk)
	opts := capi.ResultGetArrowOptions(&r.handle)
	defer capi.DestroyArrowOptions(&opts)
	batch, data := capi.DataChunkToArrowArray(opts, schema, chunk)
	return batch, errorOf(data)
}

// explained is the error of a result that ended before its last row. A thread of DuckDB
// that fails interrupts the others, and the thread that reads can see the interrupt
// before it sees the error: what DuckDB says then is that of an interrupt, and the
// error is lost. An interrupt that was meant is named by withContextError.
func explained(kind capi.ErrorType, msg string) error {
	err := statementError(msg)
	if kind == capi.ErrorTypeInterrupt {
		return fmt.Errorf("%w (the statement was interrupted, or a thread of it has failed and DuckDB does not say how: "+
			"SET threads = 1 and run it again to see)", err)
	}
	return err
}
