package session

import "sync"

// maxLearned bounds what is kept about a server.
const maxLearned = 1024

// textSet is a bounded set of texts, for use from any goroutine. It forgets
// nothing; once full it takes no more.
type textSet struct {
	mu  sync.Mutex
	set map[string]struct{}
}

func (t *textSet) has(text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.set[text]
	return ok
}

func (t *textSet) add(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.set == nil {
		t.set = make(map[string]struct{})
	}
	if len(t.set) < maxLearned {
		t.set[text] = struct{}{}
	}
}
