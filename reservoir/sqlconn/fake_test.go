package sqlconn_test

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// A server is a fake database: a connector that remembers what reached it.
type server struct {
	mu     sync.Mutex
	conns  []*session
	refuse error
	hang   chan struct{} // opens that ignore their context wait for it
	moves  bool          // every session is on a server of its own
	deaf   bool          // no session answers a KILL

	started   time.Time     // of a session's life: zero is long ago
	noUptime  error         // the answer to the question for it
	stuckEnds chan struct{} // COMMIT and ROLLBACK wait for it

	stuckRollback chan struct{} // ROLLBACK as a statement waits for it

	fail map[string]error // the answers of sessions that are opened from now on

	stuckIdentify chan struct{} // the question for a session's number waits for it
	mostOpen      int           // sessions at a time
}

func (s *server) Connect(context.Context) (driver.Conn, error) {
	if s.hang != nil {
		<-s.hang
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return nil, s.refuse
	}
	c := &session{fail: maps.Clone(s.fail), number: int64(len(s.conns) + 7), server: "here"}
	if c.fail == nil {
		c.fail = map[string]error{}
	}
	c.deaf, c.of = s.deaf, s
	if s.moves {
		c.server = fmt.Sprint("server of ", c.number)
	}
	s.conns = append(s.conns, c)
	open := 0
	for _, each := range s.conns {
		if each.closes() == 0 {
			open++
		}
	}
	s.mostOpen = max(s.mostOpen, open)
	return c, nil
}

func (s *server) Driver() driver.Driver { return nil }

func (s *server) session(i int) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[i]
}

// A session is a connection of a driver with the interfaces that matter.
type session struct {
	mu     sync.Mutex
	log    []string
	fail   map[string]error
	closed int
	asks   int  // whether it is valid
	dead   bool // the driver has given the connection up
	number int64
	server string
	deaf   bool // answers no KILL
	of     *server
	ends   func() // called by X and BEGIN

	// transactions, if set, is the error of ROLLBACK outside of a transaction, and
	// of BEGIN inside.
	transactions  error
	inTransaction bool
}

func (s *session) transact(query string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.transactions == nil || query != "BEGIN" && query != "ROLLBACK" {
		return nil
	}
	if s.inTransaction == (query == "BEGIN") {
		return s.transactions
	}
	s.inTransaction = !s.inTransaction
	return nil
}

func (s *session) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asks
}

func (s *session) IsValid() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asks++
	return !s.dead
}

// setBusy has the driver say that it is not valid, as one does while rows are open.
func (s *session) setBusy(busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = busy
}

// slow is a statement that ends with its context, and the connection with it.
const slow = "SLOW"

func (s *session) slow(ctx context.Context, query string) error {
	if query != slow && (!s.deaf || !strings.HasPrefix(query, "KILL")) {
		return nil
	}
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
	return ctx.Err()
}

func (s *session) did(what string) error {
	if s.ends != nil && (what == "X" || what == "BEGIN") {
		s.ends()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, what)
	return s.fail[what]
}

func (s *session) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

func (s *session) closes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
	return nil
}

func (s *session) Prepare(string) (driver.Stmt, error) {
	return nil, cmp.Or(s.did("prepare"), errors.New("no statements here"))
}
func (s *session) Begin() (driver.Tx, error)          { return tx{s}, s.did("BEGIN") }
func (s *session) Ping(context.Context) error         { return s.did("ping") }
func (s *session) ResetSession(context.Context) error { return s.did("reset session") }

func (s *session) ExecContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	err := s.did(query)
	if query == "ROLLBACK" && s.of.stuckRollback != nil {
		<-s.of.stuckRollback
	}
	return driver.RowsAffected(1), errors.Join(err, s.transact(query), s.slow(ctx, query))
}

func (s *session) QueryContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	if query == sqlconn.MySQL.IdentifySQL {
		if s.of.stuckIdentify != nil {
			<-s.of.stuckIdentify
		}
		return &rows{left: 1, values: []driver.Value{s.number, s.server}}, nil
	}
	if query == sqlconn.MySQL.UptimeSQL {
		return &rows{left: 1, values: []driver.Value{"Uptime", fmt.Appendf(nil, "%d", int64(time.Since(s.of.started).Seconds()))}}, s.of.noUptime
	}
	if err := errors.Join(s.did(query), s.slow(ctx, query)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &rows{left: 2, values: []driver.Value{int64(1)}, next: s.fail["next"], nextSet: s.fail["next set"], close: s.fail["close"]}, nil
}

type tx struct{ s *session }

func (t tx) Commit() error   { return t.end("COMMIT") }
func (t tx) Rollback() error { return t.end("tx rollback") }

func (t tx) end(what string) error {
	if t.s.of.stuckEnds != nil {
		<-t.s.of.stuckEnds
	}
	return t.s.did(what)
}

type rows struct {
	left                 int
	values               []driver.Value
	next, nextSet, close error
}

func (r *rows) Columns() []string      { return make([]string, len(r.values)) }
func (r *rows) Close() error           { return r.close }
func (r *rows) HasNextResultSet() bool { return r.nextSet != nil }
func (r *rows) NextResultSet() error   { return r.nextSet }
func (r *rows) Next(dest []driver.Value) error {
	if r.left == 1 && r.next != nil {
		return r.next
	}
	if r.left == 0 {
		return io.EOF
	}
	r.left--
	copy(dest, r.values)
	return nil
}
