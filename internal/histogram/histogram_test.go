package histogram

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAQuantileIsAtMostAQuarterTooHigh(t *testing.T) {
	for d := time.Microsecond; d < time.Hour; d += d/7 + 1 {
		var h Histogram
		h.Add(d)
		s := h.Snapshot()
		got := s.Quantile(1, 0)
		require.GreaterOrEqual(t, got, d)
		require.LessOrEqual(t, got, d+d/4+2*time.Microsecond)
		require.InDelta(t, d.Seconds(), s.Seconds, 32e-9)
	}
}

func TestQuantilesCountWhatTookNoTime(t *testing.T) {
	var h Histogram
	for _, d := range []time.Duration{time.Second, time.Minute, -1, 1000 * time.Hour} {
		h.Add(d)
	}
	s := h.Snapshot()
	require.EqualValues(t, 4, s.Count)
	require.InDelta(t, (time.Second + time.Minute + 1000*time.Hour).Seconds(), s.Seconds, 1e-7)
	for _, c := range []struct {
		p           float64
		zeros       uint64
		least, most time.Duration
	}{
		{0, 0, 0, 0},
		{.25, 0, time.Microsecond, 2 * time.Microsecond},
		{.5, 0, time.Second, 5 * time.Second / 4},
		{.75, 0, time.Minute, 75 * time.Second},
		{1, 0, time.Hour, 3 * time.Hour},
		{.5, 4, 0, 0},
		{.75, 4, time.Second, 5 * time.Second / 4},
	} {
		got := s.Quantile(c.p, c.zeros)
		require.GreaterOrEqual(t, got, c.least, "%+v", c)
		require.LessOrEqual(t, got, c.most, "%+v", c)
	}
	var none Snapshot
	require.Zero(t, none.Quantile(.5, 0))
	require.Zero(t, none.Quantile(1, 7))
	require.Zero(t, (*Histogram)(nil).Snapshot())
}

func TestWhatIsCountedSince(t *testing.T) {
	var h Histogram
	h.Add(time.Second)
	h.Add(time.Hour)
	before := h.Snapshot()
	h.Add(time.Second)
	after := h.Snapshot()
	since := after.Since(&before)
	require.EqualValues(t, 1, since.Count)
	require.InDelta(t, 1, since.Seconds, 1e-6)
	require.Equal(t, since.Quantile(1, 0), before.Quantile(.5, 0), "a second")
	require.Zero(t, before.Since(&after), "nothing is less than none")
}

func TestDurationsAreAddedFromManyGoroutines(t *testing.T) {
	var h Histogram
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				h.Add(time.Millisecond)
				h.Snapshot()
			}
		})
	}
	all.Wait()
	s := h.Snapshot()
	require.EqualValues(t, 8000, s.Count)
	require.InDelta(t, 8, s.Seconds, 1e-7)
}

func TestASumOfManyYearsDoesNotOverflow(t *testing.T) {
	var h Histogram
	for range 20 {
		h.Add(math.MaxInt64)
	}
	s := h.Snapshot()
	require.InEpsilon(t, 20*292.47*365.2425*24*3600, s.Seconds, 1e-3)
}
