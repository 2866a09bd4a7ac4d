package dsql

import (
	"sync"
	"sync/atomic"
	"time"
)

// openPhases is what the opens under way wait for.
type openPhases struct {
	signing atomic.Int64 // how many for credentials

	mu     sync.Mutex
	logins map[*physical]time.Time // when those began that the cluster has yet to answer
}

func (o *openPhases) beginLogin(p *physical) (end func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.logins == nil {
		o.logins = map[*physical]time.Time{}
	}
	o.logins[p] = time.Now()
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.logins, p)
	}
}

// longestLogin is for how long the cluster has not answered the oldest login under way; 0: there is none.
func (o *openPhases) longestLogin() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	longest := time.Duration(0)
	for _, began := range o.logins {
		longest = max(longest, time.Since(began))
	}
	return longest
}
