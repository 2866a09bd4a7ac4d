// Package fleet keeps the budgets that a fleet of processes shares: how many
// connections may exist (Leases), and how fast they may be opened (Limiter). It is the
// protocol. A Store keeps the records: a DynamoDB table (package dynamolease), or
// memory for tests (NewMemory). A Store needs conditional writes of single records and
// consistent reads, nothing else: no transactions over records, no clocks that agree,
// no removal in time.
//
// # The records of a budget
//
//	budget   limit, shards, lease, grace, round, level   read by every process at each heartbeat; its shards never change
//	shard    used, and for each owner: leases, sequence number, round, want, kept
//	member   host, service, pid, for operators           written once, and once a day
//	rate     the Limiter's two counters
//
// A shard has a part of the limit. What is used, and what each owner has of it,
// change in one write, so that no counter can drift. A process takes leases
// from its own shard, and from others when that has no room; it passes them on
// from one connection to the next, which costs no request. Each write of an
// owner's entry has as its condition the sequence number of the entry that it
// replaces. One whose reply was lost is sent again until its outcome is known,
// and takes effect once. An owner has one writer: the loop of its process. A
// late duplicate of the write that made an entry can bring it back after it was
// removed; the owner writes such an entry anew before its leases count.
//
// # Who lives
//
// Processes do not write to show that they live, they read: every process reads the
// budget's record at each heartbeat (0.15 Lease). From time to time somebody raises its
// round. Whoever reads a new round checks in: it writes the round's number into its
// entries. Who has not done so once the round was waited for is dead, and is removed
// together with its leases by one write, whose condition is that its entry is still the
// one that was seen.
//
//	a heartbeat shows no round that the entries have not checked in to
//	    → the leases are valid for 0.45 Lease from the sending of that read
//	a round began
//	    → who has not checked in to it 0.45 Lease and Grace later, by the clock
//	      of whoever looks, is dead
//
// Both count from the same event: a proof of validity was sent before the
// round began, so the first span ends before the second does. Clocks are never
// compared; that of the store, if it has one, only tells when the next round is
// due. The second span counts only while whoever looks can read the store: in
// an outage nobody can check in.
//
// Each process looks for the dead in its own shard, and in others at random: in all of
// them where the processes are few, in one where they are many.
//
// In an outage of shards alone nobody can check in there, though rounds begin. So
// who looks first makes sure, by a write, that a shard takes writes; who lives has
// answerTime from then, a twentieth of Lease and three RequestTimeouts, in which
// its entry changes, and is spared.
//
// A round begins 0.37 Lease after the one before: always while the fleet is
// short or somebody waits in vain, and in a fleet of up to 138 processes. In a
// larger one that is not short it begins after Lease/375 for each process, so
// that all check-ins together stay at about six a second. So leases of the dead
// are free again within Lease and Grace, however many die together:
//
//	0.15 Lease   until the survivors know of the last round before the death
//	0.37 Lease   until the next one
//	0.45 Lease   and Grace, until it was waited for
//
// later by the longer time between rounds where nobody needs them: no cheaper
// sign of life is known than one write of each process in each round. Somebody
// must have survived, else those who start anew begin the round.
//
// # States of a process
//
//	valid     a heartbeat succeeded lately   grants what it holds, and takes more
//	stuck     likewise, but the shards       grants what it holds, and what the Fallback allows
//	          have not answered since
//	lapsed    none did for 0.45 Lease        Strict: grants nothing and revokes, so that connections are closed within Grace
//	                                         else: grants one for one what it holds, and what the Fallback allows
//	woken     it stood still for as long,    waits for the next answer
//	          by either of its clocks
//	lost      its entry is gone              adds the connections that exist to its entry anew, limit or not, and
//	                                         revokes them if that overran the limit
//
// # What holds when
//
//	kill -9, lost and doubled messages, throttling, an outage of the store,
//	clock skew: connections never exceed the limit.
//	a process cut off from the store, or from a shard in which it has leases,
//	alone, for longer than its validity and Grace, as it may be where most
//	requests fail for minutes and others pass:
//	  Strict: likewise. A process that stands still cannot close connections:
//	    the server counts those until it does.
//	  otherwise: its connections may come on top until it reaches the store
//	    again.
//	a Fallback that grants: what it granted may come on top likewise. While there
//	may be an outage, and for a few seconds after it, until everybody had the
//	time to tell the store what it has, nobody has more than its share, or than
//	the connections that it had, however many leases it has taken in advance; nor
//	does who has just joined, had no lease lately, or stood still, and cannot
//	know whether there was one. What comes on top is not revoked, and not granted
//	again. An outage of writes alone shows only to who writes: a process that
//	wrote nothing in it, as may be until the next round was to begin, can have
//	more than its share in it and after it. Nor does anybody wait for longer than
//	Lease/20 and three RequestTimeouts for who tells later, because its requests
//	are lost one after another: its connections come on top until it has told.
//	a store that comes back without its latest writes: what they told comes on
//	top, until each process has told it again.
//	a limit that is lowered: what is held stays until it is closed, and is not
//	granted again.
//
// Nothing else exceeds the limit.
//
// Strict is not the default: a process whose requests fail cannot tell whether
// it is cut off alone or the store is down for all. To be within the limit in
// both cases it must close its connections when its validity lapses. That
// turns an outage of the store into one of the application, to save a few
// connections above a limit that the server mostly guards too. Where it does
// not, set Strict.
//
// # Fair shares
//
// Who waits in vain writes into its entry how many connections it would like, as its Holders say, and,
// unless somebody else did so within a heartbeat, reads all shards and finds the
// max-min share of what others do not use: the level to which all wants have to be cut
// down to fit. While a level stands, nobody takes more than it, spare leases above it
// go back at once, and the process's Holders are asked with a heartbeat for what it has above
// it, those that have most first: idle connections, and those in use as they come back. None is
// taken away from its borrower: a process whose connections do not come back writes into its entry
// what it keeps above the level, and the next level shares the rest among the others. What a process
// has, its Holders share likewise, while one of them waits in vain.
//
//	100 connections: 50 in use of a process, others want 5, 60 and 60
//	    first level   31, which the first cannot come down to
//	    next level    22: they have 50, 5, 22 and 22
//
// What is kept is written with each check-in, and by itself when it changed by more
// than a tenth, at most twice in a heartbeat. Nobody keeps more than it has, whatever
// its entry says. A process that stands still keeps nothing, and is in the others' way
// until it is taken for dead. The lowest level is 1: of more processes than connections
// some have none, for as long as the others keep theirs. A level that is not renewed for four heartbeats is void.
//
// A fleet that is short for good pays for its rounds: every process checks in to
// each, in every shard in which it has leases, and those that look for what is
// missing have leases in several. Simulated, with 10,000 connections of 12
// minutes: 0.15 write units and 0.7 read units for each connection with 50
// processes, 2.9 and 25 with 300, 9.0 and 17 with 1,000.
//
// # Goroutines and locks
//
// A Leases has one goroutine, its loop, which decides what to do and makes one request
// after the other. Callers queue, are granted what is held, and release, and none of
// that makes a request. The state that both go by is guarded by one mutex, which is held
// for arithmetic alone; a change of what is held ends with the granting of what it
// allows. What only the loop needs, such as when the next heartbeat is due, has no lock.
// Functions of OnRevoke run on goroutines of their own, one for each; one
// that is slow hears of the latest revocation only. So do those of Holders, each asked once at a time. A Limiter is built likewise.
//
// # What a failed request means
//
// A failed read says nothing, and is made again. A failed write may have been done, or
// be done later: a step of the process's own entry is sent again, as it was, until its
// outcome is known, and nothing else is written to its shard before. Any other write, of
// a round, a level or a removal, has a condition by which it is done once, so that
// whoever finds it undone makes it anew. A reservation of permits is the exception: what
// it may have reserved is given up.
//
// # Limiter
//
// One record holds two counters that only rise: permits granted, and permits that time
// has paid for; see sharedBucket. Since no clock reading is stored, no skew matters.
// The usual alternative, an arrival time that each process compares with its wall
// clock, lets a fast clock take the burst once more after a slow one; a test here shows
// it. Permits are reserved in batches ahead of time and dropped when they cannot be
// used in time. Burst bounds what this side sends. The server's bucket sees opens as
// late as the network makes them: keep Burst below the server's.
package fleet
