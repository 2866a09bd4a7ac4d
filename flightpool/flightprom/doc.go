// Package flightprom shows pools, registries and the budgets of a fleet to Prometheus. It
// is a module of its own; package dsqlprom in it shows Aurora DSQL's pools.
//
//	metrics := flightprom.NewCollector()
//	metrics.Add("warehouse", pool)
//	prometheus.MustRegister(metrics)
//
// With hundreds of pools, serve it by itself, at a path of its own and not in a Registry: the
// same metrics for a tenth of the time.
//
//	mux.Handle("/metrics/pools", metrics)
//
// alerts.yml beside this file has rules for alerts, dashboard.json a dashboard for
// Grafana, both for the metrics of dsqlprom too; docs/watching.md says what to do at each
// alert.
//
// A scrape asks each source for its Stats, nothing runs in between. A pool has 36 series
// and 5 histograms with 15 lines each, a user of a registry 19 series, so that a registry
// with users without end has series without end. Statements, credentials and addresses
// are in none of them; names that are not UTF-8 are quoted.
//
// # Of each pool, with the label pool
//
//	flightpool_connections{state}         idle, in_use (with those being checked or cleaned), opening, closing
//	flightpool_connections_max            how many there may be
//	flightpool_callers_waiting            callers in the queue
//	flightpool_healthy                    1; 0 while the server is taken to be unreachable
//	flightpool_acquires_total{outcome}    ok, timeout, canceled, failed, rejected
//	flightpool_opens_total                opens begun
//	flightpool_open_failures_total        opens that failed, or were not permitted
//	flightpool_opens_skipped_total        opens that were not needed any more
//	flightpool_closes_total{reason}       expired, idle, discarded, outdated, surplus, unhealthy, shutdown, lost
//	flightpool_checks_total               health checks
//	flightpool_check_failures_total       health checks that failed
//	flightpool_calls_total                stateless calls of the pool
//	flightpool_call_failures_total        of these, calls that failed
//	flightpool_retries_total              calls repeated on another connection, and transactions that InTx has run again
//	flightpool_sessions_total             sessions and transactions begun, batches of the pool
//	flightpool_cancels_total{outcome}     confirmed, unconfirmed: the latter cost their connection
//	flightpool_resets_total               sessions cleaned on return
//	flightpool_reset_failures_total       sessions that could not be cleaned: their connections were closed
//	flightpool_rollbacks_total            transactions that were left open
//	flightpool_leaks_total                loans reported by LeakAfter
//	flightpool_hook_failures_total        hooks and tracers that panicked
//	flightpool_wait_seconds               histogram: the wait for a connection, of those who got one
//	flightpool_hold_seconds               histogram: from then until it came back
//	flightpool_open_seconds               histogram: of a connection, to the proof of its session
//	flightpool_first_batch_seconds        histogram: from a call's start until its first rows
//	flightpool_call_seconds               histogram: from a call's start on a connection until its end
//
// The buckets of the histograms end at 4^n times 256 µs, from 256 µs to 18 minutes.
//
// # Of each registry's servers and users
//
// With the labels registry, server and, but for the first two, user. In brackets: what the
// documents on remote connection pools call it (scratchbird_remote_ stands before each).
//
//	flightpool_registry_server_healthy{kind}            1 or 0
//	flightpool_registry_checks_total{kind,outcome}      opens and checks: ok (refused ones too), failed (nobody was reached) [pool_health_checks_total{result}]
//	flightpool_registry_connections{state}              idle, in_use, opening, closing [pool_connections_total{state}]
//	flightpool_registry_callers_waiting                 callers in the queue
//	flightpool_registry_acquires_total{outcome}         ok, failed, rejected [pool_acquires_total, pool_timeouts_total]
//	flightpool_registry_releases_total                  connections given back [pool_releases_total]
//	flightpool_registry_opens_total{outcome}            ok, failed [pool_errors_total]
//	flightpool_registry_leaks_total                     loans reported by LeakAfter
//	flightpool_registry_cancels_total{outcome}          confirmed, unconfirmed: such a statement may run on
//	flightpool_registry_closes_total                    connections closed
//	flightpool_registry_calls_total                     calls [connection_queries_total]
//	flightpool_registry_call_failures_total             of these, calls that failed
//	flightpool_registry_sent_bytes_total                where the kind of server counts them [connection_bytes_sent_total]
//	flightpool_registry_received_bytes_total            likewise [connection_bytes_received_total]
//
// # Of each budget, with the label budget
//
// Of a Config's Leases and Limiter, by AddBudget. What concerns the whole fleet is as last
// seen by this process.
//
//	flightpool_lease_limit                        connections that the fleet may have; 0: not known yet
//	flightpool_lease_used                         connections of the whole fleet
//	flightpool_lease_in_use                       connections of this process
//	flightpool_lease_spare                        leases that it holds in advance
//	flightpool_lease_unbacked                     connections of this process that the table does not know
//	flightpool_lease_share                        the most that it may have while the fleet is short; 0: it is not
//	flightpool_lease_owners                       processes that share the limit; 0: not known
//	flightpool_lease_opens_waiting                opens that wait for a lease
//	flightpool_lease_table_reachable              1; 0 while the Fallback decides
//	flightpool_lease_grants_total{outcome}        ok, failed
//	flightpool_lease_fallbacks_total              leases that the Fallback granted
//	flightpool_lease_losses_total                 times this process was taken for dead
//	flightpool_lease_reaped_total                 dead processes whose leases were freed from here
//	flightpool_lease_table_requests_total{op}     read, write
//	flightpool_lease_table_failures_total         of these, without a definite answer
//	flightpool_limiter_opens_waiting              opens that wait for a permit
//	flightpool_limiter_table_reachable            1; 0 while the Fallback decides
//	flightpool_limiter_permits_total{outcome}     ok, failed
//	flightpool_limiter_fallbacks_total            permits that the Fallback granted
//	flightpool_limiter_dropped_total              permits that were reserved and not used in time
//	flightpool_limiter_refusals_total             opens that the server refused as too fast
//	flightpool_limiter_table_requests_total{op}   read, write
//	flightpool_limiter_table_failures_total       of these, without a definite answer
package flightprom
