// Package sqldriver is the pool for database/sql, and for what is made on top of
// it: sqlx, sqlc, bun, gorm, goose and others. It knows nothing of ADBC.
//
//	import _ "github.com/flightpool/flightpool/flightpool/sqldriver"
//
//	db, err := sql.Open("flightpool", "grpc+tls://warehouse:31337?max_size=8")
//
// or, over a pool that is there already, of any backend:
//
//	db := sqldriver.OpenDB(pool)
//
// # Connections
//
// Each use of the DB takes a session of the pool and gives it back at its end.
// Limits, waiting and idle connections are the pool's: database/sql keeps none,
// whatever SetMaxIdleConns says, and SetMaxOpenConns only adds a second limit. A
// *sql.Conn that no call has used, or one that database/sql has opened for somebody
// who has left, gives its session back after a second; its first call takes another.
// db.Stats shows the sessions that the DB has borrowed; Pool(db).Stats() shows the
// pool.
//
// # Parameters
//
// They are positional ("?" or what else the server takes) and need no Prepare.
// They are what flightpool.QueryOptions.Args takes, and what has a Value method is what
// database/sql makes of it. A time.Time goes as the instant it is, in UTC. Where the
// server tells that a parameter has no zone, it is the clock of UTC, and where that is a date
// or a time of day, the time's own; a server that does not tell makes it one of the session's zone. It
// goes in microseconds. One that is finer, as time.Now() is, has its nanoseconds cut
// off, as drivers of PostgreSQL do it, unless the server says that the parameter is of
// nanoseconds: then they go with it.
//
// # Values
//
// Rows give what the driver interface has: int64, float64, bool, []byte, string,
// time.Time. Durations and times of day are nanoseconds, and so fit a
// time.Duration; decimals, intervals and integers above the range of int64 are
// exact strings. Lists are []any, structs and maps map[string]any, of such values,
// for an *any.
//
// # Errors, contexts, transactions
//
// Contexts end statements on the server, as with the pool itself. Errors are the
// pool's, of type *flightpool.Error; where nothing was sent on a connection that
// is gone, and no rows or transaction were open, errors.Is also finds
// driver.ErrBadConn, and database/sql has tried others already. Isolation levels and read-only transactions are refused.
// WithRoute says how a statement is sent whose text leaves that open.
//
// A panic of an argument's Value, of an interceptor in Config.DialOptions or of an ADBC
// driver is an error, since database/sql would keep its connection for ever. Where one of the
// latter two ends the goroutine by runtime.Goexit, the pool loses nothing, and what
// its caller has open of database/sql's stays locked.
package sqldriver
