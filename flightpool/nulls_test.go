package flightpool

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

// unionOf is a batch with the column of another in a dense union.
func unionOf(b arrow.RecordBatch) (*arrow.Schema, []arrow.RecordBatch) {
	types, offsets := array.NewInt8Builder(memory.DefaultAllocator), array.NewInt32Builder(memory.DefaultAllocator)
	for i := range b.NumRows() {
		types.Append(0)
		offsets.Append(int32(i))
	}
	union, err := array.NewDenseUnionFromArrays(types.NewArray(), offsets.NewArray(), []arrow.Array{b.Column(0)})
	if err != nil {
		panic(err)
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "x", Type: union.DataType()}}, nil)
	return schema, []arrow.RecordBatch{array.NewRecordBatch(schema, []arrow.Array{union}, b.NumRows())}
}

// codedRow is a number, and a text in a dictionary.
func codedRow() arrow.RecordBatch {
	coded := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "1", Type: arrow.PrimitiveTypes.Int64}, {Name: "2", Type: coded}}, nil))
	b.Field(0).(*array.Int64Builder).Append(4)
	if err := b.Field(1).(*array.BinaryDictionaryBuilder).AppendString("x"); err != nil {
		panic(err)
	}
	return b.NewRecordBatch()
}

// GizmoSQL takes a NULL among the parameters for the text null, which a column of texts stores.
func TestANullIsNotStoredAsAText(t *testing.T) {
	for name, c := range map[string]struct {
		server   string
		loses    bool
		union    bool // rows come in one
		refused  bool
		question int // how often the server is asked
	}{
		"GizmoSQL":                  {"gizmosql", true, false, true, 1},
		"a GizmoSQL that keeps it":  {"gizmosql", false, false, false, 1},
		"GizmoSQL on SQLite":        {"gizmosql", false, true, false, 1},
		"another server":            {"another", false, false, false, 0},
		"one that does not tell it": {"", false, false, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			profile := testserver.GizmoSQL()
			profile.NullsAsText = c.loses
			profile.SQLInfo = map[flightsql.SqlInfo]any{flightsql.SqlInfoFlightSqlServerName: c.server}
			engine, asked := script.New(), 0
			engine.On("SELECT CAST(? AS VARCHAR)", func(ctx context.Context, _ string, params arrow.RecordBatch) (array.RecordReader, error) {
				if params == nil { // it is prepared
					return array.NewRecordReader(arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.BinaryTypes.String, Nullable: true}}, nil), nil)
				}
				asked++
				if c.union {
					return array.NewRecordReader(unionOf(params))
				}
				return array.NewRecordReader(params.Schema(), []arrow.RecordBatch{params})
			})
			inBubbleOn(t, testserver.Options{Profile: profile, Engine: engine}, Config{MaxSize: 1, Auth: BasicAuth("me", "x")}, func(r *rig) {
				r.exec("CREATE TABLE t (k BIGINT, s VARCHAR)")
				change := func(args ...any) error {
					_, err := r.pool.Update(r.Context(), "INSERT INTO t VALUES (?, ?)", args...)
					return err
				}
				require.NoError(r, change(1, "x"))
				require.Zero(r, asked, "before the first NULL")
				for range 2 {
					err := change(2, nil)
					if c.refused {
						require.Equal(r, backend.FaultUsage, backend.FaultIn(err), "%v", err)
						require.ErrorContains(r, err, "write NULL into the statement")
						err = readAll(r.pool.Query(r.Context(), "SELECT * FROM t WHERE s = ?", nil))
						require.Equal(r, backend.FaultUsage, backend.FaultIn(err), "%v", err)
						_, err = r.pool.UpdateWithRecordBatch(r.Context(), "INSERT INTO t VALUES (?, ?)", codedRow())
						require.Equal(r, backend.FaultUsage, backend.FaultIn(err), "%v", err)
						require.ErrorContains(r, err, "dictionary")
						err = change(2, 1500*time.Millisecond)
						require.Equal(r, backend.FaultUsage, backend.FaultIn(err), "%v", err)
						require.ErrorContains(r, err, "a duration")
						_, err = r.pool.UpdateWithRecordBatch(r.Context(), "INSERT INTO t VALUES (4, ?)", monthsRow())
						require.Equal(r, backend.FaultUsage, backend.FaultIn(err), "%v", err)
						_, err = r.pool.UpdateWithRecordBatch(r.Context(), "INSERT INTO t VALUES (4, ?)", namedRow("arrow.json"))
						require.Equal(r, backend.FaultUsage, backend.FaultIn(err), "%v", err)
						require.ErrorContains(r, err, "extension type")
						err = change(2, []string{"a", "b"})
						require.Equal(r, backend.FaultUsage, backend.FaultIn(err), "%v", err)
						require.ErrorContains(r, err, "a list")
						_, err = r.pool.UpdateWithRecordBatch(r.Context(), "INSERT INTO t VALUES (4, ?)", structOf(durationRow(arrow.Second)))
						require.Equal(r, backend.FaultUsage, backend.FaultIn(err), "%v", err)
						_, err = r.pool.UpdateWithRecordBatch(r.Context(), "INSERT INTO t VALUES (4, ?)", namedRow("geoarrow.wkt"))
						require.NoError(r, err)
						err = readAll(r.pool.Query(r.Context(), "SELECT * FROM t WHERE s = ?", time.Second))
						require.Equal(r, backend.FaultUsage, backend.FaultIn(err), "%v", err)
						err = change(time.Nanosecond, "a number is the one of nanoseconds")
						require.NotEqual(r, backend.FaultUsage, backend.FaultIn(err), "%v", err)
						_, err = r.pool.UpdateWithRecordBatch(r.Context(), "INSERT INTO t VALUES (4, ?)", durationRow(arrow.Second))
						require.NotEqual(r, backend.FaultUsage, backend.FaultIn(err), "%v", err)
					} else {
						require.NoError(r, err)
					}
				}
				require.NoError(r, change(3, "y"))
				require.Equal(r, c.question, asked)
				require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM t WHERE s = 'null'"))
				require.Equal(r, uint64(1), r.pool.Stats().Opens)
			})
		})
	}
}

// A server without SqlInfo is no GizmoSQL, and is asked for that once.
func TestAServerThatLacksSQLInfoIsAskedForItsNameOnce(t *testing.T) {
	profile := testserver.Strict()
	profile.SQLInfo = map[flightsql.SqlInfo]any{}
	inBubble(t, profile, Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (s VARCHAR)")
		asked := r.srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, Do: testserver.Delay(1)})
		before := 0
		for i := range 6 {
			if i == 3 { // what else is learned of INSERTs is
				before = asked.Fired()
			}
			_, err := r.pool.Update(r.Context(), "INSERT INTO t VALUES (?)", nil)
			require.NoError(r, err)
		}
		require.Equal(r, before, asked.Fired())
	})
}

// What a session answers that has ended, or by a token that has, in the status of a wrong statement, says nothing of what a server takes
// a NULL for.
func TestTheEndOfASessionDoesNotTellWhatANullIs(t *testing.T) {
	profile := testserver.GizmoSQL()
	profile.NullsAsText = true
	profile.SQLInfo = map[flightsql.SqlInfo]any{flightsql.SqlInfoFlightSqlServerName: "gizmosql"}
	for _, words := range []string{"Token verification failed with error: token expired", "Your session has been killed. Please re-connect."} {
		for before := range 4 { // of them is the question for the name
			engine := script.New()
			engine.On("SELECT CAST(? AS VARCHAR)", func(_ context.Context, _ string, params arrow.RecordBatch) (array.RecordReader, error) {
				if params == nil { // it is prepared
					return array.NewRecordReader(arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.BinaryTypes.String, Nullable: true}}, nil), nil)
				}
				return array.NewRecordReader(params.Schema(), []arrow.RecordBatch{params})
			})
			inBubbleOn(t, testserver.Options{Profile: profile, Engine: engine}, Config{MaxSize: 1, Auth: BasicAuth("me", "x")}, func(r *rig) {
				r.exec("CREATE TABLE t (s VARCHAR)")
				r.srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, Skip: before, Times: 1, Do: testserver.Fail(codes.InvalidArgument, words)})
				_, err := r.pool.Update(r.Context(), "INSERT INTO t VALUES (?)", nil)
				require.Error(r, err)
				_, err = r.pool.Update(r.Context(), "INSERT INTO t VALUES (?)", nil)
				require.Equal(r, backend.FaultUsage, backend.FaultIn(err), "%v", err)
			})
		}
	}
}

// Nor is one whose SqlInfo cannot be read.
func TestAServerWhoseSQLInfoIsMalformedTakesNulls(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (s VARCHAR)")
		change := func(arg any) {
			_, err := r.pool.Update(r.Context(), "INSERT INTO t VALUES (?)", arg)
			require.NoError(r, err)
		}
		for range 3 { // what else is learned of INSERTs is, with these
			change("x")
		}
		spoilt := r.srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, After: true, Do: testserver.Rewrite(func(info *flight.FlightInfo) {
			for _, e := range info.GetEndpoint() {
				e.Ticket = nil
			}
		})})
		change(nil)
		change(nil)
		require.Equal(r, 1, spoilt.Fired())
		spoilt.Clear()
		require.Equal(r, uint64(1), r.pool.Stats().Opens)
	})
}

// Nor does it store the values of a dictionary that rows of an ingestion have, but a text of all of them for each.
func TestNoValueIsIngestedAsAText(t *testing.T) {
	for name, want := range map[string]Fault{"gizmosql": FaultUsage, "another": FaultStatement} { // our script has no dictionaries
		t.Run(name, func(t *testing.T) {
			profile := testserver.GizmoSQL()
			profile.NullsAsText = true
			profile.SQLInfo = map[flightsql.SqlInfo]any{flightsql.SqlInfoFlightSqlServerName: name}
			engine := script.New()
			engine.On("SELECT CAST(? AS VARCHAR)", func(_ context.Context, _ string, params arrow.RecordBatch) (array.RecordReader, error) {
				if params == nil { // it is prepared
					return array.NewRecordReader(arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.BinaryTypes.String, Nullable: true}}, nil), nil)
				}
				return array.NewRecordReader(params.Schema(), []arrow.RecordBatch{params})
			})
			inBubbleOn(t, testserver.Options{Profile: profile, Engine: engine}, Config{MaxSize: 1, Auth: BasicAuth("me", "x")}, func(r *rig) {
				for _, batch := range []arrow.RecordBatch{codedRow(), listed(codedRow()), fixedRow(), durationRow(arrow.Nanosecond), listed(durationRow(arrow.Millisecond))} {
					rows, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
					require.NoError(r, err)
					_, err = r.pool.Ingest(r.Context(), "t", rows, IngestOptions{})
					require.Equal(r, want, backend.FaultIn(err), "%v", err)
					var e *Error
					require.ErrorAs(r, err, &e)
					require.Equal(r, want == FaultUsage, e.Unsent)
				}
				for _, batch := range []arrow.RecordBatch{namedRow("arrow.opaque"), structOf(namedRow("arrow.json")), bool8Row()} { // which our script takes for what they are stored as, but for the latter two
					rows, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
					require.NoError(r, err)
					_, err = r.pool.Ingest(r.Context(), "opaque", rows, IngestOptions{})
					require.Equal(r, want == FaultUsage, backend.FaultIn(err) == FaultUsage, "%v", err)
				}
				named, err := array.NewRecordReader(namedRow("geoarrow.wkt").Schema(), []arrow.RecordBatch{namedRow("geoarrow.wkt")})
				require.NoError(r, err)
				_, err = r.pool.Ingest(r.Context(), "named", named, IngestOptions{})
				require.NoError(r, err)
				_, err = IngestRows(r.Context(), r.pool, "t", slices.Values([]struct{ D time.Duration }{{time.Second}}), IngestOptions{})
				require.Equal(r, want, backend.FaultIn(err), "%v", err)
				seconds, err := array.NewRecordReader(durationRow(arrow.Second).Schema(), []arrow.RecordBatch{durationRow(arrow.Second)})
				require.NoError(r, err)
				_, err = r.pool.Ingest(r.Context(), "t", seconds, IngestOptions{})
				require.Equal(r, FaultStatement, backend.FaultIn(err), "it takes these for what they are: %v", err)
				rows := r.rows(1)
				_, err = r.pool.Ingest(r.Context(), "u", rows, IngestOptions{})
				require.NoError(r, err, "without a dictionary")
				require.Equal(r, uint64(1), r.pool.Stats().Opens)
			})
		})
	}
}

// durationRow is one of that unit.
func durationRow(unit arrow.TimeUnit) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "1", Type: &arrow.DurationType{Unit: unit}}}, nil))
	b.Field(0).(*array.DurationBuilder).Append(5)
	return b.NewRecordBatch()
}

// monthsRow is an interval of five months.
func monthsRow() arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "1", Type: arrow.FixedWidthTypes.MonthInterval}}, nil))
	b.Field(0).(*array.MonthIntervalBuilder).Append(5)
	return b.NewRecordBatch()
}

// namedRow is a text of an extension type that is not known here.
func namedRow(extension string) arrow.RecordBatch {
	name := arrow.NewMetadata([]string{"ARROW:extension:name", "ARROW:extension:metadata"}, []string{extension, ""})
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "1", Type: arrow.BinaryTypes.String, Metadata: name}}, nil))
	b.Field(0).(*array.StringBuilder).Append("x")
	return b.NewRecordBatch()
}

// bool8 is an extension type that is known here.
type bool8 struct{ arrow.ExtensionBase }

func (*bool8) ArrayType() reflect.Type                                           { return reflect.TypeFor[bool8Array]() }
func (*bool8) ExtensionName() string                                             { return "arrow.bool8" }
func (*bool8) Serialize() string                                                 { return "" }
func (b *bool8) Deserialize(arrow.DataType, string) (arrow.ExtensionType, error) { return b, nil }
func (*bool8) ExtensionEquals(arrow.ExtensionType) bool                          { return true }

type bool8Array struct{ array.ExtensionArrayBase }

func bool8Row() arrow.RecordBatch {
	t := &bool8{arrow.ExtensionBase{Storage: arrow.PrimitiveTypes.Int8}}
	b := array.NewInt8Builder(memory.DefaultAllocator)
	b.Append(1)
	return array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "1", Type: t}}, nil), []arrow.Array{array.NewExtensionArrayWithStorage(t, b.NewArray())}, 1)
}

// structOf is a batch of one column of structs, which have the columns of another.
func structOf(b arrow.RecordBatch) arrow.RecordBatch {
	rows := array.RecordToStructArray(b)
	return array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "1", Type: rows.DataType()}}, nil), []arrow.Array{rows}, b.NumRows())
}

// fixedRow is a value of four bytes.
func fixedRow() arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "1", Type: &arrow.FixedSizeBinaryType{ByteWidth: 4}}}, nil))
	b.Field(0).(*array.FixedSizeBinaryBuilder).Append([]byte("abcd"))
	return b.NewRecordBatch()
}

// listed is a batch with a list of one value in the place of each.
func listed(b arrow.RecordBatch) arrow.RecordBatch {
	fields, columns := make([]arrow.Field, b.NumCols()), make([]arrow.Array, b.NumCols())
	offsets := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes([]int32{0, 1}))
	for i, column := range b.Columns() {
		t := arrow.ListOf(column.DataType())
		fields[i] = arrow.Field{Name: b.ColumnName(i), Type: t, Nullable: true}
		columns[i] = array.MakeFromData(array.NewData(t, 1, []*memory.Buffer{nil, offsets}, []arrow.ArrayData{column.Data()}, 0, 0))
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 1)
}
