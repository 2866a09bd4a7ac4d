package prover

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

// profiles are the servers that programs are run against.
var profiles = []testserver.Profile{
	testserver.Strict(), testserver.SwanLake(), testserver.GizmoSQL(), testserver.Dremio(),
	testserver.Doris(), testserver.ClickHouse(), testserver.InfluxDB(),
	gizmoSQLAsItEnds(),
	// What no product above does, but a server may.
	variant("side-by-side", func(p *testserver.Profile) { p.SideBySide, p.IgnoreRPCCancel = true, true }),
	variant("uncancellable", func(p *testserver.Profile) {
		p.SideBySide, p.IgnoreRPCCancel = true, true
		p.Refuse = map[string]codes.Code{"CancelFlightInfo": codes.Unimplemented, "CancelQuery": codes.Unimplemented}
	}),
	variant("failures-do-not-abort", func(p *testserver.Profile) { p.FailuresDoNotAbort = true }),
	variant("forgiving", func(p *testserver.Profile) {
		p.UnknownTxOK, p.AbortedCommitOK, p.IgnoreTxID, p.CountedIDs, p.SideBySide, p.SessionTTL = true, true, true, true, true, 45*time.Minute
	}),
	variant("cookie", func(p *testserver.Profile) {
		p.SessionKey, p.FreshCookie, p.CountedIDs, p.SessionTTL = testserver.ByCookie, true, true, 45*time.Minute
	}),
	variant("in-parts", func(p *testserver.Profile) {
		p.Endpoints, p.Run, p.RenewHandles, p.Polls, p.PollEvery = 3, testserver.RunInInfo, true, 3, 100*time.Millisecond
	}),
	swanLakeAtOneAddress(), // last: programs are made for it where they ask for it
}

// swanLakeAtOneAddress is SwanLake whose connections come from one address and port, one after the other.
func swanLakeAtOneAddress() testserver.Profile {
	p := testserver.SwanLake()
	p.Name, p.SessionKey = "swanlake-address", testserver.ByPeerIP
	return p
}

// gizmoSQLAsItEnds is GizmoSQL with what it does of transactions: it goes by the session, whatever
// id a request names.
func gizmoSQLAsItEnds() testserver.Profile {
	p := testserver.GizmoSQL()
	p.Name = "gizmosql-ends"
	p.IgnoreTxID, p.EndsAnyTx, p.AbortedCommitOK, p.SessionTTL = true, true, true, 45*time.Minute
	p.Refuse = map[string]codes.Code{"BeginSavepoint": codes.Unimplemented, "EndSavepoint": codes.Unimplemented, "PollFlightInfo": codes.Unimplemented}
	return p
}

// losesUnseen reports whether a server does not tell by the ids of transactions that it has replaced
// the session.
func losesUnseen(p testserver.Profile) bool { return p.UnknownTxOK || p.EndsAnyTx }

// variant is the strict profile with a difference.
func variant(name string, change func(*testserver.Profile)) testserver.Profile {
	p := testserver.Strict()
	p.Name = name
	change(&p)
	return p
}

func profileOf(name string) (testserver.Profile, error) {
	for _, p := range profiles {
		if p.Name == name {
			return p, nil
		}
	}
	return testserver.Profile{}, fmt.Errorf("no profile %q", name)
}

// generator makes the program of one seed.
type generator struct {
	*rand.Rand
	profile  testserver.Profile
	calm     bool // no faults
	mixed    bool // some steps are carried out beside others
	last     int64
	held     map[string]bool // actors with a session
	inTx     map[string]bool
	ready    map[string]bool // actors with a prepared statement
	only     string          // the actor of all sessions; empty: several
	favoured []string        // verbs
}

// rare are the verbs of which a program has some more often than others: what goes wrong with a few together
// is found where there are few.
var rare = []string{
	"execute", "args", "keep", "alter", "returned", "create", "replace", "fill", "bulk", "each", "ingest", "feed", "burst", "batch", "read", "rows",
	"slow", "keepslow", "run", "run", "decoy", "prealter", "unprepare", "preread", "meta", "watch", "ping", "open", "save", "back", "clash", "aside",
	"bad", "typo", "badalter", "set", "temp", "use", "option", "with", "panic", "twin", "closing", "begin", "commit", "reset", "idle", "resize",
}

// focus has the program favour some verbs, and perhaps one actor.
func (g *generator) focus() {
	if g.IntN(2) == 0 {
		g.only = "a"
	}
	for range 1 + g.IntN(4) {
		g.favoured = append(g.favoured, rare[g.IntN(len(rare))])
	}
}

// next is one step or some, every other time with one of the favoured verbs if one is drawn soon.
func (g *generator) next() []step {
	wanted := len(g.favoured) > 0 && g.IntN(2) == 0
	for tries := 0; ; tries++ {
		held, inTx, ready := maps.Clone(g.held), maps.Clone(g.inTx), maps.Clone(g.ready)
		steps := g.step()
		if !wanted || tries == 100 || slices.ContainsFunc(steps, func(s step) bool { return slices.Contains(g.favoured, s.verb) }) {
			if !g.calm && g.IntN(6) == 0 {
				steps = g.aim(steps)
			}
			return steps
		}
		g.held, g.inTx, g.ready = held, inTx, ready
	}
}

// rpcOf are the RPCs that a step is likely to make.
var rpcOf = map[string][]string{
	"begin": {"BeginTransaction"}, "commit": {"EndTransaction"}, "rollback": {"EndTransaction"}, "close": {"EndTransaction", "CloseSession", "ClosePreparedStatement"},
	"save": {"BeginSavepoint"}, "back": {"EndSavepoint"}, "free": {"EndSavepoint"},
	"prepare": {"CreatePreparedStatement"}, "run": {"DoPut", "CreatePreparedStatement", "ClosePreparedStatement"}, "unprepare": {"ClosePreparedStatement"},
	"insert": {"DoPut"}, "alter": {"DoPut"}, "clash": {"DoPut"}, "bulk": {"DoPut", "CreatePreparedStatement"}, "each": {"DoPut", "CreatePreparedStatement"}, "args": {"DoPut", "CreatePreparedStatement"},
	"ingest": {"DoPut"}, "create": {"DoPut"}, "replace": {"DoPut"}, "fill": {"DoPut"}, "set": {"DoPut"}, "temp": {"DoPut"}, "use": {"DoPut"},
	"execute": {"DoPut", "DoGet"}, "returned": {"GetFlightInfo", "DoGet"}, "read": {"GetFlightInfo", "DoGet"}, "rows": {"GetFlightInfo", "DoGet"}, "open": {"GetFlightInfo", "DoGet"},
	"slow": {"GetFlightInfo", "DoGet"}, "option": {"SetSessionOptions"}, "keep": {"DoPut"}, "feed": {"DoPut"}, "twin": {"DoPut"}, "unmake": {"DoPut"},
	"aside": {"DoPut"}, "batch": {"DoPut", "GetFlightInfo", "DoGet"}, "with": {"BeginTransaction", "DoPut", "EndTransaction"}, "meta": {"GetFlightInfo", "DoGet"},
	"watch": {"PollFlightInfo", "DoGet"}, "decoy": {"CreatePreparedStatement"}, "prealter": {"DoPut"}, "preread": {"CreatePreparedStatement", "GetFlightInfo", "DoGet", "ClosePreparedStatement"},
}

// aim has one of the steps go wrong in an RPC of its own, which random faults seldom meet.
func (g *generator) aim(steps []step) []step {
	at := g.IntN(len(steps))
	rpcs := rpcOf[steps[at].verb]
	if rpcs == nil {
		return steps
	}
	if (steps[at].verb == "alter" || steps[at].verb == "prealter") && g.IntN(2) == 0 { // between its steps, before its change and behind it
		steps[at].within, steps[at].cut = 0, 0
		steps = slices.Insert(steps, at, step{verb: "limit", args: []string{"in", g.pick("1s", "3s")}})
		if g.IntN(3) == 0 { // and what is sent then fails
			steps = slices.Insert(steps, at+2, step{verb: "fault", args: []string{"fail", "DoPut", "before", g.pick("Internal", "FailedPrecondition", "Unavailable"), "0"}})
		}
		return steps
	}
	if g.IntN(4) == 0 {
		return slices.Insert(steps, at, g.answer(g.pick(rpcs...)))
	}
	fault := g.fault()
	for fault.args[0] == "truncate" || fault.args[1] == "connect" || fault.args[1] == "session" || fault.args[0] == "evict" && losesUnseen(g.profile) { // which are for other points
		fault = g.fault()
	}
	fault.args[1], fault.args[4] = g.pick(rpcs...), g.pick("0", "0", "0", "1")
	if (fault.args[0] == "delay" || fault.args[0] == "freeze") && steps[at].verb != "close" {
		steps[at].within, _ = time.ParseDuration(g.pick("20ms", "300ms", "3s"))
		steps[at].cut = 0
	}
	return slices.Insert(steps, at, fault)
}

// answer has an RPC answered by a status that servers and proxies give for what they have lost the sight of, when it is
// done as well. Those that name a reason are faults that come before.
func (g *generator) answer(rpc string) step {
	code, text := g.pick("Internal", "Internal", "Unknown", "Canceled", "DeadlineExceeded", "ResourceExhausted", "Unavailable", "DataLoss"), g.pick("none", "loss")
	if g.IntN(4) == 0 { // of HTTP, in place of the server's answer
		code, text = g.pick("Unavailable", "Unimplemented", "PermissionDenied", "Unauthenticated", "Internal"), "page"
	}
	return step{verb: "answer", args: []string{code, rpc, g.pick("before", "after", "after"), g.pick("0", "0", "1"), g.pick("1", "1", "2"), text}}
}

func generate(seed uint64) program {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), held: map[string]bool{}, inTx: map[string]bool{}, ready: map[string]bool{}}
	// Servers with transactions have more to lose.
	weighted := []int{0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11, 11, 12, 13}
	g.profile = profiles[weighted[g.IntN(len(weighted))]]
	if only, err := profileOf(os.Getenv("PROVE_PROFILE")); err == nil {
		g.profile = only
	}
	g.calm, g.mixed = g.IntN(3) == 0, g.IntN(3) == 0
	p := program{profile: g.profile.Name, auth: "none", max: 1 + g.IntN(3), min: g.IntN(3) - 1}
	if g.profile.SessionKey == testserver.ByBearer {
		p.auth = g.pick("basic", "token")
		if g.profile.EndsAnyTx { // its sessions cannot be shared: one's transaction would take in what the others change
			p.auth = "basic"
		}
	}
	if p.auth == "token" {
		p.max = 1 // its connections share a token, and so one session there
	}
	p.min = min(p.min, p.max)
	// A check of each connection every 30s is most of the work of an hour.
	p.check, _ = time.ParseDuration(g.pick("30s", "-1s", "10m", "10m"))
	if g.IntN(4) > 0 {
		g.focus()
	}
	for n := 4 + g.IntN(14); len(p.steps) < n; {
		p.steps = append(p.steps, g.next()...)
	}
	for i := range p.steps {
		p.steps[i].beside = g.mixed && p.steps[i].concerns() && g.IntN(4) == 0
	}
	if g.profile.SessionKey != testserver.ByCall && g.IntN(3) == 0 { // drawn last: the rest of a seed's program is the same without
		p.prepare = g.pick("plain", "begun", "row", "prepared")
		for at := g.IntN(2 * len(p.steps)); at < len(p.steps); at++ {
			if who := p.steps[at].who; p.steps[at].verb == "acquire" { // to be given back, and seen to
				p.steps = slices.Insert(p.steps, at+1, step{who: who, verb: "unmake"}, step{who: who, verb: "close"}, step{verb: "look"}, step{who: who, verb: "acquire"})
				break
			}
		}
	}
	if b := g.pick("", "grpc", "open", "new"); hasBackend(g.profile, b) {
		p.backend = b
	}
	if only := os.Getenv("PROVE_BACKEND"); only != "" && hasBackend(g.profile, only) {
		p.backend = only
	}
	if !g.calm && g.IntN(3) == 0 {
		restart := step{verb: "restart"}
		if g.IntN(3) > 0 {
			restart = g.fault()
			restart.args[0], restart.args[3] = "restart", "-"
		}
		p.steps = slices.Insert(p.steps, g.IntN(len(p.steps)), restart)
	}
	if (p.backend == "" || p.backend == "grpc") && g.IntN(2) == 0 {
		p.keeps = 1 + g.IntN(4)
		for range 3 + g.IntN(8) {
			find := g.deadline(step{verb: "find", args: []string{g.key(), g.pick("1", "2", "3", "4")}})
			find.beside = g.mixed && g.IntN(4) == 0
			p.steps = slices.Insert(p.steps, g.IntN(len(p.steps)+1), find)
		}
		if at := g.IntN(len(p.steps)); g.IntN(3) == 0 { // a session that counts its handles begins anew
			for _, text := range []string{g.pick("1", "2"), g.pick("3", "4"), "", g.pick("1", "2"), g.pick("3", "4"), g.pick("1", "2", "3", "4")} {
				again := step{verb: "evict"}
				if text != "" {
					again = step{verb: "find", args: []string{g.key(), text}}
				}
				p.steps = slices.Insert(p.steps, at, again)
				at++
			}
		}
	}
	if p.backend == "new" && !g.calm && p.prepare != "" {
		g.redials(&p)
	}
	if p.backend == "new" && !g.calm && g.IntN(4) == 0 {
		g.redialsIn(&p)
	}
	if g.IntN(6) == 0 {
		p.reset = g.pick("discard", "none")
		if p.keeps > 0 { // not with none
			p.reset = "discard"
		}
	}
	if p.backend != "new" && p.reset == "" && g.IntN(3) == 0 { // settings of the whole server are put back by the default alone
		g.paints(&p)
	}
	if g.profile.SessionKey != testserver.ByBearer && p.backend != "new" && g.IntN(8) == 0 {
		g.sources(&p)
	}
	if p.reset == "" && p.users == 0 && g.profile.SessionKey != testserver.ByCall && g.IntN(8) == 0 {
		p.reset = "sql"
	}
	if !g.calm && p.backend != "new" && g.IntN(4) == 0 { // whose driver's transport sends what is refused again, by itself
		g.refuses(&p)
	}
	if g.IntN(2) == 0 {
		g.options(&p)
	}
	skip := strings.Fields(os.Getenv("PROVE_SKIP"))
	if p.auth == "token" && g.profile.SessionKey == testserver.ByBearer && !g.calm {
		// Whoever has the token has the session, also in the transaction that these leave when their connection breaks.
		skip = append(skip, "alter", "prealter", "badalter")
	}
	if p.backend == "new" && g.profile.ByText && g.calm {
		skip = append(skip, "alter", "prealter", "badalter") // which fail where the backend prepares them: the server has made the column by then
	}
	p.steps = slices.DeleteFunc(p.steps, func(s step) bool { return slices.Contains(skip, s.verb) })
	if g.IntN(2) == 0 { // else what goes wrong goes on until the pool is closed
		p.steps = append(p.steps, step{verb: "recover"})
	}
	return p
}

// updateRPCs is how many RPCs an update behind OnConnect has at most, over a driver that is
// known to dial again.
const updateRPCs = 12

// pathOf are the RPCs of HTTP's path that a step is likely to make.
func pathOf(verb string) []string {
	var all []string
	for _, rpc := range rpcOf[verb] {
		switch rpc {
		case "GetFlightInfo", "DoGet", "DoPut", "PollFlightInfo":
		default:
			rpc = "DoAction"
		}
		all = append(all, rpc)
	}
	return all
}

// refuses has streams refused: those of some steps, or any.
func (g *generator) refuses(p *program) {
	for range 1 + g.IntN(3) {
		at := g.IntN(len(p.steps) + 1)
		rpcs := []string{"any", "DoAction", "DoPut", "DoGet", "GetFlightInfo"}
		if at < len(p.steps) && g.IntN(3) > 0 {
			if likely := pathOf(p.steps[at].verb); likely != nil {
				rpcs = likely
			}
		}
		p.steps = slices.Insert(p.steps, at, step{verb: "refuse", args: []string{g.pick(rpcs...), g.pick("before", "after", "after"), g.pick("0", "0", "1", "2")}})
	}
}

// options has some calls made with QueryOptions, and contexts end for what has ended others.
func (g *generator) options(p *program) {
	kinds := append(slices.Sorted(maps.Keys(causes)), "last", "last", "last")
	for i := range p.steps {
		s := &p.steps[i]
		if s.within > 0 || s.cut > 0 {
			if g.IntN(2) == 0 {
				s.caused = g.pick(kinds...)
			}
		}
		if !takesOptions[s.verb] {
			continue
		}
		switch g.IntN(10) {
		case 0, 1:
			s.limit, _ = time.ParseDuration(g.pick("1ms", "20ms", "300ms", "3s", "40s"))
		case 2:
			s.kept = true
		case 3:
			s.headed = true
		}
	}
}

// redials has the driver dial again within updates.
func (g *generator) redials(p *program) {
	for range 1 + g.IntN(3) {
		at := g.IntN(len(p.steps) + 1)
		again := step{verb: "redial", args: []string{strconv.Itoa(g.IntN(updateRPCs))}}
		p.steps = slices.Insert(p.steps, at, again, step{verb: g.pick("insert", "execute", "args", "keep"), args: []string{g.key()}})
	}
}

// redialsIn has the driver dial again within sessions that have something to lose.
func (g *generator) redialsIn(p *program) {
	for range 1 + g.IntN(3) {
		who := g.pick("a", "b", "c")
		again := step{verb: "redial", args: []string{strconv.Itoa(g.IntN(updateRPCs))}}
		steps := []step{{who: who, verb: "acquire"}, {who: who, verb: g.pick("set", "use", "temp", "begin")}, again}
		steps = slices.Insert(steps, 1+g.IntN(3), step{who: who, verb: g.pick("begin", "use", "set", "insert"), args: []string{g.key()}})
		if g.IntN(3) == 0 {
			steps = g.keptOverRedial(who, again)
		}
		steps = append(steps, step{who: who, verb: g.pick("insert", "set", "use", "commit", "rollback", "read", "close"), args: []string{g.key(), "7", "3", "all"}}, step{who: who, verb: g.pick("close", "commit", "insert"), args: []string{g.key()}}, step{verb: "look"})
		p.steps = slices.Insert(p.steps, g.IntN(len(p.steps)+1), steps...)
	}
}

// keptOverRedial keeps statements from before the driver dials again beside those from behind it.
func (g *generator) keptOverRedial(who string, again step) []step {
	steps := []step{{who: who, verb: "acquire"}, {who: who, verb: "prepare"}, again}
	for range 2 + g.IntN(5) {
		steps = append(steps, step{who: who, verb: g.pick("decoy", "decoy", "decoyread", "begin", "commit", "insert", "run"), args: []string{g.key()}})
	}
	return append(steps, step{who: who, verb: "run", args: []string{g.key()}}, step{who: who, verb: "run", args: []string{g.key()}})
}

func (g *generator) pick(words ...string) string { return words[g.IntN(len(words))] }

func (g *generator) key() string {
	g.last++
	return strconv.FormatInt(g.last, 10)
}

// keys is the first of n.
func (g *generator) keys(n int64) string {
	first := g.last + 1
	g.last += n
	return strconv.FormatInt(first, 10)
}

// step makes one step, or some that belong together.
func (g *generator) step() []step {
	switch n := g.IntN(100); {
	case n < 20:
		return []step{g.stateless()}
	case n < 30:
		return []step{{verb: "sleep", args: []string{g.pick("1ms", "100ms", "1s", "31s", "61s", "4m", "16m", "21m", "31m", "70m", "3h")}}}
	case n < 46 && !g.calm:
		return []step{g.fault()}
	case n < 50 && !g.calm:
		return []step{g.event()}
	case n < 53:
		return []step{g.owner()}
	default:
		return g.session()
	}
}

// concerns reports whether the step is a call, of which others may be beside.
func (s step) concerns() bool {
	switch s.verb {
	case "fault", "kill", "goaway", "evict", "expire", "restart", "reset", "idle", "resize", "closing", "redial", "renew", "source", "limit", "recover", "refuse":
		return false
	default:
		return true
	}
}

// owner is what the owner of the pool does beside all that.
func (g *generator) owner() step {
	if g.IntN(3) == 0 && g.profile.SessionKey != testserver.ByBearer { // see the size with tokens
		return step{verb: "resize", args: []string{g.pick("1", "2", "5")}}
	}
	return step{verb: g.pick("reset", "idle")}
}

// deadline gives some calls one that may come too early.
func (g *generator) deadline(s step) step {
	limit, _ := time.ParseDuration(g.pick("1ms", "20ms", "300ms", "3s", "40s"))
	switch g.IntN(10) {
	case 0:
		s.within = limit
	case 1:
		s.cut = limit
	}
	return s
}

func (g *generator) stateless() step {
	switch g.IntN(13) {
	case 12:
		return g.shape("")
	case 11:
		return g.deadline(step{verb: g.pick("alter", "returned"), args: []string{g.key()}})
	case 10:
		return g.load("")
	case 9:
		return g.batch("")
	case 7:
		n := int64(2 + g.IntN(5))
		return step{verb: "burst", args: []string{g.keys(n), strconv.FormatInt(n, 10)}}
	case 8:
		n := int64(1 + g.IntN(3))
		return g.deadline(step{verb: "ingest", args: []string{g.keys(n), strconv.FormatInt(n, 10)}})
	case 0, 1:
		return g.deadline(step{verb: g.pick("insert", "execute", "args", "keep"), args: []string{g.key()}})
	case 2:
		n := int64(1 + g.IntN(3))
		return g.deadline(step{verb: g.pick("bulk", "each"), args: []string{g.keys(n), strconv.FormatInt(n, 10)}})
	case 3, 4:
		return g.deadline(g.read())
	case 5:
		return g.deadline(step{verb: g.pick("slow", "slow", "keepslow"), args: []string{g.key(), g.pick("100ms", "2s", "1m", "20m")}})
	default:
		return step{verb: "look"}
	}
}

// batch is of some statements on one session.
func (g *generator) batch(who string) step {
	n := int64(1 + g.IntN(3))
	return g.deadline(step{who: who, verb: "batch", args: []string{g.keys(n), strconv.FormatInt(n, 10), g.pick("ok", "ok", "bad", "error", "panic")}})
}

// shape reads rows as a program may want them.
func (g *generator) shape(who string) step {
	s := step{who: who, verb: "rows", args: []string{g.key(), g.pick("0", "1", "2", "7", "100", "3000"), g.pick("1", "3", "100")}}
	s.args = append(s.args, g.pick("row", "row", "one", "collect", "each", "break", "return", "panic"))
	return g.deadline(s)
}

// load is an ingest into a table that it creates or replaces.
func (g *generator) load(who string) step {
	n := int64(1 + g.IntN(3))
	return g.deadline(step{who: who, verb: g.pick("create", "replace"), args: []string{g.keys(n), strconv.FormatInt(n, 10)}})
}

// read is of rows in batches, of which some are taken.
func (g *generator) read() step {
	take := "all"
	if g.IntN(3) == 0 {
		take = strconv.Itoa(g.IntN(4))
	}
	return step{verb: "read", args: []string{g.key(), g.pick("0", "1", "7", "100"), g.pick("1", "3", "100"), take}}
}

func (g *generator) session() []step {
	who := cmp.Or(g.only, g.pick("a", "a", "b", "c"))
	act := func(verb string, args ...string) step { return g.deadline(step{who: who, verb: verb, args: args}) }
	if !g.held[who] {
		g.held[who] = true
		steps := []step{act("acquire")}
		if g.IntN(2) == 0 {
			steps = append(steps, step{who: who, verb: "look"})
		}
		return steps
	}
	if g.inTx[who] {
		return g.transaction(who)
	}
	switch g.IntN(33) {
	case 32: // of nothing
		return []step{act(g.pick("commit", "rollback", "save", "back")), act("insert", g.key())}
	case 0, 1, 2, 3, 4, 16, 17, 18, 19, 20:
		g.inTx[who] = true
		return []step{act("begin"), act(g.pick("insert", "insert", "clash"), g.key())}
	case 5, 6, 21, 22:
		return []step{act("insert", g.key())}
	case 7, 8, 23, 24:
		g.held[who], g.ready[who] = false, false
		return []step{{who: who, verb: "close"}}
	case 9, 25:
		s := g.read()
		s.who = who
		return []step{g.deadline(s)}
	case 10, 26:
		left := []step{act(g.pick("set", "temp", "use")), act("insert", g.key())}
		if g.IntN(2) == 0 { // to be seen by the next borrower, unless it is taken back
			g.held[who], g.ready[who] = false, false
			left = append(left, step{who: who, verb: "close"}, step{verb: "look"})
		}
		return left
	case 11, 27:
		return []step{act("with", g.keys(2), g.pick("ok", "ok", "error", "panic", "result"))}
	case 12, 28:
		n := int64(1 + g.IntN(3))
		return []step{act(g.pick("bulk", "each"), g.keys(n), strconv.FormatInt(n, 10))}
	default:
		return g.either(who)
	}
}

// transaction is a step inside one.
func (g *generator) transaction(who string) []step {
	act := func(verb string, args ...string) step { return g.deadline(step{who: who, verb: verb, args: args}) }
	if g.profile.AppendTo != "" && g.IntN(4) == 0 {
		return g.beside(who)
	}
	switch g.IntN(16) {
	case 15:
		return []step{act("begin"), act("insert", g.key())}
	case 14: // which rolls it back
		g.held[who], g.inTx[who], g.ready[who] = false, false, false
		return []step{{who: who, verb: "close"}, {verb: "look"}}
	case 10:
		return []step{act("aside"), act("insert", g.key())}
	case 0, 1, 2:
		return []step{act("insert", g.key())}
	case 3:
		return []step{act("clash", g.key())}
	case 4, 5, 6, 7:
		g.inTx[who] = false
		return []step{act(g.pick("commit", "commit", "commit", "rollback"))}
	case 9:
		return g.savepoint(who)
	case 8: // for the session's age
		return []step{act("slow", g.key(), g.pick("16m", "21m", "31m")), act("insert", g.key())}
	default:
		return g.either(who)
	}
}

// savepoint goes back to one, also after what fails or is cut.
func (g *generator) savepoint(who string) []step {
	act := func(verb string, args ...string) step { return g.deadline(step{who: who, verb: verb, args: args}) }
	steps := []step{act("save"), act("insert", g.key())}
	if g.IntN(2) == 0 {
		inner := []step{act("save", g.pick("s", "s", "inner"))}
		if !g.calm && g.IntN(2) == 0 {
			inner = g.aim(inner)
		}
		steps = append(append(steps, inner...), act("insert", g.key()))
	}
	switch g.IntN(8) {
	case 0:
		steps = append(steps, act("bad"))
	case 1:
		steps = append(steps, step{who: who, verb: "slow", args: []string{g.key(), "1m"}, within: 300 * time.Millisecond})
	case 2:
		steps = append(steps, act("ingest", g.keys(2), "2"))
	case 3:
		steps = append(steps, act("bulk", g.keys(2), "2"))
	case 4:
		steps = append(steps, act("option"))
	default:
	}
	for range g.IntN(3) {
		steps = append(steps, act(g.pick("back", "free"), g.pick("s", "inner")), act("insert", g.key()))
	}
	return append(steps, act("back"), act("insert", g.key()))
}

// beside changes a second catalog, for which some servers leave the transaction, and
// goes on until something fails, is cut or gets no answer.
func (g *generator) beside(who string) []step {
	act := func(verb string, args ...string) step { return step{who: who, verb: verb, args: args} }
	cut := func(s step) step {
		s.within, _ = time.ParseDuration(g.pick("1ms", "20ms", "300ms", "3s"))
		return s
	}
	steps := []step{act("aside"), act(g.pick("insert", "execute"), g.key())}
	if g.IntN(3) == 0 {
		steps = append([]step{act("insert", g.key())}, steps...)
	}
	if g.IntN(3) == 0 && !g.calm {
		steps = append(steps, step{verb: "fault", args: []string{g.pick("delay", "fail"), "EndTransaction", "after", "", g.pick("0", "0", "1")}})
		fault := steps[len(steps)-1].args
		if fault[3] = "Unavailable"; fault[0] == "delay" {
			fault[3] = g.pick("500ms", "4s", "50s")
		}
	}
	switch g.IntN(8) {
	case 0, 1:
		steps = append(steps, act(g.pick("bad", "typo")))
	case 2, 3:
		steps = append(steps, cut(act("slow", g.key(), g.pick("100ms", "2s", "4s", "1m"))))
	case 4:
		steps = append(steps, cut(act(g.pick("insert", "clash"), g.key())))
	case 5:
		steps = append(steps, cut(act(g.pick("bulk", "ingest", "each"), g.keys(3), "3")))
	case 6:
		steps = append(steps, act("panic", g.key()))
	default:
	}
	switch g.IntN(4) {
	case 0:
		g.inTx[who] = false
		steps = append(steps, act("commit"))
	case 1: // and again, if that has failed
		g.inTx[who] = false
		steps = append(steps, cut(act(g.pick("commit", "rollback"))), act(g.pick("commit", "rollback")))
	default:
	}
	return steps
}

// either is a step inside a transaction or outside.
func (g *generator) either(who string) []step {
	act := func(verb string, args ...string) step { return g.deadline(step{who: who, verb: verb, args: args}) }
	switch g.IntN(25) {
	case 24:
		return []step{act("twin", g.keys(2)), act("insert", g.key())}
	case 23:
		left := []step{act("fill")}
		if !g.inTx[who] {
			g.held[who], g.ready[who] = false, false
			left = append(left, step{who: who, verb: "close"}, step{verb: "look"})
		}
		return left
	case 22:
		return []step{g.load(who)}
	case 21:
		return []step{act("returned", g.key())}
	case 20:
		alter := act("alter", g.key())
		if g.IntN(2) == 0 { // between two of its steps
			alter.within, _ = time.ParseDuration(g.pick("20ms", "300ms", "2500ms"))
			alter.cut = 0
		}
		return []step{alter, act("insert", g.key())}
	case 19:
		return []step{g.shape(who), act("insert", g.key())}
	case 18:
		return []step{g.batch(who)}
	case 12, 13:
		return g.hold(who)
	case 14:
		quiet, read := act(g.pick("meta", "preread", "watch", "ping", "unprepare"), g.key()), g.read()
		if g.ready[who] = g.ready[who] && quiet.verb != "unprepare"; g.IntN(2) == 0 {
			return []step{quiet}
		}
		read.who = who
		leave := step{who: who, verb: g.pick("set", "temp")}
		return []step{leave, {verb: "sleep", args: []string{g.pick("1ms", "21m", "3h")}}, quiet, read}
	case 15:
		n := int64(1 + g.IntN(4))
		return []step{act("feed", g.keys(n), strconv.FormatInt(n, 10), g.pick("0s", "10ms", "2s", "4m"), g.pick("all", "all", "fail"))}
	case 16:
		return []step{act(g.pick("keep", "args"), g.key())}
	case 17:
		switch g.IntN(4) {
		case 0:
			return []step{act("closing", g.pick("1ms", "20ms", "300ms", "3s"))}
		default:
			return []step{act("keepslow", g.key(), g.pick("100ms", "2s", "16m"))}
		}
	case 11:
		return []step{act(g.pick("option", "returning")), act("insert", g.key())}
	case 9:
		n := int64(1 + g.IntN(3))
		return []step{act("ingest", g.keys(n), strconv.FormatInt(n, 10))}
	case 0, 1, 2:
		if g.ready[who] {
			return []step{act("run", g.key())}
		}
		g.ready[who] = true
		return []step{act("prepare"), act("run", g.key())}
	case 3:
		if g.IntN(4) == 0 {
			return []step{act("prealter", g.key()), act("insert", g.key())}
		}
		return []step{act(g.pick("decoy", "decoyread"))}
	case 4:
		return []step{act("slow", g.key(), g.pick("100ms", "40s", "16m"))}
	case 5:
		return []step{act(g.pick("bad", "typo", "badalter")), act("insert", g.key())}
	case 6:
		return []step{act("panic", g.key())}
	case 7:
		return []step{{who: who, verb: "look"}}
	case 8:
		n := int64(1 + g.IntN(3))
		return []step{act(g.pick("bulk", "each"), g.keys(n), strconv.FormatInt(n, 10))}
	default:
		s := g.read()
		s.who = who
		return []step{g.deadline(s)}
	}
}

// hold opens a result, does something beside it, and lets it go or reads it.
func (g *generator) hold(who string) []step {
	act := func(verb string, args ...string) step { return step{who: who, verb: verb, args: args} }
	steps := []step{g.deadline(act("open", g.key(), g.pick("0", "1", "7", "100", "3000"), g.pick("1", "3", "100")))}
	for g.IntN(3) > 0 {
		switch g.IntN(6) {
		case 0:
			steps = append(steps, act("insert", g.key()))
		case 1:
			steps = append(steps, act(g.pick("commit", "rollback")))
		case 2:
			steps = append(steps, step{verb: "sleep", args: []string{g.pick("1ms", "1s", "31s", "16m", "3h")}})
		default:
			steps = append(steps, act("next"))
		}
	}
	switch g.IntN(4) {
	case 0:
		return steps // until something else ends it
	default:
		return append(steps, act(g.pick("drop", "finish")))
	}
}

// event is what happens to the whole server now.
func (g *generator) event() step {
	verbs := []string{"kill", "goaway", "kill", "limit"}
	if !losesUnseen(g.profile) {
		// Where a session's loss can be seen by its ids. Others lose them by
		// idleness only.
		verbs = append(verbs, "evict")
	}
	if g.profile.SessionKey == testserver.ByBearer {
		verbs = append(verbs, "expire")
	}
	s := step{verb: g.pick(verbs...)}
	if g.IntN(3) == 0 {
		s.args = []string{"in", g.pick("1ms", "50ms", "1s", "30s")}
	}
	return s
}

// fault is what goes wrong once, at the next call that fits.
func (g *generator) fault() step {
	point := g.pick("connect", "session", "statement", "statement", "batch", "Handshake", "GetFlightInfo", "DoGet", "DoPut", "DoPut",
		"BeginTransaction", "EndTransaction", "EndTransaction", "EndTransaction", "CreatePreparedStatement", "CancelFlightInfo", "CloseSession",
		"ClosePreparedStatement", "BeginSavepoint", "EndSavepoint", "SetSessionOptions", "GetSessionOptions", "PollFlightInfo", "RenewFlightEndpoint", "CancelQuery")
	after := g.IntN(2) == 0 && point != "connect" && point != "session" && point != "batch"
	effects := []string{"kill", "kill", "delay", "fail", "freeze", "goaway"}
	if !losesUnseen(g.profile) || after && slices.Contains([]string{"DoPut", "BeginTransaction", "EndTransaction"}, point) {
		effects = append(effects, "evict") // elsewhere it may come between a proof and what follows that, unseen: see package session
	}
	if point == "batch" {
		effects = append(effects, "truncate")
	}
	s := step{verb: "fault", args: []string{g.pick(effects...), point}}
	if after {
		s.args = append(s.args, "after")
	} else {
		s.args = append(s.args, "before")
	}
	switch s.args[0] {
	case "delay":
		s.args = append(s.args, g.pick("10ms", "500ms", "4s", "50s", "17m"))
	case "fail":
		code := "Unavailable" // what was done may be told so, and by no other code
		if !after {
			code = g.pick("Unavailable", "Internal", "ResourceExhausted", "Unauthenticated", "FailedPrecondition", "InvalidArgument")
		}
		s.args = append(s.args, code)
	default:
		s.args = append(s.args, "-")
	}
	s.args = append(s.args, strconv.Itoa(max(0, g.IntN(4)-1))) // skip
	return s
}
