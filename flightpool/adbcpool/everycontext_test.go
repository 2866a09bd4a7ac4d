package adbcpool

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
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
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

// meetings are where a server can be met.
var meetings = []testserver.Point{
	testserver.OnHandshake, testserver.OnGetFlightInfo, testserver.OnDoGet, testserver.OnDoPut, testserver.OnListActions, testserver.OnBegin, testserver.OnEnd,
	testserver.OnPrepare, testserver.OnCancel, testserver.OnStatement, testserver.OnBatch, "ClosePreparedStatement", "GetSchema", "PollFlightInfo",
	"SetSessionOptions", "GetSessionOptions", "BeginSavepoint", "EndSavepoint",
}

// Together they are less than the grace, within which statements come to their turn.
const deadlineAfter, serverLate = 100 * time.Millisecond, 120 * time.Millisecond

var errWhy = errors.New("the caller's own reason")

// ending has the context of a call end at the n-th moment at which its server is met.
type ending struct {
	mu      sync.Mutex
	n, at   int
	end     func()
	endedAt time.Time // zero: it has not
	due     time.Time // of a deadline
	log     []string
	slow    bool
	waits   bool
}

func (e *ending) moment(what string) {
	e.mu.Lock()
	if e.end == nil {
		e.mu.Unlock()
		return
	}
	e.n++
	e.log = append(e.log, what)
	end, isIt := e.end, e.n == e.at
	e.mu.Unlock()
	if !isIt {
		return
	}
	e.mu.Lock()
	if e.endedAt = e.due; e.endedAt.IsZero() {
		e.endedAt = time.Now()
	}
	e.mu.Unlock()
	end()
	switch {
	case e.slow:
		time.Sleep(serverLate)
	case e.waits:
		synctest.Wait()
	}
}

func (e *ending) ended() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.endedAt
}

// endsPlay is one use of a pool, by database/sql or ADBC, and what its calls have said.
type endsPlay struct {
	rig
	c      endsCase
	pool   *flightpool.FlightSQLPool
	db     *sql.DB
	e      *ending
	fresh  context.Context // of what goes on after the end of another
	conn   func() error    // closes what endsCase.how has closed
	next   int
	said   map[int]error
	inTx   map[int]int // the transactions of values, from 1
	txs    int
	broken []string

	fresher  bool      // what goes on has another context
	failedAt time.Time // when a call has failed first
}

func (s *endsPlay) wrong(format string, args ...any) {
	s.broken = append(s.broken, fmt.Sprintf(format, args...))
}

// call is one call, which is back when its context has ended.
func (s *endsPlay) call(what string, f func() error) error {
	began := time.Now()
	err := f()
	if err != nil && s.failedAt.IsZero() {
		s.failedAt = time.Now()
	}
	if at := s.e.ended(); !at.IsZero() && !s.fresher {
		if at.Before(began) {
			at = began
		}
		if late := time.Since(at); late > 50*time.Millisecond && s.c.endsContext() {
			s.wrong("%s returns %s after the end of its context: %v", what, late, err)
		}
	}
	return err
}

func (s *endsPlay) insertSQL() (string, int) {
	s.next++
	return fmt.Sprintf("INSERT INTO memory.t VALUES (%d)", s.next), s.next
}

// together runs f, of which every value is told the same.
func (s *endsPlay) together(f func() error) error {
	first := s.next + 1
	err := f()
	s.txs++
	for v := first; v <= s.next; v++ {
		s.said[v], s.inTx[v] = err, s.txs
	}
	return err
}

// alike runs f, outside of transactions, of which every value is told the same.
func (s *endsPlay) alike(f func() error) error {
	first := s.next + 1
	err := s.together(f)
	for v := first; v <= s.next; v++ {
		s.inTx[v] = -s.txs
	}
	return err
}

var errNothing = errors.New("it was rolled back")

// endsCase is one of the ends that there are.
type endsCase struct {
	step, kind, cfg string
	server          int // of endsProfiles
	at              int
	slow            bool
	how             string
}

func (c endsCase) profile() testserver.Profile { return endsProfiles[c.server]() }

func (c endsCase) String() string {
	return fmt.Sprintf("%s, %s, %s, %s, at %d, slow %t, %s", c.step, c.kind, c.cfg, c.profile().Name, c.at, c.slow, c.how)
}

func (c endsCase) endsContext() bool {
	return c.how == "cancel" || c.how == "cause" || c.how == "deadline"
}

func (c endsCase) isSQL() bool { return strings.HasPrefix(c.step, "sql ") }

// standsStill says that somebody may wait for a lock of database/sql, past which time does not go on.
func (c endsCase) standsStill() bool {
	return c.isSQL() && !slices.Contains([]string{"sql exec", "sql arguments", "sql ping", "sql statement"}, c.step) && !strings.HasPrefix(c.step, "sql raw")
}

// waits says that the server waits for what follows. Uses of database/sql may wait for a lock.
func (c endsCase) waits() bool { return !c.isSQL() || c.how == "pool" }

type endsStep func(ctx context.Context, s *endsPlay) error

var endsConfigs = map[string]func(*flightpool.Config){
	"plain": func(*flightpool.Config) {},
	"kept": func(c *flightpool.Config) {
		c.StatementCache = 2
	},
	"onconnect": func(c *flightpool.Config) {
		c.OnConnect = func(ctx context.Context, s *flightpool.SessionHandle) error {
			_, err := s.Update(ctx, "SET colour = 'blue'")
			return err
		}
	},
	"validated": func(c *flightpool.Config) {
		c.HealthCheck.ValidateOnRelease, c.HealthCheck.ValidateOnAcquire = true, true
	},
}

var (
	endsConfigNames = slices.Sorted(maps.Keys(endsConfigs))
	endsHows        = []string{"cancel", "cause", "deadline", "pool", "db", "conn"}
)

var endsProfiles = []func() testserver.Profile{testserver.Strict, testserver.SwanLake, testserver.GizmoSQL, testserver.Dremio}

// contextOf is the context that ends, and what ends it.
func (s *endsPlay) contextOf() (ctx context.Context, end, stop func()) {
	ctx, end, stop = s.Context(), func() {}, func() {}
	switch s.c.how {
	case "cancel":
		x, cancel := context.WithCancel(ctx)
		return x, cancel, cancel
	case "cause":
		x, cancel := context.WithCancelCause(ctx)
		return x, func() { cancel(errWhy) }, func() { cancel(nil) }
	case "deadline":
		at := time.Now().Add(deadlineAfter)
		s.e.due = at
		x, cancel := context.WithDeadlineCause(ctx, at, errWhy)
		return x, func() { time.Sleep(time.Until(at)) }, cancel
	case "pool":
		return ctx, func() {
			go func() {
				short, stop := context.WithTimeout(context.WithoutCancel(s.Context()), 50*time.Millisecond)
				defer stop()
				_ = s.pool.Close(short)
			}()
		}, stop
	case "db":
		return ctx, func() { go func() { _ = s.db.Close() }() }, stop
	case "conn":
		return ctx, func() {
			if s.conn != nil {
				go func() { _ = s.conn() }()
			}
		}, stop
	}
	return ctx, end, stop
}

func (c endsCase) perform(t *testing.T) (s *endsPlay) {
	opts := testserver.Options{Profile: c.profile(), Listen: testserver.InMemory}
	opts.Engine = &storesAtItsEnd{Engine: script.New()}
	if opts.Profile.SessionKey == testserver.ByBearer {
		opts.Users = map[string]string{"u": "p"}
	}
	synctest.Test(t, func(t *testing.T) {
		server, err := testserver.Start(opts)
		require.NoError(t, err)
		defer func() { require.NoError(t, server.Close()) }()
		s = &endsPlay{rig: rig{t, server}, c: c, e: &ending{at: c.at, slow: c.slow, waits: c.waits()}, said: map[int]error{}, inTx: map[int]int{}}
		s.pool, err = s.tryPool(c.kind, endsConfigs[c.cfg])
		require.NoError(t, err)
		s.db, s.fresh = OpenDB(s.pool), t.Context()
		s.update(s.pool, "CREATE TABLE memory.t (k BIGINT)")
		s.update(s.pool, "CREATE SCHEMA other")
		for _, point := range meetings {
			for _, after := range []bool{false, true} {
				server.Faults().Set(testserver.Fault{On: point, After: after, Do: func(context.Context, *testserver.FaultTarget) error {
					s.e.moment(fmt.Sprintf("%s after=%t", point, after))
					return nil
				}})
			}
		}
		ctx, end, stop := s.contextOf()
		defer stop()
		s.e.mu.Lock()
		s.e.end = end
		s.e.mu.Unlock()
		err = endsSteps[c.step](ctx, s)
		s.e.mu.Lock()
		s.e.end = nil
		s.e.mu.Unlock()
		s.judge(ctx, err)
		time.Sleep(70 * time.Second)
		synctest.Wait()
		if c.how != "pool" {
			s.after()
		}
		s.count()
		server.Faults().Clear()
		closing, stopClose := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer stopClose()
		_ = s.db.Close()
		_ = s.pool.Close(closing)
		time.Sleep(time.Second)
		if n := server.Ledger().Snapshot(); n.Conns > 0 || n.Streams+n.Running > 0 {
			s.wrong("left: %s", n)
		}
		server.Faults().EvictSessions()
	})
	return s
}

// judge looks at what the use has come to.
func (s *endsPlay) judge(ctx context.Context, err error) {
	var ofADBC adbc.Error
	switch {
	case err == nil:
	case s.e.ended().IsZero():
		if !s.mayFail(err) {
			s.wrong("fails: %v", err)
		}
	case !s.c.endsContext(), s.mayFail(err), s.failedAt.Before(s.e.ended()): // the server has let it wait too long
	case s.c.isSQL() && (err == ctx.Err() || errors.Is(err, sql.ErrTxDone) || errors.Is(err, sql.ErrConnDone)): //nolint:errorlint // database/sql's own
	case !errors.Is(err, ctx.Err()) || !errors.Is(err, context.Cause(ctx)):
		s.wrong("does not say how its context has ended: %v", err)
	case !s.c.isSQL() && !errors.As(err, &ofADBC):
		s.wrong("is no error of ADBC: %v", err)
	case s.c.isSQL() && errors.Is(err, driver.ErrBadConn):
		s.wrong("is ErrBadConn: %v", err)
	}
}

// mayFail says that a use fails whenever its context ends.
func (s *endsPlay) mayFail(err error) bool {
	var e *flightpool.Error
	return errors.As(err, &e) && e.Fault == flightpool.FaultUnsupported || errors.Is(err, flightpool.ErrAmbiguousRoute)
}

// after looks at what the next borrowers find.
func (s *endsPlay) after() {
	ctx := s.Context()
	if st := s.pool.Stats(); st.InUse != 0 {
		s.wrong("in use: %+v", st)
	}
	if st := s.db.Stats(); st.OpenConnections != 0 {
		s.wrong("in use of the DB: %+v", st)
	}
	if n := s.server.Ledger().Snapshot(); n.Transactions > 0 && n.Sessions <= n.Conns {
		s.wrong("a transaction is left: %s", n)
	}
	want := "null"
	if s.c.cfg == "onconnect" {
		want = "blue"
	}
	for range 2 {
		h, err := s.pool.AcquireSession(ctx)
		if err != nil {
			s.wrong("the next borrower: %v", err)
			continue
		}
		defer func() {
			if err := h.Close(); err != nil {
				s.wrong("Close: %v", err)
			}
		}()
		got, err := oneText(h.Query(ctx, "SELECT current_setting('colour')"))
		if err == nil && got == "" || err != nil && want == "null" {
			got = "null"
		}
		if !strings.Contains(strings.ToLower(got), want) {
			s.wrong("the next borrower finds colour %q, %v", got, err)
		}
		if _, err := oneText(h.Query(ctx, "SELECT * FROM temp.main.mine")); err == nil {
			s.wrong("the next borrower finds a table")
		}
		if got, err = oneText(h.Query(ctx, "SELECT current_schema()")); err == nil && got != "main" {
			s.wrong("the next borrower is at %s", got)
		}
		text, v := s.insertSQL()
		_, err = h.Update(ctx, text)
		if s.said[v] = err; err != nil {
			s.wrong("the next borrower: %v", err)
		}
	}
}

func oneText(res *flightpool.QueryResult, err error) (got string, _ error) {
	if err != nil {
		return "", err
	}
	defer res.Release()
	for res.Next() {
		if batch := res.RecordBatch(); batch.NumRows() > 0 && batch.NumCols() > 0 {
			got = strings.Clone(batch.Column(0).ValueStr(0))
		}
	}
	return got, res.Err()
}

// count compares what was said with what is stored.
func (s *endsPlay) count() {
	ctx, pool := s.Context(), s.pool
	if _, err := oneText(pool.Query(ctx, "SELECT 1")); errors.Is(err, flightpool.ErrClosed) {
		other, err := s.tryPool("native")
		require.NoError(s, err)
		defer func() { _ = other.Close(ctx) }()
		pool = other
	}
	found := map[string]int{}
	res, err := pool.Query(ctx, "SELECT * FROM memory.t")
	require.NoError(s, err)
	for res.Next() {
		col := res.RecordBatch().Column(0)
		for i := range int(res.RecordBatch().NumRows()) {
			found[strings.Clone(col.ValueStr(i))]++
		}
	}
	require.NoError(s, res.Err())
	res.Release()
	ofTx := map[int][]int{}
	for v, err := range s.said {
		n := found[strconv.Itoa(v)]
		delete(found, strconv.Itoa(v))
		tx := s.inTx[v]
		ofTx[tx] = append(ofTx[tx], n)
		switch {
		case n > 1:
			s.wrong("%d is stored %d times", v, n)
		case err == nil && n != 1:
			s.wrong("%d is not stored", v)
		case n == 0:
		case errors.Is(err, errNothing), flightpool.SafeToRetry(err), errors.Is(err, driver.ErrBadConn), tx > 0 && err != nil && !errors.Is(err, flightpool.ErrCommitUnknown):
			s.wrong("%d is stored: %v", v, err)
		}
	}
	for tx, n := range ofTx {
		if tx != 0 && slices.Min(n) != slices.Max(n) {
			s.wrong("half of a transaction is stored: %v", n)
		}
	}
	for v := range found {
		s.wrong("%s is stored", v)
	}
}

// endsTried is how many ends are tried by default.
const endsTried = 15

// Wherever a server is met when the context of a caller of database/sql or ADBC ends, or what it uses is closed:
// the caller is told how its context has ended, what it is told of its change is true, and the next borrowers find
// nothing of it. PROVE is for how long ends are drawn, PROVE_SEED draws those of a run again, PROVE_STEP names uses.
func TestEveryCallerIsToldTheTruthWhereverItsContextEnds(t *testing.T) {
	seed := rand.Uint64()
	if n, err := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64); err == nil {
		seed = n
	}
	limit, _ := time.ParseDuration(os.Getenv("PROVE"))
	r, began := rand.New(rand.NewPCG(seed, 0)), time.Now()
	steps := slices.DeleteFunc(slices.Sorted(maps.Keys(endsSteps)), func(step string) bool { return !strings.Contains(step, os.Getenv("PROVE_STEP")) })
	moments := map[endsCase]int{}
	tried := 0
	for ; tried < endsTried && limit == 0 || time.Since(began) < limit; tried++ {
		c := endsCase{step: steps[r.IntN(len(steps))], kind: kinds[r.IntN(len(kinds))], cfg: endsConfigNames[r.IntN(len(endsConfigNames))], server: r.IntN(len(endsProfiles))}
		if c.kind == "new" && c.cfg == "kept" {
			c.kind = "open"
		}
		if c.kind == "new" && c.standsStill() {
			c.kind = "open"
		}
		if moments[c] == 0 {
			s := c.perform(t)
			c.report(t, seed, s)
			moments[c] = max(1, s.e.n)
		}
		at := 1 + r.IntN(moments[c])
		c.slow, c.how = r.IntN(2) == 0, endsHows[r.IntN(len(endsHows))]
		c.at = at
		leaks := c.kind == "new" && c.profile().SessionKey == testserver.ByBearer // ADBC's driver does not close what it has for a handshake that fails
		if !c.isSQL() && (c.how == "db" || c.how == "conn") || c.how == "pool" && leaks {
			c.how = "cause"
		}
		if c.standsStill() && (c.how == "deadline" || c.how == "pool") {
			c.how = "cancel"
		}
		c.slow = c.slow && c.how != "db" && c.how != "conn" && !c.standsStill()
		c.report(t, seed, c.perform(t))
	}
	t.Logf("%d ends", tried)
}

func (c endsCase) report(t *testing.T, seed uint64, s *endsPlay) {
	if len(s.broken) > 0 {
		t.Errorf("PROVE_SEED=%d: %s: %s\n%q", seed, c, strings.Join(s.broken, "; "), s.e.log)
	}
}
