package session

import (
	"maps"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// Sessions that change a setting at the same time leave what it was before all of them, in
// whatever order they end. Where each has its own they keep their connections.
func TestSessionsThatChangeASettingAtTheSameTimeLeaveWhatItWas(t *testing.T) {
	for _, whole := range []bool{false, true} {
		for name, order := range map[string][]int{"in turn": {0, 1, 2}, "the last first": {2, 1, 0}, "the second first": {1, 0, 2}} {
			synctest.Test(t, func(t *testing.T) {
				first := newStateConn()
				start := maps.Clone(first.settings)
				r := stateRig(t, first)
				kept := 0
				var conns []*stateConn
				var handles []*SessionHandle
				for _, sql := range []string{"SET threads = 1", "SET threads = 2", "RESET threads"} {
					c := newStateConn()
					if whole {
						c.settings = first.settings
					}
					h := New(c, r.policy, func(discard error) {
						if discard == nil {
							kept++
						}
					})
					_, err := h.Update(t.Context(), sql)
					must(t, err)
					_, err = h.Update(t.Context(), "SET threads = 4")
					must(t, err)
					conns, handles = append(conns, c), append(handles, h)
				}
				for _, i := range order {
					_ = handles[i].Close()
				}
				for _, c := range conns {
					require.Equal(t, start, c.settings, name)
				}
				require.Equal(t, map[bool]int{false: 3, true: 1}[whole], kept, "what is not known to be the session's own costs its connection")
				require.Empty(t, r.policy.changed.byKey)

				c := newStateConn() // those who come later find nothing of it
				c.settings["threads"] = "5"
				h := New(c, r.policy, func(discard error) { require.NoError(t, discard) })
				_, err := h.Update(t.Context(), "SET threads = 1")
				must(t, err)
				must(t, h.Close())
				require.Equal(t, "5", c.settings["threads"])
			})
		}
	}
}
