package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// preparer answers the question what it does with a query that it prepares.
type preparer struct {
	*fakeConn
	repeats      bool
	noWord, fail error // of RepeatsQueries, of the question's Prepare
	asked        int
}

func (p *preparer) RepeatsQueries(context.Context) (bool, error) { return p.repeats, p.noWord }

func (p *preparer) Prepare(ctx context.Context, sql string, call backend.Call) (backend.Prepared, error) {
	if strings.Contains(sql, preparingWords) {
		p.asked++
		if p.fail != nil {
			return nil, p.fail
		}
	}
	return p.fakeConn.Prepare(ctx, sql, call)
}

func TestWhatAServerDoesWithAQueryThatItPreparesIsLearned(t *testing.T) {
	refusal := func(fault backend.Fault, words string) error {
		return &backend.Error{Fault: fault, Stage: backend.StagePrepare, Err: errors.New(words)}
	}
	statement, lost := backend.FaultStatement, refusal(backend.FaultTransport, "connection reset")
	for name, tc := range map[string]struct {
		conn    preparer
		want    preparing
		learned bool // the next is not asked
		asked   int
		err     error
	}{
		"repeats nothing":        {want: preparesOnly},
		"prepares":               {conn: preparer{repeats: true}, want: preparesOnly, learned: true, asked: 1},
		"cannot close it":        {conn: preparer{repeats: true, fakeConn: &fakeConn{fail: map[string]error{"ClosePrepared": lost}}}, want: preparesOnly, learned: true, asked: 1, err: lost},
		"runs":                   {conn: preparer{repeats: true, fail: refusal(statement, "duckdb error: Invalid Input Error: "+preparingWords)}, want: runsToPrepare, learned: true, asked: 1},
		"has no such function":   {conn: preparer{repeats: true, fail: refusal(statement, "no such function: error, in SELECT error('"+preparingWords+"')")}, want: preparesOnly, learned: true, asked: 1},
		"prepares nothing":       {conn: preparer{repeats: true, fail: refusal(backend.FaultUnsupported, "no")}, want: preparesOnly, learned: true, asked: 1},
		"refuses otherwise":      {conn: preparer{repeats: true, fail: refusal(statement, "too busy")}, want: preparingUnknown, asked: 1},
		"is lost":                {conn: preparer{repeats: true, fail: lost}, want: preparingUnknown, asked: 1, err: lost},
		"refuses to be asked":    {conn: preparer{noWord: refusal(backend.FaultUsage, "no transactions")}, want: preparesOnly, learned: true, asked: 1},
		"is lost as it is asked": {conn: preparer{noWord: lost}, want: preparingUnknown, err: backend.ErrSessionLost},
	} {
		t.Run(name, func(t *testing.T) {
			conn := tc.conn
			if conn.fakeConn == nil {
				conn.fakeConn = &fakeConn{}
			}
			r := newRig(t, conn.fakeConn)
			r.handle = New(&conn, r.policy, r.returned)
			how, err := r.handle.learnPreparing(t.Context())
			require.Equal(t, tc.want, how)
			require.ErrorIs(t, err, tc.err)
			require.Equal(t, tc.asked, conn.asked)
			require.Equal(t, tc.learned, r.policy.preparing.Load() != int32(preparingUnknown))
			if tc.learned {
				conn.fail = lost
				how, err = r.handle.learnPreparing(t.Context())
				require.NoError(t, err)
				require.Equal(t, tc.want, how)
			}
			require.NoError(t, r.handle.Close())
		})
	}
	r := newRig(t, &fakeConn{fail: map[string]error{"ROLLBACK": lost}})
	conn := &preparer{fakeConn: r.conn, repeats: true}
	r.handle = New(conn, r.policy, r.returned)
	r.handle.mu.strayTx = anyTx
	_, err := r.handle.learnPreparing(t.Context())
	require.ErrorIs(t, err, lost, "a transaction may be open, in which the question would be asked")
	require.Zero(t, conn.asked)
}

// In a transaction, where a server cannot be asked, SwanLake shows by the ids of its transactions, which it counts.
func TestAServerThatCannotBeAskedIsKnownByItsTransactions(t *testing.T) {
	counted := backend.TxID("\x00\x00\x00\x00\x00\x00\x00\x07")
	tooBusy := &backend.Error{Fault: backend.FaultStatement, Stage: backend.StagePrepare, Err: errors.New("too busy")}
	lost := &backend.Error{Fault: backend.FaultTransport, Stage: backend.StagePrepare, Err: errors.New("connection reset")}
	for name, tc := range map[string]struct {
		known  preparing
		fail   error
		tx     backend.TxID
		stores bool
	}{
		"runs":                                {known: runsToPrepare, stores: true},
		"runs, in a transaction":              {known: runsToPrepare, tx: "tx1", stores: true},
		"prepares":                            {known: preparesOnly},
		"prepares, in one that is counted":    {known: preparesOnly, tx: counted},
		"says nothing":                        {fail: tooBusy, stores: true},
		"was not asked before a transaction":  {tx: "tx1"},
		"was not asked before a counted one":  {tx: counted, stores: true},
		"was not asked before one by letters": {tx: "eight by"},
		"is lost":                             {fail: lost, stores: true},
	} {
		r := newRig(t, &fakeConn{})
		r.handle = New(&preparer{fakeConn: r.conn, repeats: true, fail: tc.fail}, r.policy, r.returned)
		r.policy.preparing.Store(int32(tc.known))
		if tc.tx != "" {
			r.handle.setTx(transaction{phase: txOpen, id: tc.tx})
		}
		stores, err := r.handle.storesParams(t.Context())
		require.Equal(t, tc.stores, stores, name)
		require.Equal(t, name == "is lost", err != nil, "%s: %v", name, err)
	}
	require.False(t, isCounted("seven b"))
	require.False(t, isCounted("eight by"))
	require.True(t, isCounted(counted))
}

// What a server may run as it prepares it is sent when that is known, or not at all.
func TestACallIsNotSentBeforeItIsKnownWhatTheServerDoesWithItsPreparing(t *testing.T) {
	const computing, behindWith, inSteps = "INSERT INTO t VALUES (? + 1)", "WITH x AS (SELECT 1) DELETE FROM t WHERE a = ?", "EXPLAIN ANALYZE DELETE FROM t"
	update := func(sql string) func(ctx context.Context, s *SessionHandle) error {
		return func(ctx context.Context, s *SessionHandle) error { _, err := s.Update(ctx, sql, 7); return err }
	}
	prepare := func(sql string) func(ctx context.Context, s *SessionHandle) error {
		return func(ctx context.Context, s *SessionHandle) error {
			_, err := s.PrepareQueryWithOptions(ctx, sql, QueryOptions{Route: RouteUpdate})
			return err
		}
	}
	afterLoss := func(ctx context.Context, s *SessionHandle) error {
		s.policy.lostUncancelled.Store(true)
		return update("UPDATE t SET a = ?")(ctx, s)
	}
	refusal := func(fault backend.Fault, words string) error {
		return &backend.Error{Fault: fault, Stage: backend.StagePrepare, Err: errors.New(words)}
	}
	runs, lost := refusal(backend.FaultStatement, preparingWords), refusal(backend.FaultTransport, "connection reset")
	runsText := errors.New("this server runs the text")
	for name, tc := range map[string]struct {
		run   func(ctx context.Context, s *SessionHandle) error
		fail  error    // of the question
		log   []string // nil: nothing but it reaches the server
		want  error
		asked int
	}{
		"computed rows":                      {update(computing), nil, []string{"Prepare", "ClosePrepared", "Prepare", computing}, nil, 1},
		"computed rows, run":                 {update(computing), runs, []string{"Prepare"}, errComputedRows, 1},
		"computed rows, no word":             {update(computing), lost, nil, backend.ErrSessionLost, 1},
		"behind a WITH":                      {update(behindWith), nil, []string{"Prepare", "ClosePrepared", "Prepare", behindWith}, nil, 1},
		"behind a WITH, run":                 {update(behindWith), runs, nil, runsText, 1},
		"behind a WITH, no word":             {update(behindWith), lost, nil, backend.ErrSessionLost, 1},
		"behind a loss":                      {afterLoss, nil, []string{"Prepare", "ClosePrepared", "Prepare", "UPDATE t SET a = ?"}, nil, 1},
		"behind a loss, no word":             {afterLoss, lost, nil, backend.ErrSessionLost, 1},
		"prepared behind a WITH":             {prepare(behindWith), nil, []string{"Prepare", "ClosePrepared", "Prepare"}, nil, 1},
		"prepared behind a WITH, run":        {prepare(behindWith), runs, nil, nil, 1},
		"prepared behind a WITH, no word":    {prepare(behindWith), lost, nil, backend.ErrSessionLost, 1},
		"in steps, whatever the server does": {prepare(inSteps), nil, nil, nil, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{})
			conn := &preparer{fakeConn: r.conn, repeats: true, fail: tc.fail}
			r.handle = New(conn, r.policy, r.returned)
			err := tc.run(t.Context(), r.handle)
			log := slices.DeleteFunc(r.conn.Log(), func(sql string) bool { return strings.Contains(sql, "current_") })
			switch {
			case tc.want == nil:
				require.NoError(t, err, name)
			case errors.Is(tc.want, runsText):
				require.ErrorContains(t, err, runsText.Error(), name)
				require.Equal(t, backend.FaultUnsupported, backend.FaultIn(err), name)
			default:
				require.ErrorIs(t, err, tc.want, name)
			}
			require.Equal(t, tc.asked, conn.asked, name)
			if tc.log == nil {
				require.Empty(t, log, name)
			} else {
				require.Equal(t, tc.log, log[:len(tc.log)], "%s: %q", name, log)
			}
			_ = r.handle.Close()
		})
	}
}

// The question is one for each loss, and none is asked in a transaction: it is left to the call behind that.
func TestTheQuestionBehindALossWaitsForTheEndOfATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		conn := &preparer{fakeConn: r.conn, repeats: true}
		r.handle = New(conn, r.policy, r.returned)
		must(t, r.handle.BeginTransaction(t.Context()))
		r.policy.lostUncancelled.Store(true)
		_, err := r.handle.Update(t.Context(), "UPDATE t SET a = ?", 7)
		must(t, err)
		require.Zero(t, conn.asked)
		must(t, r.handle.Commit(t.Context()))
		for range 2 {
			_, err = r.handle.Update(t.Context(), "UPDATE t SET a = ?", 7)
			must(t, err)
		}
		require.Equal(t, 1, conn.asked)
		must(t, r.handle.Close())
	})
}

// What a server is asked in front of a call stands before its other checks, and in place of none.
func TestNoQuestionBeforeACallKeepsItFromItsChecks(t *testing.T) {
	update := func(sql string, args ...any) func(ctx context.Context, s *SessionHandle) error {
		return func(ctx context.Context, s *SessionHandle) error { _, err := s.Update(ctx, sql, args...); return err }
	}
	for name, run := range map[string]func(ctx context.Context, s *SessionHandle) error{
		"computed rows":      update("INSERT INTO t VALUES (? + 1)", 7),
		"several statements": update("INSERT 1; INSERT 2"),
		"a change with rows": func(ctx context.Context, s *SessionHandle) error {
			return drained(s.Query(ctx, "INSERT 1 RETURNING 1"))
		},
		"behind a loss": func(ctx context.Context, s *SessionHandle) error {
			s.policy.lostUncancelled.Store(true)
			return update("UPDATE t SET a = ?", 7)(ctx, s)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{forgives: true})
			r.handle = New(struct {
				*preparer
				textCutter
			}{preparer: &preparer{fakeConn: r.conn}}, r.policy, r.returned)
			_, err := r.handle.PrepareQuery(t.Context(), "SELECT 1")
			must(t, err)
			must(t, run(t.Context(), r.handle))
			r.conn.replaceSession()
			sent := len(r.conn.Log())
			require.ErrorIs(t, run(t.Context(), r.handle), backend.ErrSessionReplaced, name)
			for _, sql := range r.conn.Log()[sent:] {
				require.NotContains(t, sql, "INSERT", name)
				require.NotContains(t, sql, "UPDATE", name)
			}
			_ = r.handle.Close()
		})
	}
}

// textCutter is of a server that runs the whole of a text.
type textCutter struct{}

func (textCutter) CutsTexts(context.Context, bool, backend.TxID) (bool, error) { return false, nil }
