package adbcpool

import (
	"context"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// No ROLLBACK reaches SwanLake between the rows of a change that was cut in a transaction, not with the end of the
// connection either: what is left of the rows would be stored by itself.
func TestTheEndOfAConnectionStoresNoRowsOfAChange(t *testing.T) {
	for _, kind := range kinds {
		for _, each := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond} {
			inBubble(t, testserver.SwanLake(), func(r rig) {
				p := r.pool(kind, func(cfg *flightpool.Config) { cfg.MaxSize = 1 })
				ctx := r.Context()
				_, err := p.Update(ctx, "CREATE TABLE swanlake.t (a BIGINT)")
				require.NoError(r, err)
				b := array.NewInt64Builder(memory.DefaultAllocator)
				for i := range int64(40) {
					b.Append(i)
				}
				col := b.NewArray()
				schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
				rows := array.NewRecordBatch(schema, []arrow.Array{col}, 40)
				defer rows.Release()
				_, err = p.UpdateWithRecordBatch(ctx, "INSERT INTO swanlake.t VALUES (?)", rows)
				require.NoError(r, err)
				r.server.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "DELETE", Do: testserver.Delay(each)})
				cut, stop := context.WithTimeout(ctx, time.Second)
				defer stop()
				start := time.Now()
				err = p.InTx(cut, flightpool.TxOptions{}, func(ctx context.Context, tx *flightpool.Tx) error {
					_, err := tx.UpdateWithOptions(ctx, "DELETE FROM swanlake.t WHERE a = ?", flightpool.QueryOptions{Params: rows})
					return err
				})
				require.ErrorIs(r, err, context.DeadlineExceeded)
				require.ErrorIs(r, err, flightpool.ErrCommitUnknown)
				require.LessOrEqual(r, time.Since(start), 1100*time.Millisecond)
				time.Sleep(time.Minute)
				r.server.Faults().Clear()
				var n int64
				require.NoError(r, p.QueryRow(ctx, "SELECT count(*) FROM swanlake.t").Scan(&n))
				require.EqualValues(r, 40, n, "%s, %s a row: %v", kind, each, err)
			})
		}
	}
}
