package adbcpool

import (
	"cmp"
	"context"
	"errors"

	"github.com/apache/arrow-adbc/go/adbc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/adbcconn"
	"github.com/flightpool/flightpool/internal/driverapi"
	"github.com/flightpool/flightpool/session"
)

// toADBC makes ADBC's error of the pool's: errors.As finds the adbc.Error, the
// *flightpool.Error and a gRPC status in it, errors.Is the context's error. Of a call whose
// context has ended it has nothing of a server's: no code, SQLSTATE or details.
func toADBC(err error) error {
	if err == nil {
		return nil
	}
	e := adbc.Error{Msg: err.Error(), Code: adbcStatus(err)}
	var ours *flightpool.Error
	answer := err
	if errors.As(err, &ours) {
		answer = ours.Err // its context's error may be what another call has failed with
	}
	var driver adbc.Error
	switch s, ok := status.FromError(answer); {
	case driverapi.EndedByContext(err):
	case errors.As(answer, &driver):
		e.VendorCode, e.SqlState, e.Details = driver.VendorCode, driver.SqlState, driver.Details
	case ok:
		e.VendorCode, e.Details = int32(s.Code()), adbcconn.StatusDetails(s)
	}
	if ours != nil && len(ours.SQLState) == len(e.SqlState) {
		copy(e.SqlState[:], ours.SQLState)
	}
	return adbcconn.WithCause(e, err)
}

// adbcStatus is the driver's own code where there is one, unless the caller's
// context or the pool has ended the call.
func adbcStatus(err error) adbc.Status {
	var driver adbc.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return adbc.StatusTimeout
	case errors.Is(err, context.Canceled):
		return adbc.StatusCancelled
	case errors.Is(err, backend.ErrBusy), errors.Is(err, backend.ErrHandleClosed), errors.Is(err, flightpool.ErrClosed),
		errors.Is(err, flightpool.ErrTxAborted), errors.Is(err, session.ErrTxOpen), errors.Is(err, session.ErrNoTx):
		return adbc.StatusInvalidState
	case errors.Is(err, flightpool.ErrSessionLost):
		return adbc.StatusIO
	case errors.As(err, &driver):
		return driver.Code
	}
	fault := backend.FaultIn(err)
	if fault == flightpool.FaultStatement {
		return cmp.Or(statementStatuses[status.Code(err)], adbc.StatusInternal)
	}
	return cmp.Or(faultStatuses[fault], adbc.StatusUnknown)
}

var faultStatuses = map[flightpool.Fault]adbc.Status{
	flightpool.FaultUsage: adbc.StatusInvalidArgument, flightpool.FaultUnsupported: adbc.StatusNotImplemented, flightpool.FaultAuth: adbc.StatusUnauthenticated,
	flightpool.FaultTransport: adbc.StatusIO, flightpool.FaultSession: adbc.StatusIO, flightpool.FaultLimit: adbc.StatusInternal,
}

// statementStatuses say as much of a statement's failure as its server did.
var statementStatuses = map[codes.Code]adbc.Status{
	codes.InvalidArgument: adbc.StatusInvalidArgument, codes.NotFound: adbc.StatusNotFound, codes.AlreadyExists: adbc.StatusAlreadyExists,
	codes.PermissionDenied: adbc.StatusUnauthorized, codes.FailedPrecondition: adbc.StatusInvalidState, codes.Aborted: adbc.StatusInvalidState,
}

// newADBCError is an error of this package's own.
func newADBCError(code adbc.Status, msg string) error {
	return adbc.Error{Code: code, Msg: "adbcpool: " + msg}
}

func notImplemented(what string) error {
	return newADBCError(adbc.StatusNotImplemented, what+" is not implemented")
}
