package testserver

import (
	"context"
	"slices"
	"sync"
)

// statementQueue admits the statements of all sessions, MaxStatements at a time, in the order in which
// they came.
type statementQueue struct {
	sync.Mutex
	running int
	waiting []chan struct{} // closed once it is its turn, and taken off the list
}

// queueUp waits until the statement is admitted. What it returns is called when the statement has ended.
// The beginnings and ends of transactions do not wait.
func (s *session) queueUp(ctx context.Context, kind Kind) (leave func(), err error) {
	limit := s.srv.profile.MaxStatements
	if limit == 0 || kind != KindQuery && kind != KindUpdate {
		return func() {}, nil
	}
	q := &s.srv.queue
	q.Lock()
	if q.running < limit {
		q.running++
		q.Unlock()
		return q.leave, nil
	}
	turn := make(chan struct{})
	q.waiting = append(q.waiting, turn)
	q.Unlock()
	s.addQueued(1)
	defer s.addQueued(-1)
	select {
	case <-turn:
		return q.leave, nil
	case <-s.closedCh:
		err = errSessionClosed
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	q.Lock()
	at := slices.Index(q.waiting, turn)
	if at >= 0 {
		q.waiting = slices.Delete(q.waiting, at, at+1)
	}
	q.Unlock()
	if at < 0 {
		q.leave()
	}
	return nil, err
}

// leave lets the next one in.
func (q *statementQueue) leave() {
	q.Lock()
	defer q.Unlock()
	if len(q.waiting) == 0 {
		q.running--
		return
	}
	close(q.waiting[0])
	q.waiting = q.waiting[1:]
}

func (s *session) addQueued(n int) {
	s.mu.Lock()
	s.mu.queued += n
	s.mu.Unlock()
}
