package session

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/backend"
)

// asText is a prepared statement that the server does not know: each execution sends the text. With parameters it is a
// statement of the call's own instead (withOwnStatement).
//
// INVARIANT: the text of a PreparedQuery is prepared only where no server is known to run it meanwhile: see
// sqlscan.Script.RunsWhenPrepared. GizmoSQL gives the rows of the preparing to the first execution, none to the next, and
// confirms changes that it has not made again. SwanLake leaves it in a transaction that is not the handle's.
type asText struct {
	conn backend.Conn
	sql  string
}

// ParameterSchema is part of backend.Prepared.
func (asText) ParameterSchema() *arrow.Schema { return nil }

// Query is part of backend.Prepared.
func (t asText) Query(ctx context.Context, _ arrow.RecordBatch, call backend.Call) (backend.Stream, error) {
	return t.conn.Query(ctx, t.sql, call)
}

// Update is part of backend.Prepared.
func (t asText) Update(ctx context.Context, _ arrow.RecordBatch, call backend.Call) (int64, error) {
	return t.conn.Update(ctx, t.sql, call)
}

// Close is part of backend.Prepared.
func (asText) Close(context.Context) error { return nil }

// goesAsText reports whether the statement is not prepared on the server.
func (q *PreparedQuery) goesAsText() bool {
	_, is := q.statement().(asText)
	return is
}
