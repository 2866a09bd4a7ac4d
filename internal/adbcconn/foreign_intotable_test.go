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

// copying is a driver with a name that has one table, and takes what it is sent for its columns one after the other.
type copying struct {
	adbc.Database
	name    string
	columns [][2]string // their names and types
	refuses bool        // to be asked for them

	asked, options []string
	loaded         []string
}

func (d *copying) Open(context.Context) (adbc.Connection, error) { return &copyingConn{driver: d}, nil }

type copyingConn struct {
	adbc.Connection
	driver *copying
}

func (c *copyingConn) GetInfo(context.Context, []adbc.InfoCode) (array.RecordReader, error) {
	return textReader([][2]string{{"100", c.driver.name}}), nil
}
func (c *copyingConn) NewStatement() (adbc.Statement, error) {
	return &copyingStatement{driver: c.driver}, nil
}
func (c *copyingConn) Close() error { return nil }

type copyingStatement struct {
	adbc.Statement
	driver *copying
	sql    string
	rows   array.RecordReader
}

func (s *copyingStatement) SetSqlQuery(sql string) error { s.sql = sql; return nil }
func (s *copyingStatement) Close() error                 { return nil }
func (s *copyingStatement) SetOption(key, value string) error {
	s.driver.options = append(s.driver.options, key[strings.LastIndex(key, ".")+1:]+"="+value)
	return nil
}

func (s *copyingStatement) BindStream(_ context.Context, rows array.RecordReader) error {
	s.rows = rows
	return nil
}

func (s *copyingStatement) ExecuteUpdate(context.Context) (n int64, err error) {
	for s.rows.Next() {
		batch := s.rows.RecordBatch()
		for i := range int(batch.NumRows()) {
			row := ""
			for at, column := range batch.Columns() {
				row += s.driver.columns[at][0] + "=" + column.ValueStr(i) + " "
			}
			s.driver.loaded = append(s.driver.loaded, strings.TrimSpace(row))
			n++
		}
	}
	return n, s.rows.Err()
}

func (s *copyingStatement) ExecuteQuery(context.Context) (array.RecordReader, int64, error) {
	switch {
	case s.sql == "SELECT 1":
		batch := int64s(1)
		defer batch.Release()
		reader, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
		return reader, 1, err
	case strings.Contains(s.sql, "current_schema"):
		return textReader([][2]string{{"lake", "mine"}}), 1, nil
	case s.driver.refuses:
		return nil, 0, adbc.Error{Code: adbc.StatusInvalidArgument, Msg: "no such function", SqlState: [5]byte{'4', '2', '8', '8', '3'}}
	}
	s.driver.asked = append(s.driver.asked, s.sql)
	return textReader(s.driver.columns), int64(len(s.driver.columns)), nil
}

func textReader(rows [][2]string) array.RecordReader {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.BinaryTypes.String}, {Name: "b", Type: arrow.BinaryTypes.String}}, nil))
	defer b.Release()
	for _, row := range rows {
		b.Field(0).(*array.StringBuilder).Append(row[0])
		b.Field(1).(*array.StringBuilder).Append(row[1])
	}
	batch := b.NewRecordBatch()
	defer batch.Release()
	reader, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
	if err != nil {
		panic(err)
	}
	return reader
}

// rowOf is a row of these columns.
func rowOf(t *testing.T, fields ...arrow.Field) array.RecordReader {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer b.Release()
	for i := range fields {
		require.NoError(t, b.Field(i).AppendValueFromString(string(rune('1'+i))))
	}
	batch := b.NewRecordBatch()
	defer batch.Release()
	return rowsOf(t, batch)
}

func load(t *testing.T, d *copying, rows array.RecordReader, opts backend.IngestOptions) error {
	c, err := OpenGeneric(t.Context(), d, GenericConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	opts.Table = "it's"
	_, err = c.Ingest(t.Context(), rows, opts, backend.Call{})
	return err
}

// DuckDB's driver appends columns one after the other, to a table of main.
func TestRowsGoToTheColumnsOfTheirNames(t *testing.T) {
	a, b := arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int64}, arrow.Field{Name: "B", Type: arrow.BinaryTypes.String}
	table := [][2]string{{"b", ""}, {"a", ""}}
	d := &copying{name: "ADBC DuckDB Driver", columns: table}
	require.NoError(t, load(t, d, rowOf(t, a, b), backend.IngestOptions{Mode: backend.IngestAppend}))
	require.Equal(t, []string{"b=2 a=1"}, d.loaded)
	require.Subset(t, d.options, []string{"target_catalog=lake", "target_db_schema=mine"})
	require.Contains(t, d.asked[0], "'it''s' AND database_name = 'lake' AND schema_name = 'mine'")

	for name, rows := range map[string]array.RecordReader{"one less": rowOf(t, b), "another": rowOf(t, a, arrow.Field{Name: "c", Type: b.Type}), "twice": rowOf(t, a, a), "more": rowOf(t, a, b, arrow.Field{Name: "c", Type: b.Type})} {
		d := &copying{name: "ADBC DuckDB Driver", columns: table}
		err := load(t, d, rows, backend.IngestOptions{})
		require.ErrorContains(t, err, "[b a]", name)
		require.Equal(t, []any{backend.FaultUsage, true}, []any{failure(t, err).Fault, failure(t, err).Unsent}, name)
		require.Empty(t, d.loaded, name)
	}

	d = &copying{name: "ADBC DuckDB Driver", columns: table} // a table that is made has the rows' order
	require.NoError(t, load(t, d, rowOf(t, b, a), backend.IngestOptions{Mode: backend.IngestReplace, Catalog: "other", Schema: "s"}))
	require.Subset(t, d.options, []string{"target_catalog=other", "target_db_schema=s"})
	require.Empty(t, d.asked)
	d = &copying{name: "ADBC SQLite Driver", columns: table} // which names them
	require.NoError(t, load(t, d, rowOf(t, b), backend.IngestOptions{Mode: backend.IngestAppend}))
	require.Empty(t, d.asked)
}

// PostgreSQL's driver sends the bytes of a value, whatever the column's type.
func TestAValueIsStoredInPostgreSQLAsWhatItIs(t *testing.T) {
	field := func(of arrow.DataType) arrow.Field { return arrow.Field{Name: "n", Type: of} }
	pg := func(is string) *copying {
		return &copying{name: "ADBC PostgreSQL Driver", columns: [][2]string{{"n", is}}}
	}
	for is, of := range map[string][2][]arrow.DataType{ // those that are stored, and those that are not
		"int8":        {{arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Uint32}, {arrow.PrimitiveTypes.Float64, arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32}},
		"float8":      {{arrow.PrimitiveTypes.Float64}, {arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.LargeString}},
		"numeric":     {{arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int64, &arrow.Decimal128Type{Precision: 5, Scale: 1}}, {arrow.PrimitiveTypes.Float64}},
		"text":        {{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString}, {arrow.PrimitiveTypes.Int64, arrow.FixedWidthTypes.Boolean}},
		"bytea":       {{arrow.BinaryTypes.String}, {arrow.PrimitiveTypes.Int64}},
		"timestamptz": {nil, {arrow.PrimitiveTypes.Int64}},
		"date":        {nil, {arrow.PrimitiveTypes.Int32}},
		"mood":        {{arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64}, nil}, // of its own: PostgreSQL looks at the bytes
	} {
		for _, sent := range of[0] {
			d := pg(is)
			require.NoError(t, load(t, d, rowOf(t, field(sent)), backend.IngestOptions{}), "%v for %s", sent, is)
			require.Len(t, d.loaded, 1)
		}
		for _, sent := range of[1] {
			d := pg(is)
			err := load(t, d, rowOf(t, field(sent)), backend.IngestOptions{Mode: backend.IngestAppend})
			require.ErrorContains(t, err, `column "n"`, "%v for %s", sent, is)
			require.Equal(t, []any{backend.FaultUsage, true}, []any{failure(t, err).Fault, failure(t, err).Unsent})
			require.Empty(t, d.loaded)
		}
	}
	d := pg("int8")
	require.NoError(t, load(t, d, rowOf(t, arrow.Field{Name: "m", Type: arrow.PrimitiveTypes.Float64}), backend.IngestOptions{Schema: "s"}), "it is the server's to refuse")
	require.Contains(t, d.asked[0], `to_regclass('"s"."it''s"')`)
	d = pg("int8")
	d.refuses = true // as what speaks PostgreSQL's protocol may, and no transaction is failed by it
	require.NoError(t, load(t, d, rowOf(t, field(arrow.PrimitiveTypes.Float64)), backend.IngestOptions{}))
}
