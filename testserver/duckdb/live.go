//go:build duckdb_arrow

package duckdb

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	capi "github.com/duckdb/duckdb-go-bindings"
)

// Live adds a view whose rows are made by rows each time a statement reads it, so
// that SQL sees numbers of this process as they are. name may have a schema in
// front of it, as in "sys.remote_pool_stats", which is made too.
//
// rows is called once now, to learn the columns, which must stay the same; and
// once for every time a statement mentions the view, on a thread of DuckDB, from
// any number of them at once. The batch goes to DuckDB, which releases it. An error
// of rows fails the statement. Live data is outside of transactions: two statements
// of one may see different rows.
//
// With Config.PerSession there is no database to add it to, which is an error.
func (e *Engine) Live(ctx context.Context, name string, rows func() (arrow.RecordBatch, error)) error {
	if e.shared == nil {
		return errors.New("duckdb: Live: Config.PerSession leaves no database to add the view to")
	}
	s, err := e.shared.connect()
	if err != nil {
		return err
	}
	err = s.addLive(ctx, name, &live{db: e.shared, rows: rows})
	return errors.Join(err, s.Close())
}

func (s *session) addLive(ctx context.Context, name string, l *live) error {
	if err := l.learn(s.conn); err != nil {
		return fmt.Errorf("duckdb: Live: %s: %w", name, err)
	}
	function := "live_" + name
	if err := l.register(s.conn, function); err != nil {
		return err
	}
	schema, table, qualified := strings.Cut(name, ".")
	view := ident(name)
	if qualified {
		view = ident(schema) + "." + ident(table)
		if _, err := s.Update(ctx, "CREATE SCHEMA IF NOT EXISTS "+ident(schema), nil); err != nil {
			return err
		}
	}
	_, err := s.Update(ctx, "CREATE VIEW "+view+" AS FROM "+ident(function)+"()", nil)
	return err
}

// live is a view that Live has added.
type live struct {
	db     *database
	rows   func() (arrow.RecordBatch, error)
	schema *arrow.Schema
	types  []capi.LogicalType
}

// learn finds out the columns, and how DuckDB calls their types.
func (l *live) learn(conn capi.Connection) error {
	batch, err := l.rows()
	if err != nil {
		return err
	}
	defer batch.Release()
	l.schema = batch.Schema()
	none := batch.NewSlice(0, 0)
	defer none.Release()
	chunks, err := toChunks(conn, none)
	if err != nil {
		return err
	}
	defer destroyChunks(chunks)
	for i := range l.schema.NumFields() {
		l.types = append(l.types, capi.VectorGetColumnType(capi.DataChunkGetVector(chunks[0], capi.IdxT(i))))
	}
	return nil
}

// read makes the rows of one reading.
func (l *live) read() (*reading, error) {
	batch, err := l.rows()
	if err != nil {
		return nil, err
	}
	defer batch.Release()
	if !batch.Schema().Equal(l.schema) {
		return nil, errors.New("the columns are not those that the view was made with")
	}
	// A connection of its own: the one that reads is in the middle of its statement.
	s, err := l.db.connect()
	if err != nil {
		return nil, err
	}
	chunks, err := toChunks(s.conn, batch)
	return &reading{chunks: chunks}, errors.Join(err, s.Close())
}

// reading is the rest of the rows of one reading. One thread at a time uses it.
type reading struct {
	chunks []capi.DataChunk
	next   int
}

// toChunks hands a batch to DuckDB, in at least one chunk.
func toChunks(conn capi.Connection, batch arrow.RecordBatch) ([]capi.DataChunk, error) {
	schema, data := capi.SchemaFromArrow(conn, batch.Schema())
	defer capi.DestroyArrowConvertedSchema(&schema)
	if err := errorOf(data); err != nil {
		return nil, err
	}
	var chunks []capi.DataChunk
	size := int64(capi.VectorSize())
	for from := int64(0); from == 0 || from < batch.NumRows(); from += size {
		slice := batch.NewSlice(from, min(from+size, batch.NumRows()))
		chunk, data := capi.DataChunkFromArrow(conn, slice, schema)
		slice.Release()
		if err := errorOf(data); err != nil {
			destroyChunks(chunks)
			return nil, err
		}
		chunks = append(chunks, chunk)
	}
	return chunks, nil
}

func destroyChunks(chunks []capi.DataChunk) {
	for i := range chunks {
		capi.DestroyDataChunk(&chunks[i])
	}
}

// fill moves the next chunk to where DuckDB wants it. Without one, the size stays
// at zero, which is the end.
func (r *reading) fill(to capi.DataChunk) {
	if r.next == len(r.chunks) {
		capi.DataChunkSetSize(to, 0)
		return
	}
	from := r.chunks[r.next]
	r.next++
	for i := range capi.DataChunkGetColumnCount(from) {
		capi.VectorReferenceVector(capi.DataChunkGetVector(to, i), capi.DataChunkGetVector(from, i))
	}
	capi.DataChunkSetSize(to, capi.DataChunkGetSize(from))
}
