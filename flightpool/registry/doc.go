// Package registry keeps connections to many servers for many local users.
//
//	r := registry.New()
//	defer r.Close(ctx)
//	err := r.ApplyDDL(ctx, `
//		CREATE SERVER legacy FOREIGN DATA WRAPPER postgres_fdw
//		    OPTIONS (host 'db.example.com', dbname 'production', max_connections '20');
//		CREATE USER MAPPING FOR ann SERVER legacy OPTIONS (user 'app', password 'secret')`)
//	…
//	c, err := r.Acquire(ctx, "legacy", "ann")
//	…
//	defer c.Release()
//	rows, err := c.SQL().QueryContext(ctx, "SELECT 1")
//
// A server has users, and each user a pool: no user ever gets another's
// connection. Flight SQL servers also have the calls of flightpool.FlightSQLPool,
// with the names of the server and the user before their arguments.
//
// # One bound, shared
//
// MaxSize bounds the connections of all users of a server together. They
// are shared max-min fairly, as package internal/fairshare has it. An open asks for
// its slot in reservoir.Config.Admit, so a connection counts from before it is dialled
// until its Close has returned, and a call that finds an idle connection asks nobody.
//
// # Health
//
// Opens and checks that cannot reach a server, and connections that break under
// their borrowers, count; the errors of statements and credentials do not. A check,
// a statement or a reset that the server answers ends the row; an open does not, for
// a proxy opens connections to a database that is gone. After
// FailureThreshold in a row the server is unhealthy: calls fail at once with the
// reason and since when, those who wait are failed too, and no connection is
// opened but one at a time by probes, as a user who can get a connection, with pauses
// that double up to the interval of the health check. After RecoveryThreshold probes the opens that have waited go
// on, MaxConcurrentOpens at a time.
//
// All of it is of the place to which the definition leads: its kind, target and options. Behind an Update that
// leads elsewhere the connections of before, which borrowers may have for long, show nothing
// any more, and a server that is unhealthy is probed at the new place within 100 ms.
//
// # Change
//
// Servers and users are looked up in maps that are copied when they change. Update
// changes sizes and times in place. Where it changes what connections are made with
// or checked by, and on Flight SQL servers the times of opening, checking and
// querying, the user's pool gets a successor and drains: its loans go on until they
// are given back. An Update that cannot be changes nothing. A pool that nobody has
// called for UserIdleTimeout is drained likewise. A call that meets a pool which
// has just been closed goes to its successor.
//
// A server registered again by its name counts what drains of it, and its sessions know
// which settings those have changed. Two names are two servers, wherever they lead.
//
// # Locks
//
// A call takes no lock of the registry: servers, users, definitions and the current
// version of a pool are read from atomic pointers, whose values are replaced and not
// changed. What may have been replaced between two of these reads is noticed by the pool
// that was closed, and the call goes on with its successor.
//
// A change of a server holds the lock of that server's name for as long as its Kind
// takes, so that two changes never mix; the wait for it ends with the caller's context.
// Below it stand locks that are held for bookkeeping alone: that of the registry's view,
// that of a server's users, that of a user's pools. A Kind, a driver and Config.Health
// are called under none of the latter, on goroutines that can be given up.
//
// # Cost
//
// A registry has one goroutine of its own, and one of database/sql. A reservoir
// has a timer and no goroutine; while something is open, a user's connections cost
// what their drivers take.
//
// # What differs from other registries of the kind
//
//   - Idle connections are not numbered but linked, so that giving one back is
//     exact whatever was closed meanwhile.
//   - The bound is reserved before a connection is opened, and opening, resetting
//     and closing are done under no lock.
//   - OVERFLOW, validation on acquire and release, and the longest life are carried
//     out, not only configured.
//   - Bytes are counted on Flight SQL servers, those of their sockets. Kinds of database/sql
//     may count theirs with ConnectParams.CountBytes, as those of package kinds do.
//
// All of it, with defaults and tests, stands in docs/registry.md.
//
// # Files
//
//	definition.go, options.go, options_kind.go  what a server is, in Go
//	kind.go, kind_dsn.go        its kind, and connection strings
//	apply.go, package ddl       what a server is, in SQL
//	registry.go, registry_servers.go  servers by name; changes of one, and those that are gone
//	check.go, operate.go        what is checked of a definition; what is done to a server
//	acquire.go, conn.go, calls.go     the way of a call; errors.go
//	server.go, userpool.go      a server's users, and their pools
//	making.go, drain.go, poolversion.go, sqlversion.go  how a pool is made, and ends; which kinds there are
//	package internal/fairshare  the bound: who gets a slot, who gives one up
//	health.go, health_probe.go, witness.go  whether a server works
//	probe_user.go                           as whom that is asked
//	stats.go, stats_sum.go, traffic.go, arrow.go   what all of it is and has done
//	trace.go                    what tracers are told of database/sql
//	print.go                    what %v shows of it
package registry
