package registry_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/testserver"
)

// isolation is one program of users whose credentials change while they call. Every
// statement carries the name of its user and the number of the credential that was the user's
// when the call began, as the tokens do.
type isolation struct {
	*testing.T
	r    *registry.Registry
	srv  *testserver.Server
	seed uint64

	mu     sync.Mutex
	tokens map[string]int // the present credential's number, by user
	gone   map[string]bool
	next   int
	said   map[int]error // inserts, by the row
	wrong  []string
}

var isolationTag = regexp.MustCompile(`u(\d)g(\d+)x`)

func isolationToken(user string, n int) string { return fmt.Sprintf("%sg%dx", user, n) }

// judge compares the tag of what was sent with the token that it came with.
func (p *isolation) judge(ctx context.Context, message any) {
	m, ok := message.(proto.Message)
	if !ok {
		return
	}
	data, _ := proto.Marshal(m)
	tag := isolationTag.FindSubmatch(data)
	if tag == nil {
		return
	}
	bearer := metadata.ValueFromIncomingContext(ctx, "authorization")
	token := isolationTag.FindStringSubmatch(strings.Join(bearer, " "))
	switch {
	case len(bearer) != 1, token == nil, token[1] != string(tag[1]):
		p.bad("%q was sent with %q", tag[0], bearer)
	default:
		asked, _ := strconv.Atoi(string(tag[2]))
		came, _ := strconv.Atoi(token[2])
		if came < asked {
			p.bad("%q was sent with the credential before, %q", tag[0], bearer)
		}
	}
}

func (p *isolation) bad(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.wrong) < 10 {
		p.wrong = append(p.wrong, fmt.Sprintf(format, args...))
	}
}

type isolationStream struct {
	grpc.ServerStream
	p *isolation
}

func (s isolationStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.p.judge(s.Context(), m)
	}
	return err
}

func (p *isolation) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			p.judge(ctx, req)
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			return handle(srv, isolationStream{stream, p})
		}),
	}
}

func (p *isolation) definition() registry.ServerDefinition {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := registry.ServerDefinition{Name: "s", Kind: "flightsql", MaxSize: 3, MinIdle: -1, UserIdleTimeout: 20 * time.Second, QueryTimeout: 10 * time.Second, Users: map[string]registry.UserMapping{}}
	for user, n := range p.tokens {
		if !p.gone[user] {
			d.Users[user] = registry.UserMapping{Options: map[string]string{"token": isolationToken(user, n)}}
		}
	}
	return d
}

func (p *isolation) tag(user string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return isolationToken(user, p.tokens[user])
}

func (p *isolation) row() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	return p.next
}

func (p *isolation) say(row int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said[row] = err
}

func (p *isolation) insert(tag string, row int) string {
	return fmt.Sprintf("INSERT INTO t VALUES (%d) -- %s", row, tag)
}

// call makes one call of a user.
func (p *isolation) call(ctx context.Context, rnd *rand.Rand, user string) {
	ctx, stop := context.WithTimeout(ctx, time.Duration(rnd.IntN(4000)+20)*time.Millisecond)
	defer stop()
	tag, row := p.tag(user), p.row()
	switch rnd.IntN(5) {
	case 0:
		_, err := p.r.ExecuteUpdate(ctx, "s", user, p.insert(tag, row))
		p.say(row, err)
	case 1:
		if res, err := p.r.Query(ctx, "s", user, fmt.Sprintf("SELECT '%s'", tag)); err == nil {
			for res.Next() {
				if v := res.RecordBatch().Column(0).ValueStr(0); v != tag {
					p.bad("%s was answered with %s", tag, v)
				}
			}
			res.Release()
		}
	case 2:
		_ = p.r.Do(ctx, "s", user, func(pool *flightpool.FlightSQLPool) error {
			_, err := pool.Update(ctx, p.insert(tag, row))
			p.say(row, err)
			return err
		})
	default:
		c, err := p.r.Acquire(ctx, "s", user)
		if err != nil {
			return
		}
		useLoan(ctx, p, rnd, c.Session(), tag, row, p.insert(tag, row))
		if rnd.IntN(6) == 0 {
			_ = c.Fail(nil)
		} else {
			_ = c.Release()
		}
	}
}

// A judge notes what is wrong, and what a call said of a row.
type judge interface {
	bad(format string, args ...any)
	say(row int, err error)
}

// useLoan looks for what others have left, and leaves something.
func useLoan(ctx context.Context, p judge, rnd *rand.Rand, s *flightpool.SessionHandle, tag string, row int, insert string) {
	if res, err := s.Query(ctx, fmt.Sprintf("SELECT current_setting('colour'), '%s'", tag)); err == nil {
		for res.Next() {
			if col := res.RecordBatch().Column(0); !col.IsNull(0) && col.ValueStr(0) != "" {
				p.bad("%s finds the setting %q", tag, col.ValueStr(0))
			}
		}
		res.Release()
	}
	if res, err := s.Query(ctx, "SELECT * FROM mine -- "+tag); err == nil {
		if res.Next(); res.Err() == nil {
			p.bad("%s finds a temporary table", tag)
		}
		res.Release()
	}
	if rnd.IntN(2) == 0 {
		_, _ = s.Update(ctx, fmt.Sprintf("SET colour = '%s'", tag))
	}
	if rnd.IntN(2) == 0 {
		_, _ = s.Update(ctx, "CREATE TEMP TABLE mine (a BIGINT) -- "+tag)
	}
	if rnd.IntN(3) == 0 {
		time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
	}
	if rnd.IntN(2) == 0 {
		_, err := s.Update(ctx, insert)
		p.say(row, err)
		return
	}
	if s.BeginTransaction(ctx) != nil {
		return
	}
	_, err := s.Update(ctx, insert)
	switch rnd.IntN(3) {
	case 0:
		if end := s.Commit(ctx); errors.Is(end, flightpool.ErrCommitUnknown) || errors.Is(end, flightpool.ErrSessionLost) {
			p.say(row, errors.New("not known"))
		} else {
			p.say(row, errors.Join(err, end))
		}
	case 1:
		p.say(row, errors.Join(errRolledBack, s.Rollback(ctx)))
	default: // the next borrower must not find it
		p.say(row, errRolledBack)
	}
}

var errRolledBack = errors.New("rolled back")

// change does something to the server's definition, to its pools or to the server.
func (p *isolation) change(ctx context.Context, rnd *rand.Rand) {
	user := fmt.Sprintf("u%d", rnd.IntN(4))
	ctx, stop := context.WithTimeout(ctx, time.Duration(rnd.IntN(5000))*time.Millisecond)
	defer stop()
	switch rnd.IntN(8) {
	case 0, 1, 2:
		p.mu.Lock()
		p.tokens[user]++
		n := p.tokens[user]
		p.tokens[user]-- // the tags say it once Update has returned
		p.mu.Unlock()
		d := p.definition()
		if _, ok := d.Users[user]; !ok {
			return
		}
		d.Users[user] = registry.UserMapping{Options: map[string]string{"token": isolationToken(user, n)}}
		if p.r.Update(ctx, d) == nil {
			p.mu.Lock()
			p.tokens[user] = n
			p.mu.Unlock()
			if rnd.IntN(2) == 0 {
				p.srv.Faults().ExpireToken(isolationToken(user, n-1))
			}
		}
	case 3:
		p.mu.Lock()
		p.gone[user] = !p.gone[user]
		p.mu.Unlock()
		if p.r.Update(ctx, p.definition()) != nil {
			p.mu.Lock()
			p.gone[user] = !p.gone[user]
			p.mu.Unlock()
		}
	case 4:
		_ = p.r.CloseAll(ctx, "s")
	case 5:
		_, _ = p.r.EvictIdle("s")
		p.srv.Faults().KillConns()
	case 6:
		_ = p.r.Unregister(ctx, "s")
		require.NoError(p, p.r.Register(context.WithoutCancel(ctx), p.definition()))
	default:
		points := []testserver.Point{testserver.OnEnd, testserver.OnBegin, testserver.OnDoPut, testserver.OnGetFlightInfo, testserver.OnDoGet, testserver.OnPrepare, testserver.OnSession}
		effects := []testserver.Effect{testserver.Kill(), testserver.Evict(), testserver.Delay(3 * time.Second), testserver.Fail(codes.Unavailable, "no healthy upstream"), testserver.GoAway()}
		p.srv.Faults().Set(testserver.Fault{On: points[rnd.IntN(len(points))], Skip: rnd.IntN(4), Times: 1, After: rnd.IntN(2) == 0, Do: effects[rnd.IntN(len(effects))]})
	}
}

// Whatever becomes of servers, mappings, credentials and connections: what a user sends goes with
// that user's credential, no older than when the call began; nobody finds what a borrower has left; and what was
// said of rows is so.
func TestNoUserMeetsAnother(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64)
	many, _ := strconv.Atoi(os.Getenv("PROVE_SCENES"))
	for i := range uint64(max(many, 1)) {
		for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake()} {
			synctest.Test(t, func(t *testing.T) {
				p := &isolation{T: t, seed: seed + i, tokens: map[string]int{"u0": 0, "u1": 0, "u2": 0, "u3": 0}, gone: map[string]bool{}, said: map[int]error{}}
				p.run(profile)
			})
		}
	}
}

func (p *isolation) run(profile testserver.Profile) {
	opts := testserver.Options{Profile: profile, Listen: testserver.InMemory, GRPC: p.options(), Tokens: []string{"admin"}}
	for user := range p.tokens {
		for n := range 100 {
			opts.Tokens = append(opts.Tokens, isolationToken(user, n))
		}
	}
	var err error
	p.srv, err = testserver.Start(opts)
	require.NoError(p, err)
	admin, err := flightpool.New(p.Context(), "grpc://mem:1", flightpool.Config{Dialer: p.srv.Dial, Auth: flightpool.BearerAuth("admin")})
	require.NoError(p, err)
	_, err = admin.Update(p.Context(), "CREATE TABLE t (a BIGINT)")
	require.NoError(p, err)
	kind := registry.Kind{Name: "flightsql", Flight: func(ctx context.Context, r registry.ConnectParams) (*flightpool.FlightSQLPool, error) {
		_, cfg := registry.FlightTarget(r)
		cfg.Dialer = p.srv.Dial
		return flightpool.New(ctx, "grpc://mem:1", cfg)
	}}
	p.r, err = registry.NewWith(registry.Config{Kinds: []registry.Kind{kind}})
	require.NoError(p, err)
	require.NoError(p, p.r.Register(p.Context(), p.definition()))
	ctx, stop := context.WithCancel(p.Context())
	var wg sync.WaitGroup
	for i := range 8 {
		rnd := rand.New(rand.NewPCG(p.seed, uint64(i)+2)) //nolint:gosec // a repeatable sequence
		wg.Go(func() {
			for ctx.Err() == nil {
				p.call(ctx, rnd, fmt.Sprintf("u%d", i%4))
				time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
			}
		})
	}
	rnd := rand.New(rand.NewPCG(p.seed, 1)) //nolint:gosec // likewise
	for range 40 {
		p.change(p.Context(), rnd)
		time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
	}
	stop()
	wg.Wait()
	end, cancel := context.WithTimeout(p.Context(), time.Minute)
	defer cancel()
	_ = p.r.Close(end)
	p.srv.Faults().Clear()
	p.srv.Faults().EvictSessions()
	time.Sleep(2 * time.Minute)
	p.compare(admin)
	p.srv.Faults().EvictSessions()
	_ = admin.Close(p.Context())
	require.NoError(p, p.srv.Close())
	if len(p.wrong) > 0 {
		p.Errorf("seed %d, %s: %s", p.seed, profile.Name, strings.Join(p.wrong, "\n"))
	}
}

// compare holds what was said of rows against what is stored.
func (p *isolation) compare(admin *flightpool.FlightSQLPool) {
	stored := map[int]int{}
	res, err := admin.Query(p.Context(), "SELECT * FROM t")
	require.NoError(p, err)
	for res.Next() {
		for i := range int(res.RecordBatch().NumRows()) {
			n, err := strconv.Atoi(res.RecordBatch().Column(0).ValueStr(i))
			require.NoError(p, err)
			stored[n]++
		}
	}
	require.NoError(p, res.Err())
	res.Release()
	for row, err := range p.said {
		switch n := stored[row]; {
		case n > 1, err == nil && n != 1, errors.Is(err, errRolledBack) && n > 0, err != nil && flightpool.SafeToRetry(err) && n > 0:
			p.bad("%d is stored %d times: %v", row, n, err)
		}
	}
	if p.seed == 0 {
		p.Logf("%d rows stored of %d said", len(stored), len(p.said))
	}
}
