package flightpool

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// rowsThatFail are some rows, and an error in the place of the rest.
type rowsThatFail struct {
	array.RecordReader
	err error
	at  int
}

func (r *rowsThatFail) Next() bool {
	r.at++
	return r.at < 2 && r.RecordReader.Next()
}

func (r *rowsThatFail) Err() error {
	if r.at < 2 {
		return nil
	}
	return r.err
}

// The server refuses what it has of an ingestion whose rows have failed, so that its connection is as good as before.
func TestRowsThatFailLeaveTheConnectionAndTheTable(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		broken := errors.New("the file is corrupt")
		r.exec("CREATE TABLE t (a BIGINT)")
		_, err := r.pool.Ingest(r.Context(), "t", &rowsThatFail{RecordReader: r.rows(5), err: broken}, IngestOptions{})
		require.ErrorIs(r, err, broken)
		require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM t"))
		tx := r.begin()
		_, err = tx.Ingest(r.Context(), "t", &rowsThatFail{RecordReader: r.rows(5), err: broken}, IngestOptions{})
		require.ErrorIs(r, err, broken)
		require.ErrorIs(r, tx.Commit(r.Context()), ErrTxAborted)
		require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM t"))
		require.EqualValues(r, 1, r.pool.Stats().Opens)
	})
}

// rowsThatWait are a batch again and again, each of which takes a second.
type rowsThatWait struct {
	array.RecordReader
	given int
}

func (r *rowsThatWait) Next() bool {
	time.Sleep(time.Second)
	r.given++
	return r.given > 1 || r.RecordReader.Next()
}

func TestRowsThatAreLeftLeaveTheConnectionAndTheTable(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		rows := &rowsThatWait{RecordReader: r.rows(5)}
		ctx, stop := context.WithTimeout(r.Context(), 1500*ms)
		defer stop()
		began := time.Now()
		_, err := r.pool.Ingest(ctx, "t", rows, IngestOptions{})
		require.ErrorIs(r, err, context.DeadlineExceeded)
		require.Equal(r, 1500*ms, time.Since(began))
		require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM t"))
		require.EqualValues(r, 1, r.pool.Stats().Opens)
	})
}
