package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/internal/sqlscan"
)

// PreparedQuery is a prepared statement of a SessionHandle. It is used by one
// goroutine at a time, and lives until Close or the handle's.
type PreparedQuery struct {
	s      *SessionHandle
	stmt   Prepared
	script sqlscan.Script
}

// PrepareQuery prepares a statement, a query or a change, on the handle's
// session. The caller should Close it; the handle's Close does so otherwise.
func (s *SessionHandle) PrepareQuery(ctx context.Context, sql string) (*PreparedQuery, error) {
	c, err := s.begin(ctx, "PrepareQuery", QueryOptions{}, true)
	if err != nil {
		return nil, err
	}
	script := sqlscan.Parse(sql)
	if err := s.enterStatement(c, script); err != nil {
		return nil, c.end(err)
	}
	c.script = sqlscan.Script{} // preparing runs nothing
	stmt, err := do(c, func(ctx context.Context) (Prepared, error) { return s.conn.Prepare(ctx, sql, c.info) },
		func(stmt Prepared, err error) {
			if err == nil { // nobody waits for it any more
				if err := stmt.Close(c.rpc); err != nil {
					s.doom(fmt.Errorf("close prepared statement: %w", err))
				}
			}
			_ = c.end(err)
		})
	if err != nil {
		return nil, c.end(err)
	}
	q := &PreparedQuery{s: s, stmt: stmt, script: script}
	s.mu.Lock()
	if s.mu.prepared == nil {
		s.mu.prepared = make(map[*PreparedQuery]struct{})
	}
	s.mu.prepared[q] = struct{}{}
	s.mu.Unlock()
	return q, c.end(nil)
}

// ParameterSchema has a field per parameter. It is nil when the server does
// not tell.
func (q *PreparedQuery) ParameterSchema() *arrow.Schema { return q.stmt.ParameterSchema() }

// Query runs the statement with params, or without when nil, and streams its
// rows, as SessionHandle.Query does.
func (q *PreparedQuery) Query(ctx context.Context, params arrow.RecordBatch) (*QueryResult, error) {
	if !q.script.ReturnsRows() {
		done, err := q.Update(ctx, params)
		if err != nil {
			return nil, err
		}
		return effectOnly(done), nil
	}
	c, err := q.begin(ctx, "PreparedQuery.Query")
	if err != nil {
		return nil, err
	}
	return q.s.stream(c, func(ctx context.Context) (Stream, error) { return q.stmt.Query(ctx, params, c.info) })
}

// Update runs the statement for its effect, once for every row of params.
func (q *PreparedQuery) Update(ctx context.Context, params arrow.RecordBatch) (UpdateResult, error) {
	c, err := q.begin(ctx, "PreparedQuery.Update")
	if err != nil {
		return UpdateResult{}, err
	}
	n, err := do(c, func(ctx context.Context) (int64, error) { return q.stmt.Update(ctx, params, c.info) },
		func(_ int64, err error) { _ = c.end(err) })
	if err = c.end(err); err != nil {
		return UpdateResult{}, err
	}
	return UpdateResult{RowsAffected: n}, nil
}

func (q *PreparedQuery) begin(ctx context.Context, op string) (*call, error) {
	c, err := q.s.begin(ctx, op, QueryOptions{}, false)
	if err != nil {
		return nil, err
	}
	q.s.mu.Lock()
	_, alive := q.s.mu.prepared[q]
	q.s.mu.Unlock()
	if !alive {
		return nil, c.end(usage(ErrHandleClosed))
	}
	if err := q.s.enterStatement(c, q.script); err != nil {
		return nil, c.end(err)
	}
	return c, nil
}

// Close frees the statement on the server. It is idempotent.
func (q *PreparedQuery) Close(ctx context.Context) error {
	q.s.mu.Lock()
	_, alive := q.s.mu.prepared[q]
	q.s.mu.Unlock()
	if !alive {
		return nil
	}
	c, err := q.s.begin(ctx, "PreparedQuery.Close", QueryOptions{}, true)
	if err != nil {
		if errors.Is(err, ErrHandleClosed) || errors.Is(err, ErrSessionLost) {
			return nil // it has gone with its session
		}
		return err
	}
	q.s.mu.Lock()
	delete(q.s.mu.prepared, q)
	q.s.mu.Unlock()
	closed := func(_ struct{}, err error) error {
		if err != nil {
			q.s.doom(fmt.Errorf("close prepared statement: %w", err))
		}
		return c.end(err)
	}
	none, err := do(c, func(ctx context.Context) (struct{}, error) { return struct{}{}, q.stmt.Close(ctx) },
		func(v struct{}, err error) { _ = closed(v, err) })
	var left *leftBehind
	if errors.As(err, &left) {
		return c.end(err)
	}
	return closed(none, err)
}
