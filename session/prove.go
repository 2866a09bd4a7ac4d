package session

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// serverName is Flight SQL's code of the server's name in SqlInfo.
const serverName = 0

// Prove shows that c has a session that works, not only a server that answers:
// by running sql, a harmless query, to its end. A server that refuses this
// query may have other SQL; it must describe itself (SqlInfo) then, or refuse
// the query in words that only a server with a session has (INVALID_ARGUMENT,
// NOT_FOUND, UNIMPLEMENTED). One that fails everything has no session to give.
func Prove(ctx context.Context, c Conn, sql string) error {
	err := Probe(ctx, c, sql)
	if err == nil || refusesSQL(err) {
		return nil
	}
	switch FaultIn(err) {
	case FaultStatement, FaultUnsupported, FaultUnknown:
	default:
		return err
	}
	stream, about := c.Metadata(ctx, MetadataRequest{Kind: MetadataSQLInfo, Info: []uint32{serverName}}, Call{})
	if about == nil {
		about = drain(stream)
	}
	if about == nil {
		return nil
	}
	return &Error{
		Op: "Prove", Stage: StageProbe, Fault: FaultTransport,
		Err: fmt.Errorf("the server gives no session that works: %q fails with %w, and SqlInfo with %w", sql, cause(err), cause(about)),
	}
}

// refusesSQL reports whether err is a server's judgement of the statement.
func refusesSQL(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.Unimplemented:
		return true
	default:
		return false
	}
}

// cause is what the innermost *Error of err was made of.
func cause(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Err != nil {
		return cause(e.Err)
	}
	return err
}
