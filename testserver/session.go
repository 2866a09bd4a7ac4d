package testserver

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/testserver/engine"
)

// session is one server session and the engine session under it.
type session struct {
	srv *Server
	key string
	id  int

	opened   chan struct{} // closed once engine or openErr is set
	engine   engine.Session
	openErr  error
	closedCh chan struct{} // closed once the engine session is closed

	// engineLock guards engine and the fields below: sending locks, receiving
	// unlocks.
	engineLock    chan struct{}
	tx            *transaction        // begun by action and not ended
	autoRecovered map[string]struct{} // transactions that AutoRecover has rolled back, whose client has not been told
	savepoints    map[string]string
	schemaCache   map[string]*arrow.Schema // what RunInBoth has learned
	ledgerInTx    bool                     // what the ledger was told of InTx

	mu struct {
		sync.Mutex
		ending         bool
		lastTx         uint64 // number of the latest
		lastStmt       uint64
		latestPrepared string       // the prepared statement made last, while it is open
		executions     []*execution // running or waiting for their turn, oldest first
		queued         int          // statements that MaxStatements keeps waiting
		prepared       map[string]*prepared
		options        map[string]*flight.SessionOptionValue
		expiry         *time.Timer
	}
}

// transaction is one that was begun by action.
type transaction struct{ id string }

func newSession(srv *Server, key string, id int) *session {
	s := &session{
		srv: srv, key: key, id: id,
		opened: make(chan struct{}), closedCh: make(chan struct{}), engineLock: make(chan struct{}, 1),
		autoRecovered: map[string]struct{}{}, savepoints: map[string]string{}, schemaCache: map[string]*arrow.Schema{},
	}
	s.mu.prepared = map[string]*prepared{}
	s.mu.options = map[string]*flight.SessionOptionValue{}
	return s
}

// restartTTL starts the time to live anew.
func (s *session) restartTTL() {
	ttl := s.srv.profile.SessionTTL
	if ttl == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.ending:
	case s.mu.expiry == nil:
		s.mu.expiry = time.AfterFunc(s.srv.untilExpiry(ttl), func() { s.srv.sessions.evict(s) })
	default:
		s.mu.expiry.Reset(s.srv.untilExpiry(ttl))
	}
}

// untilExpiry is how long from now a session lives that is used now and not again: until
// it is unused for longer than ttl, or the next round after that. A use at that very
// moment, which in virtual time is no rare one, comes first.
func (s *Server) untilExpiry(ttl time.Duration) time.Duration {
	every := s.profile.JanitorEvery
	if every == 0 {
		return ttl + 1
	}
	age := time.Since(s.began)
	return (age+ttl)/every*every + every - age + 1
}

// markEnding reports whether the caller is the one to end the session.
func (s *session) markEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ending {
		return false
	}
	s.mu.ending = true
	if s.mu.expiry != nil {
		s.mu.expiry.Stop()
	}
	return true
}

func (s *session) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.ending
}

// releaseAll frees all that the session holds. The caller holds engineLock.
func (s *session) releaseAll() {
	s.mu.Lock()
	statements := s.mu.prepared
	s.mu.prepared = map[string]*prepared{}
	s.mu.Unlock()
	for _, p := range statements {
		p.bind(nil)
	}
	_ = s.engine.Close()
	wasTx := s.ledgerInTx
	s.ledgerInTx = false
	s.srv.ledger.update(func(now *Snapshot) {
		now.Prepared -= len(statements)
		if wasTx {
			now.Transactions--
		}
	})
}

// newTxID names a transaction or savepoint.
func (s *session) newTxID() string { return s.nextID(&s.mu.lastTx) }

// nextID names what last counts.
func (s *session) nextID(last *uint64) string {
	if !s.srv.profile.CountedIDs {
		return rand.Text()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	*last++
	return countedID(*last)
}

func countedID(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

// checkID refuses what cannot be an id of this server.
func (p *Profile) checkID(what, id string) error {
	if p.CountedIDs && len(id) != len(countedID(0)) {
		return status.Errorf(codes.InvalidArgument, "invalid %s", what)
	}
	return nil
}

func (s *session) addExecution(x *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.executions = append(s.mu.executions, x)
}

func (s *session) removeExecution(x *execution) {
	s.mu.Lock()
	for i, o := range s.mu.executions {
		if o == x {
			s.mu.executions = append(s.mu.executions[:i:i], s.mu.executions[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
	close(x.done)
}

// interrupt ends all that runs or waits in the session.
func (s *session) interrupt(cause error) {
	s.mu.Lock()
	all := s.mu.executions
	s.mu.Unlock()
	for _, x := range all {
		x.cancel(cause)
	}
}

// inEngineTx reports whether a transaction is open, by whatever means.
func (s *session) inEngineTx(ctx context.Context) (in bool) {
	_ = s.withEngineLock(ctx, func() error {
		in = s.engine.InTx()
		return nil
	})
	return in
}

// maxSchemas bounds what a session remembers of the schemas of its queries.
const maxSchemas = 128

// cachedSchema is what the session has learned by running sql before: the
// cache of servers that run a query for its schema. It is stale when another
// session has changed the table.
func (s *session) cachedSchema(ctx context.Context, sql string) (schema *arrow.Schema, ok bool) {
	_ = s.withEngineLock(ctx, func() error {
		schema, ok = s.schemaCache[sql]
		return nil
	})
	return schema, ok
}

func (s *session) cacheSchema(ctx context.Context, sql string, schema *arrow.Schema) {
	_ = s.withEngineLock(ctx, func() error {
		if len(s.schemaCache) >= maxSchemas {
			clear(s.schemaCache)
		}
		s.schemaCache[sql] = schema
		return nil
	})
}

// clearSchemaCache empties the cache after a statement of this session that can
// change a table. The caller holds engineLock.
func (s *session) clearSchemaCache(sql string) {
	first, _, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(sql)), " ")
	if slices.Contains([]string{"CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "USE", "ATTACH", "DETACH"}, first) {
		clear(s.schemaCache)
	}
}
