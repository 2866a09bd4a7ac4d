package session

import (
	"fmt"
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
				for key, held := range r.policy.changed.byKey {
					require.Equal(t, 3, held.holders, "%s: each of them once, however often it changes it", key)
				}
				require.Len(t, handles[0].mu.held, 1)
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

// A setting may have several names.
func TestSessionsThatChangeASettingByItsOtherNameLeaveWhatItWas(t *testing.T) {
	for name, statements := range map[string][2]string{"the other one second": {"SET threads = 1", "SET worker_threads = 2"}, "the other one first": {"SET worker_threads = 1", "RESET threads"}} {
		for first := range 2 {
			synctest.Test(t, func(t *testing.T) {
				c := newStateConn()
				r := stateRig(t, c)
				var handles [2]*SessionHandle
				for i, sql := range statements {
					other := newStateConn()
					other.settings = c.settings
					handles[i] = New(other, r.policy, func(error) {})
					_, err := handles[i].Update(t.Context(), sql)
					must(t, err)
				}
				_ = handles[first].Close()
				_ = handles[1-first].Close()
				require.Equal(t, "3", c.settings["threads"], name)
				require.Empty(t, r.policy.changed.byKey)
			})
		}
	}
}

// Pools of one owner know of each other's sessions on the same server, and no others'.
func TestPoolsOfOneOwnerKnowWhichSettingsOfTheServerAreChanged(t *testing.T) {
	for _, tc := range []struct {
		targets [2]string
		shared  bool
		left    string
	}{
		{[2]string{"here:1", "here:1"}, true, "3"},
		{[2]string{"here:1", "there:1"}, true, "1"},
		{[2]string{"", ""}, true, "1"},
		{[2]string{"here:1", "here:1"}, false, "1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			life := t.Context()
			if tc.shared {
				life = ShareSettings(life)
			}
			var handles [2]*SessionHandle
			for i := range handles {
				other := newStateConn()
				other.settings = c.settings
				handles[i] = New(other, &Policy{OwnerContext: life, Target: tc.targets[i]}, func(error) {})
				_, err := handles[i].Update(t.Context(), fmt.Sprintf("SET threads = %d", i+1))
				must(t, err)
			}
			for _, h := range handles {
				_ = h.Close()
			}
			require.Equal(t, tc.left, c.settings["threads"], "%v", tc)
		})
	}
}

// What a call reads whose connection was given up meanwhile is nothing to put back.
func TestASettingThatIsReadTooLateIsOfNoInterest(t *testing.T) {
	var c changedSettings
	row := stateValues{{text: "1"}}
	require.Equal(t, row, c.first("threads", row))
	require.Empty(t, c.byKey)
}
