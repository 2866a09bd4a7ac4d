package flightprom

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A panel answers a question, which is its title. A query is its legend, a blank line's
// worth of " | ", and what is asked; in it %p stands for the labels that the variables of
// the dashboard choose a pool by, %i for those of everything else, %r for the range of a
// rate.
type panel struct {
	title, about, unit string
	queries            []string
}

// quantiles are queries of two quantiles of a pool's histogram.
func quantiles(name string) []string {
	var all []string
	for _, q := range []string{"0.5", "0.99"} {
		all = append(all, fmt.Sprintf("{{pool}} %s | histogram_quantile(%s, sum by (pool, le) (rate(flightpool_%s_bucket{%%p}[%%r])))", q, q, name))
	}
	return all
}

// panels are the rows of the dashboard.
var panels = []struct {
	row    string
	panels []panel
}{
	{"Pools", []panel{
		{"Can the servers be reached?", "1; 0 while a pool takes its server to be unreachable: calls fail at once then.", "short", []string{
			"{{instance}} {{pool}} | flightpool_healthy{%p}"}},
		{"How full are the pools?", "Connections by state, and how many there may be.", "short", []string{
			"{{pool}} {{state}} | sum by (pool, state) (flightpool_connections{%p})", "{{pool}} max | sum by (pool) (flightpool_connections_max{%p})"}},
		{"Does anybody wait for a connection?", "Callers in the queue: for long, and with all connections in use, the pool is too small or the server too slow.", "short", []string{
			"{{pool}} | sum by (pool) (flightpool_callers_waiting{%p})"}},
		{"How long is the wait?", "Of those who got a connection.", "s", quantiles("wait_seconds")},
		{"Who gets no connection?", "timeout and canceled: callers who left; failed: an open failed; rejected: FailFast or MaxWaiters.", "ops", []string{
			`{{pool}} {{outcome}} | sum by (pool, outcome) (rate(flightpool_acquires_total{outcome!="ok",%p}[%r]))`}},
		{"How many calls are there, and how many fail?", "Stateless calls, those that failed, those made again on another connection, and sessions begun.", "ops", []string{
			"{{pool}} calls | sum by (pool) (rate(flightpool_calls_total{%p}[%r]))", "{{pool}} failures | sum by (pool) (rate(flightpool_call_failures_total{%p}[%r]))",
			"{{pool}} retries | sum by (pool) (rate(flightpool_retries_total{%p}[%r]))", "{{pool}} sessions | sum by (pool) (rate(flightpool_sessions_total{%p}[%r]))"}},
		{"How long do calls take?", "Until their end, of a result with its reading.", "s", quantiles("call_seconds")},
		{"How long until the first rows?", "What the server takes; the rest of a call is transfer and reading.", "s", quantiles("first_batch_seconds")},
		{"How long are connections borrowed?", "Far above the time of calls: borrowers keep them.", "s", quantiles("hold_seconds")},
		{"Do opens succeed?", "Opens of connections, those that failed and those that were not needed any more.", "ops", []string{
			"{{pool}} opens | sum by (pool) (rate(flightpool_opens_total{%p}[%r]))", "{{pool}} failed | sum by (pool) (rate(flightpool_open_failures_total{%p}[%r]))",
			"{{pool}} not needed | sum by (pool) (rate(flightpool_opens_skipped_total{%p}[%r]))"}},
		{"How long do opens take?", "To the proof of the session, of opens that succeeded.", "s", quantiles("open_seconds")},
		{"Why are connections closed?", "expired and idle are as configured; lost: the server or the network ended them.", "ops", []string{
			"{{pool}} {{reason}} | sum by (pool, reason) (rate(flightpool_closes_total{%p}[%r]))"}},
		{"Have cancelled statements stopped?", "unconfirmed: the connection was closed, and the statement may run on.", "ops", []string{
			"{{pool}} {{outcome}} | sum by (pool, outcome) (rate(flightpool_cancels_total{%p}[%r]))"}},
		{"Do health checks pass?", "Checks of idle connections.", "ops", []string{
			"{{pool}} checks | sum by (pool) (rate(flightpool_checks_total{%p}[%r]))", "{{pool}} failed | sum by (pool) (rate(flightpool_check_failures_total{%p}[%r]))"}},
		{"What do borrowers leave behind?", "Sessions cleaned, those that could not be, transactions left open, connections borrowed for longer than LeakAfter, hooks that panicked.", "ops", []string{
			"{{pool}} cleaned | sum by (pool) (rate(flightpool_resets_total{%p}[%r]))", "{{pool}} not cleaned | sum by (pool) (rate(flightpool_reset_failures_total{%p}[%r]))",
			"{{pool}} rolled back | sum by (pool) (rate(flightpool_rollbacks_total{%p}[%r]))", "{{pool}} leaks | sum by (pool) (rate(flightpool_leaks_total{%p}[%r]))",
			"{{pool}} hooks | sum by (pool) (rate(flightpool_hook_failures_total{%p}[%r]))"}},
	}},
	{"Registries", []panel{
		{"Can the registries' servers be reached?", "1; 0 while a server is taken to be unreachable.", "short", []string{
			"{{server}} | min by (server) (flightpool_registry_server_healthy{%i})"}},
		{"Whose connections are these?", "Connections by server, user and state.", "short", []string{
			"{{server}} {{user}} {{state}} | sum by (server, user, state) (flightpool_registry_connections{%i})"}},
		{"Which users wait, and which get none?", "Callers in the queue, and calls for a connection that failed or were rejected each second.", "short", []string{
			"{{server}} {{user}} waiting | sum by (server, user) (flightpool_registry_callers_waiting{%i})",
			`{{server}} {{user}} {{outcome}} | sum by (server, user, outcome) (rate(flightpool_registry_acquires_total{outcome!="ok",%i}[%r]))`}},
		{"What do users call, and what fails?", "Calls, and those that failed.", "ops", []string{
			"{{server}} {{user}} calls | sum by (server, user) (rate(flightpool_registry_calls_total{%i}[%r]))",
			"{{server}} {{user}} failures | sum by (server, user) (rate(flightpool_registry_call_failures_total{%i}[%r]))"}},
		{"Have the users' cancelled statements stopped?", "unconfirmed: the connection was closed, and the statement may run on.", "ops", []string{
			"{{server}} {{user}} {{outcome}} | sum by (server, user, outcome) (rate(flightpool_registry_cancels_total{%i}[%r]))"}},
		{"How much is sent and received?", "Of the kinds of server that count it.", "Bps", []string{
			"{{server}} {{user}} sent | sum by (server, user) (rate(flightpool_registry_sent_bytes_total{%i}[%r]))",
			"{{server}} {{user}} received | sum by (server, user) (rate(flightpool_registry_received_bytes_total{%i}[%r]))"}},
		{"How do connections come and go?", "Opens and checks by outcome, connections closed, given back, and out for longer than LeakAfter.", "ops", []string{
			"{{server}} opens {{outcome}} | sum by (server, outcome) (rate(flightpool_registry_opens_total{%i}[%r]))",
			"{{server}} checks {{outcome}} | sum by (server, outcome) (rate(flightpool_registry_checks_total{%i}[%r]))",
			"{{server}} closed | sum by (server) (rate(flightpool_registry_closes_total{%i}[%r]))",
			"{{server}} given back | sum by (server) (rate(flightpool_registry_releases_total{%i}[%r]))", "{{server}} leaks | sum by (server) (rate(flightpool_registry_leaks_total{%i}[%r]))"}},
	}},
	{"Budgets of a fleet", []panel{
		{"How much of the limit is used?", "Of the whole fleet, as last seen by any process.", "short", []string{
			"{{budget}} used | max by (budget) (flightpool_lease_used{%i})", "{{budget}} limit | max by (budget) (flightpool_lease_limit{%i})"}},
		{"What has each process?", "Connections, leases in advance, connections that the table does not know, and the share while the fleet is short.", "short", []string{
			"{{instance}} {{budget}} in use | flightpool_lease_in_use{%i}", "{{instance}} {{budget}} spare | flightpool_lease_spare{%i}",
			"{{instance}} {{budget}} unbacked | flightpool_lease_unbacked{%i}", "{{instance}} {{budget}} share | flightpool_lease_share{%i}"}},
		{"Do opens wait for the fleet?", "For a lease: the limit is used up; for a permit: opens come faster than the rate.", "short", []string{
			"{{budget}} lease | sum by (budget) (flightpool_lease_opens_waiting{%i})", "{{budget}} permit | sum by (budget) (flightpool_limiter_opens_waiting{%i})"}},
		{"Can the tables be reached?", "1; 0 while the Fallback decides. Owners are the processes that share the limit.", "short", []string{
			"{{instance}} {{budget}} leases | flightpool_lease_table_reachable{%i}", "{{instance}} {{budget}} rate | flightpool_limiter_table_reachable{%i}",
			"{{budget}} owners | max by (budget) (flightpool_lease_owners{%i})"}},
		{"What is granted?", "Leases and permits by outcome, those that the Fallback granted, permits not used in time, and opens that the server refused as too fast.", "ops", []string{
			"{{budget}} leases {{outcome}} | sum by (budget, outcome) (rate(flightpool_lease_grants_total{%i}[%r]))",
			"{{budget}} permits {{outcome}} | sum by (budget, outcome) (rate(flightpool_limiter_permits_total{%i}[%r]))",
			"{{budget}} leases by fallback | sum by (budget) (rate(flightpool_lease_fallbacks_total{%i}[%r]))",
			"{{budget}} permits by fallback | sum by (budget) (rate(flightpool_limiter_fallbacks_total{%i}[%r]))",
			"{{budget}} permits dropped | sum by (budget) (rate(flightpool_limiter_dropped_total{%i}[%r]))",
			"{{budget}} refused by the server | sum by (budget) (rate(flightpool_limiter_refusals_total{%i}[%r]))"}},
		{"What is asked of the tables, and who died?", "Requests, those without a definite answer, processes taken for dead and those whose leases were freed.", "ops", []string{
			"{{budget}} leases {{op}} | sum by (budget, op) (rate(flightpool_lease_table_requests_total{%i}[%r]))",
			"{{budget}} rate {{op}} | sum by (budget, op) (rate(flightpool_limiter_table_requests_total{%i}[%r]))",
			"{{budget}} leases failed | sum by (budget) (rate(flightpool_lease_table_failures_total{%i}[%r]))",
			"{{budget}} rate failed | sum by (budget) (rate(flightpool_limiter_table_failures_total{%i}[%r]))",
			"{{budget}} taken for dead | sum by (budget) (rate(flightpool_lease_losses_total{%i}[%r]))",
			"{{budget}} freed | sum by (budget) (rate(flightpool_lease_reaped_total{%i}[%r]))"}},
	}},
	{"Aurora DSQL", []panel{
		{"Is enough ready?", "Connections ready, how many are to be, and 1 while they are fewer than the low watermark.", "short", []string{
			"{{cluster}} ready | sum by (cluster) (dsql_reservoir_size{%i})", "{{cluster}} target | sum by (cluster) (dsql_reservoir_target{%i})",
			"{{cluster}} low | max by (cluster) (dsql_reservoir_low{%i})"}},
		{"What happens in the reservoirs?", "Connections lent, opens under way, callers who wait.", "short", []string{
			"{{cluster}} in use | sum by (cluster) (dsql_reservoir_in_use{%i})", "{{cluster}} opening | sum by (cluster) (dsql_reservoir_opening{%i})",
			"{{cluster}} waiting | sum by (cluster) (dsql_reservoir_waiting{%i})"}},
		{"Who finds none ready, and who gets none?", "Connections lent, calls that found none ready, and calls that got none.", "ops", []string{
			"{{cluster}} lent | sum by (cluster) (rate(dsql_reservoir_checkouts_total{%i}[%r]))", "{{cluster}} none ready | sum by (cluster) (rate(dsql_reservoir_empty_total{%i}[%r]))",
			"{{cluster}} none | sum by (cluster) (rate(dsql_reservoir_failures_total{%i}[%r]))"}},
		{"How long do DSQL's callers wait, and do opens pause?", "The mean wait, of those who got a connection at once too, and for how long opens pause because the cluster refused some.", "s", []string{
			"{{cluster}} pause | max by (cluster) (dsql_reservoir_paused_seconds{%i})",
			"{{cluster}} wait | sum by (cluster) (rate(dsql_reservoir_wait_seconds_total{%i}[%r])) / sum by (cluster) (rate(dsql_reservoir_checkouts_total{%i}[%r]))"}},
		{"Why do DSQL's opens fail?", "Connections opened, and failures by reason.", "ops", []string{
			"{{cluster}} opened | sum by (cluster) (rate(dsql_reservoir_refills_total{%i}[%r]))",
			"{{cluster}} {{reason}} | sum by (cluster, reason) (rate(dsql_reservoir_refill_failures_total{%i}[%r]))"}},
		{"Why are DSQL's connections closed?", "By reason.", "ops", []string{
			"{{cluster}} {{reason}} | sum by (cluster, reason) (rate(dsql_reservoir_discards_total{%i}[%r]))"}},
		{"How much of the cluster's limit is used?", "Of the fleet, of each process, what the table does not know, and processes.", "short", []string{
			"{{cluster}} used | max by (cluster) (dsql_distributed_conn_lease_active{%i})", "{{cluster}} limit | max by (cluster) (dsql_distributed_conn_lease_limit{%i})",
			"{{instance}} {{cluster}} held | dsql_distributed_conn_lease_held{%i}", "{{instance}} {{cluster}} unbacked | dsql_distributed_conn_lease_unbacked{%i}",
			"{{cluster}} owners | max by (cluster) (dsql_distributed_conn_lease_owners{%i})"}},
		{"Can DSQL's tables be reached?", "1 while one cannot be reached; the table's clock minus the process's in seconds.", "short", []string{
			"{{instance}} {{cluster}} leases | dsql_distributed_conn_lease_degraded{%i}", "{{instance}} {{cluster}} rate | dsql_open_limiter_degraded{%i}",
			"{{instance}} {{cluster}} skew | dsql_lease_table_clock_skew_seconds{%i}"}},
		{"Which opens are permitted?", "Permits, those denied, those by the fallback, opens refused by the cluster, and leases by the fallback.", "ops", []string{
			"{{cluster}} permitted | sum by (cluster) (rate(dsql_open_permits_total{%i}[%r]))", "{{cluster}} denied | sum by (cluster) (rate(dsql_open_permits_denied_total{%i}[%r]))",
			"{{cluster}} by fallback | sum by (cluster) (rate(dsql_open_permits_fallback_total{%i}[%r]))", "{{cluster}} refused | sum by (cluster) (rate(dsql_open_limiter_refusals_total{%i}[%r]))",
			"{{cluster}} leases by fallback | sum by (cluster) (rate(dsql_distributed_conn_lease_fallbacks_total{%i}[%r]))"}},
		{"What is asked of DSQL's tables, and who died?", "Requests, those without an answer, processes taken for dead and those whose leases were freed.", "ops", []string{
			"{{cluster}} reads | sum by (cluster) (rate(dsql_lease_table_reads_total{%i}[%r]))", "{{cluster}} writes | sum by (cluster) (rate(dsql_lease_table_writes_total{%i}[%r]))",
			"{{cluster}} failed | sum by (cluster) (rate(dsql_lease_table_failures_total{%i}[%r]))",
			"{{cluster}} taken for dead | sum by (cluster) (rate(dsql_distributed_conn_lease_losses_total{%i}[%r]))",
			"{{cluster}} freed | sum by (cluster) (rate(dsql_distributed_conn_lease_reaped_total{%i}[%r]))"}},
	}},
}

type object = map[string]any

// expression is the query as Grafana has it.
func expression(query string) (legend, expr string) {
	legend, expr, _ = strings.Cut(query, " | ")
	return legend, strings.NewReplacer("%p", `instance=~"$instance",pool=~"$pool"`, "%i", `instance=~"$instance"`, "%r", "$__rate_interval").Replace(expr)
}

// dashboard is one for Grafana 10 or later.
func dashboard() object {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	choice := func(name, of string) object {
		return object{
			"name": name, "label": name, "type": "query", "datasource": source, "query": object{"query": "label_values(" + of + ", " + name + ")", "refId": name},
			"refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*", "current": object{"text": "All", "value": "$__all"},
		}
	}
	var all []object
	y := 0
	for _, r := range panels {
		all = append(all, object{"id": len(all) + 1, "type": "row", "title": r.row, "collapsed": false, "gridPos": object{"h": 1, "w": 24, "x": 0, "y": y}, "panels": []object{}})
		y++
		for i, p := range r.panels {
			var targets []object
			for j, query := range p.queries {
				legend, expr := expression(query)
				targets = append(targets, object{"refId": string(rune('A' + j)), "datasource": source, "expr": expr, "legendFormat": legend})
			}
			all = append(all, object{
				"id": len(all) + 1, "type": "timeseries", "title": p.title, "description": p.about, "datasource": source, "targets": targets,
				"gridPos":     object{"h": 8, "w": 8, "x": i % 3 * 8, "y": y + i/3*8},
				"fieldConfig": object{"defaults": object{"unit": p.unit, "custom": object{"showPoints": "never"}}, "overrides": []object{}},
				"options":     object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}},
			})
		}
		y += (len(r.panels) + 2) / 3 * 8
	}
	return object{
		"title": "flightpool", "uid": "flightpool", "tags": []string{"flightpool"}, "schemaVersion": 38, "editable": true, "refresh": "30s",
		"time": object{"from": "now-1h", "to": "now"}, "panels": all,
		"templating": object{"list": []object{
			{"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus"},
			choice("instance", `{__name__=~"flightpool_.+|dsql_.+"}`), choice("pool", `flightpool_healthy{instance=~"$instance"}`),
		}},
	}
}

// WRITE_DASHBOARD=1 go test -run Dashboard writes it anew.
func TestTheDashboardIsThatOfItsQuestions(t *testing.T) {
	want, err := json.MarshalIndent(dashboard(), "", " ")
	require.NoError(t, err)
	if os.Getenv("WRITE_DASHBOARD") != "" {
		require.NoError(t, os.WriteFile("dashboard.json", append(want, '\n'), 0o644))
	}
	got, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(got), "WRITE_DASHBOARD=1 writes it anew")
}
