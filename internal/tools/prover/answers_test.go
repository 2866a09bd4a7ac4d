package prover

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// answers stand between the pool and the server, as a proxy does, and replace what
// the server answers to RPCs by a status of their own: before the server has heard
// of an RPC, or when it is through with it.
type answers struct {
	mu      sync.Mutex // guards what follows
	rpcs    []string   // since the start
	story   []string   // of these, until clear
	set     []*answer
	headers *headers
	token   func() string // gives the token that comes with the next reply, nil for none
}

// answer is one such status. It is the text of a step: answer CODE POINT
// before|after SKIP TIMES TEXT.
type answer struct {
	code  codes.Code
	point string // an RPC or action, or any
	after bool
	skip  int // so many pass before it is given
	times int // so often it is given in turn
	text  string
	late  time.Duration // the server's own answer, or its work, comes so much later: code is OK
}

// answerTexts are what may be said with a status.
var answerTexts = map[string]string{
	"none":    "",
	"refusal": "TransactionContext Error: cannot do that: conflict, rolled back",
	"loss":    "connection reset by peer",
	"page":    "unexpected HTTP status code received from server: of a proxy's own page",
}

var codeNames = func() map[string]codes.Code {
	all := map[string]codes.Code{}
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		all[c.String()] = c
	}
	return all
}()

// answerOf reads the step.
func answerOf(s step) *answer {
	code, known := codeNames[s.arg(0)]
	text, spoken := answerTexts[s.arg(5)]
	if late := s.duration(5); late > 0 && code == codes.OK {
		return &answer{point: s.arg(1), after: s.arg(2) == "after", skip: int(s.num(3)), times: int(s.num(4)), late: late}
	}
	if !known || !spoken {
		panic(fmt.Sprintf("no answer %q", s))
	}
	return &answer{code: code, point: s.arg(1), after: s.arg(2) == "after", skip: int(s.num(3)), times: int(s.num(4)), text: text}
}

// hit counts an RPC, and returns the answer that it gets instead of the server's.
func (a *answers) hit(name string) *answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rpcs = append(a.rpcs, name)
	for _, one := range a.set {
		switch {
		case one.times == 0, one.point != "any" && one.point != name:
		case one.skip > 0:
			one.skip--
		default:
			one.times--
			return one
		}
	}
	return nil
}

// renew has the next reply bring a token.
func (a *answers) renew(token func() string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.token = token
}

// bring has a reply bring a token, if that is to come.
func (a *answers) bring(ctx context.Context) {
	a.mu.Lock()
	token := a.token
	a.token = nil
	a.mu.Unlock()
	if token != nil {
		_ = grpc.SetHeader(ctx, metadata.Pairs("authorization", token()))
	}
}

// clear takes back what was not given. The RPCs until then are what counts.
func (a *answers) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.set, a.story = nil, a.rpcs
}

func (a *answers) add(one *answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.set = append(a.set, one)
}

func (a *answer) err() error { return status.Error(a.code, a.text) }

// wait is the time that an answer is late, which the end of the RPC ends.
func (a *answer) wait(ctx context.Context) error {
	timer := time.NewTimer(a.late)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// unary handles an RPC with one request and one answer.
func (a *answer) unary(ctx context.Context, req any, handle grpc.UnaryHandler) (reply any, err error) {
	if a.after {
		reply, err = handle(ctx, req)
	}
	if a.late == 0 {
		return nil, a.err()
	}
	if ended := a.wait(ctx); ended != nil || a.after {
		return reply, cmp.Or(ended, err)
	}
	return handle(ctx, req)
}

func (a *answers) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			a.headers.see(ctx, path.Base(info.FullMethod))
			one := a.hit(path.Base(info.FullMethod))
			a.bring(ctx)
			if one == nil {
				return handle(ctx, req)
			}
			return one.unary(ctx, req, handle)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			s := &answeredStream{ServerStream: stream, answers: a, name: path.Base(info.FullMethod)}
			err := handle(srv, s)
			switch {
			case s.one == nil, s.one.late > 0 && (s.waited || !s.one.after):
			case s.one.late > 0:
				return cmp.Or(s.one.wait(stream.Context()), err)
			default:
				return s.one.err()
			}
			return err
		}),
	}
}

// answeredStream looks at the first message of the client's, which names the action.
type answeredStream struct {
	grpc.ServerStream
	answers *answers
	name    string
	begun   bool
	waited  bool // the first message of an answer that is late
	one     *answer
}

func (s *answeredStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if s.begun || err != nil {
		return err
	}
	s.begun = true
	if action, ok := m.(*flight.Action); ok {
		s.name = action.GetType()
	}
	s.answers.headers.see(s.Context(), s.name)
	s.one = s.answers.hit(s.name)
	s.answers.bring(s.Context())
	switch {
	case s.one == nil || s.one.after:
		return nil
	case s.one.late > 0:
		return s.one.wait(s.Context())
	default:
		return s.one.err()
	}
}

// SendMsg keeps the reply back, but for rows, of which the reader has some then.
func (s *answeredStream) SendMsg(m any) error {
	if s.one != nil && s.one.late == 0 && s.name != "DoGet" {
		return nil
	}
	if s.one != nil && s.one.after && s.one.late > 0 && !s.waited {
		s.waited = true
		if err := s.one.wait(s.Context()); err != nil {
			return err
		}
	}
	return s.ServerStream.SendMsg(m)
}

// stories are what sessions do, each followed by the next borrower.
var stories = []string{
	"a read 1 7 3 all; a insert 2",
	"read 1 7 3 all; insert 2; execute 3",
	"a prepare; a run 1; a run 2",
	"bulk 1 2",
	"a bulk 1 2",
	"a begin; a insert 1; a insert 2; a commit; a begin; a insert 3; a commit",
	"a begin; a insert 1; a rollback; a insert 2",
	"a begin; a insert 1; a close",
	"a with 1 ok; a insert 3",
	"a begin; a insert 1; a save; a insert 2; a back; a insert 3; a commit",
	"a temp; a insert 1; a close",
	"a begin; a temp; a insert 1; a rollback; a close",
	"a set; a insert 1; a close",
	"a use; a insert 1; a close",
	"a option; a insert 1; a close",
	"a ingest 1 2; ingest 3 1",
	"a begin; a bulk 1 2; a commit",
	"a returning 1; a close",
	"a begin; a insert 1; a aside; a insert 2; a commit; a begin; a insert 3; a commit",
	"a begin; a insert 1; a aside; a insert 2; a bad; a commit; a insert 3",
	"a begin; a aside; a args 1; a rollback; a insert 3",
	"a begin; a open 1 7 1; a next; a drop; a insert 1; a commit; a preread",
	"a begin; a insert 1; a save; a insert 2; a back; a rollback; a with 3 result; a insert 5",
	"a begin; a meta; a option; a watch 1; a insert 1; a commit",
	"a returning 1; a prepare; a run 2",
}

// storyProfiles are the servers of the table.
var storyProfiles = []string{"strict", "swanlake", "gizmosql", "dremio", "side-by-side"}

// namesItsReason reports whether a status says by itself that nothing was done. Who
// gives one of these after the fact says what is not so; the others are given by
// servers and proxies for what they have lost the sight of as well.
func namesItsReason(code codes.Code) bool {
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.FailedPrecondition,
		codes.Aborted, codes.OutOfRange, codes.Unimplemented, codes.Unauthenticated:
		return true
	default:
		return false
	}
}

// told is a story with an answer in it, nil for none.
func told(profile, story string, one *step) program {
	p := program{profile: profile, auth: "none", max: 1, min: -1, check: -1}
	if profile == "gizmosql" {
		p.auth = "basic"
	}
	if one != nil {
		p.steps = append(p.steps, *one)
	}
	p.steps = append(p.steps, step{who: "a", verb: "acquire"})
	if !strings.Contains(story, "a ") {
		p.steps = p.steps[:len(p.steps)-1]
	}
	late := one != nil && one.arg(0) == codes.OK.String()
	after := "a close; answers off; b acquire; b look; b insert 101; b begin; b insert 102; b commit; b insert 103; b close; look; insert 104"
	settled := false
	for text := range strings.SplitSeq(story+"; "+after, "; ") {
		s, err := parseStep(strings.Fields(text))
		if err != nil {
			panic(err)
		}
		if settled = settled || s.verb == "close"; late && !settled && s.verb != "acquire" {
			s.within = impatience
		}
		p.steps = append(p.steps, s)
	}
	return p
}

// impatience is the deadline of calls of which one is answered late.
const impatience = 200 * time.Millisecond

// TestWhatAnAnswerMeans answers each RPC of each story with each status, before and
// after its effect: what the calls told must be so, and the next borrower finds a
// session that has nothing of the last one's and answers. It takes some of them by
// PROVE_SEED, with PROVE all, shared by as many processes as one likes:
// PROVE_PART=1/2 is the second half. PROVE_ANSWERS=late has the late ones only.
func TestWhatAnAnswerMeans(t *testing.T) {
	seed, err := strconv.ParseUint(envOr("PROVE_SEED", "1"), 10, 64)
	require.NoError(t, err)
	part, parts := 0, 1
	if text := os.Getenv("PROVE_PART"); text != "" {
		_, err := fmt.Sscanf(text, "%d/%d", &part, &parts)
		require.NoError(t, err)
	}
	chance := rand.New(rand.NewPCG(seed, 2))
	whole := os.Getenv("PROVE") != ""
	done, broken, n := 0, 0, 0
	kinds := map[string]bool{}
	var found []violation
	for _, profile := range storyProfiles {
		for _, story := range stories {
			if !whole && chance.IntN(2) > 0 {
				continue
			}
			kindsOf := everyDelay()
			if os.Getenv("PROVE_ANSWERS") != "late" {
				kindsOf = append(kindsOf, everyAnswer()...)
			}
			rpcs := 0
			report := func(p program) {
				var w *world
				synctest.Test(t, func(t *testing.T) { w = inBubble(t, p) })
				if found, done = w.broken, done+1; p.steps[0].verb != "answer" {
					rpcs = len(w.answers.story)
				}
				if len(found) == 0 {
					return
				}
				broken++
				kind := profile + story + found[0].kind + p.steps[0].arg(0) + p.steps[0].arg(2)
				if !kinds[kind] {
					kinds[kind] = true
					t.Errorf("%s\n%s", found[0], p)
				}
			}
			report(told(profile, story, nil))
			for at := range rpcs {
				for _, one := range kindsOf {
					if one.arg(4) == "refusal" && profile == "swanlake" && strings.Contains(story, "a aside") {
						continue // a database that says so of a COMMIT has seen it: then the rollback's answer is no news
					}
					n++
					if whole && n%parts != part || !whole && chance.IntN(sampled) > 0 {
						continue
					}
					one.args = append(one.args[:3:3], append([]string{strconv.Itoa(at)}, one.args[3:]...)...)
					report(told(profile, story, &one))
				}
			}
		}
	}
	t.Logf("PROVE answers programs=%d violations=%d seed=%d", done, broken, seed)
}

// everyAnswer are the statuses that an RPC can get, as steps without the RPC. A
// reason that is named is given before the effect only, and speaks for itself.
func everyAnswer() (all []step) {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		for _, times := range []string{"1", "3"} {
			texts := []string{"none", "loss"}
			if namesItsReason(code) {
				texts = texts[:1]
			} else {
				for _, text := range texts {
					all = append(all, step{verb: "answer", args: []string{code.String(), "any", "after", times, text}})
				}
				texts = append(texts, "refusal")
			}
			for _, text := range texts {
				all = append(all, step{verb: "answer", args: []string{code.String(), "any", "before", times, text}})
			}
		}
	}
	return all
}

// everyDelay are answers that come late: within the grace of a cancel, within its budget,
// and after it, which a COMMIT waits for: shorter than a caller waits for a connection.
func everyDelay() (all []step) {
	for _, late := range []string{"300ms", "4s", "20s"} {
		for _, when := range []string{"before", "after"} {
			all = append(all, step{verb: "answer", args: []string{codes.OK.String(), "any", when, "1", late}})
		}
	}
	return all
}

// sampled is of how many answers one is tried without PROVE.
const sampled = 2500
