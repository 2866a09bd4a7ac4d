package adbcconn

import (
	"context"
	"strings"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// leaving is a driver that begins a transaction only where there is none, as DuckDB's does. A read outside of one is in one of its own until its
// end is fetched, or the next statement. What fails aborts the transaction, whose COMMIT is confirmed, as with PostgreSQL's.
type leaving struct {
	adbc.Database
	name            string
	left, open      bool
	aborted         bool
	read            int
	stored, pending []string
}

func (d *leaving) Open(context.Context) (adbc.Connection, error) { return &leavingConn{driver: d}, nil }

type leavingConn struct {
	adbc.Connection
	driver *leaving
}

func (c *leavingConn) GetInfo(context.Context, []adbc.InfoCode) (array.RecordReader, error) {
	return textReader([][2]string{{"100", c.driver.name}}), nil
}
func (c *leavingConn) NewStatement() (adbc.Statement, error) {
	return &leavingStatement{driver: c.driver}, nil
}
func (c *leavingConn) Close() error { return nil }
func (c *leavingConn) SetOption(_, value string) error {
	d := c.driver
	switch active := d.left || d.open; {
	case value == adbc.OptionValueEnabled:
		d.stored, d.pending, d.open = append(d.stored, d.pending...), nil, false
	case !active:
		d.open = true
	}
	return nil
}
func (c *leavingConn) end() error {
	if !c.driver.open {
		return adbc.Error{Code: adbc.StatusInvalidState, Msg: "No active transaction"}
	}
	return nil
}
func (c *leavingConn) Commit(ctx context.Context) error {
	d := c.driver
	if d.aborted {
		return c.Rollback(ctx)
	}
	d.stored, d.pending = append(d.stored, d.pending...), nil
	return c.end()
}
func (c *leavingConn) Rollback(context.Context) error {
	c.driver.pending, c.driver.aborted = nil, false
	return c.end()
}
func (c *leavingConn) GetTableSchema(context.Context, *string, *string, string) (*arrow.Schema, error) {
	c.driver.left = !c.driver.open
	return arrow.NewSchema(nil, nil), nil
}
func (c *leavingConn) GetObjects(context.Context, adbc.ObjectDepth, *string, *string, *string, *string, []string) (array.RecordReader, error) {
	tree, _, err := array.RecordFromJSON(memory.DefaultAllocator, adbc.GetObjectsSchema, strings.NewReader(
		`[{"catalog_name": "c", "catalog_db_schemas": [{"db_schema_name": "s", "db_schema_tables": [{"table_name": "t", "table_type": "t"}]}]}]`))
	if err != nil {
		return nil, err
	}
	defer tree.Release()
	return array.NewRecordReader(tree.Schema(), []arrow.RecordBatch{tree})
}

type leavingStatement struct {
	adbc.Statement
	driver *leaving
	sql    string
}

func (s *leavingStatement) SetSqlQuery(sql string) error {
	s.sql, s.driver.left = sql, false
	return nil
}
func (s *leavingStatement) Close() error                  { return nil }
func (s *leavingStatement) Prepare(context.Context) error { return nil }
func (s *leavingStatement) GetParameterSchema() (*arrow.Schema, error) {
	if s.sql == "untyped" { // of a transaction that has not begun on the server
		return nil, adbc.Error{Code: adbc.StatusInvalidArgument, SqlState: [5]byte{'4', '2', 'P', '1', '8'}}
	}
	if s.sql == "missing" {
		s.driver.aborted = s.driver.open
		return nil, adbc.Error{Code: adbc.StatusNotFound, SqlState: [5]byte{'4', '2', 'P', '0', '1'}}
	}
	return nil, adbc.Error{Code: adbc.StatusNotImplemented}
}
func (s *leavingStatement) ExecuteUpdate(context.Context) (int64, error) {
	switch d := s.driver; {
	case s.sql == "broken":
		return 0, errStep
	case s.sql == "unsupported":
		d.aborted = d.open
		return 0, adbc.Error{Code: adbc.StatusNotImplemented}
	case strings.HasPrefix(s.sql, "SELECT"):
		d.left = !d.open
	case d.open:
		d.pending = append(d.pending, s.sql)
	default:
		d.stored = append(d.stored, s.sql)
	}
	return -1, nil
}
func (s *leavingStatement) ExecuteQuery(context.Context) (array.RecordReader, int64, error) {
	if s.sql == "broken" {
		return nil, 0, errStep
	}
	if s.driver.aborted {
		return nil, 0, adbc.Error{Code: adbc.StatusInvalidState, Msg: "the transaction is aborted"}
	}
	s.driver.left = !s.driver.open
	return &leavingReader{textReader([][2]string{{"", ""}}), s.driver}, -1, nil
}

// errStep is what a statement of SQLite fails with that is refused as its rows are computed.
var errStep = adbc.Error{Code: adbc.StatusIO, Msg: "malformed JSON"}

type leavingReader struct {
	array.RecordReader
	driver *leaving
}

func (r *leavingReader) Next() bool {
	more := r.RecordReader.Next()
	if r.driver.left = r.driver.left && more; more {
		r.driver.read++
	}
	return more
}

// DuckDB's driver said that it had begun one, and stored each statement by itself.
func TestNoTransactionBeginsInWhatAReadHasLeft(t *testing.T) {
	for name, leave := range map[string]func(*testing.T, backend.Conn){
		"a read for its effect": func(t *testing.T, c backend.Conn) {
			_, err := c.Update(t.Context(), "SELECT 2", backend.Call{})
			require.NoError(t, err)
		},
		"the columns of tables": func(t *testing.T, c backend.Conn) {
			rows, err := c.Metadata(t.Context(), backend.MetadataRequest{Kind: backend.MetadataTables, IncludeColumns: true}, backend.Call{})
			require.NoError(t, err)
			_, err = rows.Next()
			require.NoError(t, err)
			rows.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &leaving{name: "ADBC DuckDB Driver"}
			conn, err := OpenGeneric(t.Context(), d, GenericConfig{})
			require.NoError(t, err)
			leave(t, conn)
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			_, err = conn.Update(t.Context(), "INSERT", backend.Call{Tx: tx})
			require.NoError(t, err)
			require.Empty(t, d.stored)
			require.NoError(t, conn.EndTx(t.Context(), tx, false))
			require.Empty(t, d.stored, "what was rolled back")
			require.NoError(t, conn.Close())
		})
	}
}

// DuckDB's driver computes the beginning of a result alone, of which nobody reads the rest.
func TestAReadForItsEffectIsDoneToItsEnd(t *testing.T) {
	for sql, read := range map[string]int{"SELECT 2": 1, "WITH a AS (SELECT 1) SELECT nextval('s')": 1, "INSERT INTO t VALUES (1) RETURNING a": 0, "INSERT": 0} {
		d := &leaving{name: "ADBC DuckDB Driver"}
		conn, err := OpenGeneric(t.Context(), d, GenericConfig{})
		require.NoError(t, err)
		before := d.read
		_, err = conn.Update(t.Context(), sql, backend.Call{})
		require.NoError(t, err)
		p, err := conn.Prepare(t.Context(), sql, backend.Call{})
		require.NoError(t, err)
		_, err = p.Update(t.Context(), nil, backend.Call{})
		require.NoError(t, err)
		require.Equal(t, 2*read, d.read-before, sql)
		require.NoError(t, conn.Close())
	}
}

// The driver confirms the COMMIT of a transaction that was aborted, also where what has failed does not say so.
func TestAnAbortedTransactionIsNotToldAsCommitted(t *testing.T) {
	for _, name := range []string{"ADBC PostgreSQL Driver", "ADBC DuckDB Driver"} {
		d := &leaving{name: name}
		conn, err := OpenGeneric(t.Context(), d, GenericConfig{})
		require.NoError(t, err)
		for _, failed := range []bool{true, false} {
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			_, err = conn.Update(t.Context(), "INSERT", backend.Call{Tx: tx})
			require.NoError(t, err)
			if failed {
				_, err = conn.Update(t.Context(), "unsupported", backend.Call{Tx: tx})
				require.Equal(t, backend.FaultUnsupported, backend.FaultIn(err))
				e := failure(t, conn.EndTx(t.Context(), tx, true))
				require.True(t, e.Unsent)
				require.Equal(t, backend.FaultStatement, e.Fault)
				require.Empty(t, d.stored)
				require.NoError(t, conn.EndTx(t.Context(), tx, false))
				continue
			}
			asked := d.read
			require.NoError(t, conn.EndTx(t.Context(), tx, true), "one that has not failed")
			require.Equal(t, asked, d.read, "and of which nothing is asked")
			require.Equal(t, []string{"INSERT"}, d.stored)
		}
		require.NoError(t, conn.Lost())
		require.NoError(t, conn.Close())
	}
}

func TestWhatAbortsATransactionWhileItIsPreparedIsTold(t *testing.T) {
	d := &leaving{name: "ADBC PostgreSQL Driver"}
	conn, err := OpenGeneric(t.Context(), d, GenericConfig{})
	require.NoError(t, err)
	_, err = conn.Prepare(t.Context(), "missing", backend.Call{})
	require.NoError(t, err, "outside of one it harms nothing")
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	for _, sql := range []string{"told", "untyped"} {
		_, err = conn.Prepare(t.Context(), sql, backend.Call{Tx: tx})
		require.NoError(t, err, sql)
	}
	_, err = conn.Prepare(t.Context(), "missing", backend.Call{Tx: tx})
	require.Equal(t, backend.FaultStatement, failure(t, err).Fault)
	require.NoError(t, conn.EndTx(t.Context(), tx, false))
	require.NoError(t, conn.Close())
}

// To SQLite's driver whatever a row fails with is an I/O error.
func TestWhatARowOfSQLiteFailsWithIsNotTheEndOfItsConnection(t *testing.T) {
	for name, want := range map[string]backend.Fault{"ADBC SQLite Driver": backend.FaultUnknown, "another": backend.FaultTransport} {
		conn, err := OpenGeneric(t.Context(), &leaving{name: name}, GenericConfig{})
		require.NoError(t, err)
		_, err = conn.Query(t.Context(), "broken", backend.Call{})
		require.Equal(t, want, failure(t, err).Fault, name)
		require.Equal(t, want == backend.FaultTransport, conn.Lost() != nil, name)
		if want == backend.FaultUnknown {
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			_, err = conn.Update(t.Context(), "broken", backend.Call{Tx: tx})
			require.Equal(t, want, failure(t, err).Fault)
			require.NoError(t, conn.EndTx(t.Context(), tx, false))
			require.NoError(t, conn.Lost())
		}
		require.NoError(t, conn.Close())
	}
}
