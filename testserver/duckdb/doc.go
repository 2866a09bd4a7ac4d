// Package duckdb is a testserver on a real DuckDB: the same protocol layer,
// profiles, faults and ledger, with a real SQL engine and real data behind it.
//
//	srv, err := duckdb.Start(ctx, duckdb.Config{Tables: os.DirFS("data")}, testserver.Options{})
//
// Each session is one DuckDB connection, so temporary tables, settings and
// transactions are its own. Rows of a SELECT are computed while they are read.
//
// A statement runs in one thread, beside those of other sessions: with more, DuckDB can
// lose the error of one that fails while its rows are read. Config.Settings has "threads"
// for where large queries have to be fast.
//
// Cancelling: the end of a statement's context interrupts DuckDB at once, and
// again every few milliseconds until the statement has stopped. The connection
// is usable right after, and no interrupt can hit its next statement.
//
// Transactions: DuckDB answers COMMIT of an aborted transaction with success
// and stores nothing. Commit here tells; COMMIT as SQL text is left as DuckDB
// has it. Savepoints do not exist.
//
// The session options "catalog" and "schema" say where names are looked for.
//
// Parameters may be of any Arrow type but structs, maps and unions. Where a table is
// made for an ingestion, unions, run-ends and float16 have no type. What DuckDB cannot hold
// exactly (more than 38 digits, intervals and zoned timestamps finer than a microsecond, a
// date with a time of day) is an error, of parameters and of ingestions; of what is
// ingested, intervals of days and milliseconds are one too.
//
// Engine.Live adds views whose rows this process makes whenever they are read.
//
// It needs cgo, a C++ linker and the build tag duckdb_arrow, which is why it
// is a module of its own:
//
//	go test -tags duckdb_arrow ./...
//
// The database can read and write the files of its user. It is made for tests
// and demonstrations on one machine, not for networks.
package duckdb
