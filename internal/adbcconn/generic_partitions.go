package adbcconn

import (
	"context"
	"fmt"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/flightconn"
)

// runQuery runs a query and returns its rows. The caller holds driverLock.
//
// The Flight SQL driver's own reader opens all endpoints of a result at once, in any order;
// when one has failed it goes on with the rows of the next, to tell so at the end; and
// where the schema comes with the rows alone it crashes. So its endpoints are read here.
func (c *GenericConn) runQuery(ctx context.Context, stmt adbc.Statement, call backend.Call) (array.RecordReader, error) {
	if !c.isFlightSQL {
		reader, _, err := stmt.ExecuteQuery(ctx)
		return reader, err
	}
	schema, parts, _, err := stmt.ExecutePartitions(ctx)
	if e, ok := adbcError(err); ok && e.Code == adbc.StatusNotImplemented {
		if _, servers := statusOf(e); !servers {
			return nil, errNoPartitions
		}
	}
	if err != nil {
		return nil, err
	}
	return &partitionedRows{ctx: ctx, cn: c.cn, headers: call.Headers, schema: schema, left: parts.PartitionIDs}, nil
}

var errNoPartitions = adbc.Error{
	Code: adbc.StatusNotImplemented,
	Msg:  "this Flight SQL driver does not tell the endpoints of a result, as under ADBC's driver manager: use adbcpool.Open, or the driver in Go",
}

// partitionedRows are the rows of a result whose partitions are read one after the other.
// It is used with driverLock held, and released once.
//
// INVARIANT: a row is given out only when all rows before it have been, and what a
// partition fails with is the end.
type partitionedRows struct {
	ctx     context.Context //nolint:containedctx // the call's: it ends the streams
	cn      adbc.Connection
	headers metadata.MD   // of the call
	schema  *arrow.Schema // nil until a partition has told it
	left    [][]byte
	current array.RecordReader // nil before the first and after the last
	begun   bool
	err     error
}

// begin opens the first partition, which may be what has a schema. Next does so where it
// was not called.
func (r *partitionedRows) begin() error {
	if r.begun {
		return r.err
	}
	r.begun = true
	if !r.openNext() && r.err == nil && r.schema == nil {
		r.err = adbc.Error{Msg: "the server gives neither a schema nor rows", Code: adbc.StatusInternal}
	}
	return r.err
}

// openNext opens the next partition. It reports whether there is one.
func (r *partitionedRows) openNext() bool {
	r.closeCurrent()
	if len(r.left) == 0 {
		return false
	}
	next, err := r.read(r.left[0])
	if r.left = r.left[1:]; err != nil {
		r.err = err
		return false
	}
	r.current = next
	if r.schema == nil {
		r.schema = next.Schema()
	}
	if flightconn.NestedDictionaries(next.Schema()) {
		r.err = adbc.Error{Code: adbc.StatusNotImplemented, Msg: flightconn.ErrNestedDictionaries.Error()}
		return false
	}
	if !sameFields(r.schema, next.Schema()) {
		r.err = fmt.Errorf("an endpoint has returned inconsistent schema: expected %s but got %s", r.schema, next.Schema())
		return false
	}
	return true
}

// read begins to read a partition.
func (r *partitionedRows) read(id []byte) (array.RecordReader, error) {
	restore, err := sendHeaders(r.cn, r.headers)
	if err != nil {
		return nil, err
	}
	defer restore()
	return r.cn.ReadPartition(r.ctx, id)
}

// sameFields compares two schemas but for their metadata, in which endpoints may differ.
func sameFields(a, b *arrow.Schema) bool {
	return arrow.NewSchema(a.Fields(), nil).Equal(arrow.NewSchema(b.Fields(), nil))
}

func (r *partitionedRows) closeCurrent() {
	if r.current != nil {
		r.current.Release()
		r.current = nil
	}
}

// Next is part of array.RecordReader.
func (r *partitionedRows) Next() bool {
	_ = r.begin() // its error is Err's
	for r.err == nil && r.current != nil {
		if r.current.Next() {
			return true
		}
		if err := r.current.Err(); err != nil {
			r.err = streamError(err)
		} else if r.err = r.ctx.Err(); r.err == nil && r.openNext() {
			continue
		}
	}
	r.closeCurrent()
	return false
}

// Err is part of array.RecordReader.
func (r *partitionedRows) Err() error { return r.err }

// Schema is part of array.RecordReader.
func (r *partitionedRows) Schema() *arrow.Schema { return r.schema }

// RecordBatch is part of array.RecordReader.
func (r *partitionedRows) RecordBatch() arrow.RecordBatch { return r.current.RecordBatch() }

// Record is part of array.RecordReader.
//
// Deprecated: use RecordBatch.
func (r *partitionedRows) Record() arrow.RecordBatch { return r.current.RecordBatch() }

// Retain is part of array.RecordReader, and of no use: its one owner releases it.
func (r *partitionedRows) Retain() {}

// Release is part of array.RecordReader.
func (r *partitionedRows) Release() { r.closeCurrent() }

// streamError is the error that the driver makes of one of its stream's, but for headers
// of the server's, which the stream does not tell.
func streamError(err error) error {
	if _, ok := adbcError(err); ok {
		return err
	}
	s := status.Convert(err)
	return adbc.Error{
		Msg:        fmt.Sprintf("[FlightSQL] %s (%s; DoGet)", s.Message(), s.Code()),
		VendorCode: int32(s.Code()), //nolint:gosec // codes are small
		Code:       adbcStatusOf(s.Code()), Details: StatusDetails(s),
	}
}

// adbcStatusOf is ADBC's code for one of gRPC's, as the driver has it.
func adbcStatusOf(code codes.Code) adbc.Status {
	known := map[codes.Code]adbc.Status{
		codes.Canceled: adbc.StatusCancelled, codes.InvalidArgument: adbc.StatusInvalidArgument, codes.DeadlineExceeded: adbc.StatusTimeout,
		codes.NotFound: adbc.StatusNotFound, codes.AlreadyExists: adbc.StatusAlreadyExists, codes.PermissionDenied: adbc.StatusUnauthorized,
		codes.ResourceExhausted: adbc.StatusInternal, codes.Unimplemented: adbc.StatusNotImplemented, codes.Internal: adbc.StatusInternal,
		codes.Unavailable: adbc.StatusIO, codes.DataLoss: adbc.StatusIO, codes.Unauthenticated: adbc.StatusUnauthenticated,
	}
	if s, ok := known[code]; ok {
		return s
	}
	return adbc.StatusUnknown
}
