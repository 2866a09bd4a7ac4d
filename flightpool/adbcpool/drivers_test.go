package adbcpool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/lease"
)

// oddDriver is a driver of some database. Whatever it is asked takes its time, is refused,
// fails before it is done or after, heeds its context in any way or not at all, as its draws have it. It keeps
// account of what was stored, and of what is open.
type oddDriver struct {
	adbc.Database
	alloc *memory.CheckedAllocator

	mu     sync.Mutex
	rng    *rand.Rand
	calm   bool // nothing goes wrong any more
	stored map[int]int
	opened int
	closed int
	stmts  int // open
	rows   int // open
	wrong  []string
}

// oddConn is a connection of it, which is one session.
type oddConn struct {
	adbc.Connection
	d       *oddDriver
	inside  bool
	closed  bool
	manual  bool
	pending []int
	dirtyBy string // who has changed a setting
	txBy    string // whose statements are pending
}

type oddStmt struct {
	adbc.Statement
	c      *oddConn
	sql    string
	bound  arrow.RecordBatch
	closed bool
}

func (d *oddDriver) fault(f string, a ...any) { d.wrong = append(d.wrong, fmt.Sprintf(f, a...)) }

func (d *oddDriver) setCalm(calm bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calm = calm
}

// enter is a call of the driver on c. undone is what it fails with instead of doing anything, done what it
// fails with although it is done.
func (d *oddDriver) enter(ctx context.Context, c *oddConn, what string) (undone, done error) {
	d.mu.Lock()
	if c != nil && (c.inside || c.closed) {
		d.fault("%s: the connection is in another call (%t) or closed (%t)", what, c.inside, c.closed)
	}
	if c != nil {
		c.inside = true
	}
	how, takes := d.rng.IntN(24), time.Duration(d.rng.IntN(20))*time.Millisecond
	long, code := time.Duration(d.rng.IntN(4000))*time.Millisecond, d.rng.IntN(1000)
	if d.calm {
		how = 23
	}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if c != nil {
			c.inside = false
		}
	}()
	refusals := []adbc.Status{adbc.StatusNotFound, adbc.StatusInvalidArgument, adbc.StatusInvalidData, adbc.StatusIntegrity, adbc.StatusNotImplemented}
	failures := []adbc.Status{adbc.StatusIO, adbc.StatusInternal, adbc.StatusUnknown, adbc.StatusCancelled, adbc.StatusTimeout, adbc.StatusUnauthenticated}
	time.Sleep(takes)
	switch how {
	case 0:
		return adbc.Error{Code: refusals[code%len(refusals)], Msg: "refused"}, nil
	case 1:
		return adbc.Error{Code: failures[code%len(failures)], Msg: "failed before"}, nil
	case 2:
		return nil, adbc.Error{Code: failures[code%(len(failures)-1)], Msg: "failed after"}
	case 3, 4, 5:
		timer := time.NewTimer(long)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
		}
		err := ctx.Err()
		if code%2 == 0 {
			err = adbc.Error{Code: adbc.StatusCancelled, Msg: err.Error()}
		}
		if code%3 == 0 {
			return nil, err
		}
		return err, nil
	case 6:
		time.Sleep(long)
	}
	return nil, nil
}

func (d *oddDriver) Open(ctx context.Context) (adbc.Connection, error) {
	if undone, _ := d.enter(ctx, nil, "Open"); undone != nil {
		return nil, undone
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opened++
	return &oddConn{d: d}, nil
}

func (c *oddConn) Close() error {
	undone, done := c.d.enter(context.Background(), c, "Close")
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.closed = true
	c.d.closed++
	return errors.Join(undone, done)
}

func (c *oddConn) GetInfo(context.Context, []adbc.InfoCode) (array.RecordReader, error) {
	return nil, adbc.Error{Code: adbc.StatusNotImplemented}
}

func (c *oddConn) NewStatement() (adbc.Statement, error) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.d.stmts++
	return &oddStmt{c: c}, nil
}

func (c *oddConn) SetOption(_, value string) error {
	undone, done := c.d.enter(context.Background(), c, "autocommit")
	if undone != nil {
		return undone
	}
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	if c.manual = value == adbc.OptionValueDisabled; !c.manual {
		c.end(true)
	}
	return done
}

// end ends a transaction; the lock is held.
func (c *oddConn) end(commit bool) {
	for _, v := range c.pending {
		if commit {
			c.d.stored[v]++
		}
	}
	c.pending, c.txBy = nil, ""
}

func (c *oddConn) finish(ctx context.Context, commit bool) error {
	undone, done := c.d.enter(ctx, c, "end")
	if undone != nil {
		return undone
	}
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.end(commit)
	return done
}

func (c *oddConn) Commit(ctx context.Context) error   { return c.finish(ctx, true) }
func (c *oddConn) Rollback(ctx context.Context) error { return c.finish(ctx, false) }

func (s *oddStmt) SetSqlQuery(sql string) error  { s.sql = sql; return nil }
func (s *oddStmt) Prepare(context.Context) error { return nil }
func (s *oddStmt) GetParameterSchema() (*arrow.Schema, error) {
	return nil, adbc.Error{Code: adbc.StatusNotImplemented}
}

func (s *oddStmt) Bind(_ context.Context, b arrow.RecordBatch) error {
	b.Retain() // no batch is none that a driver must take
	if s.bound != nil {
		s.bound.Release()
	}
	s.bound = b
	return nil
}

func (s *oddStmt) Close() error {
	s.c.d.mu.Lock()
	defer s.c.d.mu.Unlock()
	if s.closed {
		s.c.d.fault("a statement is closed twice")
	}
	if s.c.inside || s.c.closed {
		s.c.d.fault("a statement is closed while the connection is in another call (%t) or closed (%t)", s.c.inside, s.c.closed)
	}
	s.closed = true
	s.c.d.stmts--
	if s.bound != nil {
		s.bound.Release()
	}
	return nil
}

// run carries out the statement, which names its borrower: "who: INSERT 17", "who: SELECT 17",
// "who: SET x = 1". What the pool asks by itself is refused, but for its probe. n is how many rows come of it.
func (s *oddStmt) run(ctx context.Context) (n int, err error) {
	undone, done := s.c.d.enter(ctx, s.c, s.sql)
	if undone != nil {
		return 0, undone
	}
	d, c := s.c.d, s.c
	d.mu.Lock()
	defer d.mu.Unlock()
	sql, who, tagged := strings.Cut(s.sql, " -- ")
	if !tagged {
		if sql == "SELECT 1" {
			return 1, done
		}
		return 0, adbc.Error{Code: adbc.StatusInvalidArgument, Msg: "no such thing: " + sql}
	}
	if c.dirtyBy != "" && c.dirtyBy != who {
		d.fault("%s has the session of %s, with what it has set", who, c.dirtyBy)
	}
	if c.txBy != "" && c.txBy != who {
		d.fault("%s has the transaction of %s", who, c.txBy)
	}
	verb, arg, _ := strings.Cut(sql, " ")
	switch verb {
	case "SELECT":
		n, _ = strconv.Atoi(strings.Trim(arg, "* FROMgen()"))
		if s.bound != nil {
			n = int(s.bound.Column(0).(*array.Int64).Value(0))
		}
	case "SET":
		c.dirtyBy = who
	case "INSERT":
		v, _ := strconv.Atoi(strings.Trim(arg, "INTO VALUESt()"))
		values := []int{v}
		if s.bound != nil {
			values = nil
			for _, v := range s.bound.Column(0).(*array.Int64).Int64Values() {
				values = append(values, int(v))
			}
		}
		for _, v := range values {
			if c.manual {
				c.pending, c.txBy = append(c.pending, v), who
			} else {
				d.stored[v]++
			}
		}
	}
	return n, done
}

func (s *oddStmt) ExecuteUpdate(ctx context.Context) (int64, error) {
	_, err := s.run(ctx)
	return 1, err
}

func (s *oddStmt) ExecuteQuery(ctx context.Context) (array.RecordReader, int64, error) {
	n, err := s.run(ctx)
	if err != nil {
		return nil, -1, err
	}
	s.c.d.mu.Lock()
	defer s.c.d.mu.Unlock()
	s.c.d.rows++
	return &oddRows{c: s.c, ctx: ctx, n: n, atEnd: s.c.d.rng.IntN(3)}, -1, nil
}

var oddSchema = arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Int64}}, nil)

// oddRows are the numbers from 0 to n, three to a batch.
type oddRows struct {
	c       *oddConn
	ctx     context.Context // of the query
	n, at   int
	atEnd   int // what an end of the context is: 0, the end of the rows; 1, that of a batch; 2, nothing
	err     error
	current arrow.RecordBatch
	gone    bool
}

func (r *oddRows) drop() {
	if r.current != nil {
		r.current.Release()
		r.current = nil
	}
}

func (r *oddRows) Next() bool {
	r.drop()
	if r.err != nil || r.at >= r.n {
		return false
	}
	undone, done := r.c.d.enter(r.ctx, r.c, "Next")
	if r.ctx.Err() != nil && r.atEnd < 2 {
		if r.at += 3; r.atEnd == 0 || r.at >= r.n {
			return false
		}
	}
	if r.err = cmp.Or(undone, done); r.err != nil {
		return false
	}
	b := array.NewRecordBuilder(r.c.d.alloc, oddSchema)
	defer b.Release()
	for range min(3, r.n-r.at) {
		b.Field(0).(*array.Int64Builder).Append(int64(r.at))
		r.at++
	}
	r.current = b.NewRecordBatch()
	return true
}

func (r *oddRows) Release() {
	r.drop()
	_, _ = r.c.d.enter(r.ctx, r.c, "Release")
	r.c.d.mu.Lock()
	defer r.c.d.mu.Unlock()
	if r.gone {
		r.c.d.fault("rows are released twice")
	}
	r.gone = true
	r.c.d.rows--
}

func (r *oddRows) Retain()                        {}
func (r *oddRows) Schema() *arrow.Schema          { return oddSchema }
func (r *oddRows) RecordBatch() arrow.RecordBatch { return r.current }
func (r *oddRows) Record() arrow.RecordBatch      { return r.current }
func (r *oddRows) Err() error                     { return r.err }

// oddScene are borrowers of a pool over such a driver.
type oddScene struct {
	p *flightpool.FlightSQLPool
	d *oddDriver

	mu    sync.Mutex
	next  int
	least map[int]int
	most  map[int]int
	log   []string
	wrong []string
}

func (w *oddScene) say(f string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf(f, a...))
}

func (w *oddScene) bad(f string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(f, a...))
}

func (w *oddScene) value() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	return w.next
}

// stores notes what was said of a change of v.
func (w *oddScene) stores(v int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most[v] = 1
	switch {
	case err == nil:
		w.least[v] = 1
	case flightpool.SafeToRetry(err) || flightpool.IsConflict(err) || !aborts(err):
		w.most[v] = 0
	}
}

type oddCaller struct {
	*oddScene
	rng  *rand.Rand
	name string
	tx   []int
}

func (c *oddCaller) ctx(t context.Context) (context.Context, context.CancelFunc) {
	switch d := time.Duration(c.rng.IntN(5000)) * time.Millisecond; c.rng.IntN(3) {
	case 0:
		return context.WithCancel(t)
	case 1:
		ctx, stop := context.WithCancel(t)
		time.AfterFunc(d, stop)
		return ctx, stop
	default:
		return context.WithTimeout(t, d)
	}
}

// read reads rows, to the end or not.
func (c *oddCaller) read(ctx context.Context, q flightpool.Querier) error {
	n := c.rng.IntN(20)
	sql, args := fmt.Sprintf("SELECT * FROM gen(%d) -- %s", n, c.name), []any(nil)
	if c.rng.IntN(3) == 0 {
		sql, args = fmt.Sprintf("SELECT ? -- %s", c.name), []any{int64(n)}
	}
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		c.say("%s: %s: %v", c.name, sql, err)
		return err
	}
	stop, got := c.rng.IntN(40), 0
	for got < stop && rows.Next() {
		for _, v := range rows.RecordBatch().Column(0).(*array.Int64).Int64Values() {
			if int(v) != got {
				c.bad("%s: %s: row %d is %d", c.name, sql, got, v)
			}
			got++
		}
	}
	err = rows.Err()
	rows.Release()
	c.say("%s: %s: %d rows of %d, to read %d: %v", c.name, sql, got, n, stop, err)
	if err == nil && got < stop && got != n {
		c.bad("%s: %s: %d rows of %d and no error", c.name, sql, got, n)
	}
	if err != nil && got > 0 && flightpool.SafeToRetry(err) {
		c.bad("%s: %s: safe to repeat after %d rows: %v", c.name, sql, got, err)
	}
	return err
}

func (c *oddCaller) change(ctx context.Context, q flightpool.Querier) error {
	v := c.value()
	var err error
	switch c.rng.IntN(4) {
	case 0:
		_, err = q.Update(ctx, fmt.Sprintf("INSERT INTO t VALUES (?) -- %s", c.name), int64(v))
	case 1:
		var rows *flightpool.QueryResult
		if rows, err = q.Query(ctx, fmt.Sprintf("INSERT INTO t VALUES (%d) -- %s", v, c.name)); err == nil {
			err = rows.Close()
		}
	default:
		_, err = q.Update(ctx, fmt.Sprintf("INSERT INTO t VALUES (%d) -- %s", v, c.name))
	}
	c.say("%s: INSERT %d: %v", c.name, v, err)
	if c.tx != nil && (err == nil || aborts(err)) {
		c.tx = append(c.tx, v)
		c.mu.Lock()
		c.most[v] = 1
		c.mu.Unlock()
		return err
	}
	c.stores(v, err)
	return err
}

// inTx is a transaction of f, whose changes are all stored or none.
func (c *oddCaller) inTx(ctx context.Context, s *flightpool.SessionHandle) {
	if err := s.BeginTransaction(ctx); err != nil {
		c.say("%s: BEGIN: %v", c.name, err)
		return
	}
	c.tx = []int{}
	defer func() { c.tx = nil }()
	var failed error
	for range 1 + c.rng.IntN(3) {
		if c.rng.IntN(3) == 0 {
			_ = c.read(ctx, s)
		} else if err := c.change(ctx, s); aborts(err) {
			failed = err
		}
	}
	commit := c.rng.IntN(4) > 0
	end := s.Rollback
	if commit {
		end = s.Commit
	}
	ctx, stop := c.ctx(context.WithoutCancel(ctx))
	defer stop()
	err := end(ctx)
	var e *flightpool.Error
	if errors.As(err, &e) && e.Unsent { // it is open still, or lost
		err = end(context.WithoutCancel(ctx))
	}
	c.say("%s: end, commit %t: %v", c.name, commit, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.tx {
		switch {
		case err == nil && commit && failed == nil:
			c.least[v] = 1
		case err == nil && commit:
			c.wrong = append(c.wrong, fmt.Sprintf("%s: the commit of %v succeeds after %v", c.name, c.tx, failed))
		case err == nil, flightpool.SafeToRetry(err), !commit && !errors.Is(err, flightpool.ErrCommitUnknown):
			c.most[v] = 0
		case errors.Is(err, flightpool.ErrTxAborted):
			c.most[v] = 0
		case !errors.Is(err, flightpool.ErrCommitUnknown) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded):
			c.most[v] = 0
		}
	}
}

// aborts reports whether err leaves a transaction aborted.
func aborts(err error) bool {
	var e *flightpool.Error
	return err != nil && (!errors.As(err, &e) || !e.Unsent && e.Fault != flightpool.FaultUnsupported)
}

func (c *oddCaller) session(ctx context.Context) {
	s, err := c.p.AcquireSession(ctx)
	if err != nil {
		c.say("%s: AcquireSession: %v", c.name, err)
		return
	}
	for range 1 + c.rng.IntN(3) {
		switch c.rng.IntN(5) {
		case 0:
			_, err := s.Update(ctx, "SET x = 1 -- "+c.name)
			c.say("%s: SET: %v", c.name, err)
		case 1:
			_ = c.read(ctx, s)
		case 2:
			_ = c.change(ctx, s)
		default:
			c.inTx(ctx, s)
		}
	}
	c.say("%s: Close: %v", c.name, s.Close())
}

func (c *oddCaller) step(t context.Context) {
	ctx, stop := c.ctx(t)
	defer stop()
	at, ends := ctx.Deadline()
	switch c.rng.IntN(4) {
	case 0:
		_ = c.read(ctx, c.p)
	case 1:
		_ = c.change(ctx, c.p)
	case 2:
		_ = c.p.Ping(ctx)
	default:
		c.session(ctx)
		return
	}
	if late := time.Since(at); ends && late > 50*time.Millisecond {
		c.bad("%s: a call has lasted %v behind its deadline", c.name, late)
	}
}

func playOdd(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 17)) //nolint:gosec // a repeatable sequence
		d := &oddDriver{alloc: memory.NewCheckedAllocator(memory.DefaultAllocator), rng: rng, stored: map[int]int{}}
		budget := &takenBudget{Leases: lease.NewLeases("x", 3)}
		d.calm = true
		p, err := New(t.Context(), d, flightpool.Config{MaxSize: 3, Leases: budget, CloseTimeout: time.Second,
			DefaultQueryTimeout: []time.Duration{0, 2 * time.Second}[rng.IntN(2)]})
		require.NoError(t, err)
		d.setCalm(false)
		w := &oddScene{p: p, d: d, least: map[int]int{}, most: map[int]int{}}
		var callers sync.WaitGroup
		for i := range 3 {
			own := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // likewise
			callers.Go(func() {
				for k := range 8 {
					(&oddCaller{oddScene: w, rng: own, name: fmt.Sprintf("caller %d.%d", i, k)}).step(t.Context())
				}
			})
		}
		stop := make(chan struct{})
		go func() { callers.Wait(); close(stop) }()
		revokes, closes := seed%2 == 0, seed%3 == 0
		after := time.NewTimer(time.Duration(seed%7) * time.Second)
		for done := false; !done; {
			select {
			case <-stop:
				done = true
			case <-after.C:
				if closes {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seed%5)*400*time.Millisecond)
					w.say("Close: %v", p.Close(ctx))
					cancel()
				}
			case <-time.After(5 * time.Second):
				if revokes {
					w.say("revoked")
					budget.revoke(lease.Revocation{Deadline: time.Now().Add(time.Duration(seed%4) * time.Second), Cause: errors.New("lapsed")})
				}
			}
		}
		d.setCalm(true)
		time.Sleep(time.Minute)
		for _, c := range p.Connections() {
			if c.OnLoan {
				w.bad("a connection is on loan: %+v", c)
			}
		}
		_ = p.Close(t.Context())
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		w.judge(budget)
		if len(w.wrong) > 0 {
			slices.Sort(w.wrong)
			t.Errorf("seed %d: %s\n%s", seed, strings.Join(w.wrong, "\n"), strings.Join(w.log, "\n"))
		}
	})
}

func (w *oddScene) judge(budget *takenBudget) {
	d := w.d
	w.wrong = append(w.wrong, d.wrong...)
	if d.opened != d.closed || d.stmts != 0 || d.rows != 0 || d.alloc.CurrentAlloc() != 0 {
		w.bad("%d connections opened and %d closed; %d statements, %d results and %d bytes are left", d.opened, d.closed, d.stmts, d.rows, d.alloc.CurrentAlloc())
	}
	if n := budget.Stats().InUse; n != 0 {
		w.bad("%d leases are left", n)
	}
	for v := 1; v <= w.next; v++ {
		if n := d.stored[v]; n < w.least[v] || n > w.most[v] {
			w.bad("%d is stored %d times, not %d to %d", v, n, w.least[v], w.most[v])
		}
	}
}

// takenBudget is a budget that can be taken away.
type takenBudget struct {
	lease.Leases
	mu     sync.Mutex
	listen func(lease.Revocation)
}

func (b *takenBudget) OnRevoke(f func(lease.Revocation)) func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listen = f
	return func() { b.mu.Lock(); defer b.mu.Unlock(); b.listen = nil }
}

func (b *takenBudget) Valid() error { return nil }

func (b *takenBudget) revoke(r lease.Revocation) {
	b.mu.Lock()
	f := b.listen
	b.mu.Unlock()
	if f != nil {
		f(r)
	}
}

// Whatever a driver does with what it is asked, with contexts, revoked leases and a Close in between: no
// result is short without an error, what was said of changes holds, nothing runs twice or is seen by the next
// borrower, the driver is entered by one at a time, and nothing stays open. PROVE_SEED draws others, PROVE_SCENES
// more.
func TestWhateverADriverDoes(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64)
	many, _ := strconv.Atoi(os.Getenv("PROVE_SCENES"))
	for i := range uint64(max(many, 10)) { //nolint:gosec // small
		playOdd(t, seed+i)
	}
}
