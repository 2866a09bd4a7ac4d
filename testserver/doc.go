// Package testserver is a Flight SQL server for tests: in process, in Go
// alone, on a loopback port or in memory inside a testing/synctest bubble.
//
// # Try it without a server
//
//	srv, err := testserver.Start(testserver.Options{})  // Strict, scripted engine, 127.0.0.1:0
//	defer srv.Close()
//	pool, err := flightpool.New(ctx, srv.URI(), flightpool.Config{})
//	...
//	srv.Faults().Set(testserver.Fault{On: testserver.OnEnd, After: true, Do: testserver.Kill()})
//	err = session.Commit(ctx)        // the reply is lost; was it stored?
//	fmt.Println(srv.Ledger().Snapshot())
//
// In virtual time: Options{Listen: testserver.InMemory}, and Server.Dial as the
// client's dialer.
//
// # Its parts
//
//   - Profile: how real servers differ. Strict checks and supports everything;
//     SwanLake, GizmoSQL, Dremio, Doris, ClickHouse and InfluxDB are as those
//     are; any field can be changed. What each does is from their sources and
//     documents, SwanLake's measured on the server itself; a Profile imitates
//     what a client can see, and no more.
//   - Faults: what goes wrong, when, how often: a delay, a status, a reset, a
//     black hole, a GOAWAY, a wrong reply, before or after the work is done.
//   - Ledger: what happened. Every statement that the engine was given, every
//     cancel seen, what is open now; and Wait, which does not poll.
//   - The database, behind the seam of package engine. Package script is the
//     default; package testserver/duckdb has a real one.
//
// # What it does not do
//
// Substrait, DoExchange and foreign keys. An RPC of a transport that was frozen
// ends when the transport does. Sessions of SwanLake share the catalog "memory"
// here, which there each has for itself, unless the engine gives each its own.
//
// # Locks
//
// The order is session.engineLock, then session.mu, then one of the tables'
// (sessions.mu, tickets.mu, conns, Faults.mu, Ledger.mu), none of which is
// held while another is taken. Only engineLock is held while the engine runs.
package testserver
