package flightpool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/testserver"
)

// endPoints are where a server can be met.
var endPoints = []testserver.Point{
	testserver.OnHandshake, testserver.OnGetFlightInfo, testserver.OnDoGet, testserver.OnDoPut, testserver.OnListActions, testserver.OnBegin, testserver.OnEnd,
	testserver.OnPrepare, testserver.OnCancel, testserver.OnStatement, testserver.OnBatch, "ClosePreparedStatement", "GetSchema", "PollFlightInfo",
	"SetSessionOptions", "GetSessionOptions", "BeginSavepoint", "EndSavepoint",
}

var errWhy = errors.New("the caller's own reason")

// ending has the context of a call end at the n-th moment at which its server is met.
type ending struct {
	mu    sync.Mutex
	n, at int
	end   func()
	ended bool
	log   []string
	way   string
}

func (e *ending) moment(ctx context.Context, what string) error {
	e.mu.Lock()
	if e.end == nil {
		e.mu.Unlock()
		return nil
	}
	e.n++
	e.log = append(e.log, what)
	end := e.end
	mine := e.n == e.at
	if mine {
		e.ended = true
	}
	e.mu.Unlock()
	if !mine {
		return nil
	}
	end()
	switch e.way {
	case "slow": // and the server is busy a while
		time.Sleep(200 * ms)
	default:
		synctest.Wait()
	}
	return nil
}

// sweep is one run.
type sweep struct {
	*rig
	e            *ending
	next, echoed int
	auth         Auth
	said         map[int]error
	broken       []string
}

func (s *sweep) wrong(format string, args ...any) {
	s.broken = append(s.broken, fmt.Sprintf(format, args...))
}

func (s *sweep) insertSQL() (string, int) {
	s.next++
	return fmt.Sprintf("INSERT INTO memory.t VALUES (%d)", s.next), s.next
}

func (s *sweep) insert(ctx context.Context, q interface {
	Update(ctx context.Context, sql string, args ...any) (UpdateResult, error)
}) error {
	sql, v := s.insertSQL()
	_, err := q.Update(ctx, sql)
	s.said[v] = err
	return err
}

func (s *sweep) rows(res *QueryResult, err error, want int) error {
	if err != nil {
		return err
	}
	defer res.Release()
	n := 0
	for res.Next() {
		n += int(res.RecordBatch().NumRows())
	}
	if err := res.Err(); err != nil {
		return err
	}
	if n != want {
		s.wrong("%d rows of %d", n, want)
	}
	return nil
}

func (s *sweep) echo(ctx context.Context, q querier, sql string) error {
	s.echoed++
	res, err := q.Query(ctx, sql, int64(s.echoed))
	if err != nil {
		return err
	}
	defer res.Release()
	got := ""
	for res.Next() {
		got = strings.Clone(res.RecordBatch().Column(0).ValueStr(0))
	}
	if err := res.Err(); err != nil {
		return err
	}
	if got != strconv.Itoa(s.echoed) {
		s.wrong("%s of %d answers %s", sql, s.echoed, got)
	}
	return nil
}

// values runs f, of which every value is told the same.
func (s *sweep) values(f func() error) error {
	first := s.next + 1
	err := f()
	for v := first; v <= s.next; v++ {
		s.said[v] = err
	}
	return err
}

type sweepStep func(ctx context.Context, s *sweep) error

var sweepSteps = map[string]sweepStep{
	"query": func(ctx context.Context, s *sweep) error {
		res, err := s.pool.Query(ctx, "SELECT * FROM generate(30, 10)")
		return s.rows(res, err, 30)
	},
	"released": func(ctx context.Context, s *sweep) error {
		res, err := s.pool.Query(ctx, "SELECT * FROM generate(30, 10)")
		if err != nil {
			return err
		}
		res.Next()
		return res.Close()
	},
	"args": func(ctx context.Context, s *sweep) error {
		for _, sql := range []string{"SELECT ? AS a", "SELECT ? AS b", "SELECT ? AS a"} {
			if err := s.echo(ctx, s.pool, sql); err != nil {
				return err
			}
		}
		return nil
	},
	"update": func(ctx context.Context, s *sweep) error { return s.insert(ctx, s.pool) },
	"setting": func(ctx context.Context, s *sweep) error {
		_, err := s.pool.Update(ctx, "SET colour = 'red'")
		return err
	},
	"temp": func(ctx context.Context, s *sweep) error {
		_, err := s.pool.Update(ctx, "CREATE TEMP TABLE mine (i BIGINT)")
		return err
	},
	"no cancel": func(ctx context.Context, s *sweep) error {
		sql, v := s.insertSQL()
		_, err := s.pool.UpdateWithOptions(ctx, sql, QueryOptions{NoCancel: true})
		s.said[v] = err
		if err != nil {
			return err
		}
		res, err := s.pool.QueryWithOptions(ctx, "SELECT * FROM generate(30, 10)", QueryOptions{NoCancel: true})
		return s.rows(res, err, 30)
	},
	"progress": func(ctx context.Context, s *sweep) error {
		res, err := s.pool.QueryWithOptions(ctx, "SELECT * FROM generate(30, 10)", QueryOptions{Progress: func(float64, bool) {}})
		return s.rows(res, err, 30)
	},
	"batch of rows": func(ctx context.Context, s *sweep) error {
		return s.values(func() error {
			s.next += 2
			rows := ints("k", int64(s.next-1), int64(s.next))
			defer rows.Release()
			_, err := s.pool.UpdateWithRecordBatch(ctx, "INSERT INTO memory.t VALUES (?)", rows)
			return err
		})
	},
	"ingest": func(ctx context.Context, s *sweep) error {
		return s.values(func() error {
			s.next += 2
			rows := ints("k", int64(s.next-1), int64(s.next))
			defer rows.Release()
			reader, err := array.NewRecordReader(rows.Schema(), []arrow.RecordBatch{rows})
			if err != nil {
				return err
			}
			defer reader.Release()
			_, err = s.pool.Ingest(ctx, "t", reader, IngestOptions{Catalog: "memory", Schema: "main", Mode: IngestAppend})
			return err
		})
	},
	"catalogue": func(ctx context.Context, s *sweep) error { return drained(s.pool.Tables(ctx, TableFilter{})) },
	"ping":      func(ctx context.Context, s *sweep) error { return s.pool.Ping(ctx) },
	"in tx": func(ctx context.Context, s *sweep) error {
		return s.values(func() error {
			return s.pool.InTx(ctx, TxOptions{}, func(ctx context.Context, tx *Tx) error {
				if err := s.insert(ctx, tx); err != nil {
					return err
				}
				if err := s.echo(ctx, tx, "SELECT ? AS a"); err != nil {
					return err
				}
				return s.insert(ctx, tx)
			})
		})
	},
	"tx": func(ctx context.Context, s *sweep) error {
		return s.values(func() error {
			tx, err := s.pool.BeginTx(ctx, TxOptions{})
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback(ctx) }()
			if err := s.insert(ctx, tx); err != nil {
				return err
			}
			q, err := tx.PrepareQuery(ctx, "SELECT ? AS a")
			if err != nil {
				return err
			}
			if err := drained(q.Query(ctx, int64(7))); err != nil {
				return err
			}
			if err := s.insert(ctx, tx); err != nil {
				return err
			}
			return tx.Commit(ctx)
		})
	},
	"tx rolled back": func(ctx context.Context, s *sweep) error {
		first := s.next + 1
		tx, err := s.pool.BeginTx(ctx, TxOptions{})
		if err != nil {
			return err
		}
		if err = s.insert(ctx, tx); err == nil {
			res, e := tx.Query(ctx, "SELECT * FROM generate(30, 10)") // which is left open
			if err = e; err == nil {
				res.Next()
			}
		}
		if e := tx.Rollback(ctx); err == nil {
			err = e
		}
		for v := first; v <= s.next; v++ {
			s.said[v] = errNothing
			if errors.Is(err, ErrCommitUnknown) {
				s.said[v] = err
			}
		}
		return err
	},
	"session": func(ctx context.Context, s *sweep) error {
		return s.pool.WithSession(ctx, func(ctx context.Context, h *SessionHandle) error {
			for _, sql := range []string{"SET colour = 'red'", "CREATE TEMP TABLE mine (i BIGINT)", "USE other"} {
				if _, err := h.Update(ctx, sql); err != nil {
					return err
				}
			}
			if err := s.insert(ctx, h); err != nil {
				return err
			}
			q, err := h.PrepareQuery(ctx, "SELECT ? AS a")
			if err != nil {
				return err
			}
			if err = drained(q.Query(ctx, int64(7))); err != nil {
				return err
			}
			if err := q.Close(ctx); err != nil {
				return err
			}
			b := &Batch{}
			b.Queue("SET colour = 'green'")
			b.Queue("SELECT 1")
			return h.SendBatch(ctx, b)
		})
	},
	"session in a transaction": func(ctx context.Context, s *sweep) error {
		return s.values(func() error {
			return s.pool.WithSession(ctx, func(ctx context.Context, h *SessionHandle) error {
				return h.WithTransaction(ctx, func(ctx context.Context, h *SessionHandle) error {
					if err := s.insert(ctx, h); err != nil {
						return err
					}
					if _, err := h.Update(ctx, "SET colour = 'red'"); err != nil {
						return err
					}
					return s.insert(ctx, h)
				})
			})
		})
	},
}

var errNothing = errors.New("it is not stored")

var sweepConfigs = map[string]func(*Config){
	"plain":     func(*Config) {},
	"kept":      func(c *Config) { c.StatementCache = 2 },
	"onconnect": func(c *Config) { c.OnConnect = paint },
	"both":      func(c *Config) { c.StatementCache, c.OnConnect = 1, paint },
	"sql": func(c *Config) {
		c.OnReturn = ResetSQL("RESET colour", "DROP TABLE IF EXISTS temp.main.mine", "USE memory.main")
	},
	"validated": func(c *Config) { c.HealthCheck.ValidateOnRelease, c.HealthCheck.ValidateOnAcquire = true, true },
}

var sweepProfiles = []func() testserver.Profile{testserver.Strict, testserver.SwanLake, testserver.GizmoSQL}

type sweepCase struct {
	step, cfg string
	profile   func() testserver.Profile
	warm      bool
	at        int
	way, how  string
	tokens    *rotation // or nil
}

func (c sweepCase) String() string {
	return fmt.Sprintf("%s, %s, %s, warm %t, at %d %s %s", c.step, c.cfg, c.profile().Name, c.warm, c.at, c.way, c.how)
}

func (c sweepCase) perform(t *testing.T) (s *sweep, moments int) {
	cfg := Config{MinIdle: 1, MaxSize: 2}
	sweepConfigs[c.cfg](&cfg)
	opts := testserver.Options{Profile: c.profile()}
	if opts.Profile.SessionKey == testserver.ByBearer {
		cfg.Auth, opts.Users = BasicAuth("u", "p"), map[string]string{"u": "p"}
	}
	if c.tokens != nil {
		cfg.Auth, opts.Users, opts.GRPC = BasicAuth("u", "p"), map[string]string{"u": "p"}, c.tokens.options()
	}
	inBubbleOn(t, opts, cfg, func(r *rig) {
		e := &ending{at: c.at, way: c.way}
		s = &sweep{auth: cfg.Auth, rig: r, e: e, said: map[int]error{}}
		r.exec("CREATE TABLE memory.t (k BIGINT)")
		r.exec("CREATE SCHEMA other")
		for _, point := range endPoints {
			for _, after := range []bool{false, true} {
				r.srv.Faults().Set(testserver.Fault{On: point, After: after, Do: func(ctx context.Context, _ *testserver.FaultTarget) error {
					return e.moment(ctx, fmt.Sprintf("%s after=%t", point, after))
				}})
			}
		}
		if c.warm {
			if err := sweepSteps[c.step](r.Context(), s); err != nil && c.profile().Name != "swanlake" {
				s.wrong("without an end: %v", err)
			}
		}
		ctx, end := r.Context(), func() {}
		stop := func() {}
		switch c.how {
		case "cancel":
			x, cancel := context.WithCancel(ctx)
			ctx, end, stop = x, cancel, cancel
		case "cause":
			x, cancel := context.WithCancelCause(ctx)
			ctx, end, stop = x, func() { cancel(errWhy) }, func() { cancel(nil) }
		case "deadline":
			at := time.Now().Add(time.Second)
			x, cancel := context.WithDeadlineCause(ctx, at, errWhy)
			ctx, end, stop = x, func() { time.Sleep(time.Until(at)) }, cancel
		case "close":
			end = func() {
				go func() {
					short, stop := context.WithTimeout(context.WithoutCancel(r.Context()), 50*ms)
					defer stop()
					_ = r.pool.Close(short)
				}()
			}
		}
		defer stop()
		e.mu.Lock()
		e.end = end
		e.mu.Unlock()
		err := sweepSteps[c.step](ctx, s)
		e.mu.Lock()
		e.end = nil
		moments = e.n
		e.mu.Unlock()
		switch {
		case err == nil:
		case c.profile().Name == "swanlake" && (c.step == "ingest" || c.step == "tx rolled back"):
		case !e.ended:
			s.wrong("fails: %v", err)
		case c.how == "close", c.step == "tx rolled back" && errors.Is(err, ErrSessionLost):
		case !errors.Is(err, ctx.Err()) || !errors.Is(err, context.Cause(ctx)):
			s.wrong("does not say how its context has ended: %v", err)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if c.how != "close" {
			s.after(c)
		}
		s.count()
		r.srv.Faults().Clear()
		ctx, stop = context.WithTimeout(context.WithoutCancel(r.Context()), time.Minute)
		defer stop()
		_ = r.pool.Close(ctx)
		time.Sleep(time.Second)
		if n := r.srv.Ledger().Snapshot(); c.how != "close" && !n.Idle() && (n.Conns > 0 || n.Streams+n.Running > 0) {
			s.wrong("left: %s", n)
		}
		r.srv.Faults().EvictSessions()
	})
	return s, moments
}

// after looks at what the next borrowers find.
func (s *sweep) after(c sweepCase) {
	want := "null"
	if strings.HasPrefix(c.cfg, "onc") || c.cfg == "both" {
		want = "blue"
	}
	ctx := s.Context()
	if st := s.pool.Stats(); st.InUse != 0 {
		s.wrong("in use: %+v", st)
	}
	hs := []*SessionHandle{s.session(), s.session()}
	for _, h := range hs {
		got, err := firstValue(ctx, h, colour)
		if err != nil && want == "null" {
			got, err = want, nil
		}
		if err != nil || !strings.EqualFold(got, want) && (want != "null" || got != "" && got != "(null)") {
			s.wrong("the next borrower finds colour %q, %v", got, err)
		}
		if err := drained(h.Query(ctx, "SELECT * FROM temp.main.mine")); err == nil {
			s.wrong("the next borrower finds a table")
		}
		got, err = firstValue(ctx, h, "SELECT current_schema()")
		if err == nil && got != "main" {
			s.wrong("the next borrower is at %s", got)
		}
		if err := s.insert(ctx, h); err != nil {
			s.wrong("the next borrower: %v", err)
		}
		s.told(h.Close())
	}
	synctest.Wait()
	snap := s.srv.Ledger().Snapshot()
	most := 0
	switch c.cfg {
	case "kept":
		most = 4
	case "onconnect":
		most = 2
	case "both":
		most = 4
	}
	if snap.Prepared > most && snap.Sessions <= snap.Conns && c.tokens == nil {
		s.wrong("%d prepared statements are left", snap.Prepared)
	}
}

func (s *sweep) told(err error) {
	if err != nil {
		s.wrong("Close: %v", err)
	}
}

// count compares what was said with what is stored.
func (s *sweep) count() {
	found := map[string]int{}
	ctx := s.Context()
	pool := s.pool
	if err := drained(pool.Query(ctx, "SELECT 1")); errors.Is(err, ErrClosed) {
		p, err := New(ctx, "grpc://server:1", Config{Dialer: s.srv.Dial, Auth: s.auth})
		if err != nil {
			s.wrong("%v", err)
			return
		}
		pool = p
		defer func() { _ = p.Close(ctx) }()
	}
	res, err := pool.Query(ctx, "SELECT * FROM memory.t")
	if err != nil {
		s.wrong("%v", err)
		return
	}
	for res.Next() {
		col := res.RecordBatch().Column(0)
		for i := range int(res.RecordBatch().NumRows()) {
			found[strings.Clone(col.ValueStr(i))]++
		}
	}
	if err := res.Err(); err != nil {
		s.wrong("%v", err)
		return
	}
	for v, err := range s.said {
		n := found[strconv.Itoa(v)]
		delete(found, strconv.Itoa(v))
		switch {
		case n > 1:
			s.wrong("%d is stored %d times", v, n)
		case err == nil && n != 1:
			s.wrong("%d is not stored", v)
		case (errors.Is(err, errNothing) || SafeToRetry(err)) && n > 0:
			s.wrong("%d is stored: %v", v, err)
		}
	}
	for v := range found {
		s.wrong("%s is stored", v)
	}
}

// endsTried is of how many ends one is tried, and of how many uses one. PROVE_SEED says with which it begins.
const endsTried, usesTried = 83, 23

// Wherever a server is met when the context of a caller ends, or the pool is closed: the caller is told how
// its context has ended, what it is told of its change is true, and the next borrowers find nothing of it.
func TestAContextMayEndWhereverTheServerIsMet(t *testing.T) {
	turn, _ := strconv.Atoi(os.Getenv("PROVE_SEED"))
	uses := turn
	for _, step := range slices.Sorted(maps.Keys(sweepSteps)) {
		for _, cfg := range slices.Sorted(maps.Keys(sweepConfigs)) {
			for _, profile := range sweepProfiles {
				for _, warm := range []bool{false, true} {
					if uses++; uses%usesTried != 0 {
						continue
					}
					c := sweepCase{step: step, cfg: cfg, profile: profile, warm: warm}
					_, moments := c.perform(t)
					for at := 1; at <= moments; at++ {
						for _, way := range []string{"at once", "slow"} {
							for _, how := range []string{"cancel", "cause", "deadline", "close"} {
								if turn++; turn%endsTried != 0 {
									continue
								}
								c.at, c.way, c.how = at, way, how
								if s, _ := c.perform(t); len(s.broken) > 0 {
									t.Fatalf("%s: %s\n%q", c, strings.Join(s.broken, "; "), s.e.log)
								}
							}
						}
					}
				}
			}
		}
	}
}
