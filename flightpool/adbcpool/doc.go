// Package adbcpool joins the pool and ADBC, in both directions. It is a package
// of its own so that nobody else compiles ADBC.
//
// In: Open makes a pool whose statements go through ADBC's Flight SQL driver,
// on transports of the pool. It takes what flightpool.New takes and keeps what
// that promises. New makes a pool over any ADBC driver, as far as ADBC's own
// interfaces reach; see there for what that lacks.
//
// Out: Database is a pool, of any backend, as an adbc.Database. It takes sessions
// out of the pool and gives them back clean; it keeps no connections of its own,
// nor closes the pool. For database/sql see package sqldriver.
//
//	pool, err := adbcpool.Open(ctx, "grpc+tls://warehouse:31337", flightpool.Config{MaxSize: 8})
//	…
//	defer pool.Close(ctx)
//	conn, err := adbcpool.Database(pool).Open(ctx)
//
// # Drivers that dial again
//
// ADBC's Flight SQL driver makes another connection when its own has broken,
// without a word, and the server has another session for it. With Open that
// cannot happen. With New the pool watches over transactions: their statements
// run by handles that were proven to be of the transaction's session. Wherever
// the driver dials again, no statement of the transaction takes effect in the
// new session, and the call answers ErrSessionLost; a commit that may have come
// before or after it answers ErrCommitUnknown as well. None begins in a session
// that Config.OnConnect has not prepared, and no update outside of transactions runs in
// one. This costs two round trips a statement, six for such an update, takes one statement
// a text, and only such as the server can prepare. No prepared statement runs in place of
// another: where one is prepared, or a transaction begun, in another session than those that are open, the
// call answers ErrSessionLost. That costs three to five round trips for each that is prepared. Where the server gives
// statements no handles of their own (older releases of StarRocks) none is prepared, which the first one of a pool finds out.
//
// The endpoints of a result are read one after the other with New, and at once with
// Open. A dictionary whose values have dictionaries is unsupported with both, since the
// driver changes it in batches that it has given out.
//
// What remains impossible with New:
//
//   - Outside of transactions the loss of a session is not seen: temporary
//     tables, settings and prepared statements are gone, and the server says so
//     in its own words, if at all.
//   - One that comes right before a change, behind the proof of a session that
//     Config.OnConnect has prepared, has that change run without, where it is an
//     ingestion, returns rows by Query, is one of several statements in its text, or is
//     none that the server prepares.
//   - On servers that run a SELECT in order to prepare it, one with effects has
//     had them in the new session before its loss is found out.
//   - A server that executes a query twice, for its schema and for its rows, is
//     not found out: it executes a change twice that returns rows and goes by
//     Query.
//   - Nor is one that runs what begins with WITH in order to prepare it (SwanLake): where such
//     a change is prepared, or has parameters, that makes it, with NULLs for them, and
//     it is told as failed.
//   - Nor is one that stores the parameters of an INSERT as they are, whatever its VALUES or
//     SELECT makes of them (SwanLake).
//   - Nor is one that takes a NULL among the parameters for the text null, or a value of a dictionary, also one that is ingested, for
//     all of that, or the number of a duration, which is one of nanoseconds or the like, for one of seconds, or a value of an
//     extension type of Arrow's own for what its library prints (GizmoSQL on DuckDB): write them into the statement there, or use
//     Open, with which they are refused.
//   - Nor is one that takes a read for a command, and drops its rows (SwanLake: SHOW
//     DATABASES, CALL, and with parameters what its parser does not know): such a result has no
//     columns and no rows. With Open it is an error.
//   - Nor is one that runs the first of several statements of a text alone and confirms the others (Arrow's example in C++ for SQLite), or gives
//     the rows of that one (GizmoSQL): send them one by one.
//   - Nor is one to which equal texts of all clients are one statement (Arrow's reference server in Java): calls with
//     parameters that run beside each other have the rows of each other's.
//   - Nor is a database that commits a transaction before it changes its schema (MySQL, Snowflake): what came before a
//     CREATE TABLE is stored then, whatever Rollback answers, and an InTx that runs again makes it again.
//   - Nothing can be watched on servers without prepared statements, or which
//     do not refuse to close a handle that they do not know; nor prepared statements where none of a
//     SELECT of a text alone is taken, and HealthCheck.SQL is not VALUES 1.
//   - Other drivers that dial again behind their caller's back are not watched.
//   - Servers that bind a session to a cookie, as Dremio does, have none for the driver, unless its database has the option
//     flightsql.OptionCookieMiddleware: each call has a session of its own, with which a USE or SET ends, though it is confirmed.
//   - The driver believes the first answer to a change. A server that answers and fails then has failed unseen.
//   - The driver (v1.12.0) keeps the transport of an open whose user and password are refused, until gRPC closes it: half an hour later.
//   - ADBC's Flight SQL driver gives up the stream of an ingestion whose rows fail, or whose context ends:
//     servers made with Arrow's C++ library (GizmoSQL) take that for the end of the rows, and store
//     what has come. Its connection is closed.
//
// # Drivers in C
//
// They are used by ADBC's driver manager (go/adbc/drivermgr), of which New takes a database. It
// hands on no context: a statement runs on in the database when its context has ended, its connection is
// given up at once, and closed when the driver returns. How many rows a change has affected, or an
// ingestion stored, is the driver's word: DuckDB's tells 0 of a change. What rows have failed with while they
// were read has no code of ADBC's, and no SQLSTATE. DuckDB's loads rows into a temporary table, from which
// a statement stores them by the names of their columns. It would take Arrow's intervals of days
// and milliseconds for other lengths: they are refused (FaultUsage). It tells no types of parameters: a time.Time among them goes into a
// column without a zone, and is compared with one, by the session's TimeZone, which is the machine's until it is set: Config.OnConnect
// with SET TimeZone = 'UTC' has it be UTC's clock. PostgreSQL's sends the bytes of a value whatever its
// column: rows of other types than a table that is there has are refused (FaultUsage). A statement of it that has a time.Time among its
// parameters runs with the time zone UTC, whatever the session's is: that is the zone of its dates and of what it casts to a time; a SET LOCAL TIME ZONE before it lasts beyond the transaction.
// Within a transaction that driver has the server tell a statement's parameters, by its text alone: one of which the server cannot tell the
// types (jsonb_build_object('k', $1)) fails there behind another, and aborts the transaction, and does not with a cast ($1::text). Use 1.13.0 of it or a
// newer one: those before store NULLs within lists as values.
// The Flight SQL driver is refused there: use Open.
//
// # ADBC's transactions
//
// With autocommit off, a transaction begins with the first statement, not when
// the last one has ended. A statement that fails inside it leaves nothing to do
// but Rollback: everything else, Commit included, answers ErrTxAborted. A failed
// Commit ends the transaction: the next statement begins another, and a Commit
// before that fails as the first did. Only a Commit of which nothing was sent,
// because a result is open or its context had ended, leaves the transaction to
// be committed or rolled back once more.
//
// # Errors
//
// Those of the pool and of database/sql are *flightpool.Error. With the ADBC
// backends errors.As finds an adbc.Error, by value and by pointer, in those
// that came from the driver; Database's errors are all adbc.Error. A gRPC
// status and the context's error are found through all of them.
package adbcpool
