package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/reservoir"
)

// A link is one bare connection: what is sent is what was asked for, without the
// care that a pool takes.
type link struct {
	exam *exam
	pool *flightpool.FlightSQLPool
	loan reservoir.Loan[backend.Conn]
	conn backend.Conn
	tap  *tap
}

// pool makes a pool that does nothing by itself.
func (e *exam) pool(ctx context.Context, change func(*flightpool.Config, *tap)) (*flightpool.FlightSQLPool, *tap, error) {
	t := &tap{tls: &e.tls}
	cfg := e.Config
	cfg.MinIdle, cfg.MaxSize, cfg.DisableRetry = -1, 2, true
	cfg.OpenRetry = flightpool.OpenRetryNever
	cfg.HealthCheck = flightpool.HealthCheck{SQL: e.probe, Interval: -1, FailureThreshold: -1}
	if e.header != "" {
		cfg.SessionHeader = e.header
	}
	if change != nil {
		change(&cfg, t)
	}
	cfg.DialOptions = append(append([]grpc.DialOption{}, cfg.DialOptions...),
		grpc.WithChainUnaryInterceptor(t.unary), grpc.WithChainStreamInterceptor(t.stream))
	pool, err := flightpool.New(ctx, e.Target, cfg)
	return pool, t, err
}

// connect opens a bare connection.
func (e *exam) connect(ctx context.Context, change func(*flightpool.Config, *tap)) (*link, error) {
	pool, t, err := e.pool(ctx, change)
	if err != nil {
		return nil, err
	}
	l := &link{exam: e, pool: pool, tap: t}
	bound := cmp.Or(e.Config.DialTimeout, openPatience) + time.Second // so that the open tells why it fails
	if t.noCookies {
		bound = openPatience
	}
	waiting, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	if l.loan, err = pool.Reservoir().Acquire(waiting); err != nil {
		l.closePool(ctx)
		var known *flightpool.Error
		if errors.As(err, &known) {
			err = known // what goes before it are words of the pool's insides
		}
		switch fault := backend.FaultIn(err); {
		case fault == backend.FaultAuth: // of what it was opened with
		case !t.noCookies, fault == backend.FaultTransport, fault == backend.FaultLimit:
			_ = e.heard(err)
		}
		return nil, err
	}
	l.conn = l.loan.Value()
	return l, nil
}

// openPatience bounds an open without cookies: a server that replaces the session of
// each call, as where a cookie is wanted and not sent, is asked again and again.
// Otherwise it stands where Config has no DialTimeout.
const openPatience = 5 * time.Second

var errExamined = errors.New("examined")

func (l *link) close(ctx context.Context) {
	_ = l.loan.Discard(errExamined) // the session goes with its connection
	l.closePool(ctx)
}

func (l *link) closePool(ctx context.Context) { closePool(ctx, l.pool) }

func closePool(ctx context.Context, pool *flightpool.FlightSQLPool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	_ = pool.Close(ctx) // whatever is left is cut
}

// change runs a statement without rows, as a query where the server takes no updates.
func (e *exam) change(ctx context.Context, l *link, sql string, call backend.Call) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !e.byQuery {
		_, err := l.conn.Update(ctx, sql, call)
		_ = e.heard(err)
		if err == nil || backend.FaultIn(err) != backend.FaultUnsupported {
			return err
		}
	}
	_, err := l.query(ctx, sql, call)
	if err == nil {
		e.byQuery = true
	}
	return err
}

// query runs a statement and gives the first value of its first row as text.
func (l *link) query(ctx context.Context, sql string, call backend.Call) (value string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer func() { _ = l.exam.heard(err) }()
	rows, err := l.conn.Query(ctx, sql, call)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	for first := true; ; {
		batch, err := rows.Next()
		switch {
		case err == io.EOF: //nolint:errorlint // what wraps it is a failure
			return value, nil
		case err != nil:
			return "", err
		case first && batch.NumRows() > 0 && batch.NumCols() > 0:
			value, first = strings.Clone(batch.Column(0).ValueStr(0)), false
		}
	}
}

// drop drops a table that may be ours, on another connection where this one has failed: its
// session may still be in a transaction, and ends before. One that stays is told of.
func (e *exam) drop(ctx context.Context, l *link, table string) {
	ctx = context.WithoutCancel(ctx) // each step has its own patience
	err := e.change(ctx, l, "DROP TABLE "+table, backend.Call{})
	if err == nil {
		return
	}
	l.close(ctx)
	other, failed := e.connect(ctx, nil)
	if failed == nil {
		defer other.close(ctx)
		if err = e.change(ctx, other, "DROP TABLE "+table, backend.Call{}); err == nil {
			return
		}
		if _, gone := other.count(ctx, table, backend.Call{}); gone != nil && refused(gone) {
			return // it was not made, or the answer to the first was lost
		}
	}
	e.left = append(e.left, Finding{"left behind", table, "drop it by hand: " + firstLine(err)})
}

// count is how many rows a table has.
func (l *link) count(ctx context.Context, table string, call backend.Call) (int, error) {
	value, err := l.query(ctx, "SELECT count(*) FROM "+table, call)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(value)
}

// temporary makes a temporary table with one whole number per row.
func (e *exam) temporary(ctx context.Context, l *link) (name string, err error) {
	name = e.name()
	for _, column := range []string{"(i BIGINT PRIMARY KEY)", "(i BIGINT)"} {
		for _, word := range []string{"TEMP", "TEMPORARY"} {
			err = e.change(ctx, l, "CREATE "+word+" TABLE "+name+" "+column, backend.Call{})
			if err == nil {
				return name, nil
			} else if !refused(err) {
				return "", err
			}
		}
	}
	return "", err
}

// A tap sees the headers of a connection, and changes them.
type tap struct {
	noCookies  bool   // sends none
	present    string // instead of the connection's own authorization
	handshakes atomic.Int64
	tls        *atomic.Pointer[tls.ConnectionState]

	mu     sync.Mutex
	sent   string // the latest authorization
	cookie string // the name of the latest cookie that the server has set
}

func (t *tap) authorization() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent
}

func (t *tap) cookieName() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cookie
}

func (t *tap) rewrite(ctx context.Context, method string) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	if md == nil {
		md = metadata.MD{}
	}
	if strings.HasSuffix(method, "/Handshake") {
		t.handshakes.Add(1)
		return ctx
	}
	if t.noCookies {
		md.Delete("cookie")
	}
	if t.present != "" {
		md.Set("authorization", t.present)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if sent := md.Get("authorization"); len(sent) > 0 {
		t.sent = sent[0]
	}
	return metadata.NewOutgoingContext(ctx, md)
}

func (t *tap) learn(reply metadata.MD) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, cookie := range reply.Get("set-cookie") {
		t.cookie, _, _ = strings.Cut(cookie, "=")
	}
}

func (t *tap) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	var header, trailer metadata.MD
	var server peer.Peer
	err := invoke(t.rewrite(ctx, method), method, req, reply, cc, append(opts, grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&server))...)
	if info, ok := server.AuthInfo.(credentials.TLSInfo); ok {
		t.tls.Store(&info.State)
	}
	t.learn(header)
	t.learn(trailer)
	return err
}

func (t *tap) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(t.rewrite(ctx, method), desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &tapped{stream, t}, nil
}

type tapped struct {
	grpc.ClientStream
	t *tap
}

// RecvMsg is grpc.ClientStream's.
func (s *tapped) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if header, _ := s.Header(); header != nil {
		s.t.learn(header)
	}
	return err
}

// wait pauses, or ends with ctx.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
