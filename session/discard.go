package session

// Discard is Close for a session whose connection its owner does not trust any
// more: it is closed, for the reason, and not used again.
func (s *SessionHandle) Discard(reason error) error {
	s.doom(reason)
	return s.Close()
}
