package dsql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/dsql"
)

// clocked are the steps that run in a bubble: in the others database/sql waits by a lock
// when a context ends, past which time does not go on there.
var clocked = []string{
	"pgx insert", "sql insert", "pgx insert, simple protocol", "sql insert, simple protocol", "slow insert", "batch",
	"a connection of one's own", "pgx transaction", "pgx, again after conflicts", "left open", "pgx read", "no time",
	"an argument that panics", "used after its release", "a batch that begins",
	"a batch that begins within a transaction", "all that is idle", "settings", "rows let go", "what the next borrower sees",
	"several changes", "several changes, again after conflicts", "several changes of database/sql", "an end of its own in InTx",
	"a batch of many", "rows of pgx",
}

// several are the changes of a transaction that conflict with those of others.
func (p *prover) several(r *rand.Rand) (ids []int, keys []int) {
	for range 1 + r.IntN(3) {
		ids = append(ids, p.change())
		keys = append(keys, r.IntN(3))
	}
	return ids, keys
}

// joint says that of these changes all are stored, or none. Of a transaction that was committed
// although one of its statements had failed before it was sent, a part may be.
func (p *prover) joint(ids []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.together = append(p.together, ids)
}

func (p *prover) tellAll(ids []int, err error) {
	for _, id := range ids {
		p.tell(id, err)
	}
}

const proveTouch = "update keys set n = n + 1 where k = $1"

// wild are steps that need the simulated cluster.
var wild = map[string]func(p *prover, ctx context.Context, r *rand.Rand){
	"several changes": func(p *prover, ctx context.Context, r *rand.Rand) {
		ids, keys := p.several(r)
		tx, err := p.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			p.tellAll(ids, errors.Join(errRolledBack, err))
			return
		}
		for i, id := range ids {
			if _, err = tx.Exec(ctx, proveTouch, keys[i]); err == nil {
				_, err = tx.Exec(ctx, proveInsert, id)
			}
			if err != nil {
				break
			}
		}
		if err != nil && r.IntN(2) == 0 || r.IntN(4) == 0 {
			_ = tx.Rollback(ctx)
			p.tellAll(ids, errRolledBack)
			return
		}
		ended := tx.Commit(ctx)
		if err != nil {
			p.uncommitted(ids, ended)
			return
		}
		p.joint(ids)
		p.tellAll(ids, committed(ended))
	},
	"several changes, again after conflicts": func(p *prover, ctx context.Context, r *rand.Rand) {
		ids, keys := p.several(r)
		p.joint(ids)
		err := p.pool.InTx(ctx, func(tx pgx.Tx) error {
			for i, id := range ids {
				if _, err := tx.Exec(ctx, proveTouch, keys[i]); err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, proveInsert, id); err != nil {
					return err
				}
			}
			return nil
		})
		p.tellAll(ids, committed(err))
	},
	"several changes of database/sql": func(p *prover, ctx context.Context, r *rand.Rand) {
		ids, keys := p.several(r)
		within := ctx
		if p.virtual {
			var cancel context.CancelFunc
			within, cancel = context.WithTimeout(context.WithoutCancel(ctx), 4*time.Second) // no statement lasts as long
			defer cancel()
		}
		tx, err := p.db.BeginTx(within, nil)
		if err != nil {
			p.tellAll(ids, errors.Join(errRolledBack, err))
			return
		}
		for i, id := range ids {
			if _, err = tx.ExecContext(ctx, proveTouch, keys[i]); err == nil {
				_, err = tx.ExecContext(ctx, proveInsert, id)
			}
			if err != nil {
				break
			}
		}
		if err != nil && r.IntN(2) == 0 || r.IntN(4) == 0 {
			_ = tx.Rollback()
			p.tellAll(ids, errRolledBack)
			return
		}
		ended := tx.Commit()
		if err != nil {
			p.uncommitted(ids, ended)
			return
		}
		p.joint(ids)
		p.tellAll(ids, committed(ended))
	},
	"sql, several changes again after conflicts": func(p *prover, ctx context.Context, r *rand.Rand) {
		ids, keys := p.several(r)
		p.joint(ids)
		err := dsql.InTx(ctx, p.db, nil, func(tx *sql.Tx) error {
			for i, id := range ids {
				if _, err := tx.ExecContext(ctx, proveTouch, keys[i]); err != nil {
					return err
				}
				if _, err := tx.ExecContext(ctx, proveInsert, id); err != nil {
					return err
				}
			}
			return nil
		})
		p.tellAll(ids, committed(err))
	},
	"an end of its own in InTx": func(p *prover, ctx context.Context, r *rand.Rand) {
		ids, _ := p.several(r)
		p.joint(ids)
		how, fails := r.IntN(4), r.IntN(2) == 0
		err := p.pool.InTx(ctx, func(tx pgx.Tx) error {
			for _, id := range ids {
				if _, err := tx.Exec(ctx, proveInsert, id); err != nil {
					return err
				}
			}
			var err error
			switch how {
			case 0:
				err = tx.Commit(ctx)
			case 1:
				err = tx.Rollback(ctx)
			case 2:
				long, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*time.Second)
				defer cancel()
				err = tx.Commit(long)
			case 3:
				_, err = tx.Exec(ctx, "rollback")
			}
			if fails {
				return errors.New("the user's")
			}
			return err
		})
		if err == nil && (how == 1 || how == 3) {
			p.tellAll(ids, errUntold)
			return
		}
		p.tellAll(ids, committed(err))
	},
	"a batch of many": func(p *prover, ctx context.Context, r *rand.Rand) {
		ids, _ := p.several(r)
		p.joint(ids)
		b := &pgx.Batch{}
		for _, id := range ids {
			b.Queue(proveInsert, id)
			b.Queue("select $1::int", id)
		}
		results := p.pool.SendBatch(ctx, b)
		for _, id := range ids {
			if r.IntN(3) == 0 {
				break
			}
			_, _ = results.Exec()
			got := 0
			if results.QueryRow().Scan(&got) == nil {
				assert.Equal(p.t, id, got, "somebody else's answer")
			}
		}
		p.tellAll(ids, results.Close())
	},
	"rows of pgx": func(p *prover, ctx context.Context, r *rand.Rand) {
		rows, err := p.pool.Query(ctx, "select generate_series(1, 1500)")
		if err != nil {
			return
		}
		n, stop := 0, r.IntN(3000)
		for n < stop && rows.Next() {
			n++
			var got int
			if rows.Scan(&got) == nil {
				assert.Equal(p.t, n, got)
			}
		}
		rows.Close()
		if err := rows.Err(); err == nil && stop > 1500 {
			assert.Equal(p.t, 1500, n, "a short result without an error")
		}
	},
	"one transaction in two hands": func(p *prover, ctx context.Context, r *rand.Rand) {
		ids, others := []int{p.change(), p.change()}, p.change()
		tx, err := p.db.BeginTx(ctx, nil)
		if err != nil {
			p.tellAll(append(ids, others), errors.Join(errRolledBack, err))
			return
		}
		short, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(4000))*time.Microsecond)
		defer cancel()
		kind := r.IntN(4)
		var other sync.WaitGroup
		other.Go(func() {
			switch kind {
			case 0:
				_, _ = tx.ExecContext(short, proveInsert, others)
			case 1:
				_ = tx.Rollback()
			case 2:
				if rows, err := tx.QueryContext(short, "select generate_series(1, 1000)"); err == nil {
					for rows.Next() {
						continue
					}
					_ = rows.Close()
				}
			case 3:
				_, _ = tx.ExecContext(short, proveInsert, others)
				_ = tx.Rollback()
			}
		})
		var errs []error
		for _, id := range ids {
			_, err := tx.ExecContext(ctx, proveInsert, id)
			errs = append(errs, err)
		}
		ended := tx.Commit()
		other.Wait()
		for i, id := range ids {
			if errs[i] == nil {
				p.tell(id, committed(ended))
			} else {
				p.uncommitted([]int{id}, ended)
			}
		}
		p.uncommitted([]int{others}, ended)
	},
	"a prepared insert": func(p *prover, ctx context.Context, _ *rand.Rand) {
		stmt, err := p.db.PrepareContext(ctx, proveInsert)
		if err != nil {
			return
		}
		for range 3 {
			id := p.change()
			_, err := stmt.ExecContext(ctx, id)
			p.tell(id, err)
		}
		_ = stmt.Close()
	},
}

// uncommitted tells of changes of a transaction that were not confirmed. If it was committed all the
// same, they may be in it.
func (p *prover) uncommitted(ids []int, ended error) {
	if ended == nil || errors.Is(ended, dsql.ErrCommitUnknown) {
		p.tellAll(ids, errUntold)
		return
	}
	p.tellAll(ids, errRolledBack)
}

// A world is one run of random programs on a simulated cluster.
type world struct {
	*prover
	s       *scene
	sim     *simulated
	c       *dsql.Cluster
	size    int
	closing bool
}

func (w *world) config(r *rand.Rand) dsql.Config {
	c := dsql.Config{
		Host: simHost, Region: "us-east-1", TLS: w.sim.client, Dial: w.sim.dial, MaxSize: w.size, OnDemand: r.IntN(3) == 0,
		CancelGrace: 300 * time.Millisecond, OpenTimeout: time.Second, CloseTimeout: time.Second, CheckTimeout: 300 * time.Millisecond,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			if w.s.expired.Load() {
				return aws.Credentials{}, errors.New("expired")
			}
			return aws.Credentials{AccessKeyID: key.AccessKeyID, SecretAccessKey: key.SecretAccessKey, SessionToken: key.SessionToken, CanExpire: true, Expires: time.Now().Add(20 * time.Minute)}, nil
		}),
	}
	if r.IntN(2) == 0 {
		c.OnReturn = func(ctx context.Context, conn *pgx.Conn) error { return w.s.hook(ctx, conn, "reset all") }
	} else {
		c.OnReturn = func(ctx context.Context, conn *pgx.Conn) error { _, err := conn.Exec(ctx, "reset all"); return err }
	}
	if r.IntN(4) == 0 {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return w.s.hook(ctx, conn, "select 1") }
	}
	if r.IntN(4) == 0 {
		c.BeforeAcquire = func(ctx context.Context, conn *pgx.Conn) bool { return w.s.hook(ctx, conn, "select 1") == nil }
	}
	if modes := []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}; r.IntN(4) == 0 {
		mode := modes[r.IntN(3)]
		c.Pgx = func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = mode }
	}
	if !c.OnDemand && r.IntN(6) == 0 {
		c.NoWait, c.BadConnWhenEmpty = true, r.IntN(2) == 0
	}
	if w.virtual {
		c.ReplaceAfter, c.MaxLifetime = time.Duration(5+r.IntN(40))*time.Minute, 59*time.Minute
	}
	return c
}

// fault does something to the cluster now and then.
func (w *world) worldFault(r *rand.Rand) {
	sim := w.sim
	if sim.quiet.Load() {
		return
	}
	switch r.IntN(100) {
	case 0:
		sim.each((*simSession).drop)
	case 1:
		sim.refusal.Store("53400")
		sim.refusals.Store(int32(1 + r.IntN(3)))
	case 2:
		sim.refusal.Store("53300")
		sim.refusals.Store(1)
	case 3:
		w.c.Reset()
	case 4:
		w.s.expired.Store(w.s.denies && !w.s.expired.Load())
	case 5:
		if w.s.denies {
			sim.refusal.Store("08006")
			sim.refusals.Store(1)
		}
	case 6, 7, 8, 9:
		if w.virtual {
			time.Sleep(time.Duration(r.IntN(30)) * time.Minute)
		}
	case 10:
		if w.virtual {
			time.Sleep(time.Duration(r.IntN(3)) * time.Hour)
		}
	}
}

func (w *world) run(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	w.s = &scene{chance: rand.New(rand.NewPCG(seed, 2)), denies: r.IntN(3) == 0}
	w.sim = startSimulated(t, rand.New(rand.NewPCG(seed, 3)))
	sim := w.sim
	defer func() { _ = sim.listener.Close() }()
	w.size = 1 + r.IntN(4)
	sim.size = w.size
	sim.rate, sim.lag = []int{0, 3, 10, 30}[r.IntN(4)], []time.Duration{0, 200 * time.Microsecond, 2 * time.Millisecond}[r.IntN(3)]
	if r.IntN(4) == 0 {
		sim.limit = w.size
	}
	if !w.virtual && r.IntN(3) == 0 {
		sim.life = time.Duration(100+r.IntN(500)) * time.Millisecond
	}
	if r.IntN(2) == 0 {
		w.s.quiet.Store(true) // no hook fails
	}
	cfg := w.config(r)
	cfg.Logger = discardLogger
	var err error
	w.c, err = dsql.NewCluster(t.Context(), cfg)
	require.NoError(t, err)
	w.pool, err = w.c.NewPool(dsql.View{Reserve: r.IntN(w.size)})
	require.NoError(t, err)
	w.db, err = w.c.OpenDB(dsql.View{Max: 1 + r.IntN(w.size)})
	require.NoError(t, err)
	w.closing = r.IntN(4) == 0
	programs := maps.Clone(steps)
	maps.Copy(programs, rude)
	maps.Copy(programs, wild)
	names := slices.Sorted(maps.Keys(programs))
	if w.virtual {
		names = clocked
	}
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "prepared read" })
	if only := os.Getenv("PROVE_STEPS"); only != "" {
		names = strings.Split(only, ",")
	}
	const workers, each, slack = 5, 25, 8 * time.Second
	var all sync.WaitGroup
	var calls atomic.Int64
	for n := range workers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(n)+4))
			for range each {
				limit := 700 * time.Millisecond
				if r.IntN(2) == 0 {
					limit = time.Duration(r.IntN(12_000)) * time.Microsecond
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				name, began := names[r.IntN(len(names))], time.Now()
				caught(func() { programs[name](w.prover, ctx, r) })
				if took := time.Since(began); took > limit+slack {
					w.sim.fail(fmt.Sprintf("%s took %v of %v", name, took, limit))
				}
				cancel()
				calls.Add(1)
				w.worldFault(r)
			}
		})
	}
	if w.closing {
		all.Go(func() {
			for end := int64(r.IntN(workers * each)); calls.Load() < end; {
				time.Sleep(time.Millisecond)
			}
			w.shut(time.Duration(r.IntN(200)) * time.Millisecond)
		})
	}
	all.Wait()
	w.s.quiet.Store(true)
	w.s.expired.Store(false)
	sim.quiet.Store(true)
	sim.refusals.Store(0)
	if !w.closing {
		sim.each((*simSession).drop) // what hangs
		reach(t, "nothing is lent", func() bool { time.Sleep(time.Millisecond); return w.c.Stats().Reservoir.InUse == 0 })
		w.whole(t.Context(), w.c, w.size)
		w.shut(10 * time.Second)
	}
	reach(t, "nothing is left at the server", func() bool { time.Sleep(time.Millisecond); return sim.live() == 0 })
	_ = sim.listener.Close()
	sim.serving.Wait()
	if n := w.c.Stats().Leases.InUse; n != 0 {
		sim.fail(fmt.Sprint(n, " leases in use"))
	}
	w.weigh()
}

// shut closes all within a time.
func (w *world) shut(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	began := time.Now()
	_ = w.c.Close(ctx)
	if took := time.Since(began); took > limit+5*time.Second {
		w.sim.fail(fmt.Sprintf("Close took %v", took))
	}
	_ = w.db.Close()
}

// weigh compares what was told with the ledger.
func (w *world) weigh() {
	sim := w.sim
	sim.mu.Lock()
	defer sim.mu.Unlock()
	made := 0
	for id, err := range w.told {
		least, most := may(err)
		if got := sim.stored[id]; got < least || got > most {
			sim.broken = append(sim.broken, fmt.Sprintf("change %d is stored %d times, told: %v", id, got, err))
		}
		if got := sim.reached[id]; err != nil && got > 0 && pgconn.SafeToRetry(err) && !errors.Is(err, errRolledBack) {
			sim.broken = append(sim.broken, fmt.Sprintf("change %d has reached the server and is said to be safe to retry: %v", id, err))
		}
		if err == nil {
			made++
		}
	}
	for _, ids := range w.together {
		for _, id := range ids {
			if sim.stored[id] != sim.stored[ids[0]] {
				sim.broken = append(sim.broken, fmt.Sprintf("of %v a part is stored", ids))
			}
		}
	}
	w.t.Logf("%d changes, %d made, %d sessions %v", len(w.told), made, sim.opened, sim.counts)
	for _, what := range sim.broken {
		w.t.Error(what)
	}
}

// Random programs on a cluster that fails at every message: what callers are told is so, nothing is made
// twice, calls end in time, and nothing is left in the end. PROVE says for how long, PROVE_SEED which.
func TestNoMessageThatIsLostBreaksWhatCallersAreTold(t *testing.T) {
	limit, seed := 4*time.Second, rand.Uint64()
	if s := os.Getenv("PROVE"); s != "" {
		var err error
		limit, err = time.ParseDuration(s)
		require.NoError(t, err)
	}
	if s := os.Getenv("PROVE_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		seed, limit = n, 1
	}
	kinds := map[string]bool{"virtual time": true, "real time": false}
	for kind, virtual := range kinds {
		t.Run(kind, func(t *testing.T) {
			worlds := 0
			for began := time.Now(); worlds == 0 || time.Since(began) < limit/2 && !t.Failed(); worlds++ {
				t.Run(fmt.Sprint(seed+uint64(worlds)), func(t *testing.T) {
					play := func(t *testing.T) {
						w := &world{prover: &prover{t: t, told: map[int]error{}, virtual: virtual, ownCancels: true}}
						w.run(t, seed+uint64(worlds))
					}
					if virtual {
						synctest.Test(t, play)
						return
					}
					play(t)
				})
			}
			t.Logf("%d worlds", worlds)
		})
	}
}
