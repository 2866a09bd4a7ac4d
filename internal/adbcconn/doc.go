// Package adbcconn is the ADBC backend: backend.Conn over connections of ADBC
// drivers, in two kinds.
//
// # Our own driver
//
// Driver is ADBC's Flight SQL driver, go/adbc v1.12.0, of which only the client
// logic is used. Interceptors take every RPC that it makes and carry it out on
// a connection of package flightconn, as ExternalCalls. So its connections have what
// native ones have: one transport that is never dialled again, one credential,
// cookies, limits, locations that all connections share, server-side cancel,
// a bounded Close, and errors with the server's status.
//
// Queries, updates, prepared statements and bulk ingestion go through the
// driver. Transactions, savepoints, session options, metadata, pings and
// cancelling are the native connection's own, as is an ingestion with
// compression or server-specific options, which the driver does not have, or with
// dictionaries.
//
// Defects of the driver, and the workaround for each:
//
//	Open succeeds on a dead server     the native connection has proven itself
//	it dials again without a word      it has no transport of its own
//	a failed commit wedges it          transactions are not the driver's: the id is put into its commands
//	it ingests outside of them         the same
//	it crashes on several endpoints    the schema is read from the first stream, and shown to it
//	without a schema
//	it trusts a stale FlightInfo       the same
//	it closes clients of locations     it is shown no locations
//	five minutes on, streams or no
//	it opens endpoints in any order    each is opened when those before have sent their schema
//	it asks for all of them at once    where a session serves one call, each after the end of those before
//	where one endpoint fails it waits  the RPCs of a result end once its reader has given it up
//	for the others, and tells it then
//	Close waits for ever               its CloseSession is refused; the native one is bounded
//	it crashes when entered after it   it is closed by the last one out
//	it writes JSON to stderr           its logger discards
//	its errors lead nowhere            the status of the RPC that failed is kept beside them
//	it answers updates half-way        DoPut is read to its end before it hears the answer
//	it takes the first of several      what all of them say is put in its place;
//	answers, and an empty handle       a statement without a handle is none
//	it sends batches of any size       parameters and rows are split by measured size
//	it leaves out dictionaries that    rows with dictionaries are ingested by the native connection
//	are about those before
//	it changes the dictionaries of     results whose dictionaries have dictionaries are refused
//	dictionaries in batches given out
//
// # Other drivers
//
// GenericConn is a connection of any adbc.Database. The driver is entered by one
// goroutine at a time, Close included, and the caller waits for that goroutine
// no longer than its context and 30 ms: a driver that has not returned by then
// is left to itself, with its connection lost. Whatever it returns later is let
// go of. Rows, and their end, that come when the context has ended are none, since some
// drivers leave rows out then. A timeout or cancel of the driver's own says of a change
// that it may be done.
//
// Cancelling is the end of the context. A driver that returns has ended the statement,
// but that of Flight SQL: its server may run it on, which cannot be seen, so that every
// statement that is cut short costs its connection. ADBC's autocommit stands for
// transactions: a connection whose commit or rollback has failed is given up,
// and a commit whose error does not say that it was refused is of unknown
// outcome. Faults are told by the gRPC code where a Flight SQL driver gives it
// as the vendor's, and by ADBC's status otherwise. Batches are checked as those
// of the wire are: drivers hand on what their servers send.
//
// The Flight SQL driver dials again by itself, which cannot be seen from
// outside. In a transaction every statement is prepared first, and runs by its
// handle once the handle of the one before has been closed with success: a
// server knows the handles of one session only. So no statement takes effect
// in another session than the transaction's, and no commit is confirmed that
// was another's, wherever the driver dials again; see generic_proofs.go. It
// costs two round trips a statement. Outside of transactions that is done for an update in a
// session that was prepared for its borrowers (backend.Call.Prove), and for nothing else: use
// Driver where temporary tables and settings matter. Statements that are prepared to be kept are all
// of one session, so that none runs in place of another, and of a server that tells them apart; see generic_kept.go.
//
// Parameters are cut into messages that the Flight SQL driver can send, or refused: it would send the beginning of
// what it cannot.
//
// The endpoints of the Flight SQL driver's results are read one after the other, as
// partitions: its own reader gives out rows behind those that have failed, and crashes on
// several endpoints without a schema.
//
// Not to be had there: savepoints, session options, keys, SqlInfo, type info,
// server-side cancel, and ingestion inside a transaction of the Flight SQL
// driver. All are FaultUnsupported. That driver's own reader, which is not used, also has
// a data race in v1.12.0, when a result is given up early: it reads trailers that gRPC
// still writes.
//
// # Files
//
//	driver.go, wire.go       the Flight SQL driver and its wrapping; its RPCs and where they go
//	conn.go, rows.go         a connection and its calls; its DoGet: endpoints and schemas
//	position.go              how far a result was given out
//	prepared.go, command.go, ingest.go   statements; its DoPut and DoAction: transactions
//	send.go, stream.go       what both kinds share; like.go, fault.go: patterns, errors
//	generic.go               the other kind: any driver of ADBC's
//	generic_driver.go        which driver it is
//	generic_call.go          one call of it
//	generic_query.go, generic_partitions.go, generic_prepared.go, generic_kept.go, generic_ingest.go, generic_whole.go,
//	generic_duckdb.go, generic_postgres.go, generic_ask.go, generic_tx.go, generic_owntx.go, generic_realtx.go, generic_proofs.go, generic_metadata.go,
//	generic_columns.go
package adbcconn
