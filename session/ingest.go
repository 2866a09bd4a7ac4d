package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/bind"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// Ingest loads rows into a table, in bulk, inside the open transaction if
// there is one. It returns how many were stored, or -1 when the server does
// not tell; fewer than rows has is the server's word, and no error. It does not
// release rows. Servers without bulk ingestion fail it with FaultUnsupported. That
// aborts an open transaction if more than one batch of rows was taken by then, or one that is
// sent in several parts, or with IngestReplace, since a server that has the call may refuse the rest of the rows by
// the same word, or the rows once it has dropped the table.
//
// Where rows fails, or has a batch of another schema than its own, Ingest fails with that error, whatever was stored before; the
// server is told no end of the rows. Nothing is sent where that comes before their first
// batch. That error is not taken for one of this server's
// or its connection's, also where rows is the result of another pool.
//
// Ingest reads rows in a goroutine of its own. When ctx ends while rows does
// not return, Ingest returns all the same, and rows is let go when it does.
// What was sent before is refused by the server then, behind the caller, for which it has CancelPolicy.Budget; where all rows
// were sent it may be stored. One that has not ended by then is cut and costs its connection, and servers made
// with Arrow's C++ library (GizmoSQL) take that for the end of the rows, and store what has come, unless it is in a
// transaction.
func (s *SessionHandle) Ingest(ctx context.Context, table string, rows array.RecordReader, opts backend.IngestOptions) (int64, error) {
	c, err := s.begin(ctx, opIngest, QueryOptions{Headers: opts.Headers, ownGoroutine: true, text: table}, cancelAfterBudget) // rows may block, or panic
	if err != nil {
		return 0, err
	}
	if err := errjoin.Join(requireArgument(table != "", "a table name is needed"), requireArgument(rows != nil, "a record reader is needed")); err != nil {
		return 0, c.finish(outcome{err: usageError(err)})
	}
	opts.Table, opts.Options = table, maps.Clone(opts.Options) // which the caller may change once it has left
	if err := s.checkStatement(c, ingestScript(opts)); err != nil {
		return 0, c.finish(outcome{err: err})
	}
	c.manyExecutions = true                    // the table may have been made before the rows failed
	c.runCallersCode(func() { rows.Retain() }) // a nil *QueryResult panics
	c.afterStep = rows.Release
	return runStep(c, func(ctx context.Context) (int64, error) {
		source := &callerRows{RecordReader: rows, call: c}
		if err := source.readFirst(); err != nil { // nothing was sent
			return 0, err
		}
		n, err := int64(0), c.proveAgain(ctx)
		if err == nil {
			n, err = s.conn.Ingest(ctx, source, opts, c.backendCall)
			c.oneBatch.Store(source.batches.Load() <= 1 && !c.operation.IsSplit() && opts.Mode != backend.IngestReplace)
			err = source.judge(err)
		}
		return n, source.markTaken(err)
	}, c.countOutcome)
}

// proveAgain makes sure that the session, which was proven before the first batch was read, is still that one: the rows may have
// taken longer than a server keeps a session for in which nothing is done (GizmoSQL).
func (c *call) proveAgain(ctx context.Context) error {
	if time.Since(c.startedAt()) < longFirstBatch {
		return nil
	}
	return c.s.proveSession(ctx, accessOf(c.script))
}

// longFirstBatch is how long the first batch of rows may take without another proof.
const longFirstBatch = time.Second

func requireArgument(ok bool, what string) error {
	if ok {
		return nil
	}
	return errors.New(what)
}

// ingestScript is a statement that does to the session what the ingestion may do. One that
// replaces its table drops what has the name, which may be a temporary table.
func ingestScript(opts backend.IngestOptions) sqlscan.Script {
	name := quoteName(opts.Table)
	for _, part := range []string{opts.Schema, opts.Catalog} {
		if part != "" {
			name = quoteName(part) + "." + name
		}
	}
	creates := sqlscan.Parse("CREATE OR REPLACE TABLE " + name + " (x INT)")
	switch {
	case opts.Temporary:
		return sqlscan.Parse("CREATE TEMP TABLE " + quoteName(opts.Table) + " (x INT)")
	case opts.Mode == backend.IngestReplace, opts.Mode != backend.IngestAppend && len(creates.Effects()) > 0:
		return creates
	default:
		return sqlscan.Parse("INSERT INTO " + name + " DEFAULT VALUES") // it is no read
	}
}

// callerRows are rows of the caller's whose failure a backend must not take for one of
// its own: the reader may be the result of another server, and drivers judge errors by
// their type and text, or do not ask for any.
//
// Where there is no batch they give one without rows, of which the server makes the
// table: drivers send nothing otherwise, not even the schema.
//
// Behind a caller who has left there are no more: the server is told so as of rows that fail. And so it is where a batch
// is of another schema than its reader, which no backend can send: drivers would give their stream up, and one in C read what it is not.
//
// INVARIANT: a backend is given rows of which the first batch has been read. Drivers send the schema before they ask for it,
// of which a server makes the table, or drops the one that it replaces.
type callerRows struct {
	array.RecordReader
	call    *call
	waiting bool              // the first batch, or empty, has been read and not been given
	schema  *arrow.Schema     // of the reader
	current arrow.RecordBatch // the reader's, until its next
	failure atomic.Pointer[error]
	left    atomic.Bool       // it is that their caller has left
	batches atomic.Int64      // that were taken
	empty   arrow.RecordBatch // the only batch, or nil; the collector's in the end
}

var errRows = errors.New("the reader of the rows has failed")

// errRowsLeft is that of rows that have ended since their caller has left. A backend that has to wait for its server then
// keeps nobody.
var errRowsLeft = &rowsLeftError{errRows}

type rowsLeftError struct{ error }

// CallerLeft tells backends so.
func (*rowsLeftError) CallerLeft() {}

// readFirst reads the first batch, before anything is sent. Without one the rows have failed: those that have none give one that is empty.
func (r *callerRows) readFirst() error {
	r.Schema() // may read it, and fail
	if r.waiting = r.Err() == nil && r.Next(); r.waiting {
		return nil
	}
	return usageError(fmt.Errorf("%w: %w", errRows, *r.failure.Load()))
}

// Next is part of array.RecordReader. A driver may not ask for the error.
func (r *callerRows) Next() bool {
	if r.waiting {
		r.waiting = false
		return true
	}
	if r.empty != nil || r.callerLeft() {
		return false
	}
	if r.RecordReader.Next() && !r.callerLeft() {
		if r.current = r.RecordReader.RecordBatch(); !r.isOfSchema(r.current) {
			return false
		}
		r.batches.Add(1)
		return true
	}
	if r.Err() != nil || r.batches.Load() > 0 {
		return false
	}
	r.empty = batchWithoutRows(r.Schema())
	return true
}

// isOfSchema makes it the failure of the rows that a batch is not of their schema.
func (r *callerRows) isOfSchema(batch arrow.RecordBatch) bool {
	if r.schema == nil {
		r.schema = r.Schema()
	}
	if batch == nil || batch.Schema().Equal(r.schema) { // none is the backend's to fail on
		return true
	}
	err := fmt.Errorf("a batch has the schema %v, and its reader %v", batch.Schema(), r.schema)
	r.failure.Store(&err)
	return false
}

// callerLeft makes it the failure of the rows that their caller has left before the last of them.
func (r *callerRows) callerLeft() bool {
	select {
	case <-r.call.callerGone:
		cause := r.call.cause()
		r.failure.Store(&cause)
		r.left.Store(true)
		return true
	default:
		return false
	}
}

// RecordBatch is part of array.RecordReader.
func (r *callerRows) RecordBatch() arrow.RecordBatch {
	if r.empty != nil {
		return r.empty
	}
	return r.current
}

// Record is part of array.RecordReader.
//
// Deprecated: it is RecordBatch.
func (r *callerRows) Record() arrow.RecordBatch { return r.RecordBatch() }

func batchWithoutRows(schema *arrow.Schema) arrow.RecordBatch {
	columns := make([]arrow.Array, schema.NumFields())
	for i, f := range schema.Fields() { // builders lack some types, and panic
		columns[i] = array.MakeArrayOfNull(memory.DefaultAllocator, f.Type, 0)
	}
	return array.NewRecordBatch(schema, columns, 0)
}

// Err is part of array.RecordReader.
func (r *callerRows) Err() error {
	if r.failure.Load() == nil {
		err := r.RecordReader.Err()
		if err == nil {
			return nil
		}
		r.failure.Store(&err)
	}
	if r.left.Load() {
		return errRowsLeft
	}
	return errRows
}

// markTaken says in an error, in a copy, that the reader has fewer rows than before. Structs of an iterator begin anew with each call.
func (r *callerRows) markTaken(err error) error {
	_, anew := r.RecordReader.(*bind.Rows)
	var e *backend.Error
	if anew || r.batches.Load() == 0 || !errors.As(err, &e) {
		return err
	}
	marked := *e
	marked.RowsTaken = true
	return &marked
}

// judge is the error of an ingestion that the backend has ended in err.
func (r *callerRows) judge(err error) error {
	failure := r.failure.Load()
	if failure == nil {
		return err
	}
	cause := fmt.Errorf("%w: %w", errRows, *failure)
	var told *backend.Error
	if !errors.As(err, &told) {
		return &backend.Error{Stage: backend.StageExecute, Err: cause}
	}
	e := *told
	switch {
	case e.Fault == backend.FaultTransport, e.Fault == backend.FaultSession, e.Fault == backend.FaultContext:
		e.Err = fmt.Errorf("%w (%w)", e.Err, cause)
	case r.left.Load(): // it is not the end of their context that the server has answered
		e.Fault, e.Err = backend.FaultStatement, cause
	default:
		e.Fault, e.Err = backend.FaultUnknown, cause
	}
	return &e
}
