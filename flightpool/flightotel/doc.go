// Package flightotel is what OpenTelemetry sees of a flightpool.FlightSQLPool: spans and
// histograms by a Tracer, for Config.Tracer, and the numbers of Stats by Register.
//
//	pool, err := flightpool.New(ctx, target, flightpool.Config{Tracer: flightotel.NewTracer()})
//	registration, err := flightotel.Register(otel.Meter("shop"), pool)
//	defer registration.Unregister()
//
// # Spans
//
//	summary of the statement,    a call, until its connection is free again or its caller has
//	or method and server         left; with the event flightpool.release or flightpool.discard
//	  flightpool.acquire         each wait for a connection within it
//	  flightpool.cancel          what stops its statement; it may end after the call
//	flightpool.batch             the calls of a SendBatch
//	flightpool.connect           an open: a trace of its own, or within the span that New runs in
//
// The server gets the call's, open's or cancel's trace context in the headers of its RPCs,
// as the propagator writes it (traceparent), in the place of the caller's own. What the
// pool asks for itself, such as checks of idle connections, is no part of a trace.
//
// Statements are told as summaries, verbs and tables without literals, and errors as
// their fault (error.type), because their texts may hold values: WithStatementText shows
// them. No span or instrument has values of parameters, headers or credentials.
//
// # Metrics
//
// Names, units and buckets are those of OpenTelemetry's semantic conventions 1.41, where
// they have one. All have db.system.name (other_sql), server.address, server.port and
// db.client.connection.pool.name (address and port).
//
//	db.client.connection.count             {connection}  by db.client.connection.state: idle, used, opening, closing
//	db.client.connection.max               {connection}  MaxSize
//	db.client.connection.idle.max          {connection}  MaxSize too: an idle connection is kept for IdleTTL
//	db.client.connection.idle.min          {connection}  MinIdle, how many are to be ready
//	db.client.connection.pending_requests  {request}     callers who wait
//	db.client.connection.timeouts          {timeout}     callers whom a deadline ended while they waited
//	flightpool.connection.opens            {open}        opens that have begun
//	flightpool.connection.open_failures    {open}        those that failed, or were not permitted
//	flightpool.connection.discards         {connection}  closed, by flightpool.discard.reason: expired, idle, discarded, outdated,
//	                                                     surplus, unhealthy, shutdown, lost
//	flightpool.connection.leaks            {connection}  lent for longer than LeakAfter
//	flightpool.cancels                     {cancel}      by flightpool.cancel.outcome: confirmed, unconfirmed
//	flightpool.retries                     {call}        calls repeated on another connection, and transactions that InTx has run again
//	flightpool.unhealthy                   1             1 while the server is taken to be unreachable
//
// RegisterBudget reports the budgets of a fleet, by flightpool.budget; what concerns the whole
// fleet is as last seen by this process:
//
//	flightpool.lease.limit             {connection}  that the fleet may have; 0: not known yet
//	flightpool.lease.used              {connection}  of the whole fleet
//	flightpool.lease.in_use            {connection}  of this process
//	flightpool.lease.spare             {lease}       that it holds in advance
//	flightpool.lease.unbacked          {connection}  of this process that the table does not know
//	flightpool.lease.share             {connection}  the most that it may have while the fleet is short; 0: it is not
//	flightpool.lease.owners            {process}     that share the limit; 0: not known
//	flightpool.lease.opens_waiting     {open}        that wait for a lease
//	flightpool.lease.unreachable       1             1 while the Fallback decides
//	flightpool.lease.grants            {lease}       asked for, by flightpool.budget.outcome: ok, failed
//	flightpool.lease.fallbacks         {lease}       that the Fallback granted
//	flightpool.lease.losses            {loss}        times this process was taken for dead
//	flightpool.lease.reaped            {process}     dead ones whose leases were freed from here
//	flightpool.lease.table_requests    {request}     by flightpool.budget.op: read, write
//	flightpool.lease.table_failures    {request}     of these, without a definite answer
//	flightpool.limiter.opens_waiting   {open}        that wait for a permit
//	flightpool.limiter.unreachable     1             1 while the Fallback decides
//	flightpool.limiter.permits         {permit}      asked for, by flightpool.budget.outcome: ok, failed
//	flightpool.limiter.fallbacks       {permit}      that the Fallback granted
//	flightpool.limiter.dropped         {permit}      that were reserved and not used in time
//	flightpool.limiter.refusals        {open}        that the server refused as too fast
//	flightpool.limiter.table_requests  {request}     by flightpool.budget.op: read, write
//	flightpool.limiter.table_failures  {request}     of these, without a definite answer
//
// Histograms of a Tracer, in seconds; what has failed has its error.type:
//
//	db.client.operation.duration       calls, by db.operation.name (the method), db.query.summary, db.collection.name (of an ingestion)
//	db.client.connection.wait_time     waits for a connection
//	db.client.connection.use_time      loans
//	db.client.connection.create_time   opens
//	flightpool.cancel.duration         cancels, by flightpool.cancel.confirmed_by: a step, ended, or nothing
//
// A program whose statements name ever new tables drops db.query.summary with a View, or
// relies on the SDK's bound on the points of an instrument.
package flightotel
