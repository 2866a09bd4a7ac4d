package sqlconn_test

// Drivers that have little beside what database/sql needs: over a lent connection
// they behave as over a plain one.

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// odd is a driver that has little beside statements.
type odd struct{ mk func() driver.Conn }

func (o odd) Connect(context.Context) (driver.Conn, error) { return o.mk(), nil }
func (o odd) Driver() driver.Driver                        { return nil }

type oddConn struct{ stmt func() driver.Stmt }

func (c oddConn) Prepare(string) (driver.Stmt, error) { return c.stmt(), nil }
func (oddConn) Close() error                          { return nil }
func (oddConn) Begin() (driver.Tx, error)             { return nil, errors.New("no") }

type oddStmt struct{ n int }

func (oddStmt) Close() error                               { return nil }
func (s oddStmt) NumInput() int                            { return s.n }
func (oddStmt) Exec([]driver.Value) (driver.Result, error) { return driver.RowsAffected(1), nil }
func (oddStmt) Query(v []driver.Value) (driver.Rows, error) {
	return nil, fmt.Errorf("got %#v", v)
}

// checker: its statements take a type of their own.
type money struct{ cents int }
type checkerStmt struct{ oddStmt }

func (checkerStmt) CheckNamedValue(v *driver.NamedValue) error {
	if m, ok := v.Value.(money); ok {
		v.Value = int64(m.cents)
		return nil
	}
	return driver.ErrSkip
}

type converterStmt struct{ oddStmt }
type conv struct{}

func (conv) ConvertValue(v any) (driver.Value, error) {
	if !driver.IsValue(v) {
		return nil, fmt.Errorf("converter got %T", v)
	}
	return v, nil
}
func (s converterStmt) ColumnConverter(i int) driver.ValueConverter {
	return []driver.ValueConverter{conv{}, conv{}}[:s.n][i]
}

// both runs f over plain database/sql and over a lent connection.
func both(t *testing.T, c driver.Connector, f func(conn *sql.Conn) error) (plain, lent error) {
	t.Helper()
	guard := func(conn *sql.Conn) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("PANIC: %v", p)
			}
		}()
		return f(conn)
	}
	db := sql.OpenDB(c)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	plain = guard(conn)

	wrapper := sqlconn.NewWrapper()
	target, err := sqlconn.New(wrapper, sqlconn.Config{Connector: c, QueryTimeout: time.Minute})
	require.NoError(t, err)
	pc, err := target.Open(t.Context())
	require.NoError(t, err)
	lc, err := pc.Lend(t.Context())
	require.NoError(t, err)
	lent = guard(lc)
	require.NoError(t, errors.Join(conn.Close(), db.Close(), lc.Close(), target.Close(pc), wrapper.Close()))
	return plain, lent
}

func text(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}

func TestStatementsThatCheckTheirValuesGetThem(t *testing.T) {
	plain, lent := both(t, odd{func() driver.Conn { return oddConn{func() driver.Stmt { return checkerStmt{oddStmt{1}} }} }}, func(c *sql.Conn) error {
		_, err := c.ExecContext(t.Context(), "x", money{5})
		return err
	})
	assert.Equal(t, text(plain), text(lent), "NamedValueChecker of the statement alone")
}

func TestColumnConvertersGetWhatDatabaseSQLGivesThem(t *testing.T) {
	connector := odd{func() driver.Conn { return oddConn{func() driver.Stmt { return converterStmt{oddStmt{1}} }} }}
	plain, lent := both(t, connector, func(c *sql.Conn) error {
		s, err := c.PrepareContext(t.Context(), "x")
		if err != nil {
			return err
		}
		_, err = s.ExecContext(t.Context(), sql.NullString{String: "a", Valid: true})
		return err
	})
	assert.Equal(t, text(plain), text(lent), "a Valuer")
	plain, lent = both(t, connector, func(c *sql.Conn) error {
		s, err := c.PrepareContext(t.Context(), "x")
		if err != nil {
			return err
		}
		_, err = s.ExecContext(t.Context(), int64(1), int64(2), int64(3))
		return err
	})
	assert.Equal(t, text(plain), text(lent), "more arguments than the statement has")
}

// cursors: a driver with several results open on one connection, as SQLite and Firebird have.
type cursors struct{}

func (cursors) Prepare(string) (driver.Stmt, error) { return nil, errors.New("no") }
func (cursors) Close() error                        { return nil }
func (cursors) Begin() (driver.Tx, error)           { return nil, errors.New("no") }
func (cursors) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), nil
}
func (cursors) QueryContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Rows, error) {
	return &cursor{ctx: ctx}, nil
}

type cursor struct {
	ctx context.Context
	n   int
}

func (*cursor) Columns() []string { return []string{"n"} }
func (*cursor) Close() error      { return nil }
func (c *cursor) Next(d []driver.Value) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if c.n++; c.n > 3 {
		return io.EOF
	}
	d[0] = int64(c.n)
	return nil
}

func TestAStatementDoesNotEndTheRowsOfAnother(t *testing.T) {
	plain, lent := both(t, odd{func() driver.Conn { return cursors{} }}, func(c *sql.Conn) error {
		rows, err := c.QueryContext(t.Context(), "a")
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		n := 0
		for rows.Next() {
			n++
			if _, err := c.ExecContext(t.Context(), "update"); err != nil {
				return err
			}
		}
		if rows.Err() != nil {
			return fmt.Errorf("after %d rows: %w", n, rows.Err())
		}
		return nil
	})
	assert.Equal(t, text(plain), text(lent))
}

// resultSets is a driver with two results and their types.
type resultSets struct {
	cursor
	second bool
}

func (r *resultSets) HasNextResultSet() bool                   { return !r.second }
func (r *resultSets) NextResultSet() error                     { r.second, r.n = true, 0; return nil }
func (*resultSets) ColumnTypeDatabaseTypeName(int) string      { return "INT" }
func (*resultSets) ColumnTypeNullable(int) (nullable, ok bool) { return true, true }

type setsConn struct {
	cursors
	rows func(ctx context.Context) driver.Rows
}

func (c setsConn) QueryContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Rows, error) {
	return c.rows(ctx), nil
}

func TestRowsWithATimeAreAsWithoutOne(t *testing.T) {
	for name, rows := range map[string]func(ctx context.Context) driver.Rows{
		"plain": func(ctx context.Context) driver.Rows { return &cursor{ctx: ctx} },
		"sets":  func(ctx context.Context) driver.Rows { return &resultSets{cursor: cursor{ctx: ctx}} },
	} {
		describe := func(c *sql.Conn) error {
			rows, err := c.QueryContext(t.Context(), "a")
			if err != nil {
				return err
			}
			defer func() { _ = rows.Close() }()
			types, err := rows.ColumnTypes()
			if err != nil {
				return err
			}
			nullable, known := types[0].Nullable()
			_, length := types[0].Length()
			_, _, decimal := types[0].DecimalSize()
			got := fmt.Sprint(types[0].DatabaseTypeName(), types[0].ScanType(), nullable, known, length, decimal)
			for more := true; more; more = rows.NextResultSet() {
				for rows.Next() {
					got += " row"
				}
				got += ";"
			}
			return errors.Join(errors.New(got), rows.Err())
		}
		plain, lent := both(t, odd{func() driver.Conn { return setsConn{rows: rows} }}, describe)
		require.Contains(t, text(plain), "row row row;")
		assert.Equal(t, text(plain), text(lent), name)
	}
}
