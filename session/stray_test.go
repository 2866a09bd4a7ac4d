package session

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// What a call may have left that has failed is told by its text, by how far it had come, and by the server's words.
func TestWhatTransactionOfItsOwnAFailedCallMayHaveLeft(t *testing.T) {
	const steps, script, one = "ALTER TABLE t ADD b INT DEFAULT f()", "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (1)"
	fault := func(f backend.Fault, code codes.Code, text string) *backend.Error {
		return &backend.Error{Stage: backend.StageExecute, Fault: f, Err: status.Error(code, text)}
	}
	refusal, failure := fault(backend.FaultStatement, codes.InvalidArgument, "no such column"), fault(backend.FaultStatement, codes.Internal, "something is wrong")
	aborted := fault(backend.FaultStatement, codes.InvalidArgument, "Current transaction is aborted (please ROLLBACK)")
	lacks := fault(backend.FaultUnsupported, codes.Unimplemented, "no updates")
	expired := fault(backend.FaultAuth, codes.Unauthenticated, "expired")
	cut := fault(backend.FaultContext, codes.Canceled, "cut")
	for name, tc := range map[string]struct {
		sql      string
		unbegun  bool // it was its checks that failed
		prepares bool // what servers run as several statements
		watches  bool // the connection may prepare a text before it runs it
		e        *backend.Error
		want     strayTx
	}{
		"it has ended well":                          {sql: steps},
		"it was not sent":                            {sql: steps, e: &backend.Error{Fault: backend.FaultStatement, Unsent: true, Err: failure}},
		"steps prepared, whatever became of it":      {sql: steps, prepares: true, want: anyTx},
		"steps that were not prepared yet":           {sql: steps, prepares: true, unbegun: true},
		"steps refused":                              {sql: steps, e: refusal, want: abortedTx},
		"steps refused by what prepares them":        {sql: steps, watches: true, e: refusal, want: anyTx},
		"one refused by what prepares it":            {sql: one, watches: true, e: refusal},
		"steps cut by what prepares them":            {sql: steps, watches: true, e: cut}, // the cancel sees to it
		"steps that were not sent to what prepares":  {sql: steps, watches: true, unbegun: true, e: refusal, want: abortedTx},
		"steps that fail":                            {sql: steps, e: failure, want: anyTx},
		"steps whose checks fail":                    {sql: steps, unbegun: true, e: failure, want: abortedTx},
		"steps cut":                                  {sql: steps, e: cut},
		"steps that the server does not have":        {sql: steps, e: lacks, want: abortedTx},
		"steps that a credential does not allow":     {sql: steps, e: expired},
		"a script refused":                           {sql: script, e: refusal, want: abortedTx},
		"a script that the server does not have":     {sql: script, e: lacks},
		"one refused":                                {sql: one, e: refusal},
		"one that the server does not have":          {sql: one, e: lacks},
		"one refused in what somebody has left open": {sql: one, e: aborted, want: abortedTx},
	} {
		conn := backend.Conn(&fakeConn{})
		if tc.watches {
			conn = ledConn{&fakeConn{}}
		}
		c := &call{s: New(conn, &Policy{}, nil), statement: true, script: sqlscan.Parse(tc.sql)}
		c.preparesSteps.Store(tc.prepares)
		c.stepBegun.Store(!tc.unbegun)
		require.Equal(t, tc.want, c.strayTxOf(tc.e), name)
	}
}

// That a session refuses everything is the server's word, not that of a connection on which it came too late.
func TestOnlyAnAnswerSaysThatASessionRefusesAll(t *testing.T) {
	const words = "Current transaction is aborted (please ROLLBACK)"
	require.True(t, refusesAll(sqlError(words)))
	require.False(t, refusesAll(sqlError("no such column")))
	require.False(t, refusesAll(nil))
	for _, fault := range []backend.Fault{backend.FaultTransport, backend.FaultLimit, backend.FaultAuth, backend.FaultSession} {
		require.False(t, refusesAll(&backend.Error{Fault: fault, Err: status.Error(codes.Internal, words)}), fault.String())
	}
}

// A transaction that a statement may have left sound is rolled back before anything else is sent, or the session is given up;
// what breaks the connection is told as that, and nothing more is sent.
func TestATransactionThatAStatementMayHaveLeftIsRolledBackFirst(t *testing.T) {
	const copies = "COPY FROM DATABASE a TO b"
	aborted := sqlError("Current transaction is aborted (please ROLLBACK)")
	none := sqlError("TransactionContext Error: no transaction is active")
	for name, tc := range map[string]struct {
		begins error   // what the statement fails with
		ends   []error // what each ROLLBACK fails with
		probe  []error // what each probe fails with
		log    []string
		fault  backend.Fault // of the next statement, FaultUnknown: it runs
		why    string
	}{
		"one was left":                    {log: []string{"ROLLBACK", "SELECT 1", "INSERT 1"}},
		"one was left, at a second try":   {ends: []error{none}, log: []string{"ROLLBACK", "ROLLBACK", "SELECT 1", "INSERT 1"}},
		"none was left":                   {ends: []error{none, none}, log: []string{"ROLLBACK", "ROLLBACK", "SELECT 1", "INSERT 1"}},
		"nobody knows":                    {ends: []error{none, sqlError("?")}, log: []string{"ROLLBACK", "ROLLBACK"}, fault: backend.FaultSession, why: "could not be rolled back"},
		"the connection breaks":           {ends: []error{transportError()}, log: []string{"ROLLBACK"}, fault: backend.FaultTransport, why: "connection reset"},
		"the connection breaks then":      {ends: []error{none, transportError()}, log: []string{"ROLLBACK", "ROLLBACK"}, fault: backend.FaultTransport, why: "connection reset"},
		"the probe breaks the connection": {probe: []error{transportError()}, log: []string{"ROLLBACK", "SELECT 1"}, fault: backend.FaultTransport, why: "connection reset"},
		"it is aborted, and breaks then": {begins: sqlError("Catalog Error: no"), probe: []error{aborted}, ends: []error{transportError()},
			log: []string{"SELECT 1", "ROLLBACK"}, fault: backend.FaultTransport, why: "connection reset"},
		"it is aborted, and stays": {begins: sqlError("Catalog Error: no"), probe: []error{aborted, aborted},
			log: []string{"SELECT 1", "ROLLBACK", "SELECT 1"}, fault: backend.FaultSession, why: "it refuses every statement"},
	} {
		synctest.Test(t, func(t *testing.T) {
			begins := tc.begins
			if begins == nil {
				begins = sqlError("something is wrong")
			}
			r := newRig(t, &fakeConn{failOnce: map[string][]error{copies: {begins}, "ROLLBACK": tc.ends, "SELECT 1": tc.probe}})
			refused(copies)(t, r.handle)
			var err error
			sent := r.sent(func() { _, err = r.handle.Update(t.Context(), "INSERT 1") })
			require.Equal(t, tc.log, sent, name)
			if tc.fault == backend.FaultUnknown {
				require.NoError(t, err, name)
				must(t, r.handle.Close())
				r.reused()
				return
			}
			require.Equal(t, tc.fault, backend.FaultIn(err), "%s: %v", name, err)
			require.ErrorIs(t, err, backend.ErrSessionLost, name)
			require.ErrorContains(t, err, tc.why, name)
			_ = r.handle.Close()
			_ = r.discarded()
		})
	}
}

// The handle's own transaction is ended by its end alone: what else is sent in it meanwhile rolls back nothing.
func TestNoROLLBACKIsSentIntoTheHandlesOwnTransaction(t *testing.T) {
	const copies = "COPY FROM DATABASE a TO b"
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{forgives: true, fail: map[string]error{copies: sqlError("something is wrong")}})
		begin(t, r.handle)
		refused(copies)(t, r.handle)
		must(t, r.handle.SetOption(t.Context(), "colour", "blue"))
		require.NotContains(t, r.conn.Log(), "ROLLBACK")
		must(t, r.handle.Rollback(t.Context()))
		exec("INSERT 1")(t, r.handle)
		require.Contains(t, r.conn.Log(), "ROLLBACK")
		must(t, r.handle.Close())
		r.reused()
	})
}

// A server that has refused to say how it treats transactions that it does not know has confirmed none, and is asked again
// before the next transaction. Its word then is what counts, and no proof is given up for it that is held.
func TestAServerThatHasRefusedToSayIsAskedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		prepares error // what its proof fails with
		trusted  bool  // what it says then
		silent   bool  // it says nothing then, too
		want     proofState
	}{
		"it minds them, and takes no proof": {prepares: &backend.Error{Fault: backend.FaultUnsupported, Err: status.Error(codes.Unimplemented, "no")}, trusted: true, want: proofNotNeeded},
		"it does not, and takes no proof":   {prepares: &backend.Error{Fault: backend.FaultUnsupported, Err: status.Error(codes.Unimplemented, "no")}, want: proofImpossible},
		"it minds them, and has a proof":    {trusted: true, want: proofHeld},
		"it does not, and has a proof":      {want: proofHeld},
		"it refuses again":                  {silent: true, want: proofHeld},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &proofConn{fakeConn: &fakeConn{}, trustErr: sqlError("not supported"), prepares: tc.prepares}
			r := newRig(t, conn.fakeConn)
			r.handle = New(conn, r.policy, r.returned)
			begin(t, r.handle)
			require.True(t, r.handle.acceptsUnknownTx(), name)
			require.False(t, r.handle.confirmsUnknownTx(), "%s: it has not said so", name)
			must(t, r.handle.Commit(t.Context()))
			if !tc.silent {
				conn.trusted, conn.trustErr = tc.trusted, nil
			}
			begin(t, r.handle)
			require.Equal(t, tc.want, r.handle.mu.proof.state, name)
			require.Equal(t, !tc.trusted, r.handle.acceptsUnknownTx(), name)
			require.Equal(t, !tc.trusted && !tc.silent, r.handle.confirmsUnknownTx(), name)
			must(t, r.handle.Rollback(t.Context()))
			must(t, r.handle.Close())
			r.reused()
		})
	}
}

// An ingestion that has failed leaves its rows to no borrower: only a server that has no such catalogue is taken at its word.
func TestWhatAFailedIngestionLeftIsLookedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		temps int
		fail  error
		why   string
	}{
		"nothing":                 {},
		"its rows":                {temps: 1, why: "temporary objects are left"},
		"no such catalogue":       {fail: sqlError("Catalog Error: no such function")},
		"no verdict":              {fail: noVerdict(), why: "too slow"},
		"a failure of the moment": {fail: limitError(), why: "busy"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			c.temps = tc.temps
			c.fail = map[string]error{" ingest t": sqlError("Conversion Error: no"), tempsQuery.sql: tc.fail}
			r := stateRig(t, c)
			_, err := r.handle.Ingest(t.Context(), "t", tenRows(t), backend.IngestOptions{})
			require.ErrorContains(t, err, "Conversion Error", name)
			err = r.handle.Close()
			if tc.why == "" {
				must(t, err)
				r.reused()
				return
			}
			require.ErrorContains(t, err, tc.why, name)
			_ = r.discarded()
		})
	}
}

// rowlessConn answers what it is asked of its settings by no row.
type rowlessConn struct{ *fakeConn }

func (c rowlessConn) Query(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	if sql == "SELECT current_setting('threads')" {
		sql = "SELECT 0"
	}
	return c.fakeConn.Query(ctx, sql, call)
}

// No row is no answer, and no failure of the connection either: the statement is run, and its connection closed behind it.
func TestAnAnswerWithoutARowIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		r.handle = New(rowlessConn{r.conn}, r.policy, r.returned)
		exec("SET threads = 1")(t, r.handle)
		require.ErrorContains(t, r.handle.Close(), "could not tell it before")
		_ = r.discarded()
	})
}

// An INSERT that may lead elsewhere is not sent where the server refuses to tell where the session is, and a harmless query
// too: that is no server without a place.
func TestALoadIsNotSentWhereNothingIsToldOfThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		c.blind = true
		c.failOnce = map[string][]error{"SELECT 1": {sqlError("not now")}}
		r := stateRig(t, c)
		err := r.load(c, r.handle, "far.t", "far.main")
		require.ErrorIs(t, err, errNamespaceUnknown)
		require.NotContains(t, c.Log(), "INSERT INTO far.t VALUES (?)")
		require.False(t, r.policy.nonMovingInserts.has(namespaceUnsupported))
		must(t, r.handle.Close())
		r.reused()
	})
}
