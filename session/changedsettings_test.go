package session

import (
	"cmp"
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

// A value of the session's own hides what becomes of the server's, so that none is left where there was none:
// what the next borrower makes of the server's would not be seen, nor put back.
func TestNoSessionIsLeftWithAValueOfItsOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		conn       func(c *stateConn)
		statements []string
		lost       string
	}{
		"the server's, changed by another meanwhile": {func(c *stateConn) { c.stubborn = "zone" }, []string{"RESET zone"}, "is not what it was"},
		"its own":                      {nil, []string{"SET SESSION zone = 'Oslo'"}, ""},
		"its own, reset":               {func(c *stateConn) { c.own["zone"] = "Oslo" }, []string{"RESET SESSION zone"}, "has the server's value"},
		"its own that it began with":   {func(c *stateConn) { c.own["zone"] = "Oslo" }, []string{"SET SESSION zone = 'Rome'"}, "has the server's value"},
		"both, its own last":           {nil, []string{"SET zone = 'Oslo'", "SET SESSION zone = 'Rome'"}, ""},
		"both, its own first":          {nil, []string{"SET SESSION zone = 'Rome'", "SET zone = 'Oslo'"}, ""},
		"both, its own as it was":      {nil, []string{"SET SESSION zone = 'Tokyo'", "SET zone = 'Oslo'"}, ""},
		"both, its own as it was last": {nil, []string{"SET zone = 'Oslo'", "SET SESSION zone = 'Tokyo'"}, ""},
		"both, by a second name":       {nil, []string{"SET SESSION threads = '1'", "SET worker_threads = '2'"}, ""},
		"its own, refused by a server": {func(c *stateConn) { c.fail = map[string]error{"RESET SESSION zone": sqlError("no such statement")} }, []string{"SET SESSION zone = 'Oslo'"}, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			if tc.conn != nil {
				tc.conn(c)
			}
			start := maps.Clone(c.settings)
			r := stateRig(t, c)
			for _, sql := range tc.statements {
				_, err := r.handle.Update(t.Context(), sql)
				must(t, err)
			}
			err := r.handle.Close()
			if tc.lost != "" {
				require.ErrorContains(t, err, tc.lost, name)
				_ = r.discarded()
				start["zone"] = cmp.Or(c.settings["zone"], start["zone"]) // a stubborn one's is the server's default
			} else {
				require.NoError(t, err, name)
				r.reused()
			}
			require.Equal(t, start, c.settings, name)
			if c.fail == nil && tc.lost != "has the server's value" {
				require.Empty(t, c.own, name)
			}
		})
	}
}
