package poolz

import (
	"hash/maphash"
	"sync"

	"github.com/flightpool/flightpool/flightpool"
)

// summaries are those of statements that came before, by hashes of their texts. The texts
// are not kept: they may hold values.
type summaries struct {
	seed maphash.Seed

	mu     sync.Mutex
	byHash map[uint64]string
}

// maxSummaries is how many there are at most.
const maxSummaries = 1000

func newSummaries() *summaries {
	return &summaries{seed: maphash.MakeSeed(), byHash: map[uint64]string{}}
}

// of is the summary of a statement. A long one is hardly sent again as it is.
func (s *summaries) of(d flightpool.QueryStartData) string {
	if len(d.SQL) > maxText {
		return d.Summary()
	}
	hash := maphash.String(s.seed, d.SQL)
	summary, known := s.find(hash)
	if known {
		return summary
	}
	summary = d.Summary()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byHash) >= maxSummaries {
		clear(s.byHash)
	}
	s.byHash[hash] = summary
	return summary
}

func (s *summaries) find(hash uint64) (summary string, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	summary, known = s.byHash[hash]
	return summary, known
}
