package adbcconn

import (
	"context"
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// copying is a driver with a name that tells the columns of a table, and loads what it is sent.
type copying struct {
	adbc.Database
	name    string
	columns [][2]string // their names and types
	refuses bool        // to be asked for them
	loses   bool        // a row that it loads
	stops   bool        // behind the first batch
	fails   string      // a statement that begins so is refused
	unknown string      // an option that is refused

	asked, options []string
	ran            []string
	loaded         []string
	offsets        []int // of the first column of each batch
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
	if key == s.driver.unknown {
		return adbc.Error{Code: adbc.StatusNotImplemented, Msg: "unknown option"}
	}
	s.driver.options = append(s.driver.options, key[strings.LastIndex(key, ".")+1:]+"="+value)
	return nil
}

func (s *copyingStatement) BindStream(_ context.Context, rows array.RecordReader) error {
	s.rows = rows
	return nil
}

func (s *copyingStatement) ExecuteUpdate(context.Context) (n int64, err error) {
	if s.rows == nil {
		s.driver.ran = append(s.driver.ran, s.sql)
		if s.driver.fails != "" && strings.HasPrefix(s.sql, s.driver.fails) {
			return 0, adbc.Error{Code: adbc.StatusInvalidArgument, Msg: "Constraint Error"}
		}
		return -1, nil
	}
	s.driver.ran = append(s.driver.ran, "load")
	for i := 0; s.rows.Next() && (i == 0 || !s.driver.stops); i++ {
		batch := s.rows.RecordBatch()
		s.driver.offsets = append(s.driver.offsets, batch.Column(0).Data().Offset())
		for i := range int(batch.NumRows()) {
			s.driver.loaded = append(s.driver.loaded, batch.Column(0).ValueStr(i))
		}
	}
	return 0, nil // whatever the rows have failed with
}

func (s *copyingStatement) ExecuteQuery(context.Context) (array.RecordReader, int64, error) {
	switch {
	case s.sql == "SELECT 1":
		batch := int64s(1)
		defer batch.Release()
		reader, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
		return reader, 1, err
	case strings.Contains(s.sql, "count(*)"):
		n := len(s.driver.loaded)
		if s.driver.loses {
			n--
		}
		return textReader([][2]string{{strconv.Itoa(n), ""}}), 1, nil
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

// rowsOfJSON are rows of a column.
func rowsOfJSON(t *testing.T, field arrow.Field, values string) array.RecordReader {
	column, _, err := array.FromJSON(memory.DefaultAllocator, field.Type, strings.NewReader(values))
	require.NoError(t, err)
	defer column.Release()
	batch := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{field}, nil), []arrow.Array{column}, int64(column.Len()))
	defer batch.Release()
	return rowsOf(t, batch)
}

// stamps is a row of an instant.
func stamps(t *testing.T, field arrow.Field) array.RecordReader {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{field}, nil))
	defer b.Release()
	b.Field(0).(*array.TimestampBuilder).Append(1)
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
	for i, sql := range d.ran {
		d.ran[i] = regexp.MustCompile("flightpool_[A-Z0-9]+").ReplaceAllString(sql, "T")
	}
	return err
}

// DuckDB's driver appends columns one after the other, whatever their names, to a table of main; tells rows as stored that DuckDB
// refuses, and stores those before which the reader has failed.
func TestDuckDBHasAllRowsInTheColumnsOfTheirNamesOrNone(t *testing.T) {
	a := arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int64}
	there := [][2]string{{"it's", ""}}
	for name, c := range map[string]struct {
		opts  backend.IngestOptions
		there [][2]string
		want  string
	}{
		"append":            {backend.IngestOptions{Mode: backend.IngestAppend}, nil, `INSERT INTO "it's" BY NAME SELECT * FROM temp."T"`},
		"there":             {backend.IngestOptions{}, there, `INSERT INTO "it's" BY NAME SELECT * FROM temp."T"`},
		"not there":         {backend.IngestOptions{}, nil, `CREATE TABLE "it's" AS FROM temp."T"`},
		"create":            {backend.IngestOptions{Mode: backend.IngestCreate, Catalog: "c", Schema: "s"}, nil, `CREATE TABLE "c"."s"."it's" AS FROM temp."T"`},
		"replace":           {backend.IngestOptions{Mode: backend.IngestReplace, Schema: "s"}, nil, `CREATE OR REPLACE TABLE "s"."it's" AS FROM temp."T"`},
		"temporary":         {backend.IngestOptions{Temporary: true}, nil, `CREATE TEMP TABLE temp."it's" AS FROM temp."T"`},
		"another temporary": {backend.IngestOptions{Temporary: true, Mode: backend.IngestReplace}, nil, `CREATE OR REPLACE TEMP TABLE temp."it's" AS FROM temp."T"`},
		"temporary, there":  {backend.IngestOptions{Temporary: true}, there, `INSERT INTO temp."it's" BY NAME SELECT * FROM temp."T"`},
	} {
		d := &copying{name: "ADBC DuckDB Driver", columns: c.there}
		require.NoError(t, load(t, d, rowOf(t, a), c.opts), name)
		require.Equal(t, []string{"load", c.want, `DROP TABLE IF EXISTS temp."T"`}, d.ran, name)
		require.Equal(t, []string{"temporary=true", "mode=adbc.ingest.mode.create"}, []string{d.options[2], d.options[1]}, name)
	}
	at := arrow.Field{Name: "At", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}}
	for kind, want := range map[string]string{
		"TIMESTAMP": ` REPLACE (make_timestamp(epoch_us("At")) AS "At")`, "DATE": ` REPLACE (make_timestamp(epoch_us("At")) AS "At")`, "TIMESTAMP WITH TIME ZONE": "",
	} {
		d := &copying{name: "ADBC DuckDB Driver", columns: [][2]string{{"at", kind}, {"a", "BIGINT"}}}
		require.NoError(t, load(t, d, stamps(t, at), backend.IngestOptions{Mode: backend.IngestAppend}), kind)
		require.Equal(t, `INSERT INTO "it's" BY NAME SELECT *`+want+` FROM temp."T"`, d.ran[1], kind)
	}
	instants, clock := arrow.ListOf(at.Type), `make_timestamp(epoch_us("At"))`
	for _, c := range []struct {
		of         arrow.DataType
		kind, want string
	}{
		{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: at.Type}, "TIMESTAMP", clock},
		{arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, at.Type), "TIMESTAMP", clock},
		{instants, "TIMESTAMP[]", `[make_timestamp(epoch_us(each0)) FOR each0 IN "At"]`},
		{arrow.FixedSizeListOf(2, instants), "TIMESTAMP[][2]", `[[make_timestamp(epoch_us(each1)) FOR each1 IN each0] FOR each0 IN "At"]`},
		{instants, "TIMESTAMP WITH TIME ZONE[]", ""},
		{arrow.MapOf(arrow.BinaryTypes.String, at.Type), "MAP(VARCHAR, TIMESTAMP)", ""},
		{arrow.ListOf(arrow.PrimitiveTypes.Int64), "TIMESTAMP[]", ""},
	} {
		if c.want != "" {
			c.want = " REPLACE (" + c.want + ` AS "At")`
		}
		require.Equal(t, c.want, clocksOf(arrow.NewSchema([]arrow.Field{{Name: "At", Type: c.of}}, nil), [][2]string{{"at", c.kind}}), "%v", c.of)
	}
	place := func(opts backend.IngestOptions) string {
		d := &copying{name: "ADBC DuckDB Driver"}
		require.NoError(t, load(t, d, rowOf(t, a), opts))
		_, condition, _ := strings.Cut(d.asked[0], "lower('it''s') AND ")
		return condition
	}
	require.Equal(t, "temporary", place(backend.IngestOptions{Temporary: true}))
	require.Equal(t, "lower(database_name) = lower(current_database()) AND lower(schema_name) = lower(current_schema())", place(backend.IngestOptions{}))
	require.Equal(t, "lower(database_name) = lower('c') AND lower(schema_name) = lower('main')", place(backend.IngestOptions{Catalog: "c"}))
	require.Equal(t, "lower(database_name) = lower(current_database()) AND lower(schema_name) = lower('s')", place(backend.IngestOptions{Schema: "s"}))

	for name, c := range map[string]struct {
		driver copying
		rows   array.RecordReader
		want   []string
	}{
		"the table refuses them": {copying{fails: "INSERT"}, rowOf(t, a), []string{"load", `INSERT INTO "it's" BY NAME SELECT * FROM temp."T"`, `DROP TABLE IF EXISTS temp."T"`}},
		"the driver loses one":   {copying{loses: true}, rowOf(t, a), []string{"load", `DROP TABLE IF EXISTS temp."T"`}},
		"their reader fails":     {copying{}, failing{rowOf(t, a), errors.New("the reader's")}, []string{"load", `DROP TABLE IF EXISTS temp."T"`}},
		"temp stays":             {copying{fails: "DROP"}, rowOf(t, a), []string{"load", `INSERT INTO "it's" BY NAME SELECT * FROM temp."T"`, `DROP TABLE IF EXISTS temp."T"`}},
	} {
		c.driver.name = "ADBC DuckDB Driver"
		require.Error(t, load(t, &c.driver, c.rows, backend.IngestOptions{Mode: backend.IngestAppend}), name)
		require.Equal(t, c.want, c.driver.ran, name)
	}
}

func TestOptionsOfAnIngestionAreTheDrivers(t *testing.T) {
	for _, name := range []string{"ADBC DuckDB Driver", "ADBC PostgreSQL Driver", "another"} {
		a := arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int64}
		d := &copying{name: name}
		require.NoError(t, load(t, d, rowOf(t, a), backend.IngestOptions{Options: map[string]string{"of.b": "2", "of.a": "1"}}))
		require.Equal(t, []string{"a=1", "b=2"}, d.options[len(d.options)-2:], name)
		d = &copying{name: name, unknown: "of.b"}
		err := load(t, d, rowOf(t, a), backend.IngestOptions{Options: map[string]string{"of.b": "2"}})
		require.Equal(t, backend.FaultUnsupported, failure(t, err).Fault, name)
		require.Empty(t, d.loaded)
	}
}

// DuckDB's driver calls one of two columns of a name by another, and takes days and milliseconds for one number.
func TestWhatDuckDBWouldMistakeIsNotLoaded(t *testing.T) {
	field := func(name string, of arrow.DataType) arrow.Field { return arrow.Field{Name: name, Type: of} }
	days := arrow.FixedWidthTypes.DayTimeInterval
	interval := rowsOfJSON(t, field("n", days), `[{"days":1,"milliseconds":0}]`)
	for name, rows := range map[string]array.RecordReader{
		`two columns "A"`:   rowOf(t, field("a", arrow.PrimitiveTypes.Int64), field("A", arrow.PrimitiveTypes.Int64)),
		"another length":    interval,
		"rows: day_time_in": rowsOfJSON(t, field("n", arrow.ListOf(arrow.StructOf(field("x", days)))), `[[{"x":{"days":1,"milliseconds":0}}]]`),
	} {
		d := &copying{name: "ADBC DuckDB Driver"}
		err := load(t, d, rows, backend.IngestOptions{Mode: backend.IngestAppend})
		require.ErrorContains(t, err, name)
		require.Equal(t, []any{backend.FaultUsage, true}, []any{failure(t, err).Fault, failure(t, err).Unsent})
		require.Empty(t, d.ran)
	}
	batch := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{field("clock", days)}, nil), []arrow.Array{array.MakeArrayOfNull(memory.DefaultAllocator, days, 1)}, 1)
	defer batch.Release()
	for name, refused := range map[string]bool{"ADBC DuckDB Driver": true, "ADBC SQLite Driver": false} {
		conn, err := OpenGeneric(t.Context(), &zoning{name: name}, GenericConfig{})
		require.NoError(t, err)
		p, err := conn.Prepare(t.Context(), "change", backend.Call{})
		require.NoError(t, err)
		_, err = p.Update(t.Context(), batch, backend.Call{})
		require.Equal(t, refused, err != nil, "%s: %v", name, err)
		require.NoError(t, conn.Close())
	}
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
	require.ErrorContains(t, load(t, pg("macaddr8"), rowOf(t, field(arrow.PrimitiveTypes.Float64)), backend.IngestOptions{}), `column "n"`)
	require.NoError(t, load(t, pg("macaddr8"), rowsOfJSON(t, field(&arrow.FixedSizeBinaryType{ByteWidth: 3}), `["YWJj"]`), backend.IngestOptions{}), "in that type's own form")

	for is, of := range map[string][2]arrow.DataType{
		"int8[]":    {arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Float64},
		"float8[]":  {arrow.PrimitiveTypes.Float64, arrow.PrimitiveTypes.Uint64},
		"numeric[]": {arrow.PrimitiveTypes.Uint64, arrow.PrimitiveTypes.Float64},
		"bytea":     {nil, arrow.PrimitiveTypes.Int32}, "int8": {nil, arrow.PrimitiveTypes.Int64},
	} {
		for i, element := range of {
			if element == nil {
				continue
			}
			for _, list := range []arrow.DataType{arrow.ListOf(element), arrow.LargeListOf(element), arrow.FixedSizeListOf(1, element)} {
				err := load(t, pg(is), rowsOfJSON(t, field(list), `[null, [1]]`), backend.IngestOptions{})
				require.Equal(t, i == 1, err != nil, "%v for %s: %v", list, is, err)
			}
		}
	}
	require.NoError(t, load(t, pg("numeric[]"), rowsOfJSON(t, field(arrow.ListOf(arrow.PrimitiveTypes.Uint64)), "[[18446744073709551615]]"), backend.IngestOptions{}))
	unsigned := func(n string) array.RecordReader {
		return rowsOfJSON(t, field(arrow.ListOf(arrow.ListOf(arrow.PrimitiveTypes.Uint64))), "[null, [null, [1, "+n+"]]]")
	}
	require.ErrorContains(t, load(t, pg("int8"), unsigned("9223372036854775808"), backend.IngestOptions{Mode: backend.IngestCreate}), "9223372036854775808")
	require.NoError(t, load(t, pg("int8"), unsigned("9223372036854775807"), backend.IngestOptions{Mode: backend.IngestCreate}))
	large := func() array.RecordReader {
		b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{field(arrow.PrimitiveTypes.Uint64)}, nil))
		defer b.Release()
		b.Field(0).(*array.Uint64Builder).Append(math.MaxUint64)
		batch := b.NewRecordBatch()
		defer batch.Release()
		return rowsOf(t, batch)
	}
	require.ErrorContains(t, load(t, pg("int8"), large(), backend.IngestOptions{}), "18446744073709551615")
	require.ErrorContains(t, load(t, pg("int8"), large(), backend.IngestOptions{Mode: backend.IngestCreate}), "18446744073709551615")
	require.NoError(t, load(t, pg("numeric"), large(), backend.IngestOptions{}))
	d := pg("int8")
	require.NoError(t, load(t, d, rowOf(t, arrow.Field{Name: "m", Type: arrow.PrimitiveTypes.Float64}), backend.IngestOptions{Schema: "s"}), "it is the server's to refuse")
	require.Contains(t, d.asked[0], `to_regclass('"s"."it''s"')`)
	for want, opts := range map[string]backend.IngestOptions{
		`to_regclass(quote_ident(current_schema()) || '.' || '"it''s"')`: {},
		`to_regclass('"pg_temp"."it''s"')`:                               {Temporary: true},
	} {
		d := pg("int8")
		require.NoError(t, load(t, d, rowOf(t, field(arrow.PrimitiveTypes.Int64)), opts))
		require.Contains(t, d.asked[0], want)
	}
	d = pg("int8")
	d.refuses = true // as what speaks PostgreSQL's protocol may, and no transaction is failed by it
	require.NoError(t, load(t, d, rowOf(t, field(arrow.PrimitiveTypes.Float64)), backend.IngestOptions{}))
}
