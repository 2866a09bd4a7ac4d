package sqlconn_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// A preparer is a driver that prepares what has arguments, as MySQL's does.
type preparer struct{ *server }

func (p preparer) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := p.server.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return preparing{c.(*session)}, nil //nolint:forcetypeassert // else the test fails
}

type preparing struct{ *session }

var errRefused = errors.New("refused")

func (p preparing) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if len(args) > 0 {
		return nil, driver.ErrSkip
	}
	return p.session.QueryContext(ctx, query, args)
}

func (p preparing) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	switch {
	case len(args) > 0:
		return nil, driver.ErrSkip
	case query == "EXIT":
		runtime.Goexit()
	}
	return p.session.ExecContext(ctx, query, args)
}

func (p preparing) Prepare(query string) (driver.Stmt, error) {
	if query == "BAD ?" {
		return nil, errRefused
	}
	return prepared{p.session, query}, nil
}

type prepared struct {
	s    *session
	text string
}

func (prepared) Close() error  { return nil }
func (prepared) NumInput() int { return 1 }
func (p prepared) Exec([]driver.Value) (driver.Result, error) {
	return driver.RowsAffected(3), p.s.did(p.text)
}
func (p prepared) Query([]driver.Value) (driver.Rows, error) {
	return &rows{left: 2, values: []driver.Value{int64(1)}}, p.s.did(p.text)
}

type traceKey struct{}

// told notes calls and what came of them.
type told struct{ calls []string }

func (s *told) trace(ctx context.Context, op, text string) (context.Context, func(sqlconn.Outcome)) {
	i := len(s.calls)
	s.calls = append(s.calls, fmt.Sprint(op, " ", text))
	if ctx.Value(traceKey{}) != nil {
		s.calls[i] += " within another"
	}
	return context.WithValue(ctx, traceKey{}, i), func(o sqlconn.Outcome) {
		s.calls[i] += fmt.Sprintf(": %d rows, %d affected, %v", o.Rows, o.RowsAffected, o.Err)
	}
}

func (s *told) take() (all []string) {
	all, s.calls = s.calls, nil
	return all
}

func drain(rows *sql.Rows, err error) error {
	if err != nil {
		return err
	}
	for rows.Next() {
		continue
	}
	return errors.Join(rows.Err(), rows.Close())
}

func TestATraceSeesEachCallOfABorrowerOnce(t *testing.T) {
	bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, _ *sqlconn.Lifecycle) {
		wrapper := sqlconn.NewWrapper()
		defer func() { require.NoError(t, wrapper.Close()) }()
		target, err := sqlconn.New(wrapper, sqlconn.Config{Connector: preparer{s}})
		require.NoError(t, err)
		c := open(t, target)
		seen := &told{}
		conn, err := c.LendTraced(t.Context(), seen.trace)
		require.NoError(t, err)
		ctx := t.Context()

		require.NoError(t, drain(conn.QueryContext(ctx, "SELECT 1")))
		require.Equal(t, []string{"Query SELECT 1: 2 rows, -1 affected, <nil>"}, seen.take())
		require.NoError(t, drain(conn.QueryContext(ctx, "SELECT ?", 1)))
		require.Equal(t, []string{"Query SELECT ?: 2 rows, -1 affected, <nil>"}, seen.take(), "with its preparation")
		_, err = conn.ExecContext(ctx, "INSERT ?", 1)
		require.NoError(t, err)
		require.Equal(t, []string{"Exec INSERT ?: 0 rows, 3 affected, <nil>"}, seen.take())
		_, err = conn.ExecContext(ctx, "BAD ?", 1)
		require.ErrorIs(t, err, errRefused)
		require.Equal(t, []string{"Exec BAD ?: 0 rows, -1 affected, refused"}, seen.take())
		_, err = conn.ExecContext(ctx, "INSERT ?", 1, 2)
		require.Error(t, err)
		require.Equal(t, []string{"Exec INSERT ?: 0 rows, -1 affected, sqlconn: the statement was not run"}, seen.take())
		_, err = conn.ExecContext(ctx, "INSERT")
		require.NoError(t, err)
		require.Equal(t, []string{"Exec INSERT: 0 rows, 1 affected, <nil>"}, seen.take())

		stmt, err := conn.PrepareContext(ctx, "SELECT ?")
		require.NoError(t, err)
		require.NoError(t, drain(stmt.QueryContext(ctx, 1)))
		require.NoError(t, stmt.Close())
		_, err = conn.PrepareContext(ctx, "BAD ?")
		require.Error(t, err)
		require.Equal(t, []string{"Prepare SELECT ?: 0 rows, -1 affected, <nil>", "Query SELECT ?: 2 rows, -1 affected, <nil>", "Prepare BAD ?: 0 rows, -1 affected, refused"}, seen.take())

		tx, err := conn.BeginTx(ctx, nil)
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		tx, err = conn.BeginTx(ctx, nil)
		require.NoError(t, err)
		require.NoError(t, tx.Rollback())
		require.Equal(t, []string{"Begin : 0 rows, -1 affected, <nil>", "Commit : 0 rows, -1 affected, <nil>", "Begin : 0 rows, -1 affected, <nil>", "Rollback : 0 rows, -1 affected, <nil>"}, seen.take())

		short, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		require.Error(t, drain(conn.QueryContext(short, slow)))
		require.Equal(t, []string{"Query SLOW: 0 rows, -1 affected, context deadline exceeded"}, seen.take())
		require.NoError(t, errors.Join(ignoreDone(conn.Close()), target.Close(c)))
	})
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrConnDone) {
		return nil
	}
	return err
}

func TestATraceIsToldOfADriverThatEndsTheGoroutine(t *testing.T) {
	bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, _ *sqlconn.Lifecycle) {
		wrapper := sqlconn.NewWrapper()
		defer func() { require.NoError(t, wrapper.Close()) }()
		target, err := sqlconn.New(wrapper, sqlconn.Config{Connector: preparer{s}})
		require.NoError(t, err)
		c := open(t, target)
		seen := &told{}
		conn, err := c.LendTraced(t.Context(), seen.trace)
		require.NoError(t, err)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = conn.ExecContext(t.Context(), "EXIT")
		}()
		<-gone
		require.Equal(t, []string{"Exec EXIT: 0 rows, -1 affected, sqlconn: the driver has ended the goroutine"}, seen.take())
		require.NoError(t, errors.Join(ignoreDone(conn.Close()), target.Close(c)))
	})
}
