// Package dsql keeps connections to an Aurora DSQL cluster ready, so that
// requests never wait for the cluster's limits: 100 opens per second with a
// burst of 1,000, 10,000 connections, 60 minutes a session.
//
//	db, err := dsql.OpenDB(ctx, dsql.Config{Host: host})      // database/sql
//	pool, err := dsql.NewPool(ctx, dsql.Config{Host: host})   // pgx
//
// Both stand on a Cluster: one reservoir, one source of tokens, one share of
// the fleet's budgets. Where several pools of one process go to one cluster,
// make the Cluster once and take a View of it for each; they then share its
// connections by maximum and reserve instead of doubling them.
//
// # The way of a connection
//
// The reservoir decides that one is missing. The open breaker delays it while the
// cluster refuses opens; then the fleet's lease (may it exist?) and permit (may it open
// now?) are asked for. A fresh token is signed for every open, since one costs 0.1 ms
// and a kept one may outlive its credentials. TLS verifies the certificate and the
// name; there is no other address and no plain text to fall back to, and PG* variables
// are not read. After its Close has returned, the lease goes back.
//
// A name that resolves to several addresses would make pgx open connections that
// no budget knows of. So an open is one attempt.
//
// # The end of a context
//
// When the context of a statement ends, the server is asked to cancel it, as
// PostgreSQL's protocol has it: by a request of its own, which is no session and
// needs no permit. The call returns with the server's answer, and the connection
// stays; without an answer within CancelGrace it returns all the same, and the
// connection is closed. So a storm of timeouts costs no opens. A request that may
// still be under way hits no other statement: its connection is closed, and one
// that has arrived is followed by an empty statement before any other.
//
// With database/sql the end of the context of BeginTx ends the transaction's statement under way as
// well, whatever context that has: tx.Exec has none.
//
// BEGIN, COMMIT and ROLLBACK are not cancelled: their answers are awaited for
// CancelGrace. A transaction whose context has ended is rolled back on a context
// of its own, in the background where its connection goes back to the pool.
//
// # database/sql
//
// The reservoir is the only idle store. A connection that database/sql lets go
// says that it cannot be kept, so it comes back at once, whatever SetMaxIdleConns
// says; there it is judged (open, idle transaction, age) and lent to the first
// who waits. Connect waits on the caller's context and then fails with
// ErrReservoirEmpty, which is not driver.ErrBadConn: database/sql would try that
// three times without a pause and hand it to innocent callers. Statements of
// db.Prepare stay prepared with each connection, as those of plain queries do.
//
// # pgx
//
// Pool has the methods of pgxpool.Pool that sqlc and other users of pgx expect;
// Close takes a context. What pgx calls safe to retry is so here: pgx itself
// says it of some statements that were sent and whose answer was lost, which
// fail with ErrLost here.
//
// # Age
//
// The defaults are those of the document that this package follows: a life of
// 11 minutes and up to 2 more. They came from the belief that a session ends with
// its token. It does not: a token is for the open alone. DSQL ends a session
// after 60 minutes and lets a transaction begun before go on for 5, so
// ReplaceAfter 50m with LifetimeJitter 2m is safe too, and costs a quarter of the
// opens: at 10,000 connections 3 per second, not 14, of the 100 that all share.
// The jitters are spread evenly, so a reservoir filled at once does not expire at
// once.
//
// A connection of that age is replaced: it is lent until its successor is there,
// at most until MaxLifetime (59m), and not in the last GuardWindow before that.
// So while nothing can be opened, nothing expires for as long as DSQL allows.
//
// # What fails, and how
//
//	53400 too fast       the fleet's limiter is told, opens pause, then one
//	                     asks for all; callers wait
//	53300 too many       opens pause for longer, then one asks for all; callers wait
//	no lease, no permit  callers wait; while the table cannot be reached and the
//	                     fallbacks grant nothing they get ErrReservoirEmpty at once
//	access denied, no credentials, wrong name, no TLS
//	                     nothing is ready: callers get the cause at once
//	anything else        the reservoir's own back-off
//	lost at COMMIT       ErrCommitUnknown: never retried
//	40001 OC000 OC001    RetryOCC runs the transaction again
//
// # A dead connection
//
// Before each loan the socket is looked at, without a system call that waits:
// one that the server closed or reset is not lent, so after a mass drop the
// next request already works. One that fell silent is found by a ping in the
// background, every CheckInterval of idleness, and by TCP's keepalive before that,
// unless Config.Dial is set.
//
// # The limits without a fleet
//
// Without LeaseTable, Leases and Limiter the budgets are this process's own:
// ConnLimit, OpenRate and OpenBurst then bound one process. With LeaseTable the
// fleet shares them in DynamoDB. While that cannot be reached, a process replaces
// the connections that it has, one for one (Fallback), at its part of the fleet's
// rate (RateFallback); a log line and Stats say so.
//
// # What holds
//
// docs/dsql.md goes through the document that this package follows, line by line:
// what is where, which test proves it, what was changed and why. Package dsqlotel
// reports Stats through OpenTelemetry.
//
// # Files
//
//	config.go, env.go, resolve.go   settings; where the cluster is
//	login.go, connect.go            one open: token, credentials, protocol
//	physical.go, socket_unix.go, socket_other.go   one connection
//	open.go, breaker.go, phases.go  permission; what a failed open means and how long to pause
//	cluster.go, budgets.go, listen.go, stats.go  the whole; its budgets, also while the table cannot be reached, and what they ask for
//	quota.go, view.go, loan.go      who may have how many; borrowing
//	connector.go, sqlconn.go, sqltx.go  database/sql
//	pool.go, conn.go, rows.go, tx.go, copy.go   pgx
//	guard.go, contain.go            functions of the user's that hang or panic; those beneath database/sql
//	ending.go                       statements and transactions whose context ends
//	commit.go, occ.go, errors.go    lost commits; conflicts; errors
package dsql
