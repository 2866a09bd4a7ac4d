package doctor

import (
	"context"
	"go/parser"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// examine examines a server of a profile in virtual time.
func examine(t *testing.T, profile testserver.Profile, change func(*Options), faults ...testserver.Fault) (*Report, *testserver.Server) {
	t.Helper()
	server := testserver.Options{Profile: profile, Listen: testserver.InMemory, Users: map[string]string{"app": "secret"}}
	if profile.Handshake == testserver.NoToken {
		server.Users = nil // nobody could come in
	}
	srv, err := testserver.Start(server)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	for _, fault := range faults {
		srv.Faults().Set(fault)
	}
	opts := Options{Target: srv.URI(), Config: flightpool.Config{
		Auth:   flightpool.BasicAuth("app", "secret"),
		Dialer: srv.Dial,
	}}
	if change != nil {
		change(&opts)
	}
	report, err := Examine(t.Context(), opts)
	require.NoError(t, err)
	return report, srv
}

// The verdicts are compared with what the profile is.
func TestTheVerdictsAreWhatTheServerIs(t *testing.T) {
	for _, p := range []testserver.Profile{
		testserver.Strict(), testserver.SwanLake(), testserver.GizmoSQL(), testserver.Dremio(), testserver.Doris(), testserver.ClickHouse(), testserver.InfluxDB(),
		{Name: "one session for all", SessionKey: testserver.ByPeerIP},
		{Name: "small requests", MaxRequest: 2 << 20},
		{Name: "lies of aborted commits", AbortedCommitOK: true},
		{Name: "ignores ids", IgnoreTxID: true},
		{Name: "knows no cancel", IgnoreRPCCancel: true, SideBySide: true, Refuse: testserver.SwanLake().Refuse},
	} {
		t.Run(p.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, srv := examine(t, p, nil)
				for subject, want := range truth(p) {
					require.Equal(t, want, r.Verdict(subject), "%s: %+v", subject, r.Findings)
				}
				requireNothingLeft(t, srv)
			})
		})
	}
}

// A query that has come to its end by itself, on a fast server, was not stopped.
func TestAQueryThatEndsSoonProvesNoCancel(t *testing.T) {
	defer func(before []string) { slowQueries = before }(slowQueries)
	slowQueries = []string{"SELECT sleep('1500ms')", "SELECT sleep('20s')"}
	synctest.Test(t, func(t *testing.T) {
		r, _ := examine(t, testserver.SwanLake(), nil)
		require.Equal(t, no, r.Verdict("cancel"), "%+v", r.Findings)
	})
	slowQueries = slowQueries[:1]
	synctest.Test(t, func(t *testing.T) {
		r, _ := examine(t, testserver.Strict(), nil)
		require.Equal(t, yes, r.Verdict("cancel"), "%+v", r.Findings)
	})
}

// truth is what a profile makes of a server.
func truth(p testserver.Profile) map[string]string {
	has := func(what string) bool { _, refused := p.Refuse[what]; return !refused }
	sessions := map[testserver.SessionKey]string{
		testserver.ByConnection: "by connection", testserver.ByPeerIP: "one for all", testserver.ByCookie: "by cookie",
		testserver.ByBearer: "by token", testserver.ByHeader: "by header", testserver.ByCall: no,
	}
	t := map[string]string{
		"TLS": no, "authentication": yes, "sessions": sessions[p.SessionKey],
		"transactions": "honest", "cancel": yes, "parameters": yes, "ingestion": yes, "largest request": "4 MiB",
	}
	if p.Handshake == testserver.NoToken {
		t["authentication"] = no
	}
	if p.IgnoreTxID || p.UnknownTxOK || p.AbortedCommitOK {
		t["transactions"] = "not honest"
	}
	if !has("BeginTransaction") {
		t["transactions"] = no
	}
	if p.IgnoreRPCCancel && !has("CancelFlightInfo") && !has("CancelQuery") {
		t["cancel"] = no
		if p.SideBySide {
			t["cancel"] = "unconfirmed"
		}
	}
	if p.SessionKey == testserver.ByCall {
		t["cancel"] = "unconfirmed" // no session shows that it is free again
	}
	if !has("CommandStatementIngest") {
		t["ingestion"] = no
	}
	if p.SessionKey == testserver.ByCall {
		t["parameters"] = no // what one call prepares the next does not know
	}
	if p.MaxRequest > 0 {
		t["largest request"] = "2 MiB"
	}
	return t
}

// requireNothingLeft looks for tables of ours, as a client of the server.
func requireNothingLeft(t *testing.T, srv *testserver.Server) {
	t.Helper()
	pool, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{
		Auth:   flightpool.BasicAuth("app", "secret"),
		Dialer: srv.Dial,
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close(t.Context())) }()
	type table struct {
		Name string `arrow:"table_name"`
	}
	found, err := flightpool.CollectRows[table](pool.Tables(t.Context(), flightpool.TableFilter{}))
	require.NoError(t, err)
	for _, f := range found {
		require.NotContains(t, f.Name, "flightpool_doctor")
	}
}

func TestReadOnlyCreatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, srv := examine(t, testserver.Strict(), func(o *Options) { o.ReadOnly = true })
		require.Equal(t, unknown, r.Verdict("sessions"))
		require.Equal(t, yes, r.Verdict("cancel"))
		for _, s := range srv.Ledger().Statements() {
			require.NotContains(t, s.SQL, "CREATE")
			require.NotEqual(t, testserver.KindIngest, s.Kind)
		}
	})
}

func TestAnIdleSessionIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		idle := func(o *Options) { o.Idle = 2 * time.Minute }
		r, _ := examine(t, testserver.Strict(), idle)
		require.Equal(t, "stay", r.Verdict("idle sessions"))
		r, _ = examine(t, testserver.ClickHouse(), idle) // they end after a minute
		require.Equal(t, "end", r.Verdict("idle sessions"))
		require.Contains(t, r.Go(""), "IdleTTL:       60000 * time.Millisecond")
	})
}

func TestTheConfigIsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := examine(t, testserver.ClickHouse(), nil)
		text := r.Go(`flightpool.BasicAuth("app", os.Getenv("FLIGHTPOOL_PASSWORD"))`)
		require.Contains(t, text, `SessionHeader: "x-clickhouse-session-id"`)
		_, expr, _ := strings.Cut(strings.TrimSpace(text), ":= ")
		_, err := parser.ParseExpr(expr)
		require.NoError(t, err, text)

		r, _ = examine(t, testserver.Profile{SessionKey: testserver.ByPeerIP}, nil)
		require.Contains(t, r.Go(""), "MaxSize: 1,")
	})
}

// A call that the server does not answer, or whose connection breaks, says nothing of what the server has.
func TestWhatIsNotAnsweredIsUnknown(t *testing.T) {
	for on, subject := range map[testserver.Point]string{
		testserver.OnPrepare: "parameters", testserver.OnDoPut: "ingestion", testserver.OnBegin: "transactions", testserver.OnEnd: "transactions",
	} {
		for name, effect := range map[string]testserver.Effect{"silent": testserver.Hang(), "broken": testserver.Kill()} {
			t.Run(string(on)+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					r, _ := examine(t, testserver.Strict(), nil, testserver.Fault{On: on, Do: effect})
					require.Equal(t, unknown, r.Verdict(subject), "%+v", r.Findings)
					require.Less(t, time.Since(began), 3*time.Minute, "one that does not answer is not asked the same in other words")
				})
			})
		}
	}
}

// The error of a server that accepts and says nothing tells that, in a user's words.
func TestASilentServerIsOneThatDoesNotAnswer(t *testing.T) {
	for _, on := range []testserver.Point{testserver.OnConnect, testserver.OnHandshake, testserver.OnGetFlightInfo, testserver.OnDoGet} {
		for given, waits := range map[time.Duration]time.Duration{0: 5 * time.Second, 12 * time.Second: 12 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory, Users: map[string]string{"app": "secret"}})
				require.NoError(t, err)
				defer func() { require.NoError(t, srv.Close()) }()
				srv.Faults().Set(testserver.Fault{On: on, Do: testserver.Hang()})
				began := time.Now()
				_, err = Examine(t.Context(), Options{Target: srv.URI(), Config: flightpool.Config{
					Auth: flightpool.BasicAuth("app", "secret"), Dialer: srv.Dial, DialTimeout: given,
				}})
				require.ErrorContains(t, err, "no answer within DialTimeout "+waits.String(), on)
				require.NotContains(t, err.Error(), "reservoir")
				require.Equal(t, waits, time.Since(began))
			})
		}
	}
}

// A connection that breaks, at whichever call, makes no verdict but unknown.
func TestAConnectionThatBreaksIsNoVerdict(t *testing.T) {
	every := []testserver.Point{
		testserver.OnConnect, testserver.OnHandshake, testserver.OnGetFlightInfo, testserver.OnDoGet, testserver.OnDoPut, testserver.OnBegin, testserver.OnEnd, testserver.OnPrepare,
	}
	for subject, points := range map[string][]testserver.Point{
		"authentication": every, "sessions": every, "parameters": every, "transactions": every, "ingestion": every,
		"cancel": {testserver.OnConnect, testserver.OnHandshake, testserver.OnGetFlightInfo, testserver.OnCancel}, "largest request": {testserver.OnConnect, testserver.OnGetFlightInfo}, // that takes a while
	} {
		for _, profile := range []testserver.Profile{testserver.Strict(), testserver.ClickHouse(), {Name: "one session for all", SessionKey: testserver.ByPeerIP}} {
			for _, on := range points {
				for skip := 0; ; skip++ {
					verdict, struck := breakAt(t, profile, subject, on, skip)
					if verdict != unknown {
						require.Equal(t, truth(profile)[subject], verdict, "%s: %s %d", subject, on, skip)
					}
					if !struck {
						break
					}
				}
			}
		}
	}
}

// breakAt finds out one matter while a connection breaks at the call after skip of a kind.
func breakAt(t *testing.T, profile testserver.Profile, subject string, on testserver.Point, skip int) (verdict string, struck bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Profile: profile, Listen: testserver.InMemory, Users: map[string]string{"app": "secret"}})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		e := newExam(Options{Target: srv.URI(), Config: flightpool.Config{Auth: flightpool.BasicAuth("app", "secret"), Dialer: srv.Dial}})
		require.NoError(t, e.reach(t.Context()))
		for _, m := range e.matters() {
			switch m.subject {
			case subject:
				srv.Faults().Set(testserver.Fault{On: on, Skip: skip, Times: 1, Do: func(ctx context.Context, v *testserver.FaultTarget) error {
					struck = true
					return testserver.Kill()(ctx, v)
				}})
				e.examine(t.Context(), m)
			case "sessions": // what others need
				e.examine(t.Context(), m)
			}
		}
		verdict = e.report.Verdict(subject)

		srv.Faults().Clear()
		if subject != "cancel" { // which makes no table
			requireNothingLeft(t, srv)
		}
	})
	return verdict, struck
}

// A server that breaks connections as its answer is told from one that is gone.
func TestAServerMayRefuseByBreakingTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := testserver.Fault{On: testserver.OnGetFlightInfo, SQL: strings.Repeat("x", 1<<20), Do: testserver.Kill()}
		r, _ := examine(t, testserver.Strict(), nil, large)
		require.Equal(t, "1 MiB", r.Verdict("largest request"), "%+v", r.Findings)
	})
}

// What a server calls itself, or says of an error, does not control the terminal.
func TestTextsOfTheServerAreShownAsText(t *testing.T) {
	var out strings.Builder
	Finding{"server", "x\x1b[2J", "two\nlines \u202e\x9b"}.Text(&out)
	require.Equal(t, "server           x\\x1b[2J       two\\nlines \\u202e\\x9b\n", out.String())
}
