package dsql_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/memnet"
)

// A simulated is a DSQL cluster in memory, for bubbles of testing/synctest: it speaks
// PostgreSQL's protocol over TLS, knows the statements of the random programs, and may
// fail before, at and after everything that it is sent. What is stored is its ledger.
type simulated struct {
	t        *testing.T
	listener *memnet.Listener
	cert     tls.Certificate
	client   *tls.Config
	limit    int           // sessions at once
	life     time.Duration // of a session
	lag      time.Duration // at most, before each message
	rate     int           // of 1000 messages fail
	quiet    atomic.Bool   // nothing fails any more
	refusals atomic.Int32  // opens that are refused from now on, by the code in refusal
	refusal  atomic.Value

	serving sync.WaitGroup

	mu       sync.Mutex
	chance   *rand.Rand
	stored   map[int]int
	reached  map[int]int // statements with this number that were carried out, stored or not
	versions map[int]int // of keys, for conflicts
	sessions map[uint32]*simSession
	nextPID  uint32
	size     int // how many the client may have
	opened   int
	broken   []string // what must not happen
	bucket   float64
	filled   time.Time
	counts   map[string]int
}

const simHost = "aaaaaaaaaaaaaaaaaaaaaaaaaa.dsql.us-east-1.on.aws"

func startSimulated(t *testing.T, chance *rand.Rand) *simulated {
	t.Helper()
	s := &simulated{
		t: t, listener: memnet.New("dsql"), chance: chance, limit: 1000, life: time.Hour, counts: map[string]int{},
		stored: map[int]int{}, reached: map[int]int{}, versions: map[int]int{}, sessions: map[uint32]*simSession{}, bucket: 1000, filled: time.Now(),
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "simulated"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * 365 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, DNSNames: []string{simHost},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(crand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	s.cert = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	ca, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	s.client = &tls.Config{RootCAs: roots}
	go s.accept()
	return s
}

func (s *simulated) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.serving.Go(func() { s.serve(conn) })
	}
}

func (s *simulated) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	return s.listener.Dial(ctx, addr)
}

// n draws a number below most.
func (s *simulated) n(most int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chance.IntN(most)
}

func (s *simulated) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

// fails says whether something fails here.
func (s *simulated) fails() bool { return !s.quiet.Load() && s.n(1000) < s.rate }

func (s *simulated) pause() {
	if s.lag > 0 && !s.quiet.Load() {
		time.Sleep(time.Duration(s.n(int(s.lag))))
	}
}

// live is how many sessions there are.
func (s *simulated) live() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// present is how many of them the client has not left.
func (s *simulated) present() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.sessions {
		if !c.hasGone() {
			n++
		}
	}
	return n
}

// each does something to every session.
func (s *simulated) each(f func(*simSession)) {
	s.mu.Lock()
	var all []*simSession
	for _, c := range s.sessions {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		f(c)
	}
}

var discardLogger = slog.New(slog.DiscardHandler)

// serve is one connection from its first byte.
func (s *simulated) serve(raw net.Conn) {
	defer func() { _ = raw.Close() }()
	code, _, err := readSimStartup(raw)
	if err != nil || code != 80877103 {
		return
	}
	if _, err := raw.Write([]byte("S")); err != nil {
		return
	}
	conn := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{s.cert}, MinVersion: tls.VersionTLS12})
	code, body, err := readSimStartup(conn)
	if err != nil {
		return
	}
	if code == 80877102 {
		s.cancel(body)
		return
	}
	if c := s.login(raw, conn, body); c != nil {
		c.run()
	}
}

func readSimStartup(r io.Reader) (code uint32, body []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	body = make([]byte, binary.BigEndian.Uint32(head[:])-4)
	copy(body, head[4:])
	_, err = io.ReadFull(r, body[4:])
	return binary.BigEndian.Uint32(head[4:]), body, err
}

// cancel carries out a request to cancel, now or later.
func (s *simulated) cancel(body []byte) {
	if s.fails() {
		switch s.n(3) {
		case 0:
			return // it is lost
		case 1:
			time.Sleep(time.Duration(s.n(int(2 * time.Second))))
		}
	}
	s.mu.Lock()
	c := s.sessions[binary.BigEndian.Uint32(body[4:])]
	s.mu.Unlock()
	if c != nil && string(body[8:]) == string(c.secret) {
		select {
		case c.canceled <- struct{}{}:
		default:
		}
	}
}

// login admits a session, or refuses it.
func (s *simulated) login(raw net.Conn, conn *tls.Conn, startup []byte) *simSession {
	var start pgproto3.StartupMessage
	if start.Decode(startup) != nil {
		return nil
	}
	if writeSim(conn, &pgproto3.AuthenticationCleartextPassword{}) != nil {
		return nil
	}
	kind, body, err := readSimMessage(conn)
	if err != nil || kind != 'p' {
		return nil
	}
	s.pause()
	if s.fails() {
		switch s.n(3) {
		case 0:
			return nil
		case 1:
			_ = raw.SetDeadline(time.Now().Add(time.Hour)) // it hangs
			_, _ = conn.Read(make([]byte, 1))
			return nil
		case 2:
			time.Sleep(time.Duration(s.n(int(3 * time.Second))))
		}
	}
	if why := s.refuses(string(bytes.TrimSuffix(body, []byte{0}))); why != "" {
		_ = writeSim(conn, &pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: why, Message: "refused"})
		return nil
	}
	c := &simSession{simulated: s, raw: raw, conn: conn, tx: 'I', canceled: make(chan struct{}, 1), gone: make(chan struct{}), in: make(chan simMessage, 1000), prepared: map[string]string{}, mem: "4MB", secret: []byte{1, 2, 3, byte(s.n(256))}, opened: time.Now()}
	s.mu.Lock()
	if len(s.sessions) >= s.limit {
		s.mu.Unlock()
		_ = writeSim(conn, &pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "53300", Message: "too many"})
		return nil
	}
	s.nextPID++
	c.pid = s.nextPID
	s.sessions[c.pid] = c
	s.opened++
	s.mu.Unlock()
	s.serving.Go(c.read)
	if n := s.present(); n > s.size {
		time.Sleep(20 * time.Millisecond) // those that the client has left are seen by then
		if n := s.present(); n > s.size && !c.hasGone() {
			s.fail(fmt.Sprintf("%d sessions of %d", n, s.size))
		}
	}
	if writeSim(conn, &pgproto3.AuthenticationOk{}, &pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"},
		&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"},
		&pgproto3.BackendKeyData{ProcessID: c.pid, SecretKey: c.secret}, &pgproto3.ReadyForQuery{TxStatus: 'I'}) != nil {
		c.forget()
		return nil
	}
	return c
}

// refuses says by which code an open is refused.
func (s *simulated) refuses(token string) string {
	u, err := url.Parse("https://" + token)
	if err != nil {
		return "08006"
	}
	q := u.Query()
	made, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
	lasts, errLasts := strconv.Atoi(q.Get("X-Amz-Expires"))
	if err != nil || errLasts != nil || time.Since(made) > time.Duration(lasts)*time.Second {
		s.fail("a token that has expired: " + q.Get("X-Amz-Date") + " " + q.Get("X-Amz-Expires"))
		return "08006"
	}
	if s.refusals.Add(-1) >= 0 {
		return s.refusal.Load().(string)
	}
	s.refusals.Store(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.bucket = min(1000, s.bucket+100*now.Sub(s.filled).Seconds())
	s.filled = now
	if s.bucket < 1 {
		return "53400"
	}
	s.bucket--
	return ""
}

func (s *simulated) fail(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = append(s.broken, what)
}

func writeSim(w io.Writer, messages ...pgproto3.BackendMessage) error {
	var out []byte
	for _, m := range messages {
		var err error
		if out, err = m.Encode(out); err != nil {
			return err
		}
	}
	_, err := w.Write(out)
	return err
}

func readSimMessage(r io.Reader) (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	body = make([]byte, binary.BigEndian.Uint32(head[1:])-4)
	_, err = io.ReadFull(r, body)
	return head[0], body, err
}
