// Package flightprom shows pools and registries to Prometheus. It is a module of its own.
//
//	metrics := flightprom.NewCollector()
//	metrics.Add("warehouse", pool)
//	prometheus.MustRegister(metrics)
//
// # Of each pool, with the label pool
//
//	flightpool_connections{state}            idle, in_use (with those being checked or cleaned), opening, closing
//	flightpool_connections_max               how many there may be
//	flightpool_callers_waiting               callers in the queue
//	flightpool_healthy                       1; 0 while the server is taken to be unreachable
//	flightpool_acquires_total{outcome}       ok, timeout, canceled, failed, rejected
//	flightpool_opens_total                   opens begun; open_failures_total, opens_skipped_total (not needed any more)
//	flightpool_closes_total{reason}          expired, idle, discarded, outdated, surplus, unhealthy, shutdown, lost
//	flightpool_checks_total                  health checks; check_failures_total
//	flightpool_calls_total                   stateless calls of the pool; call_failures_total
//	flightpool_retries_total                 of these, repetitions
//	flightpool_sessions_total                sessions and transactions begun
//	flightpool_cancels_total{outcome}        confirmed, unconfirmed: the latter cost their connection
//	flightpool_resets_total                  sessions cleaned on return; reset_failures_total
//	flightpool_rollbacks_total               transactions that were left open
//	flightpool_leaks_total                   loans reported by LeakAfter
//	flightpool_hook_failures_total           hooks and tracers that panicked
//	flightpool_wait_seconds                  histogram: the wait for a connection, of those who got one
//	flightpool_hold_seconds                  histogram: from then until it came back
//	flightpool_open_seconds                  histogram: of a connection, to the proof of its session
//	flightpool_first_batch_seconds           histogram: from a call's start until its first rows
//	flightpool_call_seconds                  histogram: from a call's start on a connection until its end
//
// The buckets of the histograms end at 4^n times 256 µs, from 256 µs to 18 minutes.
//
// # Of each user's pool of a registry, with the labels server and user
//
// In brackets: what the documents on remote connection pools call it
// (scratchbird_remote_ stands before each).
//
//	flightpool_registry_server_healthy{server,kind}        1 or 0
//	flightpool_registry_checks_total{server,kind,outcome}  ok, failed: opens and checks [pool_health_checks_total{result}]
//	flightpool_registry_connections{state}                 idle, in_use, opening, closing [pool_connections_total{state}]
//	flightpool_registry_callers_waiting
//	flightpool_registry_acquires_total{outcome}            ok, failed, rejected [pool_acquires_total, pool_timeouts_total]
//	flightpool_registry_releases_total                     [pool_releases_total]
//	flightpool_registry_opens_total{outcome}               ok, failed [pool_errors_total]
//	flightpool_registry_closes_total
//	flightpool_registry_calls_total                        call_failures_total [connection_queries_total]
//	flightpool_registry_sent_bytes_total                   where the kind of server counts them [connection_bytes_sent_total]
//	flightpool_registry_received_bytes_total               likewise [connection_bytes_received_total]
//
// Statements, credentials and addresses are in none of them.
package flightprom
