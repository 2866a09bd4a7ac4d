package adbcpool

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

type midwayCaller interface {
	Update(ctx context.Context, sql string, args ...any) (flightpool.UpdateResult, error)
	QueryWithOptions(ctx context.Context, sql string, opts flightpool.QueryOptions) (*flightpool.QueryResult, error)
	UpdateWithOptions(ctx context.Context, sql string, opts flightpool.QueryOptions) (flightpool.UpdateResult, error)
	Ingest(ctx context.Context, table string, rows array.RecordReader, opts flightpool.IngestOptions) (int64, error)
}

func keys(n int) arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for i := range n {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
	}
	return b.NewRecordBatch()
}

func ingestMidway(ctx context.Context, q midwayCaller, mode flightpool.IngestMode, batches ...arrow.RecordBatch) error {
	reader, err := array.NewRecordReader(batches[0].Schema(), batches)
	if err != nil {
		return err
	}
	defer reader.Release()
	_, err = q.Ingest(ctx, "t", reader, flightpool.IngestOptions{Mode: mode})
	return err
}

// midwayCalls change several things by one call.
var midwayCalls = map[string]struct {
	sql  string
	at   testserver.Point
	call func(ctx context.Context, q midwayCaller) error
}{
	"text": {"INSERT", testserver.OnDoPut, func(ctx context.Context, q midwayCaller) error {
		_, err := q.Update(ctx, "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)")
		return err
	}},
	"text as a query": {"INSERT", testserver.OnGetFlightInfo, func(ctx context.Context, q midwayCaller) error {
		res, err := q.QueryWithOptions(ctx, "INSERT INTO t VALUES (1); SELECT 7", flightpool.QueryOptions{Route: flightpool.RouteQuery})
		if err != nil {
			return err
		}
		defer res.Release()
		for res.Next() {
			continue
		}
		return res.Err()
	}},
	"rows": {"INSERT", testserver.OnStatement, func(ctx context.Context, q midwayCaller) error {
		_, err := q.UpdateWithOptions(ctx, "INSERT INTO t VALUES (?)", flightpool.QueryOptions{Params: keys(3)})
		return err
	}},
	"ingest": {"INGEST", testserver.OnStatement, func(ctx context.Context, q midwayCaller) error {
		return ingestMidway(ctx, q, flightpool.IngestAppend, keys(2), keys(2))
	}},
	"ingest in place of a table": {"INGEST", testserver.OnStatement, func(ctx context.Context, q midwayCaller) error {
		return ingestMidway(ctx, q, flightpool.IngestReplace, keys(2))
	}},
}

// What changes several things is made once through a driver, too, whatever the server refuses it by,
// and the transaction in which it was is aborted.
func TestWhatIsRefusedInTheMiddleOfADriversCallIsNotRepeated(t *testing.T) {
	answers := map[string]testserver.Effect{"kill": testserver.Kill()}
	for _, code := range []codes.Code{codes.Unimplemented, codes.Unauthenticated, codes.ResourceExhausted, codes.InvalidArgument, codes.Aborted, codes.Unavailable} {
		answers[code.String()] = testserver.Fail(code, "refused: not implemented")
	}
	for _, kind := range []string{"open", "new"} {
		for name, c := range midwayCalls {
			for said, answer := range answers {
				for _, inTx := range []bool{false, true} {
					if inTx && kind == "new" && name != "rows" {
						continue // refused: the driver would load outside of it, or lose it
					}
					t.Run(fmt.Sprintf("%s, %s, answered by %s, in a transaction: %v", kind, name, said, inTx), func(t *testing.T) {
						inBubble(t, testserver.Strict(), func(r rig) { refusedMidway(r, kind, c.sql, c.at, answer, c.call, inTx) })
					})
				}
			}
		}
	}
}

func refusedMidway(r rig, kind, sql string, at testserver.Point, answer testserver.Effect, call func(context.Context, midwayCaller) error, inTx bool) {
	p := r.pool(kind)
	r.update(p, "CREATE TABLE t (k BIGINT)")
	fault := r.server.Faults().Set(testserver.Fault{On: at, SQL: sql, After: sql == "INGEST", Do: answer})
	var err, after error
	if inTx {
		after = p.InTx(r.Context(), flightpool.TxOptions{Attempts: 1}, func(ctx context.Context, tx *flightpool.Tx) error {
			err = call(ctx, tx)
			return nil
		})
	} else {
		err = call(r.Context(), p)
	}
	require.Error(r, err)
	assert.Equal(r, 1, fault.Fired(), "%v", err)
	assert.False(r, flightpool.SafeToRetry(err), "%v", err)
	var e *flightpool.Error
	require.ErrorAs(r, err, &e)
	if e.Fault == flightpool.FaultStatement || e.Fault == flightpool.FaultAuth || e.Fault == flightpool.FaultUnsupported || e.Fault == flightpool.FaultLimit { // the server refuses
		assert.Equal(r, !inTx, e.Partial, "%v", err)
	}
	if inTx {
		assert.True(r, errors.Is(after, flightpool.ErrTxAborted) || errors.Is(after, flightpool.ErrSessionLost), "%v: %v", err, after)
	}
}
