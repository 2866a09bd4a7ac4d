package adbcconn

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// zoning is a driver that runs a statement with a time with a zone among its parameters in a transaction of its own, as that for PostgreSQL
// does: it ends it where the statement has succeeded, or its result was read to its end. Of texts, those with "refused" fail, those
// with "badend" where their result ends, and "ROLLBACK" where it is told to.
type zoning struct {
	adbc.Database
	name       string
	breaks     bool // ROLLBACK fails
	open       bool // the transaction
	utc        bool // the session's time zone
	autocommit bool
	ran        []string
	bound      arrow.RecordBatch
	boundAt    int
}

func (d *zoning) Open(context.Context) (adbc.Connection, error) {
	d.autocommit = true
	return &zoningConn{driver: d}, nil
}

type zoningConn struct {
	adbc.Connection
	driver *zoning
}

func (c *zoningConn) GetInfo(context.Context, []adbc.InfoCode) (array.RecordReader, error) {
	return textReader([][2]string{{"100", c.driver.name}}), nil
}
func (c *zoningConn) NewStatement() (adbc.Statement, error) {
	return &zoningStatement{driver: c.driver}, nil
}
func (c *zoningConn) SetOption(_, value string) error {
	c.driver.autocommit = value == adbc.OptionValueEnabled
	return nil
}
func (c *zoningConn) Commit(context.Context) error   { return nil }
func (c *zoningConn) Rollback(context.Context) error { c.driver.open = false; return nil }
func (c *zoningConn) Close() error                   { return nil }

type zoningStatement struct {
	adbc.Statement
	driver *zoning
	sql    string
	zoned  bool
}

func (s *zoningStatement) SetSqlQuery(sql string) error  { s.sql = sql; return nil }
func (s *zoningStatement) Prepare(context.Context) error { return nil }
func (s *zoningStatement) Close() error                  { return nil }
func (s *zoningStatement) GetParameterSchema() (*arrow.Schema, error) {
	return nil, adbc.Error{Code: adbc.StatusNotImplemented}
}

func (s *zoningStatement) Bind(_ context.Context, params arrow.RecordBatch) error {
	s.zoned = params.Schema().Field(0).Name == "zoned"
	s.driver.bound, s.driver.boundAt = params, params.Column(0).Data().Offset()
	return nil
}

func (s *zoningStatement) begin() error {
	d := s.driver
	if s.sql != "SELECT 1" {
		d.ran = append(d.ran, s.sql)
	}
	if s.zoned && d.autocommit {
		d.open, d.utc = true, true
	}
	if strings.Contains(s.sql, "refused") {
		return adbc.Error{Code: adbc.StatusInvalidArgument, Msg: "no"}
	}
	return nil
}

func (s *zoningStatement) ExecuteUpdate(context.Context) (int64, error) {
	if err := s.begin(); err != nil {
		return 0, err
	}
	if s.sql == "ROLLBACK" && s.driver.breaks {
		return 0, adbc.Error{Code: adbc.StatusIO, Msg: "broken"}
	}
	if s.sql == "ROLLBACK" || s.zoned && s.driver.autocommit {
		s.driver.open, s.driver.utc = false, false
	}
	if s.sql == "COMMIT" {
		s.driver.open = false
	}
	return 1, nil
}

func (s *zoningStatement) ExecuteQuery(context.Context) (array.RecordReader, int64, error) {
	if err := s.begin(); err != nil {
		return nil, 0, err
	}
	return &zoningReader{RecordReader: textReader([][2]string{{"a", "b"}}), s: s}, 1, nil
}

type zoningReader struct {
	array.RecordReader
	s   *zoningStatement
	err error
}

func (r *zoningReader) Next() bool {
	if r.RecordReader.Next() {
		return true
	}
	if strings.Contains(r.s.sql, "badend") {
		r.err = adbc.Error{Code: adbc.StatusInvalidArgument, Msg: "no"}
	} else if r.s.zoned && r.s.driver.autocommit {
		r.s.driver.open, r.s.driver.utc = false, false
	}
	return false
}
func (r *zoningReader) Err() error { return r.err }

// parameter is rows of an instant, or of a clock without a zone.
func parameter(zoned bool, rows int) arrow.RecordBatch {
	field := arrow.Field{Name: "clock", Type: &arrow.TimestampType{Unit: arrow.Microsecond}}
	if zoned {
		field = arrow.Field{Name: "zoned", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}}
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{field}, nil))
	defer b.Release()
	for range rows {
		b.Field(0).(*array.TimestampBuilder).Append(1)
	}
	return b.NewRecordBatch()
}

// runZoned runs sql with a time, and reads so many batches of it; -1: as an update. A text with "several" has two rows of parameters.
func runZoned(t *testing.T, d *zoning, conn backend.Conn, sql string, zoned bool, read int, call backend.Call) error {
	d.ran = nil
	p, err := conn.Prepare(t.Context(), sql, call)
	require.NoError(t, err)
	rowsOfParams := 1
	if strings.Contains(sql, "several") {
		rowsOfParams = 2
	}
	params := parameter(zoned, rowsOfParams)
	defer params.Release()
	if read < 0 {
		_, err = p.Update(t.Context(), params, call)
	} else {
		var rows backend.Stream
		if rows, err = p.Query(t.Context(), params, call); err == nil {
			for ; read > 0 && err == nil; read-- {
				_, err = rows.Next()
			}
			rows.Close()
		}
	}
	if closed := p.Close(t.Context()); conn.Lost() == nil { // behind the release
		require.NoError(t, closed)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

// Where such a statement fails, or its result is left, that driver leaves its transaction to whoever comes next.
func TestPostgreSQLsDriverLeavesNoTransactionOfItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		sql   string
		read  int
		fails bool
		ends  []string
	}{
		"a change that is refused":          {"refused", -1, true, []string{"ROLLBACK"}},
		"a change":                          {"change", -1, false, nil},
		"a query that is refused":           {"refused", 0, true, []string{"ROLLBACK"}},
		"a result that is read":             {"query", 2, false, nil},
		"a result that is left":             {"query", 1, false, nil},
		"a result of which nothing is read": {"query", 0, false, nil},
		"a result that fails":               {"badend", 2, true, []string{"ROLLBACK"}},
		"one that fails when it is left":    {"badend", 0, false, []string{"ROLLBACK"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &zoning{name: "ADBC PostgreSQL Driver"}
			conn, err := OpenGeneric(t.Context(), d, GenericConfig{})
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close()) }()
			err = runZoned(t, d, conn, c.sql, true, c.read, backend.Call{})
			require.Equal(t, c.fails, err != nil, err)
			require.False(t, d.open, "the next caller is in the driver's transaction")
			require.False(t, d.utc, "the next caller's dates are UTC's")
			require.Equal(t, append([]string{c.sql}, c.ends...), d.ran)
			require.NoError(t, conn.Lost())

			_ = runZoned(t, d, conn, c.sql, false, c.read, backend.Call{}) // for which there is none
			require.Equal(t, []string{c.sql}, d.ran)

			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			_ = runZoned(t, d, conn, c.sql, true, c.read, backend.Call{Tx: tx}) // that is its caller's
			require.Equal(t, []string{c.sql}, d.ran)
			require.NoError(t, conn.EndTx(t.Context(), tx, false))
		})
	}
	for _, name := range []string{"ADBC DuckDB Driver", "ADBC SQLite Driver"} {
		d := &zoning{name: name}
		conn, err := OpenGeneric(t.Context(), d, GenericConfig{})
		require.NoError(t, err)
		require.Error(t, runZoned(t, d, conn, "refused", true, -1, backend.Call{}))
		require.Equal(t, []string{"refused"}, d.ran, name)
		require.NoError(t, conn.Close())
	}
}

func TestAConnectionWhoseDriverIsLeftInATransactionOfItsOwnIsLost(t *testing.T) {
	d := &zoning{name: "ADBC PostgreSQL Driver", breaks: true}
	conn, err := OpenGeneric(t.Context(), d, GenericConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	require.ErrorContains(t, runZoned(t, d, conn, "refused", true, -1, backend.Call{}), "no")
	require.ErrorContains(t, conn.Lost(), "own transaction")
}

// What is left of several rows of parameters would be executed, were the result read to its end: what was done is kept, and the time zone stays.
func TestAConnectionWhoseDriverHasLeftTheTimeZoneIsLost(t *testing.T) {
	d := &zoning{name: "ADBC PostgreSQL Driver"}
	conn, err := OpenGeneric(t.Context(), d, GenericConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	require.NoError(t, runZoned(t, d, conn, "several", true, 2, backend.Call{}))
	require.NoError(t, conn.Lost())
	require.Equal(t, []string{"several"}, d.ran)
	require.NoError(t, runZoned(t, d, conn, "several", true, 0, backend.Call{}))
	require.ErrorContains(t, conn.Lost(), "time zone")
	require.Equal(t, []string{"several", "COMMIT"}, d.ran)
}

// A COMMIT keeps it as well.
func TestAResultThatIsLeftInATransactionLeavesNoTimeZone(t *testing.T) {
	for _, c := range []struct {
		sql          string
		zoned        bool
		read         int
		commit, lost bool
	}{
		{"several", true, 0, true, true}, {"several", true, 0, false, false}, {"several", true, 2, true, false}, {"several", false, 0, true, false}, {"change", true, -1, true, false},
	} {
		d := &zoning{name: "ADBC PostgreSQL Driver"}
		conn, err := OpenGeneric(t.Context(), d, GenericConfig{})
		require.NoError(t, err)
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, runZoned(t, d, conn, c.sql, c.zoned, c.read, backend.Call{Tx: tx}))
		require.NoError(t, runZoned(t, d, conn, "change", true, -1, backend.Call{Tx: tx}), "which does not put it back")
		require.NoError(t, conn.EndTx(t.Context(), tx, c.commit), "the end itself stands")
		require.Equal(t, c.lost, conn.Lost() != nil, "%+v", c)
		require.NoError(t, conn.Close())
	}
}

func TestParametersForWhichThatDriverBeginsATransaction(t *testing.T) {
	zoned := &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	for _, kind := range []arrow.DataType{zoned, arrow.Null, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: zoned}} {
		require.True(t, mayBeZoned(kind), kind)
	}
	for _, kind := range []arrow.DataType{&arrow.TimestampType{Unit: arrow.Microsecond}, arrow.BinaryTypes.String, arrow.FixedWidthTypes.Date32} {
		require.False(t, mayBeZoned(kind), kind)
	}
}
