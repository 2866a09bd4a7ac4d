package session

import "errors"

var errTxEnded = errors.New("the transaction of the call is over")

// interruptAndWait is interruptCall, and waits until no call is under way. It is for
// the background: a call that is left to its end, such as a COMMIT, may take as long as
// the server does. The end of the owner ends it.
func (s *SessionHandle) interruptAndWait(cause error) {
	for {
		s.interruptCall(cause)
		s.mu.Lock()
		ended := s.mu.ended
		s.mu.Unlock()
		if ended == nil {
			return
		}
		select {
		case <-ended:
		case <-s.policy.OwnerContext.Done():
			return
		}
	}
}

// markLost marks the session lost. A handle that runs a call lets go of the connection
// at the end of that. The first reason counts. Every later call answers ErrSessionLost
// with it.
func (s *SessionHandle) markLost(reason error) {
	s.mu.Lock()
	if s.mu.lost == nil {
		s.mu.lost = lostError(reason)
	}
	wasIdle := s.mu.state == idle
	if wasIdle { // until becomeIdle, so that Close leaves the rest to it
		s.mu.state, s.mu.ended = ending, make(chan struct{})
	}
	s.mu.Unlock()
	if wasIdle {
		s.becomeIdle(nil)
	}
}

func (s *SessionHandle) isLost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.lost != nil
}

// Discard is Close for a session whose connection must not be reused: the connection
// is closed, for the given reason, which may be nil.
func (s *SessionHandle) Discard(reason error) error {
	if reason == nil {
		reason = errNoReason
	}
	s.markDiscard(&borrowersReason{reason})
	return s.Close()
}

var errNoReason = errors.New("its borrower has discarded it")

// borrowersReason is why a borrower has a connection closed. It is the borrower's word, which shows
// nothing of the server.
type borrowersReason struct{ error }

func (r *borrowersReason) Unwrap() error { return r.error }

// SaidByBorrower tells owners who judge a server by the reasons for which its connections are closed.
func (*borrowersReason) SaidByBorrower() {}

// markDiscard has the connection closed when the handle is done with it. The handle
// goes on meanwhile; the first reason counts.
func (s *SessionHandle) markDiscard(reason error) {
	s.mu.Lock()
	if s.mu.discardReason == nil {
		s.mu.discardReason = reason
	}
	s.mu.Unlock()
}

// interruptCall ends the call under way, or its result, behind whoever runs it. Later
// calls wait for that. It takes the handle to ending before the call hears of it, so
// that no other call can begin in between.
func (s *SessionHandle) interruptCall(cause error) {
	s.mu.Lock()
	c := s.mu.call
	if s.mu.state != busy {
		s.mu.Unlock()
		return
	}
	s.mu.state, s.mu.ended = ending, make(chan struct{})
	s.mu.Unlock()
	c.interrupt(cause)
}
