package poolz

import (
	"encoding/json"
	"math"
	"time"

	"github.com/flightpool/flightpool/flightpool"
)

// columns are what history keeps of a source. The first are gauges, of which a sample is the
// highest value in its stretch of time; then counts, of what happened in it; the last are
// milliseconds, and none where nobody got a connection.
var columns = [...]string{"in_use", "idle", "waiting", "opens", "open_failures", "closed", "calls", "failures", "cancels", "wait_p50", "wait_p99"}

const (
	gauges = 3
	waits  = len(columns) - 2
)

type sample [len(columns)]float32

// A series is the latest samples, one for every so many seconds.
type series struct {
	ring[sample]
	every, at int // at: the second of the latest sample, since the page began
	peak      sample
	base      *reading // at the latest sample
}

// A history is the last five minutes by seconds, and the last hour by ten seconds.
type history struct{ fine, coarse series }

// maxSources is how many sources have a history.
const maxSources = 256

func newHistory() *history {
	return &history{
		fine:   series{ring: ring[sample]{size: 300, values: make([]sample, 0, 300)}, every: 1},
		coarse: series{ring: ring[sample]{size: 360, values: make([]sample, 0, 360)}, every: 10},
	}
}

// add adds the reading of a second, counted since the page began.
func (h *history) add(r *reading, second int) {
	h.fine.observe(r, second)
	h.coarse.observe(r, second)
}

// observe takes a reading. The first is what the next are compared with. Where there was none
// for longer than a sample, since the process did not run, the times of the samples are
// kept: of that stretch it is known how much has happened, and no more.
func (s *series) observe(r *reading, second int) {
	for i, column := range columns[:gauges] {
		s.peak[i] = max(s.peak[i], float32(r.now[column]))
	}
	if s.base == nil {
		s.base, s.at = r, second
		return
	}
	samples := (second - s.at) / s.every
	if samples < 1 {
		return
	}
	out, unseen := s.peak, sample{}
	for i := range unseen {
		unseen[i] = float32(math.NaN())
	}
	for i, column := range columns[gauges:waits] {
		out[gauges+i] = float32(r.count(column)-min(r.count(column), s.base.count(column))) / float32(samples)
		unseen[gauges+i] = out[gauges+i]
	}
	out[waits], out[waits+1] = waitsSince(r.times, s.base.times)
	for range min(samples-1, s.size) {
		s.add(unseen)
	}
	s.add(out)
	s.base, s.at, s.peak = r, s.at+samples*s.every, sample{}
}

func (r *reading) count(column string) uint64 {
	switch column {
	case "closed":
		return sum(r.closed)
	case "cancels":
		return r.counts["cancels_confirmed"] + r.counts["cancels_unconfirmed"]
	default:
		return r.counts[column]
	}
}

// waitsSince is the median and the 99th percentile of waits between two readings.
func waitsSince(now, before *flightpool.Times) (p50, p99 float32) {
	none := float32(math.NaN())
	if now == nil || before == nil {
		return none, none
	}
	waits := now.Wait.Since(&before.Wait)
	if waits.Count() == 0 {
		return none, none
	}
	return milliseconds(waits.Quantile(.5)), milliseconds(waits.Quantile(.99))
}

func milliseconds(d time.Duration) float32 { return float32(d.Seconds() * 1000) }

// byColumn is the series with the oldest sample first.
func (s *series) byColumn() map[string]points {
	latest := s.last()
	all := map[string]points{}
	for c, name := range columns {
		p := make(points, len(latest))
		for i := range latest {
			p[i] = latest[len(latest)-1-i][c]
		}
		all[name] = p
	}
	return all
}

// points are numbers, and null for those that are not known.
type points []float32

// MarshalJSON has null for NaN.
func (p points) MarshalJSON() ([]byte, error) {
	all := make([]*float32, len(p))
	for i := range p {
		if p[i] == p[i] {
			all[i] = &p[i]
		}
	}
	return json.Marshal(all)
}
