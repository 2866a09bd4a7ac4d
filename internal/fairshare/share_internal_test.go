package fairshare

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A connection that closes of itself while another is asked for in vain: with more
// loans asked for than connections coming, settle asked for one more for ever.
func TestWhatIsComingIsNeverLessThanNothing(t *testing.T) {
	s := New(Bounds{Max: 2})
	m := s.NewMember("a", nil, 3)
	m.held = 3
	s.held, s.peak = 3, 3
	m.Join()
	s.mu.Lock()
	s.expect(m, 2, 1)
	s.given(m) // one closes
	s.account(step{from: m}, false, false)
	require.Equal(t, []int{0, 0}, []int{m.yielding, m.asks})
	s.relax(time.Now(), true)
	require.Zero(t, s.coming)
	s.mu.Unlock()
}
