package session

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

func TestTheLastWordOnASettingIsASet(t *testing.T) {
	for text, want := range map[string]string{
		"3": "SET x = '3'", "it's": "SET x = 'it''s'", "": "SET x = ''",
		"1.8 GiB": "SET x = '1.85 GiB'", "953.6 MiB": "SET x = '953.65 MiB'", "0.0 KiB": "SET x = '0.05 KiB'",
		"1 GiB": "SET x = '1 GiB'", "1.85 GiB": "SET x = '1.85 GiB'", "x 1.8 GiB": "SET x = 'x 1.8 GiB'", "1.8 GiB of disk": "SET x = '1.8 GiB of disk'", "1.8 GB": "SET x = '1.8 GB'",
	} {
		set := "x = " + literal(text)
		own, anyones, both := changedValues{own: true}, changedValues{anyones: true}, changedValues{own: true, anyones: true}
		require.Equal(t, restoration{statements: []string{"SET " + set, "RESET SESSION x", "RESET x"}, last: want}, restoring("x", cell{text: text}, anyones), text)
		require.Equal(t, restoration{statements: []string{"RESET SESSION x", "SET " + set, "RESET x"}, resetsOwn: "RESET SESSION x", last: want}, restoring("x", cell{text: text}, both), text)
		require.Equal(t, restoration{statements: []string{"RESET SESSION x", "SET SESSION " + set}, resetsOwn: "RESET SESSION x", conclusive: true}, restoring("x", cell{text: text}, own), text)
		require.Equal(t, restoration{statements: []string{"RESET x", "RESET SESSION x"}}, restoring("x", cell{null: true}, anyones))
		require.Equal(t, restoration{statements: []string{"RESET SESSION x", "RESET x"}, resetsOwn: "RESET SESSION x"}, restoring("x", cell{null: true}, both))
		require.Equal(t, restoration{statements: []string{"RESET SESSION x", "RESET x"}, resetsOwn: "RESET SESSION x", conclusive: true}, restoring("x", cell{null: true}, own))
	}
}

// A session that is given up, for whatever reason, leaves no setting behind: it may be one of the
// whole server.
func TestASessionThatIsGivenUpPutsItsSettingsBack(t *testing.T) {
	const unknown = "ATTACH 'x'"
	for name, tc := range map[string]struct {
		statements []string
		end        func(h *SessionHandle) error
	}{
		"hidden by its own":         {[]string{"SET threads = 1", "SET SESSION threads = 3"}, func(h *SessionHandle) error { return h.Discard(errors.New("no more")) }},
		"discarded":                 {[]string{"SET threads = 1", "SET zone = 'UTC'"}, func(h *SessionHandle) error { return h.Discard(errors.New("no more")) }},
		"with a later effect":       {[]string{"SET threads = 1", "SET zone = 'UTC'", unknown}, (*SessionHandle).Close},
		"with one in between":       {[]string{"SET threads = 1", unknown, "SET zone = 'UTC'"}, (*SessionHandle).Close},
		"with an earlier effect":    {[]string{unknown, "SET threads = 1", "SET threads = 2"}, (*SessionHandle).Close},
		"by two names":              {[]string{"SET threads = 1", "SET worker_threads = 2", unknown}, (*SessionHandle).Close},
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

// Whatever else of a session cannot be taken back, its settings are put back.
func TestWhatCannotBeMadeCleanKeepsNoSettingFromBeingPutBack(t *testing.T) {
	for _, refused := range []string{"SetOptions", "Options", "ClosePrepared"} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			start := maps.Clone(c.settings)
			r := stateRig(t, c)
			_, err := r.handle.Update(t.Context(), "SET threads = 1")
			must(t, err)
			must(t, r.handle.SetOption(t.Context(), "colour", "blue"))
			c.fail = map[string]error{refused: sqlError("no")}
			require.Error(t, r.handle.Close(), refused)
			require.Error(t, r.discarded(), refused)
			require.Equal(t, start, c.settings, "%s: %q", refused, c.Log())
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
		require.Equal(t, 2, len(c.Log())-sent, "the proof, and the first setting: %q", c.Log())
	})
}

// restored are what a session sends, once it is given up, of what it has changed.
func restored(t *testing.T, c *stateConn, mode SessionReset, statements ...string) []string {
	t.Helper()
	r := stateRig(t, c)
	r.policy.OnReturn = mode
	for _, sql := range statements {
		_, err := r.handle.Update(t.Context(), sql)
		must(t, err)
	}
	sent := r.sent(func() { _ = r.handle.Discard(errors.New("no more")) })
	_ = r.discarded()
	return append([]string(nil), sent...)
}

// Whatever is tried, a setting that cannot be restored is not left at the default of the server,
// which is not what its operator has set.
func TestTheAttemptsToRestoreASettingEndWithItsValue(t *testing.T) {
	const look = "SELECT current_setting('threads')"
	for name, tc := range map[string]struct {
		conn func(c *stateConn)
		want []string
	}{
		"the first does it": {func(*stateConn) {}, []string{look, "SET threads = '3'", look}},
		"none does": {func(c *stateConn) { c.stubborn = "threads" }, []string{
			look, "SET threads = '3'", look, "RESET SESSION threads", look, "RESET threads", look, "SET threads = '3'",
		}},
		"one is refused": {func(c *stateConn) {
			c.stubborn = "threads"
			c.fail = map[string]error{"RESET SESSION threads": sqlError("no such statement")}
		}, []string{
			look, "SET threads = '3'", look, "RESET SESSION threads", "RESET threads", look, "SET threads = '3'",
		}},
		"the credential has ended": {func(c *stateConn) {
			c.fail = map[string]error{"SET threads = '3'": &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultAuth, Err: errors.New("expired")}}
		}, []string{look, "SET threads = '3'"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			r := stateRig(t, c)
			_, err := r.handle.Update(t.Context(), "SET threads = 1")
			must(t, err)
			tc.conn(c)
			require.Equal(t, append([]string{"ClosePrepared"}, tc.want...), r.sent(func() { _ = r.handle.Discard(errors.New("no more")) }), name)
		})
	}
	synctest.Test(t, func(t *testing.T) { // one that had no value
		c := newStateConn()
		c.stubborn = "fresh"
		c.settings["fresh"] = ""
		delete(c.settings, "fresh")
		r := stateRig(t, c)
		_, err := r.handle.Update(t.Context(), "SET fresh = 'x'")
		must(t, err)
		c.settings["fresh"], c.defaults["fresh"] = "x", "y"
		const look = "SELECT current_setting('fresh')"
		require.Equal(t, []string{"ClosePrepared", look, "RESET fresh", look, "RESET SESSION fresh", look}, r.sent(func() { _ = r.handle.Discard(errors.New("no more")) }))
	})
}

// Only a session that cleans up after itself puts settings back, and only those that are not as they were.
func TestASessionThatIsGivenUpSendsNoMoreThanItMust(t *testing.T) {
	for name, tc := range map[string]struct {
		mode       SessionReset
		statements []string
		want       []string
	}{
		"left to others": {ResetNone, []string{"SET threads = 1"}, nil},
		"as it was":      {ResetAuto, []string{"SET threads = 1", "SET threads = 3"}, []string{"SELECT current_setting('threads')"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			require.Equal(t, append([]string{"ClosePrepared"}, tc.want...), restored(t, newStateConn(), tc.mode, tc.statements...), name)
		})
	}
}

// A server that has told one setting is asked for others inside of a transaction, but for names with a dot,
// which PostgreSQL sets although it cannot tell them.
func TestASettingThatIsFirstSetInATransactionIsPutBack(t *testing.T) {
	for name, tc := range map[string]struct {
		before, inTx string
		asked        bool
	}{
		"after another setting": {"SET zone = 'UTC'", "SET threads = 1", true},
		"a name with a dot":     {"SET zone = 'UTC'", "SET my.app = 1", false},
		"the first of all":      {"SELECT 1", "SET threads = 1", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			r := stateRig(t, c)
			start := maps.Clone(c.settings)
			first := New(c, r.policy, func(discard error) { require.NoError(t, discard) })
			_, err := first.Update(t.Context(), tc.before)
			must(t, err)
			must(t, first.Close())
			sent := len(c.Log())
			must(t, r.handle.BeginTransaction(t.Context()))
			_, err = r.handle.Update(t.Context(), tc.inTx)
			must(t, err)
			must(t, r.handle.Commit(t.Context()))
			require.Equal(t, tc.asked, slices.Contains(c.Log()[sent:], "tx1: SELECT current_setting('threads')"), "%s: %q", name, c.Log())
			_ = r.handle.Close()
			if tc.asked {
				r.reused()
				require.Equal(t, start, c.settings, name)
			}
		})
	}
}

// A setting that a statement changes without naming it need not be one of the server's: it is not asked for inside of a
// transaction, which a refusal would abort, because the server has told another.
func TestASettingThatIsNotNamedIsNotAskedForInATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		r := stateRig(t, c)
		first := New(c, r.policy, func(discard error) { require.NoError(t, discard) })
		_, err := first.Update(t.Context(), "SET zone = 'UTC'")
		must(t, err)
		must(t, first.Close())
		sent := len(c.Log())
		must(t, r.handle.BeginTransaction(t.Context()))
		_, err = r.handle.Update(t.Context(), "CALL enable_logging()")
		must(t, err)
		must(t, r.handle.Commit(t.Context()))
		require.NotContains(t, c.Log()[sent:], "tx1: SELECT current_setting('logging_mode')")
		_ = r.handle.Close()
		require.Error(t, r.discarded())
	})
}

// The list of an option is that of the call, whatever its caller does with it once it has left.
func TestAListOfAnOptionIsThatOfTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{work: map[string]time.Duration{"Options": time.Second}})
		path := []string{"a", "b"}
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		require.ErrorIs(t, r.handle.SetOption(ctx, "search_path", path), context.DeadlineExceeded)
		path[0] = "other"
		opts, err := r.handle.Options(t.Context()) // waits for the call before
		must(t, err)
		require.Equal(t, []string{"a", "b"}, opts["search_path"])
		_ = r.handle.Close()
	})
}
