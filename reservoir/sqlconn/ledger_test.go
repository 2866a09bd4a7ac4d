package sqlconn_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// A database of the random programs: it stores numbers, has transactions with savepoints, and
// sessions with settings. Its driver fails in every way that drivers do. It is the ledger by
// which they are judged.
type database struct {
	t     *testing.T
	rand  *rand.Rand // guarded by mu
	kind  sqlconn.Kind
	style style

	mu       sync.Mutex
	stored   map[int]int
	sessions []*dbSession
	calm     bool // no faults any more
	talks    bool // about every call

	live  bool                 // calls take real time, and contexts end within them
	armed []context.CancelFunc // of contexts that end at some moment of a call

	refuseEnds bool // of transactions, which stay open
	loseBegins bool // of transactions, which are open all the same
}

// style is how the server and its driver behave.
type style struct {
	abortsTx    bool // a failed statement aborts the transaction
	oneCall     bool // the driver takes no call beside open rows
	busyCloses  bool // and closes the connection at one
	skips       bool // statements have to be prepared
	noValidator bool // it does not tell that it is dead
	cancels     bool // the end of a context stops the statement; else it closes the connection
	strictTx    bool // ROLLBACK outside of a transaction fails, and BEGIN inside of one
	keepsCtx    bool // COMMIT has the context of BEGIN; in live worlds only
}

type dbSession struct {
	db     *database
	number int

	// guarded by db.mu
	inTx, aborted bool
	pending       []int
	savepoints    []int
	colour        string
	openRows      int
	calls         int // of the driver, under way
	dead, gone    bool
	closes        int
	latestLoan    int
	rolledBack    bool // behind a context that has ended
}

var (
	errDBRefused = errors.New("the database refuses it")
	errDBLost    = errors.New("lost: " + io.ErrUnexpectedEOF.Error())
)

func (d *database) fail(format string, args ...any) { d.t.Errorf(format, args...) }

// note is for whoever repeats a seed. The lock is held.
func (d *database) note(format string, args ...any) {
	if d.talks {
		d.t.Logf(format, args...)
	}
}

func (d *database) Driver() driver.Driver { return nil }

func (d *database) Connect(ctx context.Context) (driver.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.calm && d.rand.IntN(25) == 0 {
		return nil, errDBRefused
	}
	s := &dbSession{db: d, number: len(d.sessions)}
	d.sessions = append(d.sessions, s)
	return s, nil
}

// enter begins a call of the driver.
func (s *dbSession) enter(what string) (leave func()) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if s.calls++; s.calls > 1 {
		s.db.fail("session %d: %s beside another call", s.number, what)
	}
	if s.closes > 0 {
		s.db.fail("session %d: %s after the close", s.number, what)
	}
	return func() {
		s.db.mu.Lock()
		defer s.db.mu.Unlock()
		s.calls--
	}
}

var loanOf = regexp.MustCompile(`/\*loan (\d+)\*/`)

// refuse looks at what is to be sent. The lock is held.
func (s *dbSession) refuse(query string) error {
	if found := loanOf.FindStringSubmatch(query); found != nil {
		loan, _ := strconv.Atoi(found[1])
		if loan < s.latestLoan {
			s.db.fail("session %d: %q of an earlier loan than %d", s.number, query, s.latestLoan)
		}
		s.latestLoan = max(s.latestLoan, loan)
	}
	if s.dead || s.gone {
		s.dead = true
		return driver.ErrBadConn
	}
	if s.openRows > 0 && s.db.style.oneCall {
		s.dead = s.dead || s.db.style.busyCloses
		return driver.ErrBadConn
	}
	return nil
}

// call is one statement, or what stands for one: it may fail before, in the middle and after.
func (s *dbSession) call(ctx context.Context, query string, do func() error) (err error) {
	defer s.enter(query)()
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	defer func() {
		s.db.note("session %d: %s: %v, in a transaction: %v, open rows: %d", s.number, query, err, s.inTx, s.openRows)
	}()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.refuse(query); err != nil {
		return err
	}
	if s.db.live {
		return s.liveCall(ctx, query, do)
	}
	fault := s.db.rand.IntN(40)
	if s.db.calm {
		fault = 39
	}
	switch {
	case fault == 0:
		s.dead, s.gone = true, true
		s.rollBack()
		return driver.ErrBadConn // nothing was sent
	case fault == 1:
		s.dead, s.gone = true, true
		s.rollBack()
		return errDBLost
	case fault == 2:
		_ = do()
		s.dead, s.gone = true, true
		s.rollBack()
		return errDBLost
	case fault == 3:
		s.aborted = s.inTx && s.db.style.abortsTx
		return errDBRefused
	case fault == 4:
		panic("the driver's")
	case fault < 9:
		return s.slow(ctx, do)
	case fault == 9 && s.mayHang(ctx, query):
		s.hang()
	}
	return do()
}

// endableKey is of the context of a transaction that may end before it.
type endableKey struct{}

// mayHang reports whether a call is one of those whose wait is bounded whatever the driver does, and
// no other waits for it by a lock meanwhile.
func (s *dbSession) mayHang(ctx context.Context, query string) bool {
	bounded := query == "BEGIN" || query == "COMMIT" || query == "ROLLBACK" || query == s.db.kind.RollbackSQL
	return bounded && s.openRows == 0 && ctx.Value(endableKey{}) == nil
}

// hang does not look at any context. The lock is held, but not meanwhile.
func (s *dbSession) hang() {
	takes := time.Duration(s.db.rand.IntN(4500)) * time.Millisecond
	s.db.mu.Unlock()
	time.Sleep(takes)
	s.db.mu.Lock()
}

// slow takes its time, within which the context may end. The lock is held, but not meanwhile.
//
// While something is open, or behind a rollback at the end of a context, with which database/sql closes
// the connection, that may wait by a lock for the end of this call, and time does not go on in a bubble.
// Then only other goroutines do.
func (s *dbSession) slow(ctx context.Context, do func() error) error {
	steps, takes := 0, time.Duration(s.db.rand.IntN(200))*time.Millisecond
	if s.inTx || s.openRows > 0 || s.rolledBack {
		steps, takes = s.db.rand.IntN(100), 0
	}
	s.db.mu.Unlock()
	for ; steps > 0 && ctx.Err() == nil; steps-- {
		runtime.Gosched()
	}
	if takes > 0 {
		timer := time.NewTimer(takes)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	s.db.mu.Lock()
	if ctx.Err() == nil {
		return do()
	}
	switch {
	case s.db.style.cancels:
		s.aborted = s.inTx && s.db.style.abortsTx
		return ctx.Err()
	case s.db.rand.IntN(2) == 0: // the server is done before it sees that the driver has gone
		_ = do()
		s.rollBack()
	default:
		s.rollBack()
	}
	s.dead, s.gone = true, true
	return ctx.Err()
}

func (s *dbSession) rollBack() { s.inTx, s.aborted, s.pending, s.savepoints = false, false, nil, nil }

// run is a statement. The lock is held.
func (s *dbSession) run(query string) error {
	text, _, _ := strings.Cut(query, "/*")
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil
	}
	if s.aborted && words[0] != "ROLLBACK" && words[0] != "COMMIT" {
		return errDBRefused
	}
	switch {
	case words[0] == "INSERT":
		n, _ := strconv.Atoi(words[1])
		if s.inTx {
			s.pending = append(s.pending, n)
		} else {
			s.db.stored[n]++
		}
	case words[0] == "COLOUR", words[0] == "SET" && len(words) == 2:
		s.colour = words[1]
	case words[0] == "SAVEPOINT" && s.inTx:
		s.savepoints = append(s.savepoints, len(s.pending))
	case strings.HasPrefix(text, "ROLLBACK TO"):
		if len(s.savepoints) == 0 {
			return errDBRefused
		}
		s.pending, s.aborted = s.pending[:s.savepoints[len(s.savepoints)-1]], false
	case words[0] == "BEGIN":
		if s.inTx && s.db.style.strictTx {
			return errDBRefused
		}
		s.inTx = true
	case words[0] == "COMMIT":
		return s.commit()
	case words[0] == "ROLLBACK", strings.HasPrefix(query, "IF @@TRANCOUNT"):
		if !s.inTx && s.db.style.strictTx && s.db.kind.RollbackSQL == "" {
			return errDBRefused
		}
		s.rollBack()
	case words[0] == "KILL":
		number, _ := strconv.Atoi(words[1])
		if killed := s.db.sessions[number]; !killed.dead && !killed.gone {
			s.db.fail("session %d kills %d, which is in use", s.number, number)
		}
	case strings.Contains(query, "RESET ALL"), strings.Contains(query, "SESSION RESET"):
		s.colour = ""
	}
	return nil
}

func (s *dbSession) commit() error {
	if !s.inTx {
		return nil
	}
	aborted := s.aborted
	for _, n := range s.pending {
		if !aborted {
			s.db.stored[n]++
		}
	}
	s.rollBack()
	if aborted {
		return errDBRefused
	}
	return nil
}

func (s *dbSession) IsValid() bool {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if s.calls > 0 {
		s.db.fail("session %d: IsValid beside %d calls", s.number, s.calls)
	}
	return !s.dead || s.db.style.noValidator
}

func (s *dbSession) Close() error {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if s.closes++; s.closes > 1 || s.calls > 0 && !s.db.live {
		s.db.fail("session %d was closed for the time %d, beside %d calls", s.number, s.closes, s.calls)
	}
	s.dead, s.gone = true, true
	s.rollBack()
	return nil
}

func (s *dbSession) Ping(ctx context.Context) error {
	return s.call(ctx, "ping", func() error { return nil })
}

func (s *dbSession) ResetSession(context.Context) error {
	defer s.enter("reset session")()
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if s.dead {
		return driver.ErrBadConn
	}
	if len(s.db.kind.ResetSQL) == 0 {
		s.colour = ""
	}
	return nil
}

func (s *dbSession) Begin() (driver.Tx, error) { return nil, errors.New("no") }

func (s *dbSession) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	if err := s.call(ctx, "BEGIN", func() error { return s.begin(ctx) }); err != nil {
		return nil, err
	}
	return dbTx{s, ctx}, nil
}

// begin may fail when it has begun, as one whose context ends meanwhile. The lock is held.
func (s *dbSession) begin(ctx context.Context) error {
	err := s.run("BEGIN")
	if lost := s.db.loseBegins || !s.db.calm && s.db.rand.IntN(10) == 0; err != nil || !lost {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errDBRefused
}

type dbTx struct {
	s   *dbSession
	ctx context.Context
}

func (t dbTx) Commit() error { return t.end("COMMIT") }

func (t dbTx) Rollback() error {
	t.s.db.mu.Lock()
	t.s.rolledBack = t.s.rolledBack || t.ctx.Err() != nil
	t.s.db.mu.Unlock()
	return t.end("ROLLBACK")
}

// end ignores the context, as drivers do.
func (t dbTx) end(what string) error {
	ctx := context.WithValue(context.Background(), endableKey{}, t.ctx.Value(endableKey{}))
	if what == "COMMIT" && t.s.db.style.keepsCtx {
		ctx = t.ctx
	}
	return t.s.call(ctx, what, func() error {
		if t.s.db.refuseEnds {
			return errDBRefused
		}
		return t.s.run(what)
	})
}

func (s *dbSession) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if s.db.style.skips && len(args) > 0 {
		return nil, driver.ErrSkip
	}
	return driver.RowsAffected(1), s.call(ctx, query, func() error { return s.run(query) })
}

func (s *dbSession) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if s.db.style.skips && len(args) > 0 {
		return nil, driver.ErrSkip
	}
	var rows *dbRows
	err := s.call(ctx, query, func() error {
		if err := s.run(query); err != nil {
			return err
		}
		number, server := any(int64(s.number)), any("here")
		switch {
		case query == sqlconn.MySQL.UptimeSQL:
			number, server = "Uptime", int64(1<<30)
		case strings.HasPrefix(query, "STATE"):
			number, server = fmt.Sprintf("%v %v", s.inTx, s.colour), int64(s.openRows)
		}
		rows = &dbRows{s: s, ctx: ctx, left: 2, values: []driver.Value{number, server}}
		if strings.HasPrefix(query, "SHOW") || strings.HasPrefix(query, "STATE") || query == sqlconn.MySQL.IdentifySQL {
			rows.left = 1
		}
		s.openRows++
		return nil
	})
	if err != nil {
		if rows != nil { // the context has ended when they were there
			s.db.mu.Lock()
			s.openRows--
			s.db.mu.Unlock()
		}
		return nil, err
	}
	return rows, nil
}

func (s *dbSession) Prepare(string) (driver.Stmt, error) { return nil, errors.New("no") }

func (s *dbSession) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := s.call(ctx, "prepare "+query, func() error { return nil }); err != nil {
		return nil, err
	}
	return &dbStmt{s, query}, nil
}

type dbStmt struct {
	s     *dbSession
	query string
}

func (st *dbStmt) Close() error                               { return nil }
func (st *dbStmt) NumInput() int                              { return -1 }
func (st *dbStmt) Exec([]driver.Value) (driver.Result, error) { return nil, errors.New("no") }
func (st *dbStmt) Query([]driver.Value) (driver.Rows, error)  { return nil, errors.New("no") }

func (st *dbStmt) ExecContext(ctx context.Context, _ []driver.NamedValue) (driver.Result, error) {
	return st.s.ExecContext(ctx, st.query, nil)
}

func (st *dbStmt) QueryContext(ctx context.Context, _ []driver.NamedValue) (driver.Rows, error) {
	return st.s.QueryContext(ctx, st.query, nil)
}

type dbRows struct {
	s      *dbSession
	ctx    context.Context
	left   int
	values []driver.Value
	closed bool
}

func (r *dbRows) Columns() []string { return make([]string, len(r.values)) }

func (r *dbRows) Close() error {
	defer r.s.enter("the close of rows")()
	r.s.db.mu.Lock()
	defer r.s.db.mu.Unlock()
	if r.s.db.live {
		r.s.pause(r.ctx)
	}
	if !r.closed {
		r.closed = true
		r.s.openRows--
	}
	return nil
}

func (r *dbRows) Next(dest []driver.Value) error {
	defer r.s.enter("next")()
	r.s.db.mu.Lock()
	defer r.s.db.mu.Unlock()
	if r.s.db.live {
		r.s.pause(r.ctx)
	}
	switch {
	case r.ctx.Err() != nil && !r.s.db.style.cancels:
		r.s.dead, r.s.gone = true, true
		r.s.rollBack()
		return r.ctx.Err()
	case r.ctx.Err() != nil:
		return r.ctx.Err()
	case r.s.dead:
		return driver.ErrBadConn
	case !r.s.db.calm && r.s.db.rand.IntN(40) == 0:
		r.s.dead, r.s.gone = true, true
		r.s.rollBack()
		return errDBLost
	case r.left == 0:
		return io.EOF
	}
	r.left--
	copy(dest, r.values)
	return nil
}
