package adbcpool

import (
	"context"
	"strings"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/flightpool"
)

// statement is adbc.Statement on a connection's session.
type statement struct {
	conn     *connection
	sql      string
	prepared *flightpool.PreparedQuery
	result   *flightpool.QueryResult // of the last execution, or nil
	params   arrow.RecordBatch       // bound, or nil
	stream   array.RecordReader      // bound, or nil
	headers  metadata.MD
	route    flightpool.Route
	ingest   flightpool.IngestOptions // a bulk load if it names a table
	closed   bool
}

var _ adbc.Statement = (*statement)(nil)

// OptionRoute is the option of a statement that says how ExecuteQuery sends its
// text: "auto" (the default), "query" or "update", as flightpool.Route does.
const OptionRoute = "flightpool.statement.route"

var routes = map[string]flightpool.Route{"auto": flightpool.RouteAuto, "query": flightpool.RouteQuery, "update": flightpool.RouteUpdate}

var errStatementClosed = failure(adbc.StatusInvalidState, "the statement is closed")

// SetSqlQuery is part of adbc.Statement.
func (s *statement) SetSqlQuery(query string) error {
	if s.closed {
		return errStatementClosed
	}
	s.sql = query
	s.ingest = flightpool.IngestOptions{}
	return s.unprepare()
}

// SetOption is part of adbc.Statement.
func (s *statement) SetOption(key, value string) error {
	if s.closed {
		return errStatementClosed
	}
	if name, ok := strings.CutPrefix(key, flightsql.OptionRPCCallHeaderPrefix); ok {
		return s.setHeader(name, value)
	}
	switch key {
	case OptionRoute:
		route, ok := routes[value]
		if !ok {
			return failure(adbc.StatusInvalidArgument, key+": "+value+" is none of auto, query and update")
		}
		s.route = route
	case adbc.OptionKeyIngestTargetTable:
		s.sql, s.ingest.Table = "", value
		return s.unprepare()
	case adbc.OptionKeyIngestMode:
		return s.setIngestMode(value)
	case adbc.OptionValueIngestTargetCatalog:
		s.ingest.Catalog = value
	case adbc.OptionValueIngestTargetDBSchema:
		s.ingest.Schema = value
	case adbc.OptionValueIngestTemporary:
		on, err := parseBool(key, value)
		if err != nil {
			return err
		}
		s.ingest.Temporary = on
	default:
		return notImplemented("statement option " + key)
	}
	return nil
}

func (s *statement) setHeader(name, value string) error {
	if s.headers == nil {
		s.headers = metadata.MD{}
	}
	if value == "" {
		s.headers.Delete(name)
	} else {
		s.headers.Append(name, value)
	}
	return nil
}

func (s *statement) setIngestMode(value string) error {
	mode, ok := ingestModes[value]
	if !ok {
		return failure(adbc.StatusInvalidArgument, "the ingest mode "+value+" is not known")
	}
	s.ingest.Mode = mode
	return nil
}

// Prepare is part of adbc.Statement.
func (s *statement) Prepare(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	if s.sql == "" {
		return failure(adbc.StatusInvalidState, "Prepare before SetSqlQuery")
	}
	if err := s.unprepare(); err != nil { //nolint:contextcheck // bounded by itself, as in Close
		return err
	}
	q, err := s.conn.s.PrepareQueryWithOptions(ctx, s.sql, flightpool.QueryOptions{Route: s.route})
	if err != nil {
		return toADBC(err)
	}
	s.prepared = q
	return nil
}

// begin checks the statement and ends its last result.
func (s *statement) begin(ctx context.Context) error {
	if s.closed {
		return errStatementClosed
	}
	s.endResult() //nolint:contextcheck // the last result's context is its own
	return s.conn.ready(ctx)
}

func (s *statement) endResult() {
	if s.result != nil {
		_ = s.result.Close() // the reader that was given out tells its error
		s.result = nil
	}
}

// unprepare frees the prepared statement on the server.
func (s *statement) unprepare() error {
	s.endResult()
	if s.prepared == nil {
		return nil
	}
	ctx, stop := s.conn.bounded()
	defer stop()
	q := s.prepared
	s.prepared = nil
	return toADBC(q.Close(ctx))
}

// GetParameterSchema is part of adbc.Statement.
func (s *statement) GetParameterSchema() (*arrow.Schema, error) {
	if s.prepared == nil {
		return nil, failure(adbc.StatusInvalidState, "GetParameterSchema before Prepare")
	}
	if schema := s.prepared.ParameterSchema(); schema != nil {
		return schema, nil
	}
	return nil, failure(adbc.StatusNotImplemented, "the server does not tell the parameters")
}

// Close is part of adbc.Statement. A result that is still open is ended.
func (s *statement) Close() error {
	if s.closed {
		return errStatementClosed
	}
	s.closed = true
	s.unbind()
	return s.unprepare()
}

// SetSubstraitPlan is part of adbc.Statement.
func (s *statement) SetSubstraitPlan([]byte) error { return notImplemented("Substrait") }

// ExecutePartitions is part of adbc.Statement.
func (s *statement) ExecutePartitions(context.Context) (*arrow.Schema, adbc.Partitions, int64, error) {
	return nil, adbc.Partitions{}, -1, notImplemented("ExecutePartitions")
}
