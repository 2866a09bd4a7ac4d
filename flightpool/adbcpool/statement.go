package adbcpool

import (
	"context"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/driverapi"
)

// statement is adbc.Statement on a connection's session.
type statement struct {
	textOptions
	conn       *connection
	sql        string
	prepared   *flightpool.PreparedQuery
	lastReader *reader            // of the last execution, or nil
	params     arrow.RecordBatch  // bound, or nil
	stream     array.RecordReader // bound, or nil
	hasRun     bool               // the text, with what is bound
	headers    metadata.MD
	route      flightpool.Route
	ingest     flightpool.IngestOptions // a bulk load if it names a table
	closed     bool
}

var (
	_ adbc.Statement              = (*statement)(nil)
	_ adbc.StatementExecuteSchema = (*statement)(nil)
	_ adbc.GetSetOptions          = (*statement)(nil)
)

var (
	errStatementClosed = newADBCError(adbc.StatusInvalidState, "the statement is closed")
	errNoText          = newADBCError(adbc.StatusInvalidState, "the statement has no text: call SetSqlQuery before")
)

func newStatement(conn *connection) *statement {
	return &statement{
		textOptions: textOptions{"statement"}, conn: conn, headers: conn.headers.Copy(),
		ingest: flightpool.IngestOptions{Mode: backend.IngestCreate}, // ADBC's default, not that of the pool
	}
}

// SetSqlQuery is part of adbc.Statement. A result that is still open is not
// touched. Parameters with which the last text has run are not those of query.
func (s *statement) SetSqlQuery(query string) error {
	if s.closed {
		return errStatementClosed
	}
	return s.setTask(query, "")
}

// setTask makes the statement a query or a bulk load.
func (s *statement) setTask(query, table string) error {
	s.sql, s.ingest.Table = query, table
	if s.hasRun {
		s.unbind()
	}
	return s.unprepareWithoutContext()
}

// Prepare is part of adbc.Statement.
func (s *statement) Prepare(ctx context.Context) error {
	if s.closed {
		return errStatementClosed
	}
	if s.sql == "" {
		return errNoText
	}
	if err := s.unprepare(ctx); err != nil {
		return err
	}
	q, err := s.prepare(ctx)
	if err != nil {
		return err
	}
	s.prepared = q
	return nil
}

func (s *statement) prepare(ctx context.Context) (*flightpool.PreparedQuery, error) {
	if err := s.conn.beginStatement(ctx); err != nil {
		return nil, err
	}
	q, err := s.conn.handle.PrepareQueryWithOptions(ctx, s.sql, flightpool.QueryOptions{Route: s.route, Headers: s.headers})
	return q, toADBC(err)
}

// unprepare frees the prepared statement on the server, at once or, where its
// result is still being read, with the end of that.
func (s *statement) unprepare(ctx context.Context) error {
	q := s.prepared
	s.prepared = nil
	switch {
	case q == nil:
		return nil
	case s.lastReader != nil && !s.lastReader.ended:
		s.lastReader.preparedToClose = append(s.lastReader.preparedToClose, q)
		return nil
	}
	return s.conn.closePrepared(ctx, q)
}

// unprepareWithoutContext is unprepare for calls that have no context. They have the time of one of their own, whatever that of
// the pool's calls is: the execution before, which may be being stopped, may have taken all of that.
func (s *statement) unprepareWithoutContext() error {
	ctx, stop := driverapi.OwnContext(s.conn.baseCtx)
	defer stop()
	q := s.prepared
	err := s.unprepare(ctx)
	for q != nil && driverapi.EndedByContext(err) && ctx.Err() == nil {
		err = s.conn.closePrepared(ctx, q)
	}
	return err
}

// begin checks the statement before an execution and ends the result of the
// last one.
func (s *statement) begin(ctx context.Context) error {
	switch {
	case s.closed:
		return errStatementClosed
	case s.sql == "" && s.ingest.Table == "":
		return errNoText
	}
	s.lastReader.endForNextExecution(ctx)
	s.lastReader = nil
	return s.conn.beginStatement(ctx)
}

// ExecuteSchema is part of adbc.StatementExecuteSchema. The statement is
// prepared for it, unless it is already, and not executed. A server that tells
// no schema at that is StatusNotImplemented.
func (s *statement) ExecuteSchema(ctx context.Context) (*arrow.Schema, error) {
	switch {
	case s.closed:
		return nil, errStatementClosed
	case s.sql == "":
		return nil, errNoText
	}
	q := s.prepared
	if q == nil {
		var err error
		if q, err = s.prepare(ctx); err != nil {
			return nil, err
		}
		defer func() { _ = s.conn.closePrepared(ctx, q) }() // the connection's Close tries again
	}
	if schema := q.ResultSchema(); schema != nil {
		return schema, nil
	}
	return nil, newADBCError(adbc.StatusNotImplemented, "the server does not tell the schema of a prepared statement's rows")
}

// GetParameterSchema is part of adbc.Statement.
func (s *statement) GetParameterSchema() (*arrow.Schema, error) {
	if s.prepared == nil {
		return nil, newADBCError(adbc.StatusInvalidState, "GetParameterSchema before Prepare")
	}
	if schema := s.prepared.ParameterSchema(); schema != nil {
		return schema, nil
	}
	return nil, newADBCError(adbc.StatusNotImplemented, "the server does not tell the parameters")
}

// Close is part of adbc.Statement. A result that is still open lives on, and the
// connection stays busy with it, until it is read to its end or released.
func (s *statement) Close() error {
	if s.closed {
		return errStatementClosed
	}
	s.closed = true
	s.unbind()
	return s.unprepareWithoutContext()
}

// SetSubstraitPlan is part of adbc.Statement.
func (s *statement) SetSubstraitPlan([]byte) error { return notImplemented("Substrait") }

// ExecutePartitions is part of adbc.Statement.
func (s *statement) ExecutePartitions(context.Context) (*arrow.Schema, adbc.Partitions, int64, error) {
	return nil, adbc.Partitions{}, -1, notImplemented("ExecutePartitions")
}
