// Package pglease keeps a fleet's budgets in one table of PostgreSQL: how many
// connections may exist (Leases), and how fast they may be opened (Limiter).
// The protocol, and what holds when, is package fleet's; this package is its
// Store, one row per record.
//
//	pool, err := pglease.Connect(ctx, "postgres://leases@db/ops")
//	leases, err := pglease.New(ctx, pool, fleet.Config{Budget: "flight-sql.internal:32010", Limit: 500})
//
// # How a record is written
//
// A write reads the row, finds out by fleet's own rules (Change.Holds and
// Apply) what becomes of it, and replaces it on condition that the record is
// still the one that was read; when it is not, it begins anew. The replacement
// is one statement, in one message and one transaction. There is no SELECT …
// FOR UPDATE: a process that stands still between it and its COMMIT would hold
// up the fleet, and here nothing is ever locked while the server waits for a
// client. Nothing waits for a second lock either, so that there are no
// deadlocks. A change by hand, or a row that was deleted, counts like any other
// write. Where the answer is lost, or anything else fails, the outcome is
// unknown, and the protocol sends the same change again, which takes effect
// once.
//
// The clock is the server's (clock_timestamp) and tells only when the next
// round is due. It may be set.
//
// # What the server is
//
// One primary. A standby is refused at any time, and the connection closed, so
// that the pool can find the primary (target_session_attrs=primary). A failover
// to a standby that lacks the last commits forgets the leases that they
// granted; those connections may come on top of the limit until their processes
// check in next (0.6 Lease; a round later in large fleets) and, if the limit is
// overrun, have closed theirs (Grace). Use a synchronous standby where that
// matters: no lease counts that it does not have, and while it does not answer
// the store does not either. Only two things make commits count without it: a
// synchronous_commit of the role that says so (local, remote_write), and who
// ends a backend's wait for it (pg_cancel_backend). Two servers that both take
// writes grant everything twice: a replaced primary must be fenced off, and
// multi-master replication is not for this table.
//
// A commit is flushed to disk before it is answered, also where
// synchronous_commit is off. Isolation, statement_timeout and search_path of the
// role do not matter. No statement goes on at the server for longer than its
// caller's context, and a lock that somebody else has on the table is waited for
// as long at most. PgBouncer may stand between, in any of its modes but
// statement pooling: nothing of a session is used, and nothing is left in it.
//
// # Connections
//
// A Leases takes one connection for each of its requests, one after the other,
// a Limiter another. So a process needs two, and Connect makes a pool of so
// many. They count against max_connections of the server they lead to. A pool
// whose own connections are leased must not be the Pool of its leases: a lease
// would need a connection for which there is no lease.
//
// # The table
//
// Setup makes it, once, by a role that may create tables; DDL is what it does:
//
//	create table public.flightpool_leases (
//		key text collate "C" primary key,
//		record json not null,
//		expires timestamptz
//	) with (fillfactor = 50, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
//	alter table public.flightpool_leases alter column record set storage main;
//	grant select, insert, update, delete on public.flightpool_leases to fleet_role;
//
// New refuses a table that is another, that is not logged, or that has
// row-level security or rules, a role that may not write, and a server that does
// not. Records whose time has passed go with later writes of others.
//
// # Cost
//
// Each process reads one row every 0.15 Lease (9s), and replaces one when a
// round begins: every 22s by default, in a fleet of more than 138 processes
// that is not short every 0.16s for each. A read is one transaction of one
// statement that matters, a write two; a connection that was idle for a second
// is pinged before by the pool. All together, for 50 processes with 10,000
// connections whose lives are about 12 minutes (measured on PostgreSQL 15,
// with everything twenty times as fast): 1.8 transactions, 0.17 rows replaced
// and 31 bytes of WAL per connection's life, which is 26 transactions and 2.3
// replaced rows per second; pages that are written for the first time after a
// checkpoint come on top. 99 % of the replacements are HOT: they stay in their
// half empty page and change no index, and are cleaned up without vacuum. The
// table stays below 1 MB, unless a transaction elsewhere is left open for hours:
// what it could see is kept, about 1 KB for each replacement.
package pglease
