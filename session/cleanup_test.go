package session

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// A session that the server has replaced is closed with an error where its handle had something to lose in it, and without
// one where it had not.
func TestCloseTellsOfAReplacedSessionWhatWasLostWithIt(t *testing.T) {
	for name, tc := range map[string]struct {
		use  func(t *testing.T, s *SessionHandle)
		lost bool
	}{
		"nothing":     {func(t *testing.T, s *SessionHandle) { must(t, s.Ping(t.Context())) }, false},
		"a change":    {exec("INSERT 1"), false},
		"transaction": {begin, true},
		"a statement": {func(t *testing.T, s *SessionHandle) { _, err := s.PrepareQuery(t.Context(), "SELECT 1"); must(t, err) }, true},
		"a setting":   {exec("SET threads = 1"), true},
		"an option":   {func(t *testing.T, s *SessionHandle) { must(t, s.SetOption(t.Context(), "colour", "blue")) }, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{})
			r.policy.OnReturn = ResetSQL("RESET ALL")
			tc.use(t, r.handle)
			r.conn.mu.Lock()
			r.conn.lost = backend.ErrSessionReplaced
			r.conn.mu.Unlock()
			err := r.handle.Close()
			require.ErrorIs(t, r.discarded(), backend.ErrSessionReplaced, name)
			if tc.lost {
				require.ErrorIs(t, err, backend.ErrSessionReplaced, name)
			} else {
				require.NoError(t, err, name)
			}
		})
	}
}

// No caller waits past its context for what is left to send, of whatever kind that is; and where nothing is, its own
// goroutine gives the connection back.
func TestAConnectionIsGivenBackBehindTheCallerOnlyWhereSomethingIsSent(t *testing.T) {
	const copies = "COPY FROM DATABASE a TO b"
	for name, tc := range map[string]struct {
		conn *fakeConn
		use  func(t *testing.T, s *SessionHandle)
		keep bool     // the connection is not given up
		sent []string // at the end
	}{
		"nothing":                  {use: exec("INSERT 1"), keep: true},
		"nothing, given up":        {use: exec("INSERT 1")},
		"a transaction, given up":  {use: begin, sent: []string{"Rollback"}},
		"one of a statement's own": {conn: &fakeConn{fail: map[string]error{copies: sqlError("something is wrong")}}, use: refused(copies), sent: []string{"ROLLBACK", "SELECT 1"}},
		"a proof":                  {conn: &fakeConn{forgives: true}, use: committed, sent: []string{"ClosePrepared"}},
		"a secret": {use: func(t *testing.T, s *SessionHandle) {
			begin(t, s)
			exec("SET password = 'x'")(t, s)
			must(t, s.Commit(t.Context()))
		}, sent: []string{"RESET password"}},
		"a statement, which is let go":  {use: func(t *testing.T, s *SessionHandle) { _, err := s.PrepareQuery(t.Context(), "SELECT 1"); must(t, err) }},
		"a transaction that is to keep": {use: begin, keep: true, sent: []string{"Rollback"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := tc.conn
			if conn == nil {
				conn = &fakeConn{}
			}
			r := newRig(t, conn)
			tc.use(t, r.handle)
			if !tc.keep {
				r.handle.markDiscard(errors.New("of no use"))
			}
			behind := 0
			r.policy.Go = func(f func()) { behind++; go f() }
			conn.work = map[string]time.Duration{"Rollback": time.Second, "ROLLBACK": time.Second, "ClosePrepared": time.Second, "RESET password": time.Second}
			ctx, leave := context.WithCancel(t.Context())
			leave()
			start := time.Now()
			sent := len(r.conn.Log())
			r.handle.CloseWithin(ctx)
			require.Zero(t, time.Since(start), name)
			require.Equal(t, len(tc.sent) > 0, behind > 0, name)
			time.Sleep(time.Minute)
			require.Equal(t, append([]string{}, tc.sent...), r.conn.Log()[sent:], name)
			if tc.keep {
				r.reused()
			} else {
				require.ErrorContains(t, r.discarded(), "of no use", name)
			}
		})
	}
}

// refused runs a statement that fails.
func refused(sql string) func(t *testing.T, s *SessionHandle) {
	return func(t *testing.T, s *SessionHandle) {
		_, err := s.Update(t.Context(), sql)
		require.Error(t, err)
	}
}

func committed(t *testing.T, s *SessionHandle) { begin(t, s); must(t, s.Commit(t.Context())) }

// A transaction of a statement's own may be open beside the handle's where the server leaves transactions by itself. That one
// is rolled back, and then the statement's.
func TestBothTransactionsOfASessionAreRolledBackAtItsEnd(t *testing.T) {
	const copies = "COPY FROM DATABASE a TO b"
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{forgives: true, fail: map[string]error{copies: sqlError("something is wrong")}})
		begin(t, r.handle)
		refused(copies)(t, r.handle)
		sent := r.sent(func() { must(t, r.handle.Close()) })
		require.Less(t, slices.Index(sent, "Rollback"), slices.Index(sent, "ROLLBACK"), "%q", sent)
		require.Contains(t, sent, "Rollback")
		r.reused()
	})
}

// The probe vouches for the session as the next borrower finds it: an earlier answer does for it where nothing was taken back
// behind that.
func TestASessionInDoubtIsProbedBehindAllThatIsTakenBack(t *testing.T) {
	for sql, want := range map[string][]string{
		"INSERT 1; SELECT bad":        {"SELECT 1"},
		"SET threads = 1; SELECT bad": {"SELECT 1", "ClosePrepared", "SET threads = '3'", "SELECT current_setting('threads')", "SELECT 1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			r := stateRig(t, c)
			refused(sql)(t, r.handle)
			require.Equal(t, want, r.sent(func() { must(t, r.handle.Close()) }), sql)
			r.reused()
		})
	}
}

// The statements of the owner's are not run in a session that has replaced the one that was prepared.
func TestTheOwnersStatementsAreNotRunInAnotherSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, err := preparedRig(t, set(t))
		must(t, err)
		r.policy.OnReturn = ResetSQL("RESET ALL")
		s := New(r.conn, r.policy, r.returned)
		must(t, drained(s.Query(t.Context(), "SELECT 2")))
		r.conn.mu.Lock()
		r.conn.reused = "SELECT 'somebody else'"
		r.conn.mu.Unlock()
		require.ErrorIs(t, s.Close(), backend.ErrSessionReplaced)
		require.ErrorIs(t, r.discarded(), backend.ErrSessionReplaced)
		require.NotContains(t, r.conn.Log(), "RESET ALL")
	})
}

// Under ResetDiscard too a session's own later statements run where they belong, and only the single call's connection is
// closed before another could.
func TestASessionThatIsClosedAtItsEndIsLedBackMeanwhile(t *testing.T) {
	for _, stateless := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			r := stateRig(t, c)
			r.policy.OnReturn = ResetDiscard
			c.useParams = func() { c.settings["search_path"] = "far.main" }
			s := r.handle
			if stateless {
				s = NewStateless(c, r.policy, r.returned)
			}
			batch := int64Batch(1)
			defer batch.Release()
			_, err := s.UpdateWithRecordBatch(t.Context(), "INSERT INTO far.t VALUES (?)", batch)
			must(t, err)
			synctest.Wait()
			if stateless {
				require.Zero(t, looksAtPlace(c))
			} else {
				require.Equal(t, "lake.main", c.settings["search_path"])
				must(t, s.Close())
			}
			_ = r.discarded()
		})
	}
}

// Of a session in which nothing was made or dropped, the temporary objects that it began with are not asked for, and a read
// alone has nothing cleaned.
func TestKeptTemporaryObjectsAreNotAskedForWhereNothingWasMadeOrDropped(t *testing.T) {
	for sql, want := range map[string]struct{ asked, cleaned bool }{
		"INSERT 1": {}, "SET threads = 1": {cleaned: true}, "DROP TABLE other": {asked: true, cleaned: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := newStateConn()
			conn.temps = 1
			r, err := preparedWithTemps(t, conn, ResetAuto, "CREATE TEMP TABLE mine (a INT)")
			must(t, err)
			cleaned := false
			r.policy.Observe.Reset = func(time.Duration, error) { cleaned = true }
			r.handle = NewStateless(conn, r.policy, r.returned)
			sent := r.sent(func() { exec(sql)(t, r.handle) })
			require.Equal(t, want.asked, slices.Contains(sent, keptTempsQuery.sql), "%s: %q", sql, sent)
			require.Equal(t, want.cleaned, cleaned, sql)
			r.reused()
		})
	}
}

// A probe changes nothing that the text of a kept statement could mean. The owner's statements may, where they run for the
// first time.
func TestAKeptStatementOutlivesTheProbeOfItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keepingRig(t, 2)
		r.policy.OnReturn = ResetSQL("USE lake")
		r.conn.fail = map[string]error{"SELECT 3": errors.New("?")}
		must(t, r.read("SELECT 1", 7))
		require.Equal(t, []string{"SELECT 3", "SELECT 1"}, r.sent(func() {
			_, err := r.stateless().Query(t.Context(), "SELECT 3")
			require.Error(t, err)
		}))
		require.Equal(t, []string{"SELECT 1"}, r.sent(func() { must(t, r.read("SELECT 1", 7)) }), "it is not prepared again")
		require.Equal(t, []string{"INSERT 1", "ClosePrepared", "USE lake"}, r.sent(func() { exec("INSERT 1")(t, r.stateless()) }))
	})
}

// A single call that sets an option has used its session.
func TestASingleCallThatSetsAnOptionHasUsedItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, mode := range []SessionReset{ResetSQL("RESET ALL"), ResetDiscard} {
			r := newRig(t, &fakeConn{})
			r.policy.OnReturn = mode
			must(t, r.stateless().SetOption(t.Context(), "colour", "blue"))
			synctest.Wait()
			if mode.mode == resetDiscard {
				_ = r.discarded()
			} else {
				r.reused()
				require.Equal(t, "RESET ALL", r.conn.Log()[len(r.conn.Log())-1])
			}
		}
	})
}
