// Package sqlconn makes any database/sql driver a target of a reservoir: MySQL
// and MariaDB, SQL Server, Firebird, PostgreSQL.
//
//	wrapper := sqlconn.NewWrapper()
//	defer wrapper.Close()
//	target, err := sqlconn.New(wrapper, sqlconn.Config{Connector: connector, Kind: sqlconn.MySQL})
//	…
//	pool, err := reservoir.New(reservoir.Config[*sqlconn.Conn]{
//		Open: target.Open, Close: target.Close, Check: target.Check, Reset: target.Reset,
//	})
//	…
//	loan, err := pool.Acquire(ctx)
//	…
//	lent, err := loan.Value().Lend(ctx) // a *sql.Conn for this loan alone
//
// # Two levels
//
// A Conn is one physical connection; the reservoir keeps it. What a borrower
// uses is a *sql.Conn that Lend makes for one loan. Its end is the end of every
// Tx, Stmt and Rows that came from it, so that nothing of a loan can reach the
// server in the next one: a transaction that was forgotten cannot be committed
// by its old owner any more.
//
// database/sql pools connections of its own accord. A Wrapper is a sql.DB that keeps
// none and dials nothing: it only wraps what it is given. One Wrapper serves any
// number of targets, since every sql.DB has a goroutine.
//
// # Clean on return
//
// Reset rolls back, asks the driver to reset its session and runs the Kind's
// statements. MySQL and MariaDB have no statement that takes everything back.
// There a connection comes back for reuse only when all statements of the loan
// are known to leave nothing behind but what functions like LAST_INSERT_ID() tell,
// which is taken back after changes, and is closed otherwise; after reads alone the next
// borrower can ask FOUND_ROWS() and SHOW WARNINGS for theirs. Stored functions, triggers and the
// defaults of columns are taken to leave nothing: one that sets user variables does, and
// one that takes from a sequence.
//
// # Calls beside open rows
//
// Most drivers take one call at a time. What is called while rows are open fails then, at
// once, and may cost the connection. Its error is not driver.ErrBadConn, with which
// database/sql would wait for the rows before the call returns; Broken knows it.
//
// # Transactions whose end fails
//
// A COMMIT or ROLLBACK that the server refuses, or that could not be sent beside open rows, may
// leave the transaction open, while to database/sql it is over. So may a BEGIN that fails, as one whose context
// ends when the server has begun. Before the next call of the loan
// it is rolled back; while rows are open that call fails instead. Where a second transaction of the
// same *sql.Conn is open, which is the same one to the server, no call but its Rollback is taken
// any more, and the connection is lost.
//
// A transaction whose context ends is rolled back by database/sql behind its borrower. Until that is done the calls of
// the loan fail; then its *sql.Conn is closed.
//
// # Deadlines
//
// When a statement's context ends, some drivers stop the statement, and some only
// close the connection. MySQL and MariaDB compute on then. For them a second
// connection ends the session on the server, at once; Config.Stopped is told how
// that went, and Close waits for it. The connection is lost either way, and its
// loss is not held against the server.
package sqlconn
