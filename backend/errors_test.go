package backend

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestAnErrorShowsAStatusAsItsCodeAndItsText(t *testing.T) {
	refused := status.Error(codes.NotFound, "no such table")
	for want, err := range map[string]error{
		"NotFound: no such table":                             refused,
		"lost: NotFound: no such table (again)":               fmt.Errorf("lost: %w (again)", refused),
		"Unknown: proxy: NotFound: no such table":             status.Error(codes.Unknown, "proxy: "+refused.Error()),
		"Unimplemented":                                       status.Error(codes.Unimplemented, ""),
		"NotFound: no such table, NotFound: no such table":    fmt.Errorf("%w, %w", refused, refused),
		"Code(99): rpc error: code = a b desc = c":            status.Error(99, "rpc error: code = a b desc = c"),
		"Internal: rpc error: code = ":                        status.Error(codes.Internal, "rpc error: code = "),
		"Internal: rpc error: code = x":                       status.Error(codes.Internal, "rpc error: code = x"),
		"Internal: rpc error: code =  desc = x rpc error: no": status.Error(codes.Internal, "rpc error: code =  desc = x rpc error: no"),
	} {
		require.Equal(t, "Query db:1: execute: "+want, (&Error{Op: "Query", Target: "db:1", Stage: StageExecute, Err: err}).Error())
	}
	s, ok := status.FromError(&Error{Err: refused})
	require.True(t, ok)
	require.Equal(t, codes.NotFound, s.Code(), "programs find it as before")
}

// The text is the server's, and may be as long as a message.
func TestALongTextOfStatusesIsShownInTimeThatGrowsWithIt(t *testing.T) {
	for _, part := range []string{"rpc error: code = ", "rpc error: code = x desc = ", "rpc error: code = x"} {
		text := strings.Repeat(part, 1<<20/len(part))
		require.LessOrEqual(t, len(unframed(text)), len(text))
	}
}

// A page that a proxy has put in place of an answer says nothing of what was done, whatever
// words its status has.
func TestAPageIsNoConflict(t *testing.T) {
	const page = "unexpected HTTP status code received from server: 409 (Conflict)" // as gRPC's client says where its content type is gRPC's
	require.Equal(t, FaultTransport, FaultOf(codes.Unknown, page))
	for code, text := range map[codes.Code]string{codes.Unknown: page, codes.Internal: page} {
		err := status.Error(code, text)
		require.False(t, IsConflict(&Error{Op: "Update", Fault: FaultOf(code, text), Err: err}))
	}
}

// An action that a server lacks is no wrong statement, whatever the code: it is not asked for again.
func TestAnActionThatAServerLacksIsUnsupported(t *testing.T) {
	for text, want := range map[string]Fault{
		"Unknown action type": FaultUnsupported, // Spice
		"Error while planning Flight SQL : Unsupported FlightSQL message type: type.googleapis.com/…ActionBeginTransactionRequest":  FaultUnsupported, // InfluxDB
		"Error while planning Flight SQL : Invalid protobuf: failed to decode Protobuf message: Any.type_url: invalid string value": FaultUnsupported, // InfluxDB, of a FlightInfo to cancel
		"x: the defined request is invalid":                    FaultUnsupported, // arrow-flight
		"Parser Error: LINE 1: INSERT … 'Unknown action type'": FaultStatement,
	} {
		require.Equal(t, want, FaultOf(codes.InvalidArgument, text), text)
		require.Equal(t, FaultStatement, FaultOf(codes.Internal, text), text)
	}
}

// What these servers say of a session that is gone is no judgement of the statement: a connection that was kept would
// fail every call that it is lent for.
func TestASessionThatIsGoneIsNoFaultOfTheStatement(t *testing.T) {
	for _, c := range []struct {
		code codes.Code
		text string
		want Fault
	}{
		{codes.InvalidArgument, "Your session has been killed. Please re-connect.", FaultSession},                                                    // GizmoSQL
		{codes.InvalidArgument, "Invalid or expired arrow_flight_session_id cookie.", FaultSession},                                                  // Arrow C++
		{codes.NotFound, "Invalid arrow_flight_session_id cookie.", FaultSession},                                                                    // Arrow Java
		{codes.NotFound, "cannot find connect arrow context of the token [secret]", FaultSession},                                                    // StarRocks
		{codes.Internal, "get flight info statement failed, IllegalArgumentException: UserSession expire after access, try reconnect", FaultSession}, // Doris
		{codes.Internal, "Context handle not found: 6a1c0e1c-7f3b-4ab8-9f2c-0d1c55c0a001", FaultSession},                                             // DataFusion's example
		{codes.PermissionDenied, "invalid Bearer token. Detail: Unauthorized", FaultSession},                                                         // Arrow's adapter for PostgreSQL
		{codes.PermissionDenied, "permission denied for table t", FaultStatement},
		{codes.NotFound, "cannot find result of the query [7]", FaultStatement},
		{codes.Internal, "your session has been killed", FaultStatement}, // of another code: a statement's own words
		{codes.NotFound, "session has been killed", FaultStatement},
	} {
		require.Equal(t, c.want, FaultOf(c.code, c.text), "%v %s", c.code, c.text)
	}
}

// Databases repeat the line of the statement that is wrong, and the value. A program that searches logs has the runtime's words there.
func TestAStatementThatHasTheRuntimesWordsIsAStatement(t *testing.T) {
	own := []string{
		"transport: the server has ended the call without a status", "unexpected EOF", "http2: server sent GOAWAY", "malformed header: missing HTTP content-type",
		"unexpected HTTP status code received from server: 502 (Bad Gateway)", "stream terminated by RST_STREAM with error code: INTERNAL_ERROR",
		"the server, or a proxy before it, has ended the call without an answer: stream terminated by RST_STREAM of the server, code 2 (INTERNAL_ERROR)",
	}
	for _, text := range own {
		for _, code := range []codes.Code{codes.Internal, codes.Unknown} {
			require.Equal(t, FaultTransport, FaultOf(code, text), text)
			require.Equal(t, FaultTransport, FaultOf(code, fmt.Errorf("location: %w", status.Error(code, text)).Error()), text)
			const failed = "duckdb error: Binder Error: Referenced column \"mesage\" not found in FROM clause!\n\nLINE 1: SELECT * FROM logs WHERE mesage LIKE '%"
			require.Equal(t, FaultStatement, FaultOf(code, failed+text+"%'"), text)
			require.Equal(t, FaultStatement, FaultOf(code, "Arrow error: Cast error: Cannot cast string '"+text+"' to value of Int32 type"), text)
		}
	}
	require.Equal(t, FaultStatement, FaultOf(codes.InvalidArgument, "Conversion Error: Could not convert string 'stream terminated by RST_STREAM' to INT32"))
}
