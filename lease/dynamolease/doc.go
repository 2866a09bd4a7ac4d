// Package dynamolease keeps a fleet's budgets in one DynamoDB table: how many
// connections may exist (Leases), and how fast they may be opened (Limiter).
// It needs single-item conditional writes and consistent reads, nothing else:
// no transactions, no clocks that agree, no time-to-live deletion in time.
//
// # Leases
//
// One item per shard holds the limit, what is used, and what each process has:
// the sum and its parts change in one write, so no counter can drift. A
// process holds leases in batches and passes them on from one connection to
// the next, which costs no request. Each change of its entry carries the
// entry's sequence number as a condition; a change whose reply was lost is
// sent again until its outcome is known, and takes effect once.
//
// Each process has a session item and raises a number in it every Lease/6. Its
// leases are valid for two thirds of Lease from the sending of the last
// heartbeat known to be stored. Others watch the number by their own clocks.
// When it has stood still for that long and Grace, over reads of which none
// failed, they write a tombstone on condition that it still does, and only
// then free what the session had. So leases of a killed process are free
// again within Lease + Grace, and a process that was only paused finds the
// tombstone with its next heartbeat.
//
// What holds when:
//
//	kill -9, lost and doubled messages, throttling, an outage of the table,
//	clock skew: connections never exceed the limit.
//	a process paused or cut off from the table for longer than its validity
//	and Grace, while others reach it:
//	  Strict: likewise; its connections are revoked in time (while it stands
//	    still they cannot be closed, and the server counts them until it does).
//	  otherwise: its connections may come on top until it reaches the table
//	    again. It then counts them in, limit or not, and revokes them if that
//	    overran the limit.
//
// # Why strictness is not the default
//
// A process whose heartbeats fail cannot tell whether it is cut off alone, so
// that others will take its leases, or the table is down for all, so that
// nobody can. To be within the limit in both cases it must close its
// connections when its validity lapses, 40 seconds by default. In the first
// case that saves a few connections above a limit that the server guards too;
// in the second it turns an outage of DynamoDB into one of the application,
// everywhere at once, with a rush to open all connections again behind it. No
// longer lease changes that, it only makes both rarer, and there is no third
// party to ask. So by default connections stay, the overrun is bounded by what
// the processes cut off alone have, lasts until they reach the table again, and
// is told (Stats().Losses, a log line, a revocation); nothing else ever exceeds
// the limit (TestWithoutStrictnessOnlyALivingProcessTakenForDeadExceedsTheLimit).
// Where the limit is not guarded by the server, or not the fleet's alone, set
// Strict.
//
// A revocation reaches whoever registered with OnRevoke. All processes of a
// budget must use the same Limit and Shards (New checks) and should use the
// same Lease and Grace.
//
// # Limiter
//
// One item holds two counters that only rise: permits granted, and permits
// that time has paid for. Time is paid in by ticks: a process that has seen
// the second counter stand still for a while by its own monotonic clock raises
// it by that while, at most one tick, on condition that it still stands there.
// Since no clock reading is stored, no skew matters. The usual alternative, an
// arrival time in the item that each process compares with its wall clock,
// lets a fast clock take the burst once more after a slow one; a test here
// shows it. Permits are reserved in batches ahead of time and dropped when
// they cannot be used in time. Callers that open one connection after the
// other are reserved for before they come again. With Rate 100 and demand that
// lasts, the fleet uses 98 % of what the budget allows, at 0.14 to 0.25 writes
// per open (TestDemandUsesTheBudgetAtLittleCost). Opens that come one at a time
// cannot share a reservation: at 3 to 13 per second in a fleet of 40 processes
// each costs 1.1 to 1.2 writes.
//
// Burst bounds what this side sends. The server's bucket sees opens as late as
// the network makes them: keep Burst below the server's.
//
// # Cost
//
// A heartbeat is one write per process and Lease/6, that is 0.1 write units
// per second by default. All else comes to 0.01 to 0.06 units per connection
// life of about 12 minutes, in a fleet of 16 processes with 40 connections each
// and in one of 50 processes that fill 10,000; 0.14 when every process ends
// with its first connections (TestLeasesCostLittle). Each process reads its
// shard and two sessions every Lease/8.
//
// # When the table cannot be reached
//
// Config.Fallback decides, a log line and Stats().Degraded tell, and
// Stats().Fallbacks counts. Unless the mode is strict, leases held keep
// covering as many connections as they did, one for one.
//
// # Permissions
//
// A running process needs no more than this; CreateTable needs
// dynamodb:CreateTable, DescribeTable, DescribeTimeToLive and UpdateTimeToLive
// beside, once.
//
//	{
//	  "Version": "2012-10-17",
//	  "Statement": [{
//	    "Effect": "Allow",
//	    "Action": ["dynamodb:GetItem", "dynamodb:UpdateItem"],
//	    "Resource": "arn:aws:dynamodb:REGION:ACCOUNT:table/TABLE"
//	  }]
//	}
//
// It runs on DynamoDB itself and on stand-ins that do not return the old item
// with a failed condition: a consistent read takes its place.
package dynamolease
