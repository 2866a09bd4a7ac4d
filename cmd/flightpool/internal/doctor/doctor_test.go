package doctor

import (
	"context"
	"fmt"
	"go/parser"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// examine examines a server of a profile in virtual time.
func startServer(t *testing.T, profile testserver.Profile) *testserver.Server {
	t.Helper()
	server := testserver.Options{Profile: profile, Listen: testserver.InMemory, Users: map[string]string{"app": "secret"}}
	if profile.Handshake == testserver.NoToken {
		server.Users = nil // nobody could come in
	}
	srv, err := testserver.Start(server)
	require.NoError(t, err)
	return srv
}

func examine(t *testing.T, profile testserver.Profile, change func(*Options), faults ...testserver.Fault) (*Report, *testserver.Server) {
	t.Helper()
	srv := startServer(t, profile)
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
	require.Equal(t, no, verdictOn(t, testserver.SwanLake(), "cancel"))
	slowQueries = slowQueries[:1]
	require.Equal(t, yes, verdictOn(t, testserver.Strict(), "cancel"))
}

// Nor is it known that a server cannot confirm one: whatever its end looks like, a longer one says more.
func TestAQueryThatEndsSoonIsNotTheLastOne(t *testing.T) {
	defer func(before []string) { slowQueries = before }(slowQueries)
	for _, ms := range []int{1460, 1500, 1950, 2450} { // cut after 1 s
		slowQueries = []string{fmt.Sprintf("SELECT sleep('%dms')", ms), "SELECT sleep('20s')"}
		require.Equal(t, no, verdictOn(t, testserver.SwanLake(), "cancel"), slowQueries[0])
	}
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
		require.Equal(t, "end", r.Verdict("idle sessions"), "%+v", r.Findings)
		require.Contains(t, r.Go(Entrance{}), "IdleTTL:       60000 * time.Millisecond")
	})
}

// A header for sessions that was named is told to be needed where it is, and only there.
func TestAHeaderThatWasNamedIsJudged(t *testing.T) {
	named := func(o *Options) { o.Config.SessionHeader = "x-clickhouse-session-id" }
	for _, p := range []testserver.Profile{testserver.Strict(), testserver.Dremio(), testserver.ClickHouse(), testserver.InfluxDB()} {
		synctest.Test(t, func(t *testing.T) {
			r, srv := examine(t, p, named)
			require.Equal(t, truth(p)["sessions"], r.Verdict("sessions"), "%s: %+v", p.Name, r.Findings)
			require.Equal(t, p.SessionKey == testserver.ByHeader, strings.Contains(r.Go(Entrance{}), "SessionHeader"), p.Name)
			requireNothingLeft(t, srv)
		})
	}
}

func TestTheConfigIsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := examine(t, testserver.ClickHouse(), nil)
		text := r.Go(Entrance{Fields: []string{`Auth: flightpool.BasicAuth("app", os.Getenv("FLIGHTPOOL_PASSWORD"))`}})
		require.Contains(t, text, `SessionHeader: "x-clickhouse-session-id"`)
		_, expr, _ := strings.Cut(strings.TrimSpace(text), ":= ")
		_, err := parser.ParseExpr(expr)
		require.NoError(t, err, text)

		r, _ = examine(t, testserver.Profile{SessionKey: testserver.ByPeerIP}, nil)
		require.Contains(t, r.Go(Entrance{}), "MaxSize: 1,")
	})
}

// A server may take its time for a connection: what is cut is the statement.
func TestACancelIsTriedOnAConnectionThatOpensSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := testserver.Fault{On: testserver.OnHandshake, Do: testserver.Delay(3 * time.Second)}
		r, _ := examine(t, testserver.Strict(), nil, slow)
		require.Equal(t, yes, r.Verdict("cancel"), "%+v", r.Findings)
		r, _ = examine(t, testserver.SwanLake(), nil, testserver.Fault{On: testserver.OnConnect, Do: testserver.Delay(3 * time.Second)})
		require.Equal(t, no, r.Verdict("cancel"), "%+v", r.Findings)
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

// A handshake that is refused, in whatever words, is not one more query's to be tried with.
func TestARefusedHandshakeIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		srv.Faults().Set(testserver.Fault{On: testserver.OnHandshake, Do: testserver.Fail(codes.Internal, "there are none")})
		_, err = Examine(t.Context(), Options{Target: srv.URI(), Config: flightpool.Config{Auth: flightpool.BasicAuth("app", "secret"), Dialer: srv.Dial}})
		require.ErrorContains(t, err, "there are none")
		require.Equal(t, 1, strings.Count(err.Error(), "there are none"), "%v", err)
	})
}

// Nor are the pool's insides in what is told of a connection that could not be opened later.
func TestAServerThatFallsSilentIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := examine(t, testserver.Strict(), nil, testserver.Fault{On: testserver.OnDoGet, Skip: 6, Do: testserver.Hang()})
		require.Equal(t, unknown, r.Verdict("transactions"))
		for _, f := range r.Findings {
			require.NotContains(t, f.Detail, "reservoir")
		}
	})
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
				for skip, step := struckCalls(); ; skip += step {
					verdict, struck := strikeAt(t, profile, subject, on, skip, testserver.Kill())
					if verdict != unknown {
						require.Equal(t, truth(profile)[subject], verdict, "%s %s: %s %d", subject, profile.Name, on, skip)
					}
					if !struck {
						break
					}
				}
			}
		}
	}
}

// A server that has no room for a moment, or has forgotten who asks, has said nothing of
// what was asked; nor has one that refuses a connection.
func TestARefusalOfTheMomentIsNoVerdict(t *testing.T) {
	calls := []testserver.Point{
		testserver.OnGetFlightInfo, testserver.OnDoGet, testserver.OnDoPut, testserver.OnBegin, testserver.OnEnd, testserver.OnPrepare, testserver.OnHandshake,
	}
	for code, points := range map[codes.Code][]testserver.Point{codes.ResourceExhausted: calls, codes.Unauthenticated: calls, codes.Internal: {testserver.OnHandshake}} {
		for _, subject := range []string{"authentication", "sessions", "parameters", "transactions", "ingestion"} {
			for _, profile := range []testserver.Profile{testserver.Strict(), testserver.ClickHouse()} {
				if profile.Name != "strict" && subject != "sessions" {
					continue // the same calls
				}
				for _, on := range points {
					for skip, step := struckCalls(); ; skip += step {
						verdict, struck := strikeAt(t, profile, subject, on, skip, testserver.Fail(code, "not now"))
						if verdict != unknown {
							require.Equal(t, truth(profile)[subject], verdict, "%s %s: %v at %s %d", subject, profile.Name, code, on, skip)
						}
						if !struck {
							break
						}
					}
				}
			}
		}
	}
}

// A read of a table that a transaction of another connection has changed may wait for its end.
func TestAReadThatWaitsForATransactionIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := testserver.Fault{On: testserver.OnDoGet, SQL: "count(*)", Skip: 6, Times: 1, Do: testserver.Hang()} // the look during a transaction
		r, srv := examine(t, testserver.Strict(), nil, waits)
		require.Equal(t, "honest", r.Verdict("transactions"), "%+v", r.Findings)
		requireNothingLeft(t, srv)
	})
}

// What a table holds is not known where the server does not let it be read.
func TestWhatCannotBeReadIsUnknown(t *testing.T) {
	for _, code := range []codes.Code{codes.PermissionDenied, codes.ResourceExhausted, codes.Internal} {
		synctest.Test(t, func(t *testing.T) {
			unread := testserver.Fault{On: testserver.OnGetFlightInfo, SQL: "count(*)", Do: testserver.Fail(code, "not for you")}
			r, srv := examine(t, testserver.Strict(), nil, unread)
			for _, subject := range []string{"ingestion", "transactions"} {
				require.Equal(t, unknown, r.Verdict(subject), "%v: %+v", code, r.Findings)
			}
			requireNothingLeft(t, srv)
		})
	}
}

// A table that the server does not drop is named.
func TestATableThatStaysIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stays := testserver.Fault{On: testserver.OnDoPut, SQL: "DROP TABLE", Do: testserver.Fail(codes.PermissionDenied, "not for you")}
		var told []string
		r, srv := examine(t, testserver.Strict(), func(o *Options) { o.Found = func(f Finding) { told = append(told, f.Subject) } }, stays)
		table := r.Verdict("left behind")
		require.Contains(t, table, "flightpool_doctor_", "%+v", r.Findings)
		require.Contains(t, told, "left behind")
		require.Equal(t, "honest", r.Verdict("transactions"))
		srv.Faults().Clear()
		pool, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{Auth: flightpool.BasicAuth("app", "secret"), Dialer: srv.Dial})
		require.NoError(t, err)
		defer func() { require.NoError(t, pool.Close(t.Context())) }()
		_, err = pool.Update(t.Context(), "DROP TABLE "+table)
		require.NoError(t, err)
		requireNothingLeft(t, srv)
	})
}

// It is named also where the examination is interrupted while the table is there.
func TestATableThatStaysIsNamedToWhoInterrupts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		srv.Faults().Set(testserver.Fault{On: testserver.OnDoPut, SQL: "DROP TABLE", Do: testserver.Effects(testserver.Do(interrupt), testserver.Fail(codes.PermissionDenied, "not for you"))})
		var told []string
		_, err = Examine(ctx, Options{Target: srv.URI(), Config: flightpool.Config{Dialer: srv.Dial}, Found: func(f Finding) { told = append(told, f.Subject) }})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, "left behind", told[len(told)-1])
	})
}

// struckCalls is which call of a kind goes wrong first, and how many there are from one to the next:
// every call under PROVE, else every tenth from a random one, since all of them take minutes.
func struckCalls() (first, step int) {
	if os.Getenv("PROVE") != "" {
		return 0, 1
	}
	return rand.IntN(10), 10
}

// verdictOn finds out one matter.
func verdictOn(t *testing.T, profile testserver.Profile, subject string) string {
	t.Helper()
	verdict, _ := strikeAt(t, profile, subject, testserver.OnConnect, math.MaxInt, nil)
	return verdict
}

// strikeAt finds out one matter while the call after skip of a kind goes wrong.
func strikeAt(t *testing.T, profile testserver.Profile, subject string, on testserver.Point, skip int, effect testserver.Effect) (verdict string, struck bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := startServer(t, profile)
		defer func() { require.NoError(t, srv.Close()) }()
		e := newExam(Options{Target: srv.URI(), Config: flightpool.Config{Auth: flightpool.BasicAuth("app", "secret"), Dialer: srv.Dial}})
		require.NoError(t, e.reach(t.Context()))
		for _, m := range e.matters() {
			switch m.subject {
			case subject:
				srv.Faults().Set(testserver.Fault{On: on, Skip: skip, Times: 1, Do: func(ctx context.Context, v *testserver.FaultTarget) error {
					struck = true
					return effect(ctx, v)
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
