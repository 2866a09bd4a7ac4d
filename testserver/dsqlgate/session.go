package dsqlgate

import (
	"bufio"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// A session is one connection from its admission on.
type session struct {
	gate   *Gate
	raw    net.Conn // the client's, below TLS
	client *tls.Conn
	in     *bufio.Reader // of client
	server net.Conn

	ended chan struct{} // closed when the session ends
	leave func()        // releases its admission, once

	mu sync.Mutex
	// INVARIANT: a session that was dropped is not frozen any more, and ended is
	// closed by the caller that has set dropped.
	frozen, dropped bool
	tx              transaction
	// INVARIANT: requests are those whose ReadyForQuery has not come, in
	// order; only the last can be open, which is: its end was not sent yet.
	requests     []*request
	limitReached bool // SessionLimit is over: the end comes with the transaction's
	timer        *time.Timer
}

// A request is what a client sends up to a Sync, or one simple query: the server
// answers it with one ReadyForQuery.
type request struct {
	open bool
	// replacement replaces the first error or completion in the answer.
	replacement *pgproto3.ErrorResponse
	// dropAtAnswer drops the connection in place of the first completion.
	dropAtAnswer bool
}

func newSession(g *Gate, raw net.Conn, client *tls.Conn, in *bufio.Reader, server net.Conn, leave func()) *session {
	return &session{
		gate: g, raw: raw, client: client, in: in, server: server,
		ended: make(chan struct{}), leave: leave, tx: transaction{status: 'I'},
	}
}

// run relays until one side ends.
func (s *session) run() {
	if limit := s.gate.opts.SessionLimit; limit > 0 {
		s.mu.Lock()
		s.timer = time.AfterFunc(limit, s.onSessionLimit)
		s.mu.Unlock()
		defer s.timer.Stop()
	}
	var relays sync.WaitGroup
	relays.Go(func() { s.upstream(); s.drop() })
	relays.Go(func() { s.downstream(); s.drop() })
	relays.Wait()
}

// onSessionLimit ends a session whose time is over: now, with its transaction, or when
// that has had TxLimit more.
func (s *session) onSessionLimit() {
	s.mu.Lock()
	over := s.limitReached || s.isIdle()
	s.limitReached = true
	if limit := s.gate.opts.TxLimit; !over && limit > 0 {
		s.timer.Reset(limit)
	}
	frozen := s.frozen
	s.mu.Unlock()
	if over && !frozen {
		s.gate.count("expired")
		s.drop()
	}
}

// isIdle says whether no request and no transaction is under way. The caller
// holds mu.
func (s *session) isIdle() bool { return s.tx.status == 'I' && len(s.requests) == 0 }

// drop ends the session: it counts no more, and then both sides see their
// connection closed. It may be called again.
func (s *session) drop() {
	s.mu.Lock()
	first := !s.dropped
	s.frozen, s.dropped = false, true
	s.mu.Unlock()
	if first {
		close(s.ended)
	}
	s.leave()
	_ = s.raw.Close() // that it is closed already is as good
	_ = s.server.Close()
}

// reset ends the session with a RST.
func (s *session) reset() {
	if tcp, ok := s.raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a failure leaves a FIN, which drop sends anyway
	}
	s.drop()
}

// freeze stops relaying: the client's connection stays open and is silent.
// forget gives its place back, as if the server had noticed a dead host.
func (s *session) freeze(forget bool) {
	s.mu.Lock()
	dropped := s.dropped
	s.frozen = !dropped
	s.mu.Unlock()
	if forget && !dropped {
		_ = s.server.Close() // downstream waits for the thaw all the same
		s.leave()
	}
}

// waitUnfrozen waits while the session is frozen and says whether it lives on.
func (s *session) waitUnfrozen() bool {
	s.mu.Lock()
	frozen := s.frozen
	s.mu.Unlock()
	if frozen {
		<-s.ended
	}
	return !frozen
}
