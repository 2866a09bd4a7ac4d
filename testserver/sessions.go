package testserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// sessions are the sessions that clients can reach, by their key.
type sessions struct {
	srv *Server

	mu    sync.Mutex // guards everything below
	byKey map[string]*session
	// INVARIANT: alive are the sessions whose engine session is not closed
	// yet, those that no key reaches any more included.
	alive         map[*session]struct{}
	limit, lastID int
	evicted       map[string]struct{} // keys whose client has not been told
	killed        map[string]struct{} // keys that get no session any more
	locked        map[string]struct{} // keys of which an RPC is served: see Profile.LockSessions
	closed        bool
}

func (s *sessions) init(srv *Server) {
	s.srv = srv
	s.byKey = map[string]*session{}
	s.alive = map[*session]struct{}{}
	s.evicted, s.killed, s.locked = map[string]struct{}{}, map[string]struct{}{}, map[string]struct{}{}
	s.limit = srv.profile.MaxSessions
}

func (s *sessions) setLimit(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = n
}

// find returns the session of a key, or nil.
func (s *sessions) find(key string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byKey[key]
}

// open returns the session of a key. It makes one if there is none.
func (s *sessions) open(ctx context.Context, key string, conn *serverConn) (*session, error) {
	sess, first, err := s.reserve(ctx, key)
	if err != nil {
		s.srv.ledger.update(func(now *Snapshot) { now.Refused++ })
		return nil, err
	}
	if !first {
		select {
		case <-sess.opened:
			return sess, sess.openErr
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}

	err = s.srv.faults.fire(ctx, faultMoment{on: OnSession, conn: conn})
	if err == nil {
		sess.engine, err = s.srv.opts.Engine.Open(ctx)
	}
	if err != nil {
		s.detach(sess)
		s.removeAlive(sess)
		err = s.srv.statusOf(ctx, err)
	} else {
		s.srv.ledger.update(func(now *Snapshot) { now.Sessions++; now.SessionsOpened++ })
	}
	sess.openErr = err
	close(sess.opened)
	sess.restartTTL()
	return sess, err
}

// reserve makes room for a session. first says that the caller must open it.
//
// An RPC that its client has taken back opens none: what the client has sent after that,
// CloseSession for example, may have been served already. Looked at under the lock: who
// finds the session gone then finds ctx ended, too.
func (s *sessions) reserve(ctx context.Context, key string) (sess *session, first bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sess := s.byKey[key]; sess != nil {
		return sess, false, nil
	}
	if s.closed {
		return nil, false, status.Error(codes.Unavailable, "server is closing")
	}
	if _, killed := s.killed[key]; killed {
		return nil, false, status.Error(s.srv.profile.KilledCode, s.srv.profile.KilledText)
	}
	if ctx.Err() != nil {
		return nil, false, status.FromContextError(ctx.Err()).Err()
	}
	if s.limit > 0 && len(s.alive) >= s.limit {
		return nil, false, status.Error(s.srv.profile.LimitCode, "maximum number of sessions reached")
	}
	s.lastID++
	sess = newSession(s.srv, key, s.lastID)
	s.alive[sess] = struct{}{}
	s.byKey[key] = sess
	delete(s.evicted, key)
	return sess, true, nil
}

// detach makes a session unreachable and reports whether it was reachable.
func (s *sessions) detach(sess *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey[sess.key] != sess {
		return false
	}
	delete(s.byKey, sess.key)
	return true
}

// removeAlive counts a session out.
func (s *sessions) removeAlive(sess *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.alive, sess)
}

// interruptAll ends what runs or waits in every session, and returns how many there are.
func (s *sessions) interruptAll(cause error) int {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.alive))
	s.mu.Unlock()
	for _, sess := range all {
		sess.interrupt(cause)
	}
	return len(all)
}

// errSessionClosed ends what runs in a session that is closed.
var errSessionClosed = errors.New("session closed")

// close ends a session and what runs in it. Done is closed when it is gone.
func (s *sessions) close(sess *session) (done <-chan struct{}) {
	s.detach(sess)
	first := sess.markEnding() // before interrupt: what comes later sees it
	sess.interrupt(errSessionClosed)
	if first {
		s.srv.goroutines.Go(func() { s.closeInTurn(sess) })
	}
	return sess.closedCh
}

// lock reports whether no RPC of the key was served, and marks it until unlock.
func (s *sessions) lock(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, locked := s.locked[key]
	s.locked[key] = struct{}{}
	return !locked
}

func (s *sessions) unlock(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.locked, key)
}

// evict makes a session unreachable and ends it once what runs in it is done.
func (s *sessions) evict(sess *session) {
	if !s.detach(sess) {
		return
	}
	s.srv.ledger.update(func(now *Snapshot) { now.SessionsEvicted++ })
	if s.srv.profile.EvictedCode != codes.OK || s.srv.profile.FreshCookie {
		s.mu.Lock()
		s.evicted[sess.key] = struct{}{}
		s.mu.Unlock()
	}
	if sess.markEnding() {
		s.srv.goroutines.Go(func() { s.closeInTurn(sess) })
	}
}

// closeInTurn closes the engine's session when it gets engineLock. It keeps the lock,
// except for statements that wait unlocked.
func (s *sessions) closeInTurn(sess *session) {
	<-sess.opened
	sess.engineLock <- struct{}{}
	if sess.openErr == nil {
		s.srv.tickets.dropSession(sess)
		sess.releaseAll()
		s.removeAlive(sess) // before the ledger tells of it
		s.srv.ledger.update(func(now *Snapshot) { now.Sessions-- })
	}
	close(sess.closedCh)
	if s.srv.profile.SideBySide {
		<-sess.engineLock
	}
}

// wasEvicted reports, once, that the session of a key was evicted.
func (s *sessions) wasEvicted(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, evicted := s.evicted[key]
	delete(s.evicted, key)
	return evicted
}

func (s *sessions) all() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.byKey))
}

// preparedSQL finds the statement of a handle in any session.
func (s *sessions) preparedSQL(handle string) string {
	for _, sess := range s.all() {
		sess.mu.Lock()
		p := sess.mu.prepared[handle]
		sess.mu.Unlock()
		if p != nil {
			return p.sql
		}
	}
	return ""
}

func (s *sessions) evictAll() int {
	all := s.all()
	for _, sess := range all {
		s.evict(sess)
	}
	return len(all)
}

// killAll ends every session, and what runs in it. A key of it gets no other.
func (s *sessions) killAll() int {
	all := s.all()
	s.mu.Lock()
	for _, sess := range all {
		s.killed[sess.key] = struct{}{}
	}
	s.mu.Unlock()
	for _, sess := range all {
		s.close(sess)
	}
	return len(all)
}

func (s *sessions) isKilled(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, killed := s.killed[key]
	return killed
}

// connEnded closes the session that was bound to a connection.
func (s *sessions) connEnded(c *serverConn) {
	if s.srv.profile.SessionTTL > 0 {
		return
	}
	if sess := s.find(connKey(c)); sess != nil {
		s.close(sess)
	}
}

func (s *sessions) closeAll() {
	s.mu.Lock()
	s.closed = true
	alive := slices.Collect(maps.Keys(s.alive))
	s.mu.Unlock()
	for _, sess := range alive {
		s.close(sess)
	}
}

func connKey(c *serverConn) string { return fmt.Sprintf("connection %d", c.id) }
