package session

import (
	"errors"
	"maps"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

func TestTheLastWordOnASettingIsASet(t *testing.T) {
	for text, want := range map[string]string{
		"3": "SET x = '3'", "it's": "SET x = 'it''s'", "": "SET x = ''",
		"1.8 GiB": "SET x = '1.85 GiB'", "953.6 MiB": "SET x = '953.65 MiB'", "0.0 KiB": "SET x = '0.05 KiB'",
		"1 GiB": "SET x = '1 GiB'", "1.85 GiB": "SET x = '1.85 GiB'", "x 1.8 GiB": "SET x = 'x 1.8 GiB'", "1.8 GiB of disk": "SET x = '1.8 GiB of disk'", "1.8 GB": "SET x = '1.8 GB'",
	} {
		statements, last := restoringStatements("x", cell{text: text})
		set := "x = " + literal(text)
		require.Equal(t, []string{"SET " + set, "RESET SESSION x", "SET SESSION " + set, "RESET x"}, statements, text)
		require.Equal(t, want, last, text)
	}
	statements, last := restoringStatements("x", cell{null: true})
	require.Equal(t, []string{"RESET x", "RESET SESSION x"}, statements)
	require.Empty(t, last)
}

// A session that is given up, for whatever reason, leaves no setting behind: it may be one of the
// whole server.
func TestASessionThatIsGivenUpPutsItsSettingsBack(t *testing.T) {
	const unknown = "ATTACH 'x'"
	for name, tc := range map[string]struct {
		statements []string
		end        func(h *SessionHandle) error
	}{
		"discarded":                 {[]string{"SET threads = 1", "SET zone = 'UTC'"}, func(h *SessionHandle) error { return h.Discard(errors.New("no more")) }},
		"with a later effect":       {[]string{"SET threads = 1", "SET zone = 'UTC'", unknown}, (*SessionHandle).Close},
		"with one in between":       {[]string{"SET threads = 1", unknown, "SET zone = 'UTC'"}, (*SessionHandle).Close},
		"with an earlier effect":    {[]string{unknown, "SET threads = 1", "SET threads = 2"}, (*SessionHandle).Close},
		"with a secret":             {[]string{"SET threads = 1", "SET password = 'x'"}, (*SessionHandle).Close},
		"with a secret below":       {[]string{"SET password = 'x'", "SET threads = 1", unknown}, (*SessionHandle).Close},
		"discarded with a secret":   {[]string{"SET password = 'x'"}, func(h *SessionHandle) error { return h.Discard(errors.New("no more")) }},
		"discarded with an effect":  {[]string{unknown, "SET threads = 1"}, func(h *SessionHandle) error { return h.Discard(errors.New("no more")) }},
		"discarded in a rolled one": {[]string{"SET threads = 1", "", "SELECT 1"}, func(h *SessionHandle) error { return h.Discard(errors.New("no more")) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			c.settings["password"], c.defaults["password"] = "", ""
			start := maps.Clone(c.settings)
			r := stateRig(t, c)
			for _, sql := range tc.statements {
				if sql == "" {
					must(t, r.handle.BeginTransaction(t.Context()))
					continue
				}
				_, err := r.handle.Update(t.Context(), sql)
				must(t, err)
			}
			_ = tc.end(r.handle)
			_ = r.discarded()
			require.Equal(t, start, c.settings, "%s: %q", name, c.Log())
		})
	}
}

// Nothing more is asked of a connection that is lost.
func TestASessionThatIsGivenUpAsksALostConnectionNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		r := stateRig(t, c)
		for _, sql := range []string{"SET threads = 1", "SET zone = 'UTC'"} {
			_, err := r.handle.Update(t.Context(), sql)
			must(t, err)
		}
		sent := len(c.Log())
		c.mu.Lock()
		c.lost = errors.New("cut")
		c.mu.Unlock()
		_ = r.handle.Discard(errors.New("no more"))
		_ = r.discarded()
		require.LessOrEqual(t, len(c.Log())-sent, 1, "%q", c.Log())
	})
}

// A credential that is refused is not shown again for each setting.
func TestASessionThatIsGivenUpAsksNothingMoreOfAServerThatRefusesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		r := stateRig(t, c)
		for _, sql := range []string{"SET threads = 1", "SET zone = 'UTC'"} {
			_, err := r.handle.Update(t.Context(), sql)
			must(t, err)
		}
		refused := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultAuth, Err: errors.New("expired")}
		c.fail = map[string]error{"SELECT current_setting('threads')": refused, "SELECT current_setting('zone')": refused}
		sent := len(c.Log())
		_ = r.handle.Discard(errors.New("no more"))
		_ = r.discarded()
		require.Equal(t, 1, len(c.Log())-sent, "%q", c.Log())
	})
}
