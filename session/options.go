package session

import (
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc/metadata"
)

// QueryOptions adjust one call. The zero value is what Query and Update use.
type QueryOptions struct {
	// Timeout bounds the call and the reading of its result, to its end or
	// Release, with the wait for a connection, or for the end of the session's
	// call before. Zero: the pool's DefaultQueryTimeout. Negative: none.
	Timeout time.Duration

	// Retry applies to calls of the pool. A SessionHandle never retries.
	Retry RetryPolicy

	// Params binds the statement's parameters, a row per execution. Its columns stand by
	// their position; those that are named as the server names other parameters are refused.
	Params arrow.RecordBatch

	// Args are the parameters of one execution as Go values: what Query takes after the
	// text. They stand by their position, or all of them are a sql.Named and the server
	// tells the names of the statement's parameters, as DuckDB does of $name; else the
	// call fails. One that is an arrow.RecordBatch is taken as Params.
	//
	// nil, nil pointers, nil slices and nil maps are NULL. Values go as booleans,
	// integers, floats, texts, binary values, times, durations, and slices as lists;
	// types with a Value method of database/sql as what that returns, also for a nil
	// slice or map, and structs and slices with MarshalText as texts. Decimal is sent as
	// a text, exactly; where a server made with DataFusion (InfluxDB 3, Spice) tells that the
	// parameter is a number, it goes as one, and so does a text that is one, since that server
	// would compare texts. A time is sent in microseconds, cut off to them, unless the server
	// tells that a parameter has nanoseconds; for a timestamp without zone, where the server
	// tells that (see adbcpool), it is the clock of UTC. Where the server tells that a parameter is a date or a time of day, it is that
	// of the time in its own zone, and a duration within a day is a time of day, too. Where it
	// does not tell, as DuckDB of the inner of two casts, (?::DATE)::VARCHAR, the server makes
	// its date of the instant: give a text.
	Args []any

	// Headers are sent with the call's RPCs, as they are when the call is made, and not
	// with what the pool asks besides, such as for a cancel.
	Headers metadata.MD

	// Route says whether the statement is sent as a query or as an update.
	// The zero value, RouteAuto, decides by its text.
	Route Route

	// Progress hears how far a query is, as a fraction from 0 to 1 where the
	// server knows it, while the call waits for the server's answer. It has
	// the query made by PollFlightInfo, at most 20 polls a second; servers
	// without that are asked as usual and give no progress, which is found
	// out once for a pool. It is called from the call's goroutine, which
	// waits for it, and not after the call's context has ended. Changes, queries
	// that change several things, and ADBC drivers that are not our own, ignore it.
	Progress func(fraction float64, known bool)

	// NoCancel leaves the statement running on the server when the caller's
	// context ends. The caller returns at once all the same; the connection
	// comes back when the statement has ended, however long that takes.
	NoCancel bool

	// asUpdate says that the call is an update, which is answered when it has ended.
	asUpdate bool

	// ownGoroutine has the call's step run in a goroutine of its own.
	ownGoroutine bool

	// backgroundRollback marks the rollback that other calls wait for.
	backgroundRollback bool

	quiet bool   // it is no failure that there was nothing left to do
	text  string // the statement, or the table of an ingestion, for tracers
}

// UpdateResult is what a change did.
type UpdateResult struct {
	RowsAffected int64 // -1 when the server does not tell
}
