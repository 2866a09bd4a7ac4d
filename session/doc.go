// Package session runs calls, transactions and results on one server session
// for its caller: SessionHandle, and the results and prepared statements that
// come from it. Package backend is what it runs on.
//
// # States of a handle
//
//	       begin             finish
//	idle ────────▶ busy ──────────────────────────────────────▶ idle
//	                │ caller gone, or something is left to do       ▲
//	                ▼                                               │
//	             ending ── ended on the server, or cancel confirmed ┤
//	                │ cancel unconfirmed, or transport lost
//	                ▼
//	              lost ── every call answers ErrSessionLost
//
// Close leads from any of them to closed: what is open is rolled back and
// taken back, and the connection is returned for reuse or discarded.
//
// # The life of a call
//
//	                          step answered
//	begin ──▶ running ─────────────────────────┬──────────▶ finish
//	             │                             │ rows         ▲
//	             │                             ▼              │ end, error
//	             │                          reading ──────────┤
//	             │ interrupt                   │              │
//	             │ (context ended,             │ interrupt:   │ RPC ended
//	             │  handle closed,             ├──────────────┤
//	             │  callback panicked)         │ let go:      │ read on, then
//	             ▼                             ▼              │ RPC ended
//	          left by its caller ──────────────┴──────────────┘
//
// A call begins in begin and ends in finish, once, on every path; nothing else
// moves the handle out of busy. finish is given an outcome: success, an error,
// an RPC that was ended before the server had answered (cut), or rows that
// nobody reads (unread). From that recordCallEnd decides, in one place, whether the
// session is idle, lost or to be cancelled, what it has left behind, and whether
// an open transaction is aborted.
//
// What takes time is done in the background, in the state ending, in which later
// calls of the handle wait: reading on, closing the prepared statement of a
// QueryWithParams, the cancel chain.
//
// # States of a transaction
//
//	none ── BeginTransaction ──▶ open ── statement fails ──▶ aborted
//	 ▲                            │ Commit, Rollback            │ Rollback, Commit
//	 └────────────────────────────┴─────────────────────────────┘
//
// The handle keeps this state itself and does not take it from the server's replies.
// In aborted
// every statement answers ErrTxAborted and what has aborted the transaction,
// and Commit rolls back and says so. A Commit that the server refuses ends in
// none: it is rolled back within the same call. A result that is let go before
// its end aborts nothing, unless the server does not let the transaction go on
// after the cancel, or the statement may have changed something.
//
// A server that would confirm the end of a transaction it does not know is found
// out once (Conn.RejectsUnknownTx). There a handle with anything to lose has a proof
// of its session, made before: see proof. Elsewhere one has it that has set something, or
// made what only text names. It costs a handle two round trips, and two more for each proof: there before
// what follows the last one by 5 s or more outside of transactions, where the server confirms unknown
// transactions before every change as well, and behind COMMIT and ROLLBACK. A session that the server replaces
// after it has answered the proof, and before the change or the begin that follows
// comes, is noticed only by the next call, or after that transaction; behind a COMMIT that was
// confirmed the proof is compared again.
//
// # Calls and their contexts
//
// Every RPC runs on a context of the pool's own. When the caller's ends, the
// caller returns at once. What becomes of the RPC then depends on the call.
// Queries and changes are cut short: the RPC is ended, then the server is asked
// on another channel, and a probe on the session has to answer before anything
// else runs there. The probe proves the statement's end only where a session
// runs one statement at a time; whether it does is learned from probes beside
// the first statements that are cut short, three of them one after the other
// (see learnOrder), where they have rows of their own, and not those of another
// (see recordWait). Until then, and elsewhere, the server itself has to say that
// it has cancelled the statement, else its connection is closed; and so of a call
// that may be several statements to it (see mayBeInterleaved).
// Begin, Rollback, Prepare, savepoints and options are brief:
// they go on in the background, within the cancel budget, and their late answer
// is undone or recorded. Commit, and calls with NoCancel, go on to their end,
// however long that takes.
//
// Steps that the caller must be able to leave, and all those with callbacks of
// the caller's, run in a goroutine of their own. A panic or Goexit in a callback
// ends the call as if it had been cut, and goes on in the caller.
//
// # What a session leaves behind
//
// What a statement leaves in its session is read from its text (sideEffects). Under
// ResetAuto a value is read before the first statement that changes it; at the end it
// is put back and compared. What cannot be read in time, put back or verified costs the
// connection, never the next borrower. The order at the end is: the transaction is
// rolled back, also one that a failed statement has left, prepared statements are closed,
// options, settings and the namespace are put back, temporary objects dropped, and a
// session in doubt is probed.
//
// The connection is returned once, by cleanAndReturn, or by becomeIdle where there is
// nothing to clean. becomeIdle also drops it as soon as the session is lost: the handle
// lives on to say so, and the pool can open another.
//
// # What is learned of a server
//
// Servers differ in what they promise, and none says so beforehand. What is found out is
// kept for all sessions of the server, and every step of it leans to the safe side:
//
//   - whether it refuses the end of an unknown transaction (Conn.RejectsUnknownTx), on
//     the first call that gives the handle something to lose, before a transaction where it
//     was refused, or while the next connection is opened where the call was cut; not known: it
//     does not, and a prepared statement is prepared again for each transaction all the same;
//   - whether it executes queries twice (QueryRepeater), before the first change that
//     returns rows; not known: it does;
//   - whether it takes a text of several statements for the first of them (TextCutter), before one is sent; not known:
//     it does not;
//   - what it does with a query that it is to prepare (learnPreparing), before transactions and INSERTs with
//     parameters, and behind a loss for want of a cancel; not known: what is left is cut;
//   - whether a session runs one statement at a time (StatementOrder), beside the first
//     statements that are cut short; not known: no probe proves an end;
//   - which questions about its state it answers (Policy.answeredQueries), as they are
//     asked; not known: they are not asked inside a transaction;
//   - for which tables a bulk load leaves the session where it was
//     (Policy.nonMovingInserts), when a second one has been seen to, in a session that has
//     proven to be the same; not known: the namespace is read before and after.
//
// # Lock order
//
// QueryResult.mu, then call.mu or SessionHandle.mu. None of them is held across a call of
// Conn, a hook or the release of the connection.
package session
