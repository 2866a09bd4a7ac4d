//go:build duckdb_arrow

package duckdb

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkStopAfterCancel measures from the cancel of a context to the return
// of the statement that ran under it.
func BenchmarkStopAfterCancel(b *testing.B) {
	e, err := New(b.Context(), Config{})
	require.NoError(b, err)
	defer e.Close() //nolint:errcheck // always nil
	s, err := e.Open(b.Context())
	require.NoError(b, err)
	defer s.Close() //nolint:errcheck // always nil
	for name, sql := range map[string]string{
		"aggregate": "SELECT sum(a.i * b.i) FROM range(1_000_000_000) a(i), range(1_000_000_000) b(i)",
		"sort":      "SELECT sum(n) FROM (SELECT row_number() OVER (ORDER BY hash(i)) AS n FROM range(60_000_000) r(i))",
	} {
		b.Run(name, func(b *testing.B) {
			var total, worst time.Duration
			for b.Loop() {
				ctx, cancel := context.WithCancel(b.Context())
				began := make(chan time.Time, 1)
				timer := time.AfterFunc(100*time.Millisecond, func() { began <- time.Now(); cancel() })
				_, err := s.Update(ctx, sql, nil)
				took := time.Since(<-began)
				timer.Stop()
				require.ErrorIs(b, err, context.Canceled)
				total, worst = total+took, max(worst, took)
			}
			b.ReportMetric(float64(total.Microseconds())/float64(b.N)/1000, "ms/stop")
			b.ReportMetric(float64(worst.Microseconds())/1000, "ms/worst")
			b.ReportMetric(0, "ns/op")
		})
	}
}
