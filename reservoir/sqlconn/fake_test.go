package sqlconn_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
	"sync"
)

// A server is a fake database: a connector that remembers what reached it.
type server struct {
	mu     sync.Mutex
	conns  []*session
	refuse error
	hang   chan struct{} // opens that ignore their context wait for it
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
	c := &session{fail: map[string]error{}}
	s.conns = append(s.conns, c)
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
}

func (s *session) did(what string) error {
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

func (s *session) Prepare(string) (driver.Stmt, error) { return nil, errors.New("no statements here") }
func (s *session) Begin() (driver.Tx, error)           { return tx{s}, s.did("BEGIN") }
func (s *session) Ping(context.Context) error          { return s.did("ping") }
func (s *session) ResetSession(context.Context) error  { return s.did("reset session") }

func (s *session) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), s.did(query)
}

func (s *session) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	if err := s.did(query); err != nil {
		return nil, err
	}
	return &rows{left: 2}, nil
}

type tx struct{ s *session }

func (t tx) Commit() error   { return t.s.did("COMMIT") }
func (t tx) Rollback() error { return t.s.did("tx rollback") }

type rows struct{ left int }

func (*rows) Columns() []string { return []string{"n"} }
func (*rows) Close() error      { return nil }
func (r *rows) Next(dest []driver.Value) error {
	if r.left == 0 {
		return io.EOF
	}
	r.left--
	dest[0] = int64(1)
	return nil
}
