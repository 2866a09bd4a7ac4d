package adbcpool

import (
	"context"
	"testing"
	"time"

	flightdriver "github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

func fortyRows() arrow.RecordBatch {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	for i := range int64(40) {
		b.Append(i)
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
	return array.NewRecordBatch(schema, []arrow.Array{b.NewArray()}, 40)
}

// A time limit of the driver's own ends the RPC alone: the rows go on, and no ROLLBACK comes between them.
func TestALimitOfTheDriversOwnStoresNoRowsOfAChange(t *testing.T) {
	inBubble(t, testserver.SwanLake(), func(r rig) {
		db, err := driverWith(map[string]string{flightdriver.OptionTimeoutUpdate: "1"}, "127.0.0.1:1", grpc.WithContextDialer(r.server.Dial))
		require.NoError(r, err)
		r.Cleanup(func() { _ = db.Close() })
		p, err := New(r.Context(), db, flightpool.Config{MaxSize: 1})
		require.NoError(r, err)
		r.Cleanup(func() { _ = p.Close(context.WithoutCancel(r.Context())) })
		ctx := r.Context()
		_, err = p.Update(ctx, "CREATE TABLE swanlake.t (a BIGINT)")
		require.NoError(r, err)
		rows := fortyRows()
		_, err = p.UpdateWithRecordBatch(ctx, "INSERT INTO swanlake.t VALUES (?)", rows)
		require.NoError(r, err)
		r.server.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "DELETE", Do: testserver.Delay(100 * time.Millisecond)})
		s, err := p.AcquireSession(ctx)
		require.NoError(r, err)
		require.NoError(r, s.BeginTransaction(ctx))
		_, updated := s.UpdateWithRecordBatch(ctx, "DELETE FROM swanlake.t WHERE a = ?", rows)
		require.Error(r, updated)
		back := s.Rollback(ctx)
		closed := s.Close()
		time.Sleep(time.Minute)
		r.server.Faults().Clear()
		var n int64
		require.NoError(r, p.QueryRow(ctx, "SELECT count(*) FROM swanlake.t").Scan(&n))
		t.Log("update:", updated, "| rollback:", back, "| close:", closed, "| left:", n)
		require.EqualValues(r, 40, n)
	})
}
