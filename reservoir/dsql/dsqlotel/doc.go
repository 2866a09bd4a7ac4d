// Package dsqlotel reports the numbers of a dsql.Cluster through OpenTelemetry.
//
//	registration, err := dsqlotel.Register(provider.Meter("shop"), cluster, attribute.String("service", "history"))
//	defer registration.Unregister()
//
// The instruments have the names that Prometheus users expect, seconds and
// _total included, so that every exporter shows the same ones. They are read
// from Cluster.Stats when the exporter collects: nothing runs in between, and a
// checkout costs nothing more. Of several pools on one Cluster, register the
// Cluster.
//
//	dsql_reservoir_size                         connections ready
//	dsql_reservoir_target                       how many are to be ready
//	dsql_reservoir_low                          1 while fewer are ready than the watermark
//	dsql_reservoir_in_use, _opening, _waiting   connections lent, opens under way, callers who wait
//	dsql_reservoir_checkouts_total              connections lent so far
//	dsql_reservoir_empty_total                  calls that found none ready
//	dsql_reservoir_failures_total               calls that got none
//	dsql_reservoir_wait_seconds_total           sum of all waits
//	dsql_reservoir_discards_total{reason}       closed: expired, idle, discarded, outdated, surplus, unhealthy, shutdown, lost
//	dsql_reservoir_refills_total                connections opened
//	dsql_reservoir_refill_failures_total{reason} failed opens: rate_exceeded (53400), too_many_connections (53300),
//	                                            denied, other, no_permission (lease or limiter)
//	dsql_reservoir_paused_seconds               for how long opens pause after refusals
//	dsql_distributed_conn_lease_active, _limit  connections of the whole fleet, and its limit
//	dsql_distributed_conn_lease_held            those of this process
//	dsql_distributed_conn_lease_degraded        1 while the lease table cannot be reached
//	dsql_distributed_conn_lease_owners          processes that share the limit, as last seen
//	dsql_distributed_conn_lease_unbacked        connections of this process that the table does not know
//	dsql_distributed_conn_lease_losses_total    times this process was taken for dead
//	dsql_distributed_conn_lease_reaped_total    dead processes whose leases were freed from here
//	dsql_distributed_conn_lease_fallbacks_total leases that Fallback granted
//	dsql_open_permits_total, _denied_total      opens that the limiter permitted, and did not
//	dsql_open_permits_fallback_total            those of them at the rate of this process's own
//	dsql_open_limiter_refusals_total            times the cluster refused an open as too fast
//	dsql_lease_table_reads_total                requests to the table, for leases and rate
//	dsql_lease_table_writes_total
//	dsql_lease_table_failures_total             requests without a definite answer, throttling among them
//	dsql_lease_table_clock_skew_seconds         the table's clock minus this process's
//	dsql_open_limiter_degraded                  1 while the limiter's table cannot be reached
//
// A Tracer is for Config.AcquireTracer, and measures each call for a connection:
//
//	dsql_reservoir_checkout_seconds{failed}     a histogram of how long calls for a connection take
package dsqlotel
