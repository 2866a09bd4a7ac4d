package testserver

import (
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"google.golang.org/grpc/codes"
)

// Strict is the zero Profile: a server that supports and checks everything.
// Sessions are bound to connections, statements must name the transaction
// that they run in, every cancel is honoured.
func Strict() Profile { return Profile{Name: "strict"} }

// SwanLake keeps sessions by connection and until a janitor's round finds them
// unused for 15 minutes, 100 in all. It cannot cancel, lies in ListActions,
// ignores transaction ids, confirms the COMMIT of transactions that it does not
// know, and recovers from an aborted transaction by running the statement
// outside of it. Sessions begin in the catalog "memory", here one for all, and
// share the catalog "swanlake". A change with several rows of parameters, unless it is an
// INSERT, takes the session's lock for each row.
func SwanLake() Profile {
	return Profile{
		Name:            "swanlake",
		SessionTTL:      15 * time.Minute,
		JanitorEvery:    5 * time.Minute,
		MaxSessions:     100,
		IgnoreRPCCancel: true,
		RowByRow:        true,
		IgnoreTxID:      true,
		UnknownTxOK:     true,
		AbortedCommitOK: true,
		AutoRecover:     true,
		CountedIDs:      true,
		Run:             RunInBoth,
		ByText:          true,
		NullParams:      true,
		AppendTo:        "swanlake",
		StripLocks:      true,
		Unordered:       true,
		RoamingTickets:  true,
		ZeroCounts:      true,
		BindFirstRow:    true,
		AffectedHeader:  "x-swanlake-affected-rows",
		StatementCode:   codes.Internal,
		ErrorPrefix:     "duckdb error: ",
		TooLargeCode:    codes.OutOfRange,
		NulCode:         codes.InvalidArgument,
		TicketCode:      codes.InvalidArgument,
		ListedActions:   sqlActions(),
		SQLInfo: map[flightsql.SqlInfo]any{
			flightsql.SqlInfoFlightSqlServerTransaction:           int32(flightsql.SqlTransactionTransaction),
			flightsql.SqlInfoDefaultTransactionIsolation:          int32(4), /* serializable */
			flightsql.SqlInfoTransactionsSupported:                true,
			flightsql.SqlInfoSupportedTransactionsIsolationlevels: int32(0b11110),
		},
		Handshake: NoToken,
		Refuse: map[string]codes.Code{
			"CancelQuery":            codes.Unimplemented,
			"CancelFlightInfo":       codes.InvalidArgument,
			"CloseSession":           codes.InvalidArgument,
			"SetSessionOptions":      codes.InvalidArgument,
			"GetSessionOptions":      codes.InvalidArgument,
			"RenewFlightEndpoint":    codes.InvalidArgument,
			"BeginSavepoint":         codes.Unimplemented,
			"EndSavepoint":           codes.Unimplemented,
			"CommandStatementIngest": codes.Unimplemented,
			"CommandGetXdbcTypeInfo": codes.Unimplemented,
			"GetSchema":              codes.Unimplemented,
			"PollFlightInfo":         codes.Unimplemented,
		},
	}
}

// GizmoSQL binds a session to the bearer token of a handshake. RPC
// cancellation does nothing; CancelFlightInfo stops whatever the session runs,
// so that a late one hits the next statement. Its transactions are stricter here: with
// IgnoreTxID, EndsAnyTx and AbortedCommitOK they are as those of its version 1.36.
func GizmoSQL() Profile {
	return Profile{
		Name:              "gizmosql",
		SessionKey:        ByBearer,
		LimitCode:         codes.Unavailable,
		EvictedCode:       codes.Unauthenticated,
		IgnoreRPCCancel:   true,
		SessionWideCancel: true,
		ListedActions:     arrowActions(),
	}
}

// Dremio binds a session to a cookie for two hours and has no transactions.
// It has no cancel action but stops a query whose DoGet is cancelled.
func Dremio() Profile {
	return Profile{
		Name:       "dremio",
		SessionKey: ByCookie,
		KeyName:    "SESSION_ID",
		SessionTTL: 2 * time.Hour,
		Refuse: refuse(codes.Unimplemented, "BeginTransaction", "EndTransaction", "BeginSavepoint", "EndSavepoint",
			"CancelFlightInfo", "CancelQuery", "CommandStatementIngest"),
	}
}

// Doris binds a session to a bearer token for eight hours, runs queries in
// GetFlightInfo and has their results fetched from a location.
func Doris() Profile {
	return Profile{
		Name:        "doris",
		SessionKey:  ByBearer,
		SessionTTL:  8 * time.Hour,
		MaxSessions: 100,
		Run:         RunInInfo,
		Locations:   []Location{OwnAddress},
		Refuse: refuse(codes.Unimplemented, "BeginTransaction", "EndTransaction", "BeginSavepoint", "EndSavepoint",
			"CancelFlightInfo", "CancelQuery", "CommandStatementIngest"),
	}
}

// ClickHouse binds a session to a header. It has no transactions and no
// CloseSession.
func ClickHouse() Profile {
	return Profile{
		Name:       "clickhouse",
		SessionKey: ByHeader,
		KeyName:    "x-clickhouse-session-id",
		SessionTTL: time.Minute,
		Refuse: refuse(codes.Unimplemented, "BeginTransaction", "EndTransaction", "BeginSavepoint", "EndSavepoint",
			"CancelQuery", "CloseSession", "CommandStatementIngest"),
	}
}

// InfluxDB has no sessions at all: every ticket carries its statement.
func InfluxDB() Profile {
	return Profile{
		Name:           "influxdb",
		SessionKey:     ByCall,
		RoamingTickets: true,
		Refuse: refuse(codes.Unimplemented, "BeginTransaction", "EndTransaction", "BeginSavepoint", "EndSavepoint",
			"CancelFlightInfo", "CancelQuery", "CloseSession", "SetSessionOptions", "GetSessionOptions",
			"CommandStatementUpdate", "CommandStatementIngest"),
	}
}

func refuse(code codes.Code, names ...string) map[string]codes.Code {
	m := make(map[string]codes.Code, len(names))
	for _, n := range names {
		m[n] = code
	}
	return m
}

// arrowActions is what Arrow's own server libraries list, whatever is
// implemented behind them.
func arrowActions() []string {
	return append([]string{"CancelFlightInfo", "RenewFlightEndpoint"}, sqlActions()...)
}

// sqlActions are those of Flight SQL alone.
func sqlActions() []string {
	return []string{
		"CreatePreparedStatement", "ClosePreparedStatement", "BeginSavepoint", "BeginTransaction", "CancelQuery",
		"CreatePreparedSubstraitPlan", "EndSavepoint", "EndTransaction",
	}
}
