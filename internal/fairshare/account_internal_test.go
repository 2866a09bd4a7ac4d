package fairshare

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A connection that closes of itself while another is asked for in vain: with more
// loans asked for than connections coming, a pass asked for one more for ever.
func TestWhatIsComingIsNeverLessThanNothing(t *testing.T) {
	s := New(Bounds{Max: 2})
	m := s.NewMember("a", nil, 3)
	m.held = 3
	s.held, s.peak = 3, 3
	m.Join()
	s.mu.Lock()
	s.setReclaims(m, 2, 1)
	s.reclaimed(m) // one closes
	s.correct(step{from: m}, false, false)
	require.Equal(t, []int{0, 0}, []int{m.reclaims, m.loanReclaims})
	s.forgetReclaims(time.Now(), true)
	require.Zero(t, s.reclaims)
	s.mu.Unlock()
}
