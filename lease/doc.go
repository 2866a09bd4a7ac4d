// Package lease holds the budgets that a fleet of processes shares: how many
// connections may exist at once (Leases) and how fast new ones may be opened
// (Limiter).
//
// A lease is the fleet's permission for one connection to exist. It is taken
// before the connection is dialled and given back after its Close has
// returned, so that the number of leases is never below the number of
// connections. A permit is the fleet's permission to open one connection now;
// it is spent by being granted.
//
// NewLeases and NewLimiter keep both budgets within one process. Package fleet
// keeps them for many, by way of a store: a DynamoDB table (package
// dynamolease) or a table of PostgreSQL (package pglease). Package leasetest is
// the conformance suite that all pass.
//
// Admit joins a Leases and a Limiter into the function that a reservoir calls
// before each open:
//
//	reservoir.Config[C]{Admit: lease.Admit(leases, limiter), …}
//
// A budget asks for connections besides: a Holder, which each pool is, for those that others
// of the process or fleet wait for (Reservoir.GiveUp), and a fleet's, which is a Revoker, for all of
// them (Reservoir.Recall). The pools of packages flightpool and dsql do both.
package lease
