package adbcconn

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/apache/arrow-adbc/go/adbc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/flightconn"
)

// driverError is what a driver returned, with the way to what caused it,
// which ADBC's own errors do not have. errors.As finds an adbc.Error and an
// *adbc.Error in it, and a gRPC status where there was one.
type driverError struct {
	err   error
	cause error // or nil
}

// WithCause is err, an adbc.Error or *adbc.Error, with the way to cause, which may be
// nil.
func WithCause(err, cause error) error { return &driverError{err: err, cause: cause} }

// WrapContextError is part of backend.ContextErrorWrapper: the error that the
// driver gives for a call whose context has ended.
func (c *Conn) WrapContextError(err error) error {
	return WithCause(adbc.Error{Msg: err.Error(), Code: adbc.StatusCancelled}, err)
}

func (e *driverError) Error() string { return e.err.Error() }

// Unwrap leads to the driver's error first, then to its cause.
func (e *driverError) Unwrap() []error {
	out := []error{e.err}
	if e.cause != nil {
		out = append(out, e.cause)
	}
	return out
}

// As finds the adbc.Error in the form that the driver did not use.
func (e *driverError) As(target any) bool {
	switch target := target.(type) {
	case **adbc.Error:
		if v, ok := adbcError(e.err); ok {
			*target = &v
			return true
		}
	case *adbc.Error:
		if v, ok := adbcError(e.err); ok {
			*target = v
			return true
		}
	}
	return false
}

// adbcError finds an adbc.Error, which drivers return by value or by pointer.
func adbcError(err error) (adbc.Error, bool) {
	var value adbc.Error
	if errors.As(err, &value) {
		return value, true
	}
	var pointer *adbc.Error
	if errors.As(err, &pointer) && pointer != nil {
		return *pointer, true
	}
	return adbc.Error{}, false
}

// localCause is what stands behind an error of the driver's own making, in
// which no RPC had failed. ADBC has codes for the ends of a context and none
// for a schema that changes between endpoints, which the driver tells by its
// text alone. nil is everything else.
func localCause(err error) error {
	if e, ok := adbcError(err); ok {
		switch e.Code {
		case adbc.StatusCancelled:
			return context.Canceled
		case adbc.StatusTimeout:
			return context.DeadlineExceeded
		default:
			return nil
		}
	}
	if strings.Contains(err.Error(), "returned inconsistent schema") {
		return flightconn.ErrSchemaMismatch
	}
	return nil
}

// statusOf is the gRPC status that a Flight SQL driver has turned into e. The
// driver keeps the code as the vendor's; its own codes lose what matters. Only
// errors with the driver's own prefix are taken: other drivers have vendor
// codes of other meanings.
func statusOf(e adbc.Error) (*status.Status, bool) {
	if e.VendorCode <= 0 || e.VendorCode > int32(codes.Unauthenticated) || !strings.HasPrefix(e.Msg, "[FlightSQL] ") {
		return nil, false
	}
	return status.New(codes.Code(e.VendorCode), strings.TrimPrefix(e.Msg, "[FlightSQL] ")), true
}

// StatusDetails are those of a status as ADBC's errors have them, under the name of the
// trailer in which they come.
func StatusDetails(s *status.Status) []adbc.ErrorDetail {
	const name = "grpc-status-details-bin"
	var out []adbc.ErrorDetail
	for _, detail := range s.Details() {
		switch detail := detail.(type) {
		case proto.Message:
			out = append(out, &adbc.ProtobufErrorDetail{Name: name, Message: detail})
		case error: // of a kind that this program does not know
			out = append(out, &adbc.TextErrorDetail{Name: name, Detail: detail.Error()})
		}
	}
	return out
}

// faultOf classifies what a driver of any kind returned. ADBC's codes are
// coarse: a driver says Internal for a failed statement and for its own
// defects, so the connection is in doubt then, and IO for what it has no code for. An
// SQLSTATE is the server's word, which goes before those, and so is what DuckDB, whose driver has no SQLSTATE, says of a COMMIT.
func faultOf(e adbc.Error) backend.Fault {
	if s, ok := statusOf(e); ok {
		return backend.FaultOf(s.Code(), s.Message())
	}
	switch state := stateOf(e); {
	case slices.Contains([]adbc.Status{adbc.StatusCancelled, adbc.StatusTimeout, adbc.StatusUnauthenticated, adbc.StatusUnauthorized}, e.Code): // which say enough
	case strings.HasPrefix(state, "28"):
		return backend.FaultAuth
	case endsConnection(state):
		return backend.FaultTransport
	case isStatements(state), commitFailed(e):
		return backend.FaultStatement
	}
	switch e.Code {
	case adbc.StatusNotImplemented:
		return backend.FaultUnsupported
	case adbc.StatusNotFound, adbc.StatusAlreadyExists, adbc.StatusInvalidArgument, adbc.StatusInvalidState,
		adbc.StatusInvalidData, adbc.StatusIntegrity, adbc.StatusUnauthorized:
		return backend.FaultStatement
	case adbc.StatusIO:
		if stateOf(e) != "" { // a server has answered, on a connection that lives
			return backend.FaultUnknown
		}
		return backend.FaultTransport
	case adbc.StatusCancelled, adbc.StatusTimeout:
		return backend.FaultContext
	case adbc.StatusUnauthenticated:
		return backend.FaultAuth
	default: // Unknown and Internal: SQL errors and broken drivers alike
		return backend.FaultUnknown
	}
}

// faultOf is faultOf of what the driver has returned. What SQLite's fails with while rows are computed is IO, whatever it was, and
// there is no transport that could end: a connection that is open is in doubt then, and proves itself before it is lent again.
func (c *GenericConn) faultOf(e adbc.Error) backend.Fault {
	fault := faultOf(e)
	if fault == backend.FaultTransport && c.isSQLite() && c.opened.Load() {
		return backend.FaultUnknown
	}
	return fault
}

// commitFailed reports whether e says, in the words of DuckDB, that it has tried a COMMIT, and rolled back what it could not store.
func commitFailed(e adbc.Error) bool {
	return strings.Contains(strings.ToLower(e.Msg), "transactioncontext error: failed to commit")
}

// stateOf is the SQLSTATE of e, or empty.
func stateOf(e adbc.Error) string {
	state := string(e.SqlState[:])
	if strings.Trim(state, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return ""
	}
	return state
}

// endsConnection reports whether an SQLSTATE says that the connection has ended, or could not begin: behind the
// last two PostgreSQL closes it.
func endsConnection(state string) bool {
	return strings.HasPrefix(state, "08") || strings.HasPrefix(state, "57P") || state == idleInTx || state == longTx
}

const idleInTx, longTx = "25P03", "25P04"

// isStatements reports whether an SQLSTATE says that the server has refused or failed a statement, and that
// nothing of it is left: not where it tells of a connection, of want of resources, of an operator, of the
// system, of what it does not know itself, or of a driver's (HY).
func isStatements(state string) bool {
	const notKnown = "40003"
	return state != "" && state != notKnown && state != idleInTx && state != longTx && !slices.Contains([]string{"00", "01", "02", "08", "53", "57", "58", "F0", "HY", "IM", "XX"}, state[:2])
}
