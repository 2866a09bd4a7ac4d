package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// figures are of all rounds.
type figures struct {
	noticed, failed, back []time.Duration
	calm, storm           []time.Duration // p99 of the calls to the other servers
}

func (f *figures) print(out io.Writer) {
	if len(f.back) == 0 {
		return
	}
	ratios := make([]float64, len(f.calm))
	for i := range ratios {
		ratios[i] = float64(f.storm[i]) / float64(max(f.calm[i], 1))
	}
	slices.Sort(ratios)
	fmt.Fprintf(out, "%d rounds: unhealthy after %s; calls then fail within %s at most; back %s after the restart, %s at most (2 probe intervals are 2s)\n",
		len(f.back), rounded(median(f.noticed)), slices.Max(f.failed).Round(100*time.Nanosecond), rounded(median(f.back)), rounded(slices.Max(f.back)))
	fmt.Fprintf(out, "calls to the others: p99 %s before the kill, %s after it, %.2f times; none failed\n",
		rounded(median(f.calm)), rounded(median(f.storm)), ratios[len(ratios)/2])
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}
