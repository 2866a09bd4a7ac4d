package dsql

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// AcquireTracer hears of every call for a connection, of pgx and of database/sql
// alike. The caller waits for it until its context ends; a connection that
// TraceAcquireEnd has by then is closed. It may be called concurrently. A tracer of
// pgx's own (Config.Pgx) is called by pgx, and holds the caller for as long as it takes.
type AcquireTracer interface {
	// TraceAcquireStart is called when a call begins. The context that it returns
	// is that of the rest of the call.
	TraceAcquireStart(ctx context.Context, data TraceAcquireStartData) context.Context
	// TraceAcquireEnd is called when a connection was got, or none.
	TraceAcquireEnd(ctx context.Context, data TraceAcquireEndData)
}

// TraceAcquireStartData is what is known when a call for a connection begins.
type TraceAcquireStartData struct {
	// Cluster is what the connection is to come from.
	Cluster *Cluster
}

// TraceAcquireEndData is what became of a call for a connection.
type TraceAcquireEndData struct {
	// Conn is the connection, nil when Err is not.
	Conn *pgx.Conn
	// Err is why there is none.
	Err error
}
