package session

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
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
			_, err := s.UpdateWithOptions(t.Context(), tc.sql, QueryOptions{Params: batch, Route: RouteUpdate})
			require.NoError(t, err)
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
		{f.Timestamp_us, f.Timestamp_us, false}, {naive, naive, true}, {naive, nil, false}, {naive, f.Timestamp_us, false}, {naive, f.Date32, false}, {&arrow.TimestampType{Unit: arrow.Second}, naive, true}, {&arrow.TimestampType{Unit: arrow.Nanosecond}, naive, false},
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
