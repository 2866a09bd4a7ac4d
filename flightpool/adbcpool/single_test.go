package adbcpool

import (
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

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// singles are callers of a pool's own calls, and what they were told.
type singles struct {
	r rig
	p *flightpool.FlightSQLPool

	mu      sync.Mutex
	next    int
	changes []*sceneChange
	log     []string
	wrong   []string
}

func (w *singles) say(f string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf("%s "+f, append([]any{time.Now().Format("05.000")}, a...)...))
}

func (w *singles) bad(f string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(f, a...))
}

func (w *singles) values(n int) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]int, n)
	for i := range out {
		w.next++
		out[i] = w.next
	}
	return out
}

// fault sets what goes wrong from now on, until it has happened.
func (w *singles) fault(rng *rand.Rand) {
	points := append(slices.Clone(scenePoints), testserver.OnBatch, testserver.OnBatch, testserver.OnBatch, testserver.OnStatement, testserver.OnConnect)
	f := testserver.Fault{On: points[rng.IntN(len(points))], Skip: rng.IntN(6), Times: 1 + rng.IntN(2), After: rng.IntN(2) == 0}
	name := ""
	switch rng.IntN(10) {
	case 0:
		f.Do, name = testserver.Kill(), "kill"
	case 1:
		f.Do, name = testserver.Freeze(), "freeze"
	case 2, 3:
		f.Do, name = testserver.Delay(time.Duration(rng.IntN(3000))*time.Millisecond), "delay"
	case 4:
		f.Do, name, f.After = testserver.Evict(), "evict", false
	case 5:
		f.Do, name = testserver.GoAway(), "goaway"
	case 6:
		f.On, f.After, f.Do, name = testserver.OnBatch, false, testserver.TruncatedBody, "a body that is cut"
	default:
		k := rng.IntN(len(sceneAnswers))
		f.After = f.After && k < firstRefusal
		f.Do, name = testserver.Fail(sceneAnswers[k].code, sceneAnswers[k].text), fmt.Sprint(sceneAnswers[k])
	}
	w.r.server.Faults().Set(f)
	w.say("FAULT on %s skip %d times %d after %t: %s", f.On, f.Skip, f.Times, f.After, name)
}

// singleCaller makes calls one after another.
type singleCaller struct {
	*singles
	rng *rand.Rand
}

func (c *singleCaller) ctx() (context.Context, context.CancelFunc) {
	d := time.Duration(c.rng.IntN(3000)) * time.Millisecond
	switch c.rng.IntN(4) {
	case 0:
		ctx, stop := context.WithCancel(c.r.Context())
		time.AfterFunc(d, stop)
		return ctx, stop
	case 1:
		return context.WithTimeout(c.r.Context(), d)
	default:
		return context.WithTimeout(c.r.Context(), time.Minute)
	}
}

func (c *singleCaller) change(ctx context.Context) {
	table := sceneTable(c.r.server.Profile())
	v := c.values(1)
	literal, param := fmt.Sprintf("INSERT INTO %s VALUES (%d)", table, v[0]), "INSERT INTO "+table+" VALUES (?)"
	var err error
	what := ""
	began := time.Now()
	switch c.rng.IntN(7) {
	case 0:
		what = "Update"
		_, err = c.p.Update(ctx, literal)
	case 1:
		what = "Update with an argument"
		_, err = c.p.Update(ctx, param, int64(v[0]))
	case 2:
		what = "Execute"
		var res *flightpool.QueryResult
		if res, err = c.p.Execute(ctx, literal); err == nil {
			err = res.Close()
		}
	case 3:
		what = "Query"
		var res *flightpool.QueryResult
		if res, err = c.p.Query(ctx, literal); err == nil {
			err = res.Close()
		}
	case 4:
		what = "Update without a cancel"
		_, err = c.p.UpdateWithOptions(ctx, literal, flightpool.QueryOptions{NoCancel: true})
	case 5:
		what = "Update with a timeout"
		_, err = c.p.UpdateWithOptions(ctx, literal, flightpool.QueryOptions{Timeout: time.Duration(1+c.rng.IntN(2000)) * time.Millisecond})
	default:
		what = "Ingest"
		v = append(v, c.values(2)...)
		b := batchOf(v)
		defer b.Release()
		rows, failed := array.NewRecordReader(b.Schema(), []arrow.RecordBatch{b})
		require.NoError(c.r, failed)
		defer rows.Release()
		_, err = c.p.Ingest(ctx, "t", rows, sceneIngest)
	}
	c.returned(ctx, what, began, what == "Execute" || what == "Query")
	c.mu.Lock()
	c.changes = append(c.changes, &sceneChange{values: v, err: err, what: what})
	c.mu.Unlock()
	c.say("%s %v: %v", what, v, err)
}

// returned is for each call: it has not outlasted its context.
func (c *singleCaller) returned(ctx context.Context, what string, began time.Time, closes bool) {
	at, ok := ctx.Deadline()
	if !ok || ctx.Err() == nil || closes {
		return
	}
	if late := time.Since(at); late > 50*time.Millisecond && at.After(began) {
		c.bad("%s has lasted %v behind its deadline", what, late)
	}
}

// row reads one value, which is that of the call's own argument.
func (c *singleCaller) row(ctx context.Context) {
	want := int64(c.values(1)[0])
	var got int64
	var err error
	began := time.Now()
	sql := []string{"SELECT ?", "SELECT ? AS other"}[c.rng.IntN(2)]
	if c.rng.IntN(3) == 0 {
		sql = fmt.Sprintf("SELECT %d", want)
		err = c.p.QueryRow(ctx, sql).Scan(&got)
	} else {
		err = c.p.QueryRow(ctx, sql, want).Scan(&got)
	}
	c.returned(ctx, sql, began, false)
	c.say("QueryRow %s of %d: %v", sql, want, err)
	if err == nil && got != want {
		c.bad("%s of %d gives %d", sql, want, got)
	}
	if errors.Is(err, flightpool.ErrNoRows) {
		c.bad("%s of %d: %v", sql, want, err)
	}
}

// rows reads a result, to its end or not.
func (c *singleCaller) rows(ctx context.Context) {
	n, per := c.rng.IntN(4000), 1+c.rng.IntN(500)
	sql := fmt.Sprintf("SELECT * FROM generate(%d, %d)", n, per)
	began := time.Now()
	res, err := c.p.Query(ctx, sql)
	c.returned(ctx, sql, began, false)
	if err != nil {
		c.say("%s: %v", sql, err)
		return
	}
	stop, got, pause := c.rng.IntN(2*n+1), 0, c.rng.IntN(5) == 0
	for got < stop && res.Next() {
		for _, v := range res.RecordBatch().Column(0).(*array.Int64).Int64Values() {
			if int(v) != got {
				c.bad("%s: row %d is %d", sql, got, v)
			}
			got++
		}
		if pause {
			time.Sleep(10 * time.Millisecond)
		}
	}
	err = res.Err()
	if c.rng.IntN(2) == 0 {
		if closed := res.Close(); closed != nil && err == nil && got < stop {
			err = closed
		}
	}
	res.Release()
	c.say("%s: %d rows, to read %d: %v", sql, got, stop, err)
	if err == nil && got < stop && got != n {
		c.bad("%s: %d rows and no error", sql, got)
	}
	if err != nil && got > 0 && flightpool.SafeToRetry(err) {
		c.bad("%s: safe to repeat after %d rows: %v", sql, got, err)
	}
}

func (c *singleCaller) step() {
	if c.rng.IntN(2) == 0 {
		c.fault(c.rng)
	}
	ctx, stop := c.ctx()
	defer stop()
	switch c.rng.IntN(8) {
	case 0, 1, 2:
		c.change(ctx)
	case 3, 4:
		c.row(ctx)
	case 5, 6:
		c.rows(ctx)
	default:
		began := time.Now()
		err := c.p.Ping(ctx)
		c.returned(ctx, "Ping", began, false)
		c.say("Ping: %v", err)
	}
	time.Sleep(time.Duration(c.rng.IntN(200)) * time.Millisecond)
}

func (w *singles) judge(stored map[int]int) {
	for _, c := range w.changes {
		for _, v := range c.values {
			n := stored[v]
			switch {
			case c.err == nil && n != 1, n > 1, n > 0 && (flightpool.SafeToRetry(c.err) || flightpool.IsConflict(c.err)):
				w.bad("%d (%s) is stored %d times: %v", v, c.what, n, c.err)
			}
		}
	}
}

func singlesConfig(cfg *flightpool.Config, rng *rand.Rand, hasSessions bool, kind string, alloc memory.Allocator) {
	cfg.MaxSize = 1 + rng.IntN(3)
	cfg.DefaultQueryTimeout = []time.Duration{0, 0, time.Second}[rng.IntN(3)]
	if rng.IntN(3) == 0 {
		cfg.MaxLifetime, cfg.GuardWindow, cfg.LifetimeJitter = time.Second, 100*time.Millisecond, -1
	}
	if hasSessions && rng.IntN(2) == 0 {
		cfg.OnConnect = func(ctx context.Context, s *flightpool.SessionHandle) error {
			_, err := s.Update(ctx, "SET taste = 'sweet'")
			return err
		}
	}
	if kind == "new" {
		return
	}
	cfg.Allocator = alloc
	if rng.IntN(2) == 0 {
		cfg.StatementCache = 2
	}
}

func playSingles(t *testing.T, seed uint64, kind string, profile testserver.Profile) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 23)) //nolint:gosec // a repeatable sequence
		profile.JanitorEvery = 0
		hasSessions := profile.SessionKey != testserver.ByCall && profile.SessionKey != testserver.ByHeader
		profile.MaxSessions = 0
		if hasSessions && !profile.RoamingTickets && rng.IntN(3) == 0 {
			profile.Endpoints = 3
		}
		s, err := testserver.Start(testserver.Options{Profile: profile, Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		w := &singles{r: rig{t, s}}
		judge := w.r.pool("native")
		w.r.update(judge, "CREATE TABLE "+sceneTable(profile)+" (v BIGINT)")
		alloc := memory.NewCheckedAllocator(memory.DefaultAllocator)
		w.p, err = w.r.tryPool(kind, func(cfg *flightpool.Config) {
			hasSessions = hasSessions && (kind != "new" || profile.SessionKey != testserver.ByCookie) // ADBC's driver keeps no cookies
			singlesConfig(cfg, rng, hasSessions, kind, alloc)
		})
		require.NoError(t, err)
		var callers sync.WaitGroup
		for i := range 1 + rng.IntN(4) {
			own := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // likewise
			callers.Go(func() {
				for range 8 {
					(&singleCaller{w, own}).step()
				}
			})
		}
		if rng.IntN(3) == 0 {
			time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
			ctx, stop := context.WithTimeout(t.Context(), time.Duration(rng.IntN(3000))*time.Millisecond)
			w.say("CLOSE: %v", w.p.Close(ctx))
			stop()
		}
		callers.Wait()
		time.Sleep(time.Minute)
		s.Faults().Clear()
		s.Faults().ThawConns()
		time.Sleep(time.Minute)
		for _, c := range w.p.Connections() {
			if c.OnLoan {
				w.bad("a connection is on loan: %+v", c)
			}
		}
		if err := w.p.Ping(t.Context()); err != nil && !errors.Is(err, flightpool.ErrClosed) {
			w.bad("in the end: %v", err)
		}
		_ = w.p.Close(t.Context())
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := alloc.CurrentAlloc(); n != 0 {
			w.bad("%d bytes are left", n)
		}
		s.Faults().EvictSessions()
		time.Sleep(time.Minute)
		stored := (&scene{r: w.r}).stored(judge)
		w.judge(stored)
		if len(w.wrong) > 0 {
			slices.Sort(w.wrong)
			t.Errorf("seed %d, %s, %s: %s\n%s", seed, kind, profile.Name, strings.Join(w.wrong, "\n"), strings.Join(w.log, "\n"))
		}
	})
}

// Single calls of a pool, from several goroutines, while anything goes wrong and the pool may be closed: what
// was said of changes holds, no result is short without an error, no call has the answer of another or outlasts
// its deadline, and nothing is left. PROVE_SEED draws others, PROVE_SCENES more.
func TestEveryWordOfASingleCallHolds(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64)
	many, _ := strconv.Atoi(os.Getenv("PROVE_SCENES"))
	profiles := []testserver.Profile{testserver.Strict(), testserver.SwanLake(), testserver.GizmoSQL(), testserver.Dremio(), doris(), testserver.ClickHouse(), noSessions()}
	for i := range uint64(max(many, 2)) { //nolint:gosec // small
		for k, profile := range profiles {
			kind := kinds[(i+uint64(k))%3]
			if kind == "new" && profile.SessionKey == testserver.ByBearer {
				kind = "open"
			}
			t.Run(fmt.Sprintf("%s %s %d", kind, profile.Name, seed+i), func(t *testing.T) { playSingles(t, seed+i, kind, profile) })
		}
	}
}
