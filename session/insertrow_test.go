package session

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// unlikeWorld is a bindingWorld that does otherwise with what it prepares.
type unlikeWorld struct {
	bindingWorld
	fail error // of the question
}

func (w unlikeWorld) Prepare(ctx context.Context, sql string, call backend.Call) (backend.Prepared, error) {
	if strings.Contains(sql, preparingWords) {
		if w.fail != nil {
			return nil, w.fail
		}
		return w.world.Prepare(ctx, sql, call)
	}
	return w.bindingWorld.Prepare(ctx, sql, call)
}

// Another server may run a query twice, an INSERT that is sent as one too.
func TestOnlyAServerThatRunsWhatItPreparesIsSentAnInsertAsAQuery(t *testing.T) {
	const insert = "INSERT INTO t SELECT ?"
	for name, tc := range map[string]struct {
		conn    func(w bindingWorld) backend.Conn
		sql     string
		values  []int64
		asQuery bool
	}{
		"runs":              {func(w bindingWorld) backend.Conn { return w }, insert, []int64{1}, true},
		"runs, several":     {func(w bindingWorld) backend.Conn { return w }, insert, []int64{1, 2}, false},
		"runs, no INSERT":   {func(w bindingWorld) backend.Conn { return w }, "UPDATE t SET a = ?", []int64{1}, false},
		"runs, with rows":   {func(w bindingWorld) backend.Conn { return w }, insert + " RETURNING 1", []int64{1}, false},
		"runs, other names": {func(w bindingWorld) backend.Conn { return w.world }, insert, []int64{1}, false},
		"prepares":          {func(w bindingWorld) backend.Conn { return unlikeWorld{w, nil} }, insert, []int64{1}, false},
		"tells nothing": {func(w bindingWorld) backend.Conn {
			return unlikeWorld{w, worldError(backend.FaultStatement, 0, "too busy")}
		}, insert, []int64{1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := bindingWorld{newWorld()}
			returned := make(chan struct{})
			s := New(tc.conn(w), &Policy{OwnerContext: t.Context()}, func(error) { close(returned) })
			batch := int64Batch(tc.values...)
			defer batch.Release()
			done, err := s.UpdateWithOptions(t.Context(), tc.sql, QueryOptions{Params: batch, Route: RouteUpdate})
			require.NoError(t, err)
			affected := len(tc.values)
			if tc.asQuery {
				affected = -1 // which the world does not tell of a query
			}
			require.EqualValues(t, affected, done.RowsAffected)
			require.NoError(t, s.Close())
			<-returned // what goes on behind the call has ended
			require.Len(t, w.stored, len(tc.values))
			asQuery := strings.Contains(strings.Join(w.log, "\n"), "\nbind INSERT")
			require.Equal(t, tc.asQuery, asQuery, w.log)
		})
	}
}

func TestWhatIsLostAsItIsBoundIsNotSentAsAQuery(t *testing.T) {
	f, b := arrow.FixedWidthTypes, arrow.BinaryTypes
	naive := &arrow.TimestampType{Unit: arrow.Microsecond}
	for _, c := range []struct {
		t, told  arrow.DataType
		bindable bool
	}{
		{arrow.Null, nil, true}, {f.Boolean, nil, true}, {arrow.PrimitiveTypes.Uint64, nil, true}, {arrow.PrimitiveTypes.Float32, nil, true}, {b.LargeString, nil, true}, {b.Binary, nil, true},
		{b.StringView, nil, false}, {arrow.ListOf(b.String), nil, false}, {&arrow.Decimal128Type{Precision: 6}, nil, false}, {&arrow.FixedSizeBinaryType{ByteWidth: 16}, nil, false}, {f.MonthDayNanoInterval, nil, false}, {f.Float16, nil, false},
		{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: b.String}, nil, false}, {f.Duration_us, nil, false},
		{f.Timestamp_us, f.Timestamp_us, false}, {f.Timestamp_us, naive, false}, {naive, naive, true}, {naive, nil, false}, {naive, f.Timestamp_us, false}, {naive, f.Date32, false}, {&arrow.TimestampType{Unit: arrow.Second}, naive, true}, {&arrow.TimestampType{Unit: arrow.Nanosecond}, naive, false},
		{f.Date32, f.Date32, true}, {f.Date32, b.String, false}, {f.Date32, nil, false}, {f.Time64us, f.Time64us, true}, {f.Time64us, f.Time64ns, false}, {f.Time32s, f.Time32s, false},
	} {
		require.Equal(t, c.bindable, isBindable(c.t, c.told), "%s for %s", c.t, c.told)
	}
}

func TestAFailureOfAChangeThatWasSentAsAQueryIsOneOfItsExecution(t *testing.T) {
	why := errors.New("no")
	of := func(stage backend.Stage) error {
		return &backend.Error{Stage: stage, Fault: backend.FaultStatement, Err: why}
	}
	require.Equal(t, of(backend.StageExecute), ofExecution(of(backend.StageFetch)))
	require.Equal(t, of(backend.StagePrepare), ofExecution(of(backend.StagePrepare)))
	require.Equal(t, why, ofExecution(why))
}

// What a server that stores parameters as they are would store otherwise, or elsewhere, is refused before it is executed, and leaves the
// session where it is. Where the server's word on itself, or on the place of the session, is none, nothing is executed either.
func TestAnInsertThatWouldBeStoredOtherwiseIsNotExecuted(t *testing.T) {
	const insert, computing = "INSERT INTO t VALUES (?)", "INSERT INTO t VALUES (? + 1)"
	binds := func(w bindingWorld) backend.Conn { return w }
	prepares := func(w bindingWorld) backend.Conn { return unlikeWorld{w, nil} }
	unreadable := func(w bindingWorld) backend.Conn { return unlikeWorld{w, errors.New("unreadable")} }
	for name, tc := range map[string]struct {
		conn     func(w bindingWorld) backend.Conn
		world    func(w *world) // how it is
		discards bool           // the connection is closed behind the one call of its handle
		sql      string
		rows     []int64
		want     string // the refusal
		fault    backend.Fault
	}{
		"rows that are computed":                 {conn: binds, sql: computing, rows: []int64{1, 2}, want: errComputedRows.Error(), fault: backend.FaultUsage},
		"a row that is computed":                 {conn: binds, sql: computing, rows: []int64{1}},
		"rows that are computed, by another":     {conn: prepares, sql: computing, rows: []int64{1, 2}},
		"in another schema":                      {conn: binds, sql: insert, rows: []int64{1, 2}, want: "in the schema main", fault: backend.FaultUsage},
		"in another schema, of another":          {conn: prepares, sql: insert, rows: []int64{1, 2}},
		"in another schema, without a word":      {conn: unreadable, sql: insert, rows: []int64{1, 2}, want: "unreadable"},
		"a row, without a word":                  {conn: unreadable, sql: insert, rows: []int64{1}, want: "unreadable"},
		"a row for main, without a word":         {conn: unreadable, sql: "INSERT INTO lake2.t VALUES (?)", rows: []int64{1}, want: "unreadable"},
		"at the end":                             {conn: binds, discards: true, sql: insert, rows: []int64{1, 2}, want: "in the schema main", fault: backend.FaultUsage},
		"at the end, by another name":            {conn: binds, discards: true, sql: "INSERT INTO lake2.t VALUES (?)", rows: []int64{1, 2}},
		"at the end, without a path":             {conn: binds, world: func(w *world) { w.pathless = true }, discards: true, sql: insert, rows: []int64{1, 2}, want: "in the schema main", fault: backend.FaultUsage},
		"at the end, where no place is told":     {conn: binds, world: func(w *world) { w.blind = true }, discards: true, sql: insert, rows: []int64{1, 2}},
		"at the end, a place without a word":     {conn: binds, world: func(w *world) { w.faults = map[int]worldFault{2: {"unreadable", false}} }, discards: true, sql: insert, rows: []int64{1, 2}, want: "unreadable"},
		"at the end, a change that is no INSERT": {conn: binds, discards: true, sql: "UPDATE t SET a = ?", rows: []int64{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				if tc.world != nil {
					tc.world(w)
				}
				w.sess.settings["search_path"] = "lake.sales"
				policy := &Policy{OwnerContext: t.Context()}
				s := New(tc.conn(bindingWorld{w}), policy, func(error) {})
				if tc.discards {
					policy.OnReturn = ResetDiscard
					s = NewStateless(tc.conn(bindingWorld{w}), policy, func(error) {})
				}
				batch := int64Batch(tc.rows...)
				defer batch.Release()
				_, err := s.UpdateWithRecordBatch(t.Context(), tc.sql, batch)
				synctest.Wait()
				if tc.want == "" {
					require.NoError(t, err)
					require.Len(t, w.stored, len(tc.rows))
				} else {
					require.ErrorContains(t, err, tc.want)
					require.Equal(t, tc.fault, backend.FaultIn(err), "%v", err)
					require.Empty(t, w.stored)
				}
				asked := len(w.log)
				_ = s.Close()
				if tc.fault == backend.FaultUsage {
					require.NotContains(t, strings.Join(w.log[asked:], "\n"), "current_schema", "the session is where it was")
				}
			})
		})
	}
}

// The types that the server has told of the parameters are those of the columns only in the table that it knows by the name.
func TestATimeIsBoundAsTheServerTellsOfItsOwnColumn(t *testing.T) {
	naive, number := &arrow.TimestampType{Unit: arrow.Microsecond}, arrow.PrimitiveTypes.Int64
	schema := func(types ...arrow.DataType) *arrow.Schema {
		fields := make([]arrow.Field, len(types))
		for i, of := range types {
			fields[i] = arrow.Field{Name: string(rune('a' + i)), Type: of, Nullable: true}
		}
		return arrow.NewSchema(fields, nil)
	}
	lake, elsewhere := stateValues{{text: "lake"}, {text: "main"}}, stateValues{{text: "lake"}, {text: "sales"}}
	for name, tc := range map[string]struct {
		sql     string
		given   *arrow.Schema
		told    *arrow.Schema
		place   stateValues
		asQuery bool
	}{
		"a number, of which nothing is told":         {"INSERT INTO t VALUES (?)", schema(number), nil, lake, true},
		"a time of the column's type":                {"INSERT INTO t VALUES (?, ?)", schema(number, naive), schema(number, naive), lake, true},
		"a time of another type":                     {"INSERT INTO t VALUES (?, ?)", schema(number, naive), schema(naive, number), lake, false},
		"a time, of which nothing is told":           {"INSERT INTO t VALUES (?)", schema(naive), nil, lake, false},
		"a time, of which less is told":              {"INSERT INTO t VALUES (?, ?)", schema(number, naive), schema(number), lake, false},
		"a time for a column of a table that is not": {"INSERT INTO t VALUES (?)", schema(naive), schema(naive), elsewhere, false},
		"a time for a table of the catalogue":        {"INSERT INTO lake2.t VALUES (?)", schema(naive), schema(naive), elsewhere, true},
	} {
		r := newRig(t, &fakeConn{})
		r.policy.preparing.Store(int32(runsToPrepare))
		b := array.NewRecordBuilder(memory.DefaultAllocator, tc.given)
		for i := range tc.given.NumFields() {
			b.Field(i).AppendNull()
		}
		rows := b.NewRecordBatch()
		b.Release()
		c := &call{s: r.handle, script: sqlscan.Parse(tc.sql), insert: &insertion{namespace: tc.place}}
		asQuery, err := r.handle.insertsAsQuery(t.Context(), c, toldOf{tc.told}, rows)
		require.NoError(t, err, name)
		require.Equal(t, tc.asQuery, asQuery, name)
		rows.Release()
		require.NoError(t, r.handle.Close())
	}
}

// toldOf is a statement of whose parameters the server has told, by a handle of eight bytes.
type toldOf struct{ schema *arrow.Schema }

func (s toldOf) FirstHandle() string { return "\x00\x00\x00\x00\x00\x00\x00\x07" }

func (s toldOf) ParameterSchema() *arrow.Schema { return s.schema }

func (toldOf) Query(context.Context, arrow.RecordBatch, backend.Call) (backend.Stream, error) {
	return nil, errors.New("not to be executed")
}

func (toldOf) Update(context.Context, arrow.RecordBatch, backend.Call) (int64, error) {
	return 0, errors.New("not to be executed")
}

func (toldOf) Close(context.Context) error { return nil }
