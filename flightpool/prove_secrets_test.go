package flightpool_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/adbcpool"
	"github.com/flightpool/flightpool/flightpool/oauth"
	"github.com/flightpool/flightpool/flightpool/poolz"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/testserver"
)

// secretsProver runs random programs with marked secrets in every place that
// takes one, prints whatever they give in every way, and looks for the marks.
type secretsProver struct {
	*rand.Rand
	prints int
	found  []string

	mu    sync.Mutex // guards the fields below: hooks and the log write too
	out   bytes.Buffer
	marks []string
}

// TestProveSecrets runs for PROVE (a duration), else a fixed number of programs.
// PROVE_SEED repeats a run.
func TestProveSecrets(t *testing.T) {
	seed := uint64(1)
	limit, _ := time.ParseDuration(os.Getenv("PROVE"))
	if limit > 0 {
		seed = uint64(time.Now().UnixNano())
	}
	if given, err := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64); err == nil {
		seed = given
	}
	p := &secretsProver{Rand: rand.New(rand.NewPCG(seed, 0))}
	start, programs := time.Now(), 0
	for ; len(p.found) == 0 && (limit > 0 && time.Since(start) < limit || limit <= 0 && programs < 10); programs++ {
		p.newMarks()
		p.targets(t.Context())
		synctest.Test(t, p.program)
		if programs%50 == 0 {
			p.overADBC(t)
		}
		p.look()
	}
	fmt.Printf("PROVE secrets programs=%d prints=%d violations=%d seed=%d\n", programs, p.prints, len(p.found), seed)
	if len(p.found) > 0 {
		t.Fatalf("PROVE_SEED=%d, program %d:\n%s", seed, programs, strings.Join(p.found, "\n"))
	}
}

func (p *secretsProver) newMarks() { p.marks = p.marks[:0]; p.out.Reset() }

// secret makes one, of two halves that are looked for each alone, since part of
// a secret is one too, and as a whole in the encodings that credentials take.
func (p *secretsProver) secret(between ...string) string {
	half := func() string { return fmt.Sprintf("Zq%09xK", p.Uint64()&0xfffffffff) }
	first, second := half(), half()
	glue := ""
	if len(between) > 0 {
		glue = between[p.IntN(len(between))]
	}
	whole := first + glue + second
	p.mark(first, second, base64.StdEncoding.EncodeToString([]byte(whole)), base64.RawURLEncoding.EncodeToString([]byte(whole)))
	return whole
}

func (p *secretsProver) mark(marks ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range marks {
		p.marks = append(p.marks, m, hex.EncodeToString([]byte(m)))
	}
}

// print shows v in every way.
func (p *secretsProver) print(v any) {
	var b bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		fmt.Fprintf(&b, verb+"\n", v)
	}
	slog.New(slog.NewTextHandler(&b, nil)).Info("text", "v", v)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("json", "v", v)
	if text, err := json.Marshal(v); err == nil {
		b.Write(text)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prints++
	p.out.Write(b.Bytes())
}

// Write takes what a logger says.
func (p *secretsProver) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

// fail prints an error and each error of its tree, for whoever prints one alone.
func (p *secretsProver) fail(err error) {
	if err == nil {
		return
	}
	p.print(err)
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case interface{ Unwrap() error }:
		p.fail(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			p.fail(one)
		}
	}
}

func (p *secretsProver) look() {
	text := strings.ToLower(p.out.String())
	for _, m := range p.marks {
		if at := strings.Index(text, strings.ToLower(m)); at >= 0 {
			p.found = append(p.found, text[max(0, at-300):min(len(text), at+100)])
			return
		}
	}
}

// awkward is what people forget to encode.
var awkward = []string{"#", "/", "?", "%", "@", ":", "%zz", " ", "[", "&", "=", "+", ";", "\\", "\x7f", "?token=", "?max_size=", "://", "/?a&b="}

// targets tries DSNs whose password, or token, is not encoded.
func (p *secretsProver) targets(ctx context.Context) {
	for _, format := range []string{
		"flightsql://app:%s@db:31337/?max_sise=3", "flightsql://app:%s@db", "%s://db:1", "app:%s@db:1", "grpc+unix://app:%s@/x?y",
		"grpc://db:1/?token=%s&nonsense=1", "grpc://db:1/?token=%s&token=x", "grpc://u:p@db:1/?token=%s", "grpc+tls://app:%s@db:1/?transport=tcp&idle_ttl=x",
	} {
		target := fmt.Sprintf(format, p.secret(awkward...))
		_, cfg, err := flightpool.ParseTarget(target)
		p.fail(err)
		p.print(cfg)
		_, err = flightpool.New(ctx, target, flightpool.Config{MaxSize: -1, Auth: flightpool.BearerAuth(p.secret())})
		p.fail(err)
	}
	_, cfg, err := flightpool.ParseTarget("grpc://" + p.secret() + "@db:1") // a token in the place of the user
	p.fail(err)
	p.print(cfg)
}

// auth is one of every kind, accepted or not.
func (p *secretsProver) auth(opts *testserver.Options) (target string, auth flightpool.Auth) {
	user, password, token := "me", p.secret(awkward...), p.secret()
	p.mark(base64.StdEncoding.EncodeToString([]byte(user + ":" + password)))
	if p.IntN(3) > 0 {
		opts.Users, opts.Tokens = map[string]string{user: password}, []string{token}
	} else {
		opts.Users = map[string]string{user: "another"}
	}
	const target0 = "grpc://server:1"
	switch p.IntN(8) {
	case 0:
		return "grpc://" + url.UserPassword(user, password).String() + "@server:1", auth
	case 1:
		return target0 + "/?token=" + url.QueryEscape(token), auth
	case 2:
		return target0, flightpool.BasicAuth(user, password)
	case 3:
		return target0, flightpool.BasicHeader(user, password)
	case 4:
		return target0, flightpool.BearerAuth(token)
	case 5:
		return target0, flightpool.HeaderAuth("Bearer " + token)
	case 6:
		return target0, flightpool.TokenAuth(func(context.Context) (string, time.Time, error) {
			return token, time.Now().Add(time.Minute), nil
		})
	default:
		return target0, flightpool.TokenAuth(p.oauth(token))
	}
}

// oauth is a source whose token endpoint is in memory, and may be rude.
func (p *secretsProver) oauth(token string) flightpool.TokenSource {
	secret, param := p.secret(awkward...), p.secret()
	kind, endpoint := p.IntN(5), "https://id.example/token?key="+p.secret()
	answer := func(code int, header, value, body string) *http.Response {
		return &http.Response{StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", Header: http.Header{header: {value}}, Body: io.NopCloser(strings.NewReader(body))}
	}
	client := oauth.Client{
		TokenURL: endpoint, ID: "me", Secret: secret, SecretInBody: p.IntN(2) == 0, Params: url.Values{"code": {param}},
		HTTP: &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			switch kind {
			case 0:
				return nil, errors.New("no route to id.example")
			case 1:
				return answer(http.StatusTemporaryRedirect, "Location", "http://id.example/token?again="+url.QueryEscape(secret), ""), nil
			case 2:
				return answer(http.StatusForbidden, "Content-Type", "text/plain", "no "+secret), nil
			default:
				return answer(http.StatusOK, "Content-Type", "application/json", `{"access_token":"`+token+`","token_type":"bearer","expires_in":60}`), nil
			}
		})},
	}
	p.print(client)
	source, err := oauth.ClientCredentials(client)
	if p.IntN(2) == 0 {
		exchange := oauth.Exchange{Client: client, Subject: func(context.Context) (string, error) { return token, nil }}
		p.print(exchange)
		source, err = oauth.TokenExchange(exchange)
	}
	p.fail(err)
	return source
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// program uses a pool, with whatever goes wrong, and prints it all.
func (p *secretsProver) program(t *testing.T) {
	profiles := []testserver.Profile{testserver.Strict(), testserver.SwanLake(), testserver.GizmoSQL(), testserver.Dremio(), testserver.ClickHouse()}
	opts := testserver.Options{Listen: testserver.InMemory, Profile: profiles[p.IntN(len(profiles))]}
	target, auth := p.auth(&opts)
	srv, err := testserver.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	}()
	statement := p.statement()
	log := slog.New(slog.NewTextHandler(p, &slog.HandlerOptions{Level: slog.LevelDebug}))
	page := poolz.New(poolz.Config{SlowerThan: 1})
	defer page.Close()
	cfg := flightpool.Config{
		Dialer: srv.Dial, Auth: auth, MaxSize: 2, Headers: metadata.MD{"x-api-key": {p.secret()}}, LeakAfter: time.Second, AcquireTimeout: 3 * time.Second,
		OnReturn: flightpool.ResetAuto, Logger: log, Hooks: p.hooks(),
		Tracer: flightpool.Tracers{&flightpool.LogTracer{Logger: log, SlowerThan: 1, Failures: true}, page.Tracer("pool")},
	}
	if p.IntN(2) == 0 {
		cfg.MinIdle = -1
	}
	if p.IntN(2) == 0 {
		cfg.OnReturn = flightpool.ResetSQL("RESET ALL", statement)
	}
	p.print(cfg)
	p.print(auth)
	p.fault(srv)
	pool, err := flightpool.New(t.Context(), target, cfg)
	p.fail(err)
	if err != nil {
		p.show(page)
		return
	}
	page.Add("pool", pool)
	for range 4 {
		p.fault(srv)
		p.calls(t.Context(), pool)
		p.literals(t.Context(), pool, srv, page)
		if p.IntN(3) == 0 {
			p.resets(t.Context(), pool, srv, statement)
		}
		p.print(pool)
		p.print(pool.Stats())
		p.show(page)
		for _, c := range pool.Reservoir().Connections() {
			p.print(c)
		}
		srv.Faults().Clear()
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	p.fail(pool.Close(ctx))
	p.show(page)
	p.fail(pool.Ping(t.Context()))
}

// show prints what a page for operators has.
func (p *secretsProver) show(page *poolz.Page) {
	time.Sleep(2 * time.Second) // it looks once a second
	for _, path := range []string{"/", "/state.json", "/state.json?source=pool&range=1h&rows=10000"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			panic(w.Body.String())
		}
		_, _ = p.Write(w.Body.Bytes())
	}
}

// withSecret are the ways to write a secret into a statement.
var withSecret = []string{
	"SELECT '%s'", "SELECT $$%s$$", `SELECT "%s"`, "SELECT * FROM t WHERE a = 1 -- FROM %s", "SELECT /* FROM %s */ 1", "SELECT E'it\\'s FROM %s'", "SELECT r'\\' FROM %s'", "SELECT [FROM %s]",
	"COPY t FROM 's3://b/%s' (FORMAT csv)", "COPY t FROM 's3://b' CREDENTIALS 'aws_secret_access_key=%s'", "CREATE SECRET s (TYPE s3, KEY_ID 'a', SECRET '%s')", "CREATE SECRET s (SECRET %s)",
	"ATTACH 'postgres://u:%s@h/db' AS x", "CREATE USER u PASSWORD '%s'", "ALTER USER u IDENTIFIED BY %s", "SET password = %s", "SET SESSION AUTHORIZATION '%s'", "CALL login('me', '%s')",
	"INSERT INTO t VALUES ('%s')", "UPDATE t SET a = '%s'", "%s", "GRANT %s", "SELECT 1; SET x = '%s'; SELECT * FROM t", "MERGE INTO t USING (SELECT '%s') s ON true WHEN MATCHED THEN DELETE",
	"SELECT * FROM read_csv('https://u:%s@h/x')", "SELECT * FROM 'https://u:%s@h/x'", "EXPLAIN SELECT '%s'", "PREPARE q AS SELECT '%s'", "EXECUTE q('%s')", "DECLARE c CURSOR FOR SELECT '%s'",
}

// literals makes calls whose statements and arguments hold secrets, and which the server
// refuses in their words, answers slowly or runs while somebody looks. What the caller is told
// is the caller's alone.
func (p *secretsProver) literals(ctx context.Context, pool *flightpool.FlightSQLPool, srv *testserver.Server, page *poolz.Page) {
	ctx, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	for range 3 {
		secret := p.secret("-", " ", ".", "' ", `" `, "; ", "\n", " FROM ", "\\", "@", "\xe9", "é")
		way := withSecret[p.IntN(len(withSecret))]
		if !strings.ContainsAny(way, "'$\"/[-") { // behind FROM it would be the name of a table
			secret = p.secret("-", ".")
		}
		sql := fmt.Sprintf(way, secret)
		answers := []codes.Code{codes.InvalidArgument, codes.Internal, codes.Unknown, codes.NotFound, codes.ResourceExhausted}
		says := []string{"Parser Error: " + sql, "[" + secret[:5] + "] " + sql, "SQLSTATE: " + secret[5:10] + " " + sql, sql}
		effects := []testserver.Effect{testserver.Delay(time.Second), testserver.Delay(time.Minute), testserver.Fail(answers[p.IntN(len(answers))], says[p.IntN(len(says))])}
		points := []testserver.Point{testserver.OnGetFlightInfo, testserver.OnStatement, testserver.OnBatch, testserver.OnPrepare, testserver.OnDoPut}
		srv.Faults().Set(testserver.Fault{On: points[p.IntN(len(points))], SQL: secret[:8], Do: effects[p.IntN(len(effects))], Times: 1})
		short, stop := context.WithTimeout(ctx, time.Duration(1+p.IntN(3000))*time.Millisecond)
		switch p.IntN(5) {
		case 0:
			_, _ = pool.Update(short, sql)
		case 1:
			_ = pool.QueryRow(short, "SELECT ?, $1", secret).Scan(new(any))
		case 2:
			if s, err := pool.AcquireSession(short); err == nil {
				if q, err := s.PrepareQuery(short, sql); err == nil {
					_, _ = q.Update(short, secret)
					p.show(page)
					_ = q.Close(short)
				}
				_ = s.Close()
			}
		case 3:
			if res, err := pool.Query(short, "SELECT * FROM generate(5000) WHERE '"+strings.ReplaceAll(secret, "'", "")+"' <> ''"); err == nil {
				res.Next()
				p.show(page)
				res.Release()
			}
		default:
			_ = pool.QueryRow(short, sql).Scan(new(any))
		}
		stop()
		srv.Faults().Clear()
	}
}

// fault sets one that may strike.
func (p *secretsProver) fault(srv *testserver.Server) {
	points := []testserver.Point{
		testserver.OnConnect, testserver.OnSession, testserver.OnHandshake, testserver.OnGetFlightInfo, testserver.OnDoGet, testserver.OnDoPut, testserver.OnStatement,
		testserver.OnBatch, testserver.OnBegin, testserver.OnEnd, testserver.OnPrepare, testserver.OnCloseSession, testserver.OnCancel,
	}
	effects := []testserver.Effect{
		testserver.Kill(), testserver.Hang(), testserver.Delay(time.Second), testserver.Fail(codes.Internal, "boom"), testserver.Fail(codes.Unauthenticated, "who?"),
		testserver.Fail(codes.PermissionDenied, "no"), testserver.Fail(codes.ResourceExhausted, "too many"), testserver.Fail(codes.Unavailable, "later"),
	}
	f := testserver.Fault{On: points[p.IntN(len(points))], Do: effects[p.IntN(len(effects))], Times: 1 + p.IntN(3)}
	switch p.IntN(6) {
	case 0:
	case 1:
		srv.Faults().ExpireTokens()
	case 2:
		srv.Faults().EvictSessions()
	default:
		srv.Faults().Set(f)
	}
}

// calls makes each call of a pool once, within a bound.
func (p *secretsProver) calls(ctx context.Context, pool *flightpool.FlightSQLPool) {
	ctx, stop := context.WithTimeout(ctx, time.Duration(1+p.IntN(4000))*time.Millisecond)
	defer stop()
	opts := flightpool.QueryOptions{Headers: metadata.MD{"x-call-key": {p.secret()}}}
	p.print(opts)
	rows := func(res *flightpool.QueryResult, err error) {
		if p.fail(err); err != nil {
			return
		}
		p.print(res)
		for res.Next() {
		}
		p.fail(res.Err())
		res.Release()
	}
	rows(pool.QueryWithOptions(ctx, "SELECT * FROM generate(5000)", opts))
	rows(pool.Query(ctx, "SELECT nonsense FROM nowhere"))
	rows(pool.Tables(ctx, flightpool.TableFilter{}))
	rows(pool.QueryWithOptions(ctx, "SELECT 1", flightpool.QueryOptions{Headers: metadata.MD{"bad header": {p.secret()}}}))
	rows(pool.QueryWithOptions(ctx, "SELECT 1", flightpool.QueryOptions{Headers: metadata.MD{"x-key": {p.secret() + "\n"}}}))
	_, err := pool.UpdateWithOptions(ctx, "CREATE TABLE t (a BIGINT)", opts)
	p.fail(err)
	_, err = pool.UpdateWithRecordBatch(ctx, "INSERT INTO t VALUES (?)", oneInt())
	p.fail(err)
	batch := oneInt()
	if rdr, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch}); err == nil {
		_, err = pool.Ingest(ctx, "t", rdr, flightpool.IngestOptions{Headers: opts.Headers})
		p.fail(err)
	}
	p.fail(pool.Ping(ctx))
	s, err := pool.AcquireSession(ctx)
	if p.fail(err); err != nil {
		return
	}
	p.fail(s.SetOption(ctx, "catalog", "x"))
	p.fail(s.BeginTransaction(ctx))
	q, err := s.PrepareQuery(ctx, "INSERT INTO t VALUES (?)")
	if p.fail(err); err == nil {
		p.print(q)
		_, err = q.Update(ctx, oneInt())
		p.fail(err)
		p.fail(q.Close(ctx))
	}
	p.fail(s.Commit(ctx))
	p.print(s)
	p.fail(s.Close())
}

// statement is a SET whose value is a secret, in one of the ways to write it.
func (p *secretsProver) statement() string {
	formats := []string{"SET memory_limit = '%s'", "SET SESSION memory_limit TO '%s'", "set memory_limit='%s'", "SET memory_limit = %s", "CALL login('me', '%s')", "ATTACH '%s' AS x"}
	return fmt.Sprintf(formats[p.IntN(len(formats))], p.secret("-", " ", "."))
}

// resets leaves a setting behind while the server refuses what takes it back, in words
// that repeat the statement as servers do.
func (p *secretsProver) resets(ctx context.Context, pool *flightpool.FlightSQLPool, srv *testserver.Server, statement string) {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	s, err := pool.AcquireSession(ctx)
	if p.fail(err); err != nil {
		return
	}
	_, _ = s.Update(ctx, statement) // its error is for its caller alone
	_, _ = s.Update(ctx, "SET threads = 3")
	says := []string{"Parser Error: " + statement, "LINE 1: " + statement[:len(statement)-p.IntN(12)] + "...", strings.ToUpper(statement), "no"}
	codes := []codes.Code{codes.InvalidArgument, codes.Internal, codes.Unavailable}
	secret := statement[strings.Index(statement, "Zq"):][:8]
	srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: secret, Do: testserver.Fail(codes[p.IntN(len(codes))], says[p.IntN(len(says))]), Times: 1 + p.IntN(3)})
	p.fail(s.Close())
	time.Sleep(time.Second) // the connection is given back in the background
}

func (p *secretsProver) hooks() flightpool.Hooks {
	return flightpool.Hooks{
		Cancelled:    func(op string, r cancel.Report) { p.print(op); p.print(r) },
		Retried:      func(_ string, err error) { p.fail(err) },
		SessionReset: func(_ time.Duration, err error) { p.fail(err) },
		Health:       func(err error) { p.fail(err) },
		Connections: reservoir.Hooks{
			OpenFailed: func(err error, _ time.Duration) { p.fail(err) },
			Closing:    func(_ reservoir.Reason, cause error) { p.fail(cause) },
			Closed:     func(_ reservoir.Reason, err error) { p.fail(err) },
			WaitEnd:    func(_ time.Duration, err error) { p.fail(err) },
			Leaked:     func(l reservoir.Leak) { p.print(l) },
		},
	}
}

// overADBC is short and in real time: ADBC's driver has finalizers that must not
// touch a bubble.
func (p *secretsProver) overADBC(t *testing.T) {
	opts := testserver.Options{}
	_, auth := p.auth(&opts)
	srv, err := testserver.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := adbcpool.Open(t.Context(), srv.URI(), flightpool.Config{Auth: auth, Headers: metadata.MD{"x-api-key": {p.secret()}}, Hooks: p.hooks()})
	if p.fail(err); err == nil {
		_, err = pool.Update(t.Context(), "INSERT INTO nowhere VALUES (1)")
		p.fail(err)
		p.print(pool)
		p.fail(pool.Close(t.Context()))
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = adbcpool.Open(t.Context(), srv.URI(), flightpool.Config{Auth: auth})
	p.fail(err)
}

func oneInt() arrow.RecordBatch {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.Append(1)
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil)
	return array.NewRecordBatch(schema, []arrow.Array{b.NewArray()}, 1)
}
