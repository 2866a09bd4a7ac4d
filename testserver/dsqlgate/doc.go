// Package dsqlgate is a stand-in for an Aurora DSQL cluster: a TLS gateway in
// front of a real PostgreSQL that admits, refuses, limits and fails as DSQL
// does. It serves tests and demonstrations.
//
// What it does as DSQL does:
//
//   - TLS only, by SSLRequest or direct, and only with SNI.
//   - Passwords are presigned tokens. The gateway signs them again with its own
//     code and compares in constant time; action, region, host and the expiry of
//     token and credentials are checked, for the open only.
//   - A bucket of 100 opens per second and 1,000 at once (53400), 10,000
//     connections (53300). Whether refused attempts cost a token is not known
//     of DSQL: Options.RefusalsCost.
//   - Sessions end after 60 minutes, between transactions, or at most 5 minutes
//     later within one. Transactions end after 5 minutes or 3,000 changed rows
//     (54000).
//   - Repeatable read is the isolation. Conflicts are 40001 with OC000 and
//     OC001.
//   - One database, postgres; one DDL statement per transaction and no DML
//     beside it; savepoints, TRUNCATE, temporary tables, sequences, triggers,
//     LISTEN and CREATE DATABASE are 0A000.
//
// What differs: PostgreSQL's second writer waits for the first and fails at its
// statement; DSQL's fails at COMMIT. FailCommits does the latter on demand, for
// a COMMIT sent as a simple query, as pgx does. Other differences of the SQL
// dialect are PostgreSQL's.
//
// Every limit can be set, so that a story of 60 minutes takes seconds. Faults
// are methods of Gate. Stats counts all that was admitted and refused.
//
// # Files
//
//	options.go, gate.go      what users see; start and end
//	admission.go             the bucket and the count; statistics
//	token.go                 verification of tokens
//	handshake.go, upstream.go   from accept to the first ReadyForQuery; PostgreSQL's part
//	session.go, relay.go     one connection and its messages
//	statement.go             what DSQL does not do
//	faults.go                what tests do to it
package dsqlgate
