// Package flightpool keeps connections to an Arrow Flight SQL server ready.
//
//	pool, err := flightpool.New(ctx, "grpc://127.0.0.1:31337", flightpool.Config{MaxSize: 8})
//	…
//	defer pool.Close(ctx)
//	rows, err := pool.Query(ctx, "SELECT origin, avg(delay) FROM flights GROUP BY origin")
//	…
//	defer rows.Release()
//	for rows.Next() {
//		use(rows.RecordBatch())
//	}
//	return rows.Err()
//
// Or as Go values, with parameters by position or by name (see Rows and QueryOptions.Args):
//
//	for flight, err := range flightpool.Rows[Flight](pool.Query(ctx, "SELECT * FROM flights")) {
//	flights, err := flightpool.CollectRows[Flight](pool.Query(ctx, "SELECT * FROM flights WHERE origin = ?", "BER"))
//	err = pool.QueryRow(ctx, "SELECT count(*) FROM flights WHERE origin = ?", "BER").Scan(&n)
//
// Calls of the pool run on any free connection, from any number of goroutines. A
// transaction has a connection of its own, from BeginTx to its Commit or Rollback:
//
//	err = pool.InTx(ctx, flightpool.TxOptions{}, func(ctx context.Context, tx *flightpool.Tx) error {
//		_, err := tx.Update(ctx, "UPDATE account SET balance = balance - ? WHERE id = ?", 10, 1)
//		return err
//	}) // run again when it conflicts with another
//
// Several statements on one connection are a Batch, for SendBatch. What else needs a
// session of its own (a temp table, a setting, a prepared statement) takes a
// SessionHandle by AcquireSession and gives it back by Close.
//
// # What holds
//
//   - When a context ends, the call returns at once, and the statement is
//     stopped on the server. A connection on which that cannot be confirmed is
//     never lent again.
//   - A change is sent once. A read is repeated once, on a connection that has
//     just answered, and only before its first batch.
//   - Commit answers nil only when the server has committed this transaction
//     in this session.
//   - A connection is one transport and one server session. When it breaks,
//     its handle answers ErrSessionLost and nothing reaches a new one.
//   - Nobody sees what an earlier borrower left.
//   - Whoever waits is served in the order of arrival. Connections are opened
//     in the background, never by the caller who waits.
//
// # The way of a query
//
// Query takes a loan from the reservoir (package reservoir: an idle connection, or a
// place in the queue while one is opened: lease, permit, dial, probe), wraps it in a
// handle (package session), and hands out the result. At the result's end the handle
// decides: reuse, or discard with a reason; the reservoir's dispatch passes the
// connection on.
//
// # Errors
//
// Every error of a call of a pool or session wraps an *Error: Fault says whose
// fault, Stage how far the call had come, SafeToRetry whether it may be
// repeated. errors.Is finds the context's error when a deadline or cancellation
// was the cause, and status.FromError the server's own status. What does not fit a
// Go value, and ErrNoRows, are errors of rows, without an *Error: the call has succeeded.
package flightpool
