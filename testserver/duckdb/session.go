//go:build duckdb_arrow

package duckdb

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/testserver/engine"

	capi "github.com/duckdb/duckdb-go-bindings"
)

// session is one DuckDB connection.
//
// INVARIANT: one goroutine at a time uses conn, from the start of a call to
// the release of its rows. The only exception is capi.Interrupt, and guard
// sees to it that none is under way once the statement has ended.
type session struct {
	conn    capi.Connection
	inTx    bool
	onClose func()
}

var _ engine.Session = (*session)(nil)

// Describe prepares the statement without running it. Text of several
// statements is not described, since those after the first may depend on it.
func (s *session) Describe(ctx context.Context, sql string) (d engine.Description, err error) {
	defer interruptAtEnd(ctx, s.conn)()
	defer func() { err = withContextError(ctx, err) }()
	if err := ctx.Err(); err != nil {
		return engine.Description{}, err
	}
	text, err := split(s.conn, sql)
	if err != nil {
		return engine.Description{}, err
	}
	defer text.close()
	if text.count > 1 {
		return engine.Description{}, nil
	}
	st, err := text.prepare(0)
	if err != nil {
		return engine.Description{}, err
	}
	defer st.close()
	return st.describe()
}

// Query runs all statements of sql and returns the rows of the last, which
// alone takes params. The rows of a SELECT are computed while they are read.
func (s *session) Query(ctx context.Context, sql string, params arrow.RecordBatch) (array.RecordReader, error) {
	if err := checkBatch(params); err != nil {
		return nil, err
	}
	unguard := interruptAtEnd(ctx, s.conn)
	st, err := s.prepareLast(ctx, sql)
	if err != nil {
		unguard()
		return nil, withContextError(ctx, err)
	}
	return newRows(ctx, s, st, params, unguard)
}

// Update runs all statements of sql. params are for the last one.
func (s *session) Update(ctx context.Context, sql string, params arrow.RecordBatch) (affected int64, err error) {
	if err := checkBatch(params); err != nil {
		return 0, err
	}
	defer interruptAtEnd(ctx, s.conn)()
	defer func() { err = withContextError(ctx, err) }()
	st, err := s.prepareLast(ctx, sql)
	if err != nil {
		return 0, err
	}
	defer st.close()
	for row := range runCount(params) {
		n, err := s.execute(ctx, st, params, row)
		if err != nil {
			return affected, err
		}
		affected += n
	}
	return affected, nil
}

// runCount is how many times a statement is run: once for each row of params.
func runCount(params arrow.RecordBatch) int64 {
	if params == nil {
		return 1
	}
	return params.NumRows()
}

// prepareLast runs the statements of sql up to the last, which it prepares.
// The caller has set the guard.
func (s *session) prepareLast(ctx context.Context, sql string) (*statement, error) {
	text, err := split(s.conn, sql)
	if err != nil {
		return nil, err
	}
	defer text.close()
	for i := range text.count - 1 {
		st, err := text.prepare(i)
		if err != nil {
			return nil, err
		}
		_, err = s.execute(ctx, st, nil, 0)
		st.close()
		if err != nil {
			return nil, err
		}
	}
	return text.prepare(text.count - 1)
}

// execute binds one row of params, runs the statement to its end and drops
// its rows. Those of a RETURNING are as many as it has changed, which DuckDB does
// not tell beside them.
func (s *session) execute(ctx context.Context, st *statement, params arrow.RecordBatch, row int64) (int64, error) {
	if err := st.bind(params, int(row)); err != nil {
		return 0, err
	}
	res, err := s.run(ctx, st, materialised)
	if err != nil {
		return 0, err
	}
	defer res.close()
	if res.hasRows() && st.changesRows() {
		return res.drain()
	}
	return res.affected(), nil
}

// run starts a bound statement and keeps the state of the transaction.
func (s *session) run(ctx context.Context, st *statement, mode resultMode) (*result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	res, err := st.start(mode)
	if st.kind() == capi.StatementTypeTransaction {
		s.inTx = s.queryInTx()
	}
	return res, err
}

// withContextError names the context as the cause of a failure that it caused.
func withContextError(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && err != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// exec runs one of the session's own short statements. An interrupt that was
// meant for the statement before must not end it, so it is run again then.
func (s *session) exec(sql string, read ...func(*capi.Result)) error {
	for {
		again, err := s.execOnce(sql, read)
		if !again {
			return err
		}
	}
}

func (s *session) execOnce(sql string, read []func(*capi.Result)) (again bool, err error) {
	var res capi.Result
	defer capi.DestroyResult(&res)
	if capi.Query(s.conn, sql, &res) == capi.StateError {
		return capi.ResultErrorType(&res) == capi.ErrorTypeInterrupt, statementError(capi.ResultError(&res))
	}
	for _, f := range read {
		f(&res)
	}
	return false, nil
}

// Close ends the connection, and with it its transaction and temporary tables.
func (s *session) Close() error {
	capi.Disconnect(&s.conn)
	if s.onClose != nil {
		s.onClose()
	}
	return nil
}

// statementError makes an error of DuckDB's message.
func statementError(msg string) error {
	if isTxState(msg) {
		return fmt.Errorf("%w: duckdb error: %s", engine.ErrTxState, msg)
	}
	return errors.New("duckdb error: " + msg)
}
