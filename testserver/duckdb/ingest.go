//go:build duckdb_arrow

package duckdb

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/testserver/engine"

	capi "github.com/duckdb/duckdb-go-bindings"
)

// Ingest appends rows to a table, which it makes if it must. All is stored or
// nothing: outside a transaction it opens one of its own.
func (s *session) Ingest(ctx context.Context, into engine.IngestTarget, rows array.RecordReader) (n int64, err error) {
	defer interruptAtEnd(ctx, s.conn)()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if s.inTx {
		n, err = s.ingest(ctx, into, rows)
		return n, withContextError(ctx, err)
	}
	if err := s.exec("BEGIN"); err != nil {
		return 0, err
	}
	if n, err = s.ingest(ctx, into, rows); err != nil {
		return 0, errors.Join(withContextError(ctx, err), s.exec("ROLLBACK"))
	}
	if err := s.exec("COMMIT"); err != nil {
		return 0, err
	}
	return n, nil
}

func (s *session) ingest(ctx context.Context, into engine.IngestTarget, rows array.RecordReader) (int64, error) {
	if into.Temporary {
		into.Catalog, into.Schema = "temp", "main"
	}
	if err := s.prepareTable(into, rows.Schema()); err != nil {
		return 0, err
	}
	app, err := newAppender(s.conn, into, rows.Schema())
	if err != nil {
		return 0, err
	}
	defer app.close()
	var n int64
	for rows.Next() {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if err := app.append(rows.RecordBatch()); err != nil {
			return 0, err
		}
		n += rows.RecordBatch().NumRows()
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	return n, app.flush()
}

// prepareTable makes the table that rows go into, as far as the options allow.
func (s *session) prepareTable(into engine.IngestTarget, schema *arrow.Schema) error {
	name := qualified(into)
	if into.Exists == engine.IngestReplace {
		if err := s.exec("DROP TABLE IF EXISTS " + name); err != nil {
			return err
		}
	}
	if !into.Create {
		return nil
	}
	columns := make([]string, schema.NumFields())
	for i, f := range schema.Fields() {
		t, err := sqlType(f.Type)
		if err != nil {
			return fmt.Errorf("column %q: %w", f.Name, err)
		}
		columns[i] = ident(f.Name) + " " + t
	}
	create := "CREATE TABLE "
	if into.Temporary {
		create = "CREATE TEMP TABLE "
	}
	if into.Exists == engine.IngestAppend {
		create += "IF NOT EXISTS "
	}
	return s.exec(create + name + " (" + strings.Join(columns, ", ") + ")")
}

func qualified(into engine.IngestTarget) string {
	name := ident(into.Table)
	for _, part := range []string{into.Schema, into.Catalog} {
		if part != "" {
			name = ident(part) + "." + name
		}
	}
	return name
}

// appender adds Arrow batches to a table, by the names of their columns.
type appender struct {
	conn   capi.Connection
	handle capi.Appender
	schema capi.ArrowConvertedSchema
}

func newAppender(conn capi.Connection, into engine.IngestTarget, schema *arrow.Schema) (*appender, error) {
	a := &appender{conn: conn}
	if capi.AppenderCreateExt(conn, into.Catalog, into.Schema, into.Table, &a.handle) == capi.StateError {
		defer a.close()
		return nil, a.err()
	}
	for _, f := range schema.Fields() {
		if capi.AppenderAddColumn(a.handle, f.Name) == capi.StateError {
			defer a.close()
			return nil, a.err()
		}
	}
	var data capi.ErrorData
	a.schema, data = capi.SchemaFromArrow(conn, schema)
	if err := errorOf(data); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

func (a *appender) append(batch arrow.RecordBatch) error {
	if err := checkBatch(batch); err != nil {
		return err
	}
	if err := checkExact(batch); err != nil {
		return err
	}
	// A DuckDB chunk holds at most one vector's worth of rows.
	size := int64(capi.VectorSize())
	for from := int64(0); from < batch.NumRows(); from += size {
		slice := batch.NewSlice(from, min(from+size, batch.NumRows()))
		err := a.appendChunk(slice)
		slice.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *appender) appendChunk(batch arrow.RecordBatch) error {
	chunk, data := capi.DataChunkFromArrow(a.conn, batch, a.schema)
	if err := errorOf(data); err != nil {
		return err
	}
	defer capi.DestroyDataChunk(&chunk)
	if capi.AppendDataChunk(a.handle, chunk) == capi.StateError {
		return a.err()
	}
	return nil
}

func (a *appender) flush() error {
	if capi.AppenderFlush(a.handle) == capi.StateError {
		return a.err()
	}
	return nil
}

func (a *appender) err() error {
	if data := capi.AppenderErrorData(a.handle); data.Ptr != nil {
		if err := errorOf(data); err != nil {
			return err
		}
	}
	return errors.New("duckdb error: the appender failed without a reason")
}

// close drops what is not flushed: the appender would else try once more.
func (a *appender) close() {
	capi.AppenderClear(a.handle)
	capi.AppenderDestroy(&a.handle)
	capi.DestroyArrowConvertedSchema(&a.schema)
}
