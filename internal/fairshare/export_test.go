package fairshare

// Comparisons counts how often members are compared from now on.
func (s *Share) Comparisons() (n func() int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := 0
	for _, r := range []*ranking{&s.withCallers, &s.withoutCallers, &s.richest} {
		less := r.less
		r.less = func(a, b *Member) bool {
			count++ // under s.mu
			return less(a, b)
		}
	}
	return func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return count
	}
}
