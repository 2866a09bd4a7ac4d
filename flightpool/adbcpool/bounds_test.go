package adbcpool

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

// withCalls runs test against a server whose CALL gives rows, and may change
// something for all that is known, and which is slow to store it.
func withCalls(t *testing.T, test func(r rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		engine := script.New()
		b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Int64}}, nil))
		defer b.Release()
		b.Field(0).(*array.Int64Builder).AppendValues(make([]int64, 1000), nil)
		batch := b.NewRecordBatch()
		defer batch.Release()
		engine.On("CALL", script.Rows(batch, batch, batch))
		s, err := testserver.Start(testserver.Options{Engine: engine, Listen: testserver.InMemory})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		test(rig{t, s})
	})
}

// What a call ends or frees before its own work, or after it, is bounded by its
// context as well.
func TestADBCNoCallOutlastsItsContextForWhatItCleansUp(t *testing.T) {
	for name, run := range map[string]func(ctx context.Context, r rig, st adbc.Statement, hang func()) error{
		"the schema of a statement that is prepared for it": func(ctx context.Context, r rig, st adbc.Statement, hang func()) error {
			require.NoError(r, st.SetSqlQuery(generate(1)))
			hang()
			_, err := st.(adbc.StatementExecuteSchema).ExecuteSchema(ctx)
			return err
		},
		"a statement that is prepared again": func(ctx context.Context, r rig, st adbc.Statement, hang func()) error {
			require.NoError(r, st.SetSqlQuery(generate(1)))
			require.NoError(r, st.Prepare(r.Context()))
			hang()
			return st.Prepare(ctx)
		},
		"an execution while rows of a prepared statement are open": func(ctx context.Context, r rig, st adbc.Statement, hang func()) error {
			require.NoError(r, st.SetSqlQuery(generate(100_000)))
			require.NoError(r, st.Prepare(r.Context()))
			_, _, err := st.ExecuteQuery(r.Context())
			require.NoError(r, err)
			require.NoError(r, st.SetSqlQuery(generate(1)))
			hang()
			_, _, err = st.ExecuteQuery(ctx)
			return err
		},
		"an execution while rows of a change are open": func(ctx context.Context, r rig, st adbc.Statement, hang func()) error {
			r.server.Faults().Set(testserver.Fault{On: testserver.OnBatch, SQL: "CALL", Skip: 2, Do: testserver.Hang()})
			require.NoError(r, st.SetSqlQuery("CALL p()"))
			rows, _, err := st.ExecuteQuery(r.Context())
			require.NoError(r, err)
			require.True(r, rows.Next())
			hang()
			_, err = st.ExecuteUpdate(ctx)
			require.False(r, rows.Next())
			require.Error(r, rows.Err())
			return err
		},
	} {
		for _, kind := range kinds {
			t.Run(name+" "+kind, func(t *testing.T) {
				withCalls(t, func(r rig) {
					pool := r.pool(kind)
					cn, err := Database(pool).Open(r.Context())
					require.NoError(r, err)
					st, err := cn.NewStatement()
					require.NoError(r, err)
					ctx, cancel := context.WithTimeout(r.Context(), time.Second)
					defer cancel()
					began := time.Now()
					err = run(ctx, r, st, func() {
						r.server.Faults().Set(testserver.Fault{On: "ClosePreparedStatement", Do: testserver.Hang()})
					})
					require.LessOrEqual(r, time.Since(began), time.Second+50*time.Millisecond, "%v", err)
					r.server.Faults().Clear()
					require.NoError(r, st.Close())
					require.NoError(r, cn.Close())
				})
			})
		}
	}
}
