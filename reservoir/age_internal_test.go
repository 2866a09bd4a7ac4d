package reservoir

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestASpanLeavesTimeToReplaceWithinTheLife(t *testing.T) {
	const s = int64(time.Second)
	for name, c := range map[string]struct {
		life lifetimeParams
		want lifetime
	}{
		"no lifetime":         {lifetimeParams{notAfter: never, jitter: s, guard: s, replaceTime: s}, lifetime{never, never}},
		"nothing but life":    {lifetimeParams{opened: 7 * s, maxAge: 100 * s, notAfter: never}, lifetime{105 * s, 107 * s}},
		"guard":               {lifetimeParams{opened: 7 * s, maxAge: 110 * s, guard: 10 * s, notAfter: never}, lifetime{105 * s, 107 * s}},
		"replacing":           {lifetimeParams{opened: 7 * s, maxAge: 120 * s, guard: 20 * s, notAfter: never, replaceTime: 5 * s}, lifetime{102 * s, 107 * s}},
		"at most a quarter":   {lifetimeParams{opened: 7 * s, maxAge: 120 * s, guard: 20 * s, notAfter: never, replaceTime: never}, lifetime{82 * s, 107 * s}},
		"at least for 30s":    {lifetimeParams{maxAge: 10_000 * s, notAfter: never}, lifetime{9970 * s, 10_000 * s}},
		"jitter":              {lifetimeParams{maxAge: 90 * s, jitter: 10 * s, notAfter: never}, lifetime{98 * s, 100 * s}},
		"its own end":         {lifetimeParams{maxAge: 200 * s, guard: 10 * s, notAfter: 110 * s}, lifetime{98 * s, 100 * s}},
		"only its own end":    {lifetimeParams{guard: 10 * s, notAfter: 110 * s}, lifetime{98 * s, 100 * s}},
		"longer than time is": {lifetimeParams{opened: 7 * s, maxAge: never - s, jitter: s, notAfter: never}, lifetime{never, never}},
		"replaced early":      {lifetimeParams{opened: 7 * s, maxAge: 200 * s, guard: 10 * s, notAfter: never, replaceAfter: 50 * s, jitter: 3 * s}, lifetime{60 * s, 200 * s}},
		"its end is earlier":  {lifetimeParams{maxAge: 200 * s, guard: 10 * s, notAfter: 40 * s, replaceAfter: 50 * s}, lifetime{30*s - 600*s/1000, 30 * s}},
		"too short to use":    {lifetimeParams{opened: 7 * s, maxAge: s, guard: 2 * s, notAfter: never}, lifetime{6 * s, 6 * s}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, c.life.plan()) })
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
				ends[i] = jitterPart(phase, jitter)
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

func TestThePauseDoublesToASecondAndJitterTakesUpToHalf(t *testing.T) {
	want := []time.Duration{10, 20, 40, 80, 160, 320, 640, 1000, 1000}
	for i, ms := range want {
		require.Equal(t, ms*time.Millisecond, retryPause(i+1, 0))
	}
	require.Equal(t, 500*time.Millisecond, retryPause(1<<40, 1))
	require.Equal(t, 15*time.Millisecond, retryPause(2, 0.5))
}

func TestReplacingBeginsAsEarlyAsTheMeasuredOpensNeed(t *testing.T) {
	const s = int64(time.Second)
	require.Equal(t, 2*7*5*s, replaceLead(50, 8, 5*s, 0), "seven rounds, twice")
	require.Equal(t, 2*5*s, replaceLead(8, 8, 5*s, 0))
	require.Equal(t, 2*5*s, replaceLead(3, math.MaxInt32, 5*s, 0))
	require.Equal(t, 2*5*s, replaceLead(50, 8, 5*s, 30*s), "the jitter spreads them")
	require.Equal(t, 2*10*s, replaceLead(50, 8, 5*s, 25*s))
	require.Equal(t, int64(2*time.Millisecond), replaceLead(1, 8, 0, 0))
	require.Equal(t, never, replaceLead(math.MaxInt32, 1, never/2, 0), "nothing wraps")
	require.Equal(t, never, replaceLead(2, 1, never-1, 0))
}

func TestSmoothedRisesAtOnceAndFallsSlowly(t *testing.T) {
	require.EqualValues(t, 800, smoothedOpenTime(0, 800))
	require.EqualValues(t, 700, smoothedOpenTime(800, 0))
	require.EqualValues(t, 750, smoothedOpenTime(800, 400))
	require.EqualValues(t, 900, smoothedOpenTime(800, 900))
	require.Positive(t, smoothedOpenTime(never, never))
}

func TestNoSumOfTimesWraps(t *testing.T) {
	for _, c := range [][3]int64{
		{0, 0, never}, {5, -1, never}, {5, 7, 12}, {never - 7, 7, never}, {never - 8, 7, never - 1}, {5, never, never}, {-5, never, never}, {never, never, never},
	} {
		require.Equal(t, c[2], addSaturating(c[0], c[1]), "%v", c)
	}
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
