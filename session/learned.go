package session

import (
	"context"
	"sync"

	"github.com/flightpool/flightpool/backend"
)

// maxTexts bounds what is kept about a server, in entries. What is not kept counts as
// unknown: that costs round trips, and in a transaction a connection, but is never
// wrong.
const maxTexts = 1024

// textSet is a bounded set of texts, for use from any goroutine. It forgets nothing;
// once full it takes no more. What is in it was learned of the server, not of one
// session, and so it is kept in the Policy that all sessions of the server share.
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
	if len(t.set) < maxTexts {
		t.set[text] = struct{}{}
	}
}

// reportsNamespace reports whether the server has told where a session is.
func (p *Policy) reportsNamespace() bool {
	return p.answeredQueries.has(searchPathQuery.key) || p.answeredQueries.has(namespaceQuery.key)
}

// tellsNoPlace finds out, once the server has refused to tell where the session is,
// whether it is one that cannot tell, and takes note of that for good. One that has
// told it before can: then its refusals are failures, as they are where it refuses a
// harmless query too. Its last word is asked for after it has answered that one. A
// single refusal is not enough, since the note holds for every later borrower: one that
// was made by mistake has a bulk load leave the session elsewhere unnoticed.
func (s *SessionHandle) tellsNoPlace(ctx context.Context) (bool, error) {
	if s.policy.reportsNamespace() {
		return false, nil
	}
	if err := s.runProbe(ctx); err != nil {
		if backend.FaultIn(err).KeepsConn() {
			err = nil
		}
		return false, err
	}
	if _, err := s.runStateQuery(ctx, namespaceQuery, backend.Call{}); err == nil || !backend.FaultIn(err).KeepsConn() {
		return false, err
	}
	s.policy.nonMovingInserts.add(namespaceUnsupported)
	return true, nil
}
