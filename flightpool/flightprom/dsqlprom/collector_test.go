package dsqlprom_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/flightprom/dsqlprom"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/reservoir/dsql"
)

var (
	_ dsqlprom.Source = (*dsql.Cluster)(nil)
	_ dsqlprom.Source = (*dsql.Pool)(nil)
)

type fixed dsql.Stats

func (f *fixed) Stats() dsql.Stats { return dsql.Stats(*f) }

// numbers are all different, so that no two can be mixed up.
func numbers() *fixed {
	s := fixed{
		Reservoir: reservoir.Stats{Idle: 1, InUse: 2, Opening: 3, Waiting: 98}, Waiting: 4, Checkouts: 5, Empty: 6, Failures: 7,
		WaitTime: 1500 * time.Millisecond, Opened: 8, FailedOpens: dsql.FailedOpens{Rate: 9, Limit: 10, Denied: 11, Other: 12, Unpermitted: 13},
		Leases: lease.Stats{
			Used: 14, Limit: 15, InUse: 16, Degraded: true, Owners: 30, Unbacked: 31, Losses: 32, Reaped: 33, Fallbacks: 34,
			Traffic: lease.Traffic{Reads: 100, Writes: 200, Failures: 300, ClockSkew: 3500 * time.Millisecond},
		},
		Limiter: lease.LimiterStats{
			Granted: 17, Denied: 18, Fallbacks: 35, Refusals: 36, Traffic: lease.Traffic{Reads: 1, Writes: 2, Failures: 3},
		},
		MinIdle: 19, Low: true, Paused: 250 * time.Millisecond,
	}
	for i := range s.Reservoir.Closed {
		s.Reservoir.Closed[i] = uint64(20 + i)
	}
	return &s
}

// Behind each name its value.
const want = `reservoir_size 1, reservoir_in_use 2, reservoir_opening 3, reservoir_waiting 4, reservoir_target 19, reservoir_low 1,
reservoir_paused_seconds 0.25, reservoir_wait_seconds_total 1.5, reservoir_checkouts_total 5, reservoir_empty_total 6,
reservoir_failures_total 7, reservoir_refills_total 8, reservoir_refill_failures_total{reason="rate_exceeded"} 9,
reservoir_refill_failures_total{reason="too_many_connections"} 10, reservoir_refill_failures_total{reason="denied"} 11,
reservoir_refill_failures_total{reason="other"} 12, reservoir_refill_failures_total{reason="no_permission"} 13,
distributed_conn_lease_active 14, distributed_conn_lease_limit 15, distributed_conn_lease_held 16, distributed_conn_lease_degraded 1,
open_limiter_degraded 0, open_permits_total 17, open_permits_denied_total 18, distributed_conn_lease_owners 30,
distributed_conn_lease_unbacked 31, distributed_conn_lease_losses_total 32, distributed_conn_lease_reaped_total 33,
distributed_conn_lease_fallbacks_total 34, open_permits_fallback_total 35, open_limiter_refusals_total 36, lease_table_reads_total 101,
lease_table_writes_total 202, lease_table_failures_total 303, lease_table_clock_skew_seconds 3.5,
reservoir_discards_total{reason="expired"} 20, reservoir_discards_total{reason="idle"} 21, reservoir_discards_total{reason="discarded"} 22,
reservoir_discards_total{reason="outdated"} 23, reservoir_discards_total{reason="surplus"} 24, reservoir_discards_total{reason="unhealthy"} 25,
reservoir_discards_total{reason="shutdown"} 26, reservoir_discards_total{reason="lost"} 27`

func TestEveryNumberIsShownByItsName(t *testing.T) {
	c := dsqlprom.NewCollector()
	c.Add("orders", numbers())
	all := prometheus.NewPedanticRegistry()
	all.MustRegister(c)
	families, err := all.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "dsql_")
			for _, l := range m.GetLabel() {
				if l.GetName() == "reason" {
					name += `{reason="` + l.GetValue() + `"}`
				} else {
					require.Equal(t, "cluster orders", l.GetName()+" "+l.GetValue())
				}
			}
			require.Equal(t, strings.HasSuffix(f.GetName(), "_total"), m.GetCounter() != nil, name)
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	expected := map[string]float64{}
	for _, line := range regexp.MustCompile(`(\S+) ([\d.]+)`).FindAllStringSubmatch(want, -1) {
		require.NotContains(t, expected, line[1])
		expected[line[1]] = number(t, line[2])
	}
	require.Equal(t, expected, got)
	require.Subset(t, ofOTel(t), names)
	require.Len(t, names, len(ofOTel(t)), "no name of dsqlotel is missing")

	problems, err := testutil.CollectAndLint(c)
	require.NoError(t, err)
	require.Empty(t, problems)
	c.Remove("orders")
	require.Zero(t, testutil.CollectAndCount(c))
}

// ofOTel are the names that the package comment of dsqlotel lists, but for its Tracer's.
func ofOTel(t *testing.T) (names []string) {
	doc, err := os.ReadFile("../../../reservoir/dsql/dsqlotel/doc.go")
	require.NoError(t, err)
	for _, line := range regexp.MustCompile(`(?m)^//\t(dsql_\w+)(.*)`).FindAllStringSubmatch(string(doc), -1) {
		names = append(names, line[1])
		for _, more := range regexp.MustCompile(`, (_\w+)`).FindAllStringSubmatch(line[2], -1) {
			names = append(names, regexp.MustCompile(`_(total|active|in_use)$`).ReplaceAllString(line[1], "")+more[1])
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "dsql_reservoir_checkout_seconds" })
}

func number(t *testing.T, text string) (n float64) {
	_, err := fmt.Sscan(text, &n)
	require.NoError(t, err)
	return n
}
