package registry_test

import (
	"context"
	"encoding/base64"
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
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/testserver"
)

// basicServer is a server whose sessions are bound to the tokens of handshakes, and what it
// knows of who is who.
type basicServer struct {
	p       *basicProgram
	name    string
	srv     *testserver.Server
	mu      sync.Mutex
	of      map[string]string // by token: user and password
	refused map[string]bool   // passwords
}

// basicProgram is one program of users with passwords that change while they call.
type basicProgram struct {
	*testing.T
	r       *registry.Registry
	servers map[string]*basicServer
	seed    uint64
	faulty  bool

	mu       sync.Mutex
	password map[string]int // by server and user
	gone     map[string]bool
	next     int
	said     map[int]error
	oks      int
	wrong    []string
}

// Names of local users that a fold, a cut or a decoding would take for each other's.
var basicUsers = []string{"ann", "Ann", " ann", "ann ", "an%6e", "an\u006e\u0301", "PUBLIC ", "a/n", "ann@s"}

func (p *basicProgram) bad(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.wrong) < 12 {
		p.wrong = append(p.wrong, fmt.Sprintf(format, args...))
	}
}

var basicTag = regexp.MustCompile(`<(\w+)~(\d+)~(\d+)>`) // server, user, number of the password

type basicHandshake struct {
	grpc.ServerStream
	s   *basicServer
	who string
}

func (h basicHandshake) SetHeader(md metadata.MD) error {
	for _, t := range md.Get("authorization") {
		h.s.mu.Lock()
		h.s.of[t] = h.who
		h.s.mu.Unlock()
	}
	return h.ServerStream.SetHeader(md)
}

type basicStream struct {
	grpc.ServerStream
	s *basicServer
}

func (b basicStream) RecvMsg(m any) error {
	err := b.ServerStream.RecvMsg(m)
	if err == nil {
		b.s.judge(b.Context(), m)
	}
	return err
}

func (s *basicServer) judge(ctx context.Context, message any) {
	m, ok := message.(proto.Message)
	if !ok {
		return
	}
	data, _ := proto.Marshal(m)
	tag := basicTag.FindStringSubmatch(string(data))
	if tag == nil {
		return
	}
	bearer := metadata.ValueFromIncomingContext(ctx, "authorization")
	s.mu.Lock()
	who := s.of[strings.Join(bearer, "|")]
	s.mu.Unlock()
	mine := basicTag.FindStringSubmatch(who)
	switch {
	case mine == nil || mine[1] != tag[1] || mine[2] != tag[2] || tag[1] != s.name:
		s.p.bad("%s: %q was sent as %q", s.name, tag[0], who)
	default:
		asked, _ := strconv.Atoi(tag[3])
		came, _ := strconv.Atoi(mine[3])
		if came < asked {
			s.p.bad("%s: %q was sent with the password before, %q", s.name, tag[0], who)
		}
	}
}

func (s *basicServer) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			s.judge(ctx, req)
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if !strings.HasSuffix(info.FullMethod, "Handshake") {
				return handle(srv, basicStream{stream, s})
			}
			header := strings.Join(metadata.ValueFromIncomingContext(stream.Context(), "authorization"), "|")
			plain, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(header, "Basic "))
			if err != nil {
				s.p.bad("handshake with %q", header)
			}
			user, password, _ := strings.Cut(string(plain), ":")
			if tag := basicTag.FindStringSubmatch(password); tag == nil || tag[1] != s.name || user != "remote" {
				s.p.bad("%s: handshake of %q with %q", s.name, user, password)
			}
			s.mu.Lock()
			refused := s.refused[password]
			s.mu.Unlock()
			if refused {
				return status.Errorf(codes.Unauthenticated, "wrong password: %s", header)
			}
			return handle(srv, basicHandshake{stream, s, password})
		}),
	}
}

func (p *basicProgram) definition(server string) registry.ServerDefinition {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := registry.ServerDefinition{Name: server, Kind: "flightsql", MaxSize: 4, MinIdle: -1, UserIdleTimeout: 15 * time.Second, QueryTimeout: 10 * time.Second, Users: map[string]registry.UserMapping{}}
	for i, user := range basicUsers {
		if !p.gone[fmt.Sprint(server, i)] {
			d.Users[user] = registry.UserMapping{User: "remote", Password: basicPassword(server, i, p.password[fmt.Sprint(server, i)])}
		}
	}
	return d
}

func basicPassword(server string, user, n int) string {
	return fmt.Sprintf("<%s~%d~%d>", server, user, n)
}

func (p *basicProgram) tag(server string, user int) (string, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	return basicPassword(server, user, p.password[fmt.Sprint(server, user)]), p.next
}

func (p *basicProgram) say(row int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said[row] = err
	if err == nil {
		p.oks++
	}
}

func (p *basicProgram) told(err error) {
	if err == nil {
		return
	}
	for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err)} {
		if tag := basicTag.FindString(text); tag != "" && !strings.Contains(text, "-- "+tag) {
			p.bad("a secret is told: %s", text)
		}
		if strings.Contains(text, "cmVtb3RlO") { // base64 of "remote:"
			p.bad("a secret is told in base64: %s", text)
		}
	}
}

func (p *basicProgram) call(ctx context.Context, rnd *rand.Rand, server string, user int) {
	ctx, stop := context.WithTimeout(ctx, time.Duration(rnd.IntN(4000)+20)*time.Millisecond)
	defer stop()
	tag, row := p.tag(server, user)
	name := basicUsers[user]
	insert := fmt.Sprintf("INSERT INTO t VALUES (%d) -- %s", row, tag)
	switch rnd.IntN(6) {
	case 0:
		_, err := p.r.ExecuteUpdate(ctx, server, name, insert)
		p.say(row, err)
	case 1, 2:
		res, err := p.r.Query(ctx, server, name, fmt.Sprintf("SELECT '%s'", tag))
		if err != nil {
			p.told(err)
			return
		}
		n := 0
		for res.Next() {
			if v := res.RecordBatch().Column(0).ValueStr(0); v != tag {
				p.bad("%s was answered with %s", tag, v)
			}
			n++
		}
		if res.Err() == nil && n != 1 {
			p.bad("%s was answered with %d batches", tag, n)
		}
		p.told(res.Err())
		res.Release()
	case 3:
		_ = p.r.Do(ctx, server, name, func(pool *flightpool.FlightSQLPool) error {
			_, err := pool.Update(ctx, insert)
			p.say(row, err)
			return err
		})
	default:
		c, err := p.r.Acquire(ctx, server, name)
		if err != nil {
			p.told(err)
			return
		}
		if c.Server() != server || c.User() != name {
			p.bad("%s %s got %s %s", server, name, c.Server(), c.User())
		}
		useLoan(ctx, p, rnd, c.Session(), tag, row, insert)
		if rnd.IntN(6) == 0 {
			_ = c.Fail(nil)
		} else {
			_ = c.Release()
		}
	}
}

func (p *basicProgram) change(ctx context.Context, rnd *rand.Rand) {
	server, user := []string{"s", "S"}[rnd.IntN(2)], rnd.IntN(len(basicUsers))
	key := fmt.Sprint(server, user)
	s := p.servers[server]
	ctx, stop := context.WithTimeout(ctx, time.Duration(rnd.IntN(5000))*time.Millisecond)
	defer stop()
	n := 11
	if !p.faulty {
		n = 8
	}
	switch rnd.IntN(n) {
	case 0, 1, 2:
		p.mu.Lock()
		n, gone := p.password[key]+1, p.gone[key]
		p.mu.Unlock()
		if gone {
			return
		}
		var err error
		if rnd.IntN(2) == 0 {
			d := p.definition(server)
			d.Users[basicUsers[user]] = registry.UserMapping{User: "remote", Password: basicPassword(server, user, n)}
			err = p.r.Update(ctx, d)
		} else {
			err = p.r.ApplyDDL(ctx, fmt.Sprintf(`ALTER USER MAPPING FOR "%s" SERVER "%s" OPTIONS (SET password '%s')`, basicUsers[user], server, basicPassword(server, user, n)))
		}
		p.told(err)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.password[key] = n
		p.mu.Unlock()
		if rnd.IntN(2) == 0 { // the server takes the old one back, and its tokens
			old := basicPassword(server, user, n-1)
			s.mu.Lock()
			s.refused[old] = true
			expire := []string{}
			for token, of := range s.of {
				if of == old {
					expire = append(expire, strings.TrimPrefix(token, "Bearer "))
				}
			}
			s.mu.Unlock()
			if p.faulty && rnd.IntN(2) == 0 {
				for _, token := range expire {
					s.srv.Faults().ExpireToken(token)
				}
			}
		}
	case 3:
		p.mu.Lock()
		was := p.gone[key]
		p.gone[key] = !was
		p.mu.Unlock()
		if err := p.r.Update(ctx, p.definition(server)); err != nil {
			p.mu.Lock()
			p.gone[key] = was
			p.mu.Unlock()
		}
	case 4:
		_ = p.r.CloseAll(ctx, server)
	case 5:
		_, _ = p.r.EvictIdle(server)
		_ = p.r.Warmup(ctx, server, 1)
	case 6:
		_ = p.r.Unregister(ctx, server)
		require.NoError(p, p.r.Register(context.WithoutCancel(ctx), p.definition(server)))
	case 7:
		d := p.definition(server)
		d.MaxSize = 1 + rnd.IntN(6)
		p.told(p.r.Update(ctx, d))
		_ = p.r.CheckNow(ctx, server)
	case 8:
		s.srv.Faults().KillConns()
	default:
		points := []testserver.Point{testserver.OnEnd, testserver.OnBegin, testserver.OnDoPut, testserver.OnGetFlightInfo, testserver.OnDoGet, testserver.OnPrepare, testserver.OnSession}
		effects := []testserver.Effect{testserver.Kill(), testserver.Evict(), testserver.Delay(3 * time.Second), testserver.Fail(codes.Unavailable, "no healthy upstream"), testserver.GoAway()}
		s.srv.Faults().Set(testserver.Fault{On: points[rnd.IntN(len(points))], Skip: rnd.IntN(4), Times: 1, After: rnd.IntN(2) == 0, Do: effects[rnd.IntN(len(effects))]})
	}
}

// Whatever becomes of mappings, passwords, servers and connections where a session is bound to the token
// of a handshake: what a user sends goes with a token that was given for that user's password
// on that server; nobody finds what a borrower has left; what was said of rows is so; nothing remains.
func TestNoUserMeetsAnotherByPassword(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64)
	many, _ := strconv.Atoi(os.Getenv("PROVE_SCENES"))
	for i := range uint64(max(many, 1)) {
		synctest.Test(t, func(t *testing.T) {
			p := &basicProgram{T: t, seed: seed + i, faulty: (seed+i)%2 == 0, servers: map[string]*basicServer{}, password: map[string]int{}, gone: map[string]bool{}, said: map[int]error{}}
			p.run()
		})
		if t.Failed() {
			return
		}
	}
}

func (p *basicProgram) start(name string) *flightpool.FlightSQLPool {
	s := &basicServer{p: p, name: name, of: map[string]string{}, refused: map[string]bool{}}
	opts := testserver.Options{Profile: testserver.GizmoSQL(), Listen: testserver.InMemory, GRPC: s.options(), Tokens: []string{"admin"}}
	var err error
	s.srv, err = testserver.Start(opts)
	require.NoError(p, err)
	p.servers[name] = s
	admin, err := flightpool.New(p.Context(), "grpc://mem:1", flightpool.Config{Dialer: s.srv.Dial, Auth: flightpool.BearerAuth("admin"), MaxSize: 1})
	require.NoError(p, err)
	_, err = admin.Update(p.Context(), "CREATE TABLE t (a BIGINT)")
	require.NoError(p, err)
	return admin
}

func (p *basicProgram) run() {
	admins := map[string]*flightpool.FlightSQLPool{"s": p.start("s"), "S": p.start("S")}
	kind := registry.Kind{Name: "flightsql", Flight: func(ctx context.Context, r registry.ConnectParams) (*flightpool.FlightSQLPool, error) {
		_, cfg := registry.FlightTarget(r)
		cfg.Dialer = p.servers[r.Server].srv.Dial
		return flightpool.New(ctx, "grpc://mem:1", cfg)
	}}
	var err error
	p.r, err = registry.NewWith(registry.Config{Kinds: []registry.Kind{kind}})
	require.NoError(p, err)
	for name := range p.servers {
		require.NoError(p, p.r.Register(p.Context(), p.definition(name)))
	}
	ctx, stop := context.WithCancel(p.Context())
	var wg sync.WaitGroup
	for i := range 12 {
		rnd := rand.New(rand.NewPCG(p.seed, uint64(i)+2)) //nolint:gosec // a repeatable sequence
		wg.Go(func() {
			for ctx.Err() == nil {
				p.call(ctx, rnd, []string{"s", "S"}[rnd.IntN(2)], rnd.IntN(len(basicUsers)))
				time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
			}
		})
	}
	rnd := rand.New(rand.NewPCG(p.seed, 1)) //nolint:gosec // likewise
	for range 25 {
		p.change(p.Context(), rnd)
		time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
	}
	early := rnd.IntN(3) == 0 // Close while calls are under way
	if early {
		end, cancel := context.WithTimeout(p.Context(), time.Duration(rnd.IntN(3000))*time.Millisecond)
		_ = p.r.Close(end)
		cancel()
	}
	stop()
	wg.Wait()
	end, cancel := context.WithTimeout(p.Context(), time.Minute)
	defer cancel()
	_ = p.r.Close(end)
	time.Sleep(5 * time.Second)
	synctest.Wait()
	for name, s := range p.servers {
		s.srv.Faults().Clear()
		time.Sleep(10 * time.Second)
		now := s.srv.Ledger().Snapshot()
		now.Transactions = 0
		if now.Conns > 1 || !now.Idle() {
			p.bad("%s: %v", name, now)
		}
		if !p.faulty && now.Sessions > 1 {
			p.bad("%s: sessions left: %v", name, now)
		}
		s.srv.Faults().EvictSessions()
	}
	time.Sleep(2 * time.Minute)
	for name, admin := range admins {
		p.compare(name, admin)
		_ = admin.Close(p.Context())
		require.NoError(p, p.servers[name].srv.Close())
	}
	for row, err := range p.said {
		if err == nil {
			p.bad("%d is lost", row)
		}
	}
	if p.oks == 0 {
		p.bad("nothing was stored")
	}
	if len(p.wrong) > 0 {
		p.Errorf("seed %d: %s", p.seed, strings.Join(p.wrong, "\n"))
	}
}

func (p *basicProgram) compare(name string, admin *flightpool.FlightSQLPool) {
	res, err := admin.Query(p.Context(), "SELECT * FROM t")
	if err != nil {
		res, err = admin.Query(p.Context(), "SELECT * FROM t")
	}
	require.NoError(p, err)
	stored := map[int]int{}
	for res.Next() {
		for i := range int(res.RecordBatch().NumRows()) {
			n, err := strconv.Atoi(res.RecordBatch().Column(0).ValueStr(i))
			require.NoError(p, err)
			stored[n]++
		}
	}
	require.NoError(p, res.Err())
	res.Release()
	for row, n := range stored {
		err, told := p.said[row]
		if n > 1 || told && errors.Is(err, errRolledBack) || told && err != nil && flightpool.SafeToRetry(err) {
			p.bad("%s: %d is stored %d times: %v", name, row, n, err)
		}
		delete(p.said, row)
	}
}
