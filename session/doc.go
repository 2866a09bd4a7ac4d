// Package session is one server session in a caller's hands: SessionHandle,
// the results and prepared statements that come from it, and the Conn seam
// that backends implement.
//
// # States of a handle
//
//	        call            answer, or result at its end
//	idle ────────▶ busy ─────────────────────────────────▶ idle
//	                │ context ended, or result released early
//	                ▼
//	            cancelling ── confirmed ──▶ idle
//	                │ unconfirmed, or transport lost
//	                ▼
//	              lost ── every call answers ErrSessionLost
//
// Close leads from any of them to closed: what is open is rolled back and
// taken back, and the connection is returned for reuse or discarded.
//
// # States of a transaction
//
//	none ── BeginTransaction ──▶ open ── statement fails ──▶ aborted
//	 ▲                            │ Commit, Rollback            │ Rollback
//	 └────────────────────────────┴─────────────────────────────┘
//
// The state is the handle's own; no server's word replaces it. In aborted
// every statement answers ErrTxAborted, and Commit rolls back and says so. A
// server that would confirm the end of a transaction it does not know is found
// out once (Conn.TrustsTxIDs); there a prepared statement made with the
// transaction is the proof, before COMMIT, that the session is still the one
// that began it.
//
// # Calls and their contexts
//
// Every RPC runs on a context of the pool's own, which ends when the caller's
// does. The caller then returns at once; the cancel chain goes on behind it
// and decides whether the connection may be used again: the RPC is ended, then
// the server is asked on another channel, and a probe on the session itself
// has to answer before anything else runs there. Begin, Commit, Rollback,
// Prepare and savepoints are short and never cut short: a caller who gives up
// gets an error, and the late answer is undone or recorded.
//
// # Lock order
//
// QueryResult.mu, then SessionHandle.mu. Neither is held across a call of
// Conn, a hook or the release of the connection.
package session
