package flightpool

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

// renewedRows are rows that begin again behind their end.
type renewedRows struct {
	array.RecordReader
	anew func() array.RecordReader
}

func (r *renewedRows) Retain()  {}
func (r *renewedRows) Release() {}
func (r *renewedRows) Next() bool {
	more := r.RecordReader.Next()
	if !more {
		r.RecordReader = r.anew()
	}
	return more
}

// slowRows are refused before the second batch of them is asked for.
type slowRows struct {
	array.RecordReader
	asked int
}

func (r *slowRows) Next() bool {
	if r.asked++; r.asked == 2 {
		time.Sleep(100 * ms)
	}
	return r.RecordReader.Next()
}

// incomparableRows are of a type of which == panics.
type incomparableRows struct {
	array.RecordReader
	_ []int
}

// The attempt behind a conflict would load what is left of rows from outside of the function, nothing mostly, and be told as done.
func TestRowsThatAnAttemptHasTakenAreNotLackingInTheNext(t *testing.T) {
	type fault struct {
		on  testserver.Point
		sql string
	}
	statement, ingestion := fault{testserver.OnStatement, "DELETE"}, fault{testserver.OnDoPut, ""}
	for name, c := range map[string]struct {
		fault   fault
		outside bool // the reader is made once, and not by each attempt
		rows    int64
		want    string // the error, empty: they are stored
	}{
		"of each attempt":                {statement, false, 3, ""},
		"from outside":                   {statement, true, 3, "were taken"},
		"none, from outside":             {statement, true, 0, ""},
		"from outside, half taken":       {ingestion, true, 3, "were taken"},
		"of each attempt, half taken":    {ingestion, false, 3, ""},
		"none, from outside, half taken": {ingestion, true, 0, ""},
		"that begin again":               {statement, true, 3, ""},
		"that cannot be compared":        {statement, false, 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
				r.exec("CREATE TABLE t (a BIGINT)")
				batch := ints("a", 7)
				defer batch.Release()
				newRows := func() array.RecordReader {
					rows, err := array.NewRecordReader(batch.Schema(), slices.Repeat([]arrow.RecordBatch{batch}, int(c.rows)))
					require.NoError(r, err)
					r.Cleanup(rows.Release)
					return rows
				}
				outside := newRows()
				switch {
				case name == "that begin again":
					outside = &renewedRows{outside, newRows}
				case c.fault == ingestion:
					outside = &slowRows{outside, 0}
				}
				runs := 0
				err := r.pool.InTx(r.Context(), TxOptions{}, func(ctx context.Context, tx *Tx) error {
					if runs++; runs == 1 {
						r.srv.Faults().Set(testserver.Fault{On: c.fault.on, SQL: c.fault.sql, Times: 1, Do: testserver.Fail(codes.Aborted, "conflict")})
					}
					rows := outside
					if !c.outside {
						rows = newRows()
					}
					if name == "that cannot be compared" {
						rows = incomparableRows{RecordReader: rows}
					}
					if _, err := tx.Ingest(ctx, "t", rows, IngestOptions{}); err != nil {
						return err
					}
					_, err := tx.Update(ctx, "DELETE FROM t WHERE a = 0")
					return err
				})
				require.Equal(r, 2, runs)
				if c.want == "" {
					require.NoError(r, err)
					require.Equal(r, c.rows, int64(countOfT(r)))
					return
				}
				require.ErrorContains(r, err, c.want)
				require.False(r, SafeToRetry(err) || IsConflict(err), "%v", err)
				require.Zero(r, countOfT(r))
			})
		})
	}
}

func countOfT(r *rig) (n int) {
	require.NoError(r, r.pool.QueryRow(r.Context(), "SELECT count(*) FROM t").Scan(&n))
	return n
}
