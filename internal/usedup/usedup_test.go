package usedup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatARunHasTakenIsLackingInTheNext(t *testing.T) {
	var s Sources
	all, some, incomparable := new(int), new(int), struct{ _ []int }{}
	s.Took(all, true)
	s.Took(some, false)
	s.Took(incomparable, true)
	require.Nil(t, s.Before(all), "it is the same run")
	s.NextRun()
	s.NextRun()
	require.Nil(t, s.Before(new(int)))
	require.Nil(t, s.Before(incomparable))
	rows := func(left int) func() bool { return func() bool { left--; return left >= 0 } }
	for _, c := range []struct {
		it      any
		left    int
		given   int
		lacking bool
	}{{all, 0, 0, true}, {all, 2, 2, false}, {some, 0, 0, true}, {some, 2, 0, true}} {
		r, next, given := s.Before(c.it), rows(c.left), 0
		for r.Next(next) {
			require.False(t, r.IsLacking())
			given++
		}
		require.False(t, r.Next(next))
		require.Equal(t, c.given, given)
		require.Equal(t, c.lacking, r.IsLacking())
	}
}
