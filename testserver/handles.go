package testserver

import (
	"context"

	"google.golang.org/grpc/status"
)

func (s *session) findPrepared(handle []byte) (*prepared, error) {
	emptyIsLatest := s.srv.profile.CountedIDs || s.srv.profile.NoHandles
	s.mu.Lock()
	defer s.mu.Unlock()
	if emptyIsLatest && len(handle) == 0 && s.mu.latestPrepared != "" {
		handle = []byte(s.mu.latestPrepared)
	}
	if err := s.srv.profile.checkID("prepared statement handle", string(handle)); err != nil {
		return nil, err
	}
	if p := s.mu.prepared[string(handle)]; p != nil {
		return p, nil
	}
	return nil, status.Error(s.srv.profile.unknownPrepared(), "unknown prepared statement")
}

// addPrepared keeps a statement, in the place of another unless before is empty, and returns its handle.
//
// INVARIANT: nothing is kept of a session that is ending: nobody would take it away.
func (s *session) addPrepared(ctx context.Context, p *prepared, before string) (handle string, err error) {
	handle = s.nextID(&s.mu.lastStmt)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ending {
		return "", s.srv.statusOf(ctx, errSessionClosed)
	}
	delete(s.mu.prepared, before)
	s.mu.prepared[handle] = p
	s.mu.latestPrepared = handle
	return handle, nil
}

// noteQuery makes a query what an empty handle stands for, with NoHandles.
func (h *handlers) noteQuery(ctx context.Context, st Statement) error {
	if !h.srv.profile.NoHandles {
		return nil
	}
	c := callOf(ctx)
	desc, err := h.describe(ctx, c, st.SQL, st.Tx)
	if err == nil {
		_, err = c.sess.addPrepared(ctx, &prepared{sql: st.SQL, tx: st.Tx, desc: desc}, "")
	}
	return err
}

// removePrepared forgets a handle and reports whether there was one.
func (s *session) removePrepared(handle string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.mu.prepared[handle]
	delete(s.mu.prepared, handle)
	if s.mu.latestPrepared == handle {
		s.mu.latestPrepared = ""
	}
	return known
}
