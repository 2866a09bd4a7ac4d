package reservoir

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPlanPlacesSoftAndLastWithinTheLife(t *testing.T) {
	const s = int64(time.Second)
	for name, c := range map[string]struct {
		phase                     uint64
		life, jitter, guard, lead time.Duration
		want                      span
	}{
		"no lifetime":         {0, 0, time.Second, time.Second, time.Second, span{never, never}},
		"nothing but life":    {math.MaxUint64, 100 * time.Second, 0, 0, 0, span{107 * s, 107 * s}},
		"guard":               {0, 100 * time.Second, 0, 10 * time.Second, 0, span{97 * s, 97 * s}},
		"lead":                {0, 100 * time.Second, 0, 20 * time.Second, 5 * time.Second, span{82 * s, 87 * s}},
		"lead of a quarter":   {0, 100 * time.Second, 0, 20 * time.Second, time.Hour, span{67 * s, 87 * s}},
		"half the jitter":     {1 << 63, 100 * time.Second, 3 * time.Second, 0, 0, span{108*s + s/2, 108*s + s/2}},
		"jitter below 1s":     {1 << 62, 100 * time.Second, 900 * time.Millisecond, 0, 0, span{107*s + s*225/1000, 107*s + s*225/1000}},
		"longer than time is": {0, math.MaxInt64, 0, 0, 0, span{never, never}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, plan(7*s, c.phase, c.life, c.jitter, c.guard, c.lead))
		})
	}
}

// With n points spread as evenly as can be, gaps are jitter/n. Points drawn at
// random leave gaps of several times that.
func TestJitterOfABurstOfAnySizeIsSpreadEvenly(t *testing.T) {
	const jitter = 5 * time.Minute
	for _, start := range []uint64{0, 1, 12345678901234567890} {
		for n := 2; n <= 500; n++ {
			phase, ends := start, make([]int64, n)
			for i := range ends {
				phase += goldenStep
				ends[i] = plan(0, phase, time.Hour, jitter, 0, 0).last - int64(time.Hour)
			}
			slices.Sort(ends)
			widest := ends[0] + int64(jitter) - ends[n-1]
			for i := 1; i < n; i++ {
				widest = max(widest, ends[i]-ends[i-1])
			}
			require.GreaterOrEqual(t, ends[0], int64(0))
			require.Less(t, ends[n-1], int64(jitter))
			require.LessOrEqual(t, float64(widest), 2.2*float64(jitter)/float64(n), "%d points from %d", n, start)
		}
	}
}

func TestThePauseDoublesToASecondAndLuckTakesUpToHalf(t *testing.T) {
	want := []time.Duration{10, 20, 40, 80, 160, 320, 640, 1000, 1000}
	for i, ms := range want {
		require.Equal(t, ms*time.Millisecond, pause(i+1, 0))
	}
	require.Equal(t, 500*time.Millisecond, pause(1<<40, 1))
	require.Equal(t, 15*time.Millisecond, pause(2, 0.5))
}

func TestReplacingAllTakesAsManyRoundsAsItNeeds(t *testing.T) {
	require.Equal(t, 35*time.Second, replacing(50, 8, 5*time.Second))
	require.Equal(t, 5*time.Second, replacing(8, 8, 5*time.Second))
	require.Equal(t, 5*time.Second, replacing(3, math.MaxInt32, 5*time.Second))
	require.Equal(t, time.Minute, replacing(1, 8, 0))
}

func TestTheClockKeepsATimeForItsSlackAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		c.init(time.Hour)
		require.EqualValues(t, 10*time.Millisecond, c.slack)
		time.Sleep(time.Second)
		require.EqualValues(t, time.Second, c.now())
		time.Sleep(10*time.Millisecond - 1)
		require.EqualValues(t, time.Second, c.now())
		require.EqualValues(t, 1010*time.Millisecond-1, c.exact())
		synctest.Wait()
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.EqualValues(t, 1010*time.Millisecond, c.now())
		c.stop()
		time.Sleep(time.Nanosecond)
		require.EqualValues(t, 1010*time.Millisecond+1, c.now())
	})
}

func TestAClockOfShortDurationsIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		c.init(time.Hour, 12*time.Millisecond)
		require.Zero(t, c.slack)
		time.Sleep(3 * time.Nanosecond)
		require.EqualValues(t, 3, c.now())
		time.Sleep(time.Nanosecond)
		require.EqualValues(t, 4, c.now())
	})
}
