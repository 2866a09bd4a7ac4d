package session

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// readingConn reads the rows of an ingestion as a backend does, and says of their
// failure what its answer makes of it.
type readingConn struct {
	*fakeConn
	answer func(error) error
}

func (c *readingConn) Ingest(_ context.Context, rows array.RecordReader, _ backend.IngestOptions, _ backend.Call) (int64, error) {
	n := int64(0)
	for rows.Next() {
		n += rows.RecordBatch().NumRows()
	}
	return n, c.answer(rows.Err())
}

// TestAFailingReaderOfRowsIsNotTheServer: rows may be the result of another server,
// whose failure must abort the transaction and keep the session, whatever backends make
// of it.
func TestAFailingReaderOfRowsIsNotTheServer(t *testing.T) {
	other := func(e backend.Error) error {
		e.Op, e.Target, e.Err = "Query", "other:1", status.Error(codes.Unavailable, "transport: of the other")
		return &e
	}
	failures := map[string]error{
		"plain": errors.New("plain"), "status": status.Error(codes.Unavailable, "transport: of another"), "end": io.ErrUnexpectedEOF,
		"unsent":      other(backend.Error{Fault: backend.FaultTransport, Unsent: true, Read: true}),
		"usage":       other(backend.Error{Fault: backend.FaultUsage}),
		"unsupported": other(backend.Error{Fault: backend.FaultUnsupported}),
		"session":     other(backend.Error{Fault: backend.FaultSession}),
		"auth":        other(backend.Error{Fault: backend.FaultAuth}),
	}
	answers := map[string]func(error) error{
		"as it is": func(err error) error { return err },
		"by its status": func(err error) error {
			return &backend.Error{Fault: backend.FaultOf(status.Code(err), err.Error()), Err: err}
		},
		"none": func(error) error { return nil },
	}
	for failure, failed := range failures {
		for kind, answer := range answers {
			t.Run(failure+", "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, &fakeConn{})
					r.handle.conn = &readingConn{r.conn, answer}
					must(t, r.handle.BeginTransaction(t.Context()))
					batch := int64Batch(1, 2)
					defer batch.Release()
					rows := array.ReaderFromIter(batch.Schema(), func(yield func(arrow.RecordBatch, error) bool) {
						batch.Retain()
						_ = yield(batch, nil) && yield(nil, failed)
					})
					defer rows.Release()
					_, err := r.handle.Ingest(t.Context(), "t", rows, backend.IngestOptions{})
					require.ErrorIs(t, err, failed)
					require.False(t, backend.SafeToRetry(err), "%v", err)
					var e *backend.Error
					require.ErrorAs(t, err, &e)
					require.Equal(t, "fake:1", e.Target)
					require.Equal(t, backend.FaultUnknown, e.Fault, "%v", err)
					require.ErrorIs(t, r.handle.Commit(t.Context()), backend.ErrTxAborted, "a statement of it has failed")
					must(t, r.handle.Close())
					r.reused()
				})
			})
		}
	}
}
