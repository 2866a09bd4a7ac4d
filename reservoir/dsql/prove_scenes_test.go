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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/dsql"
	"github.com/flightpool/flightpool/testserver/dsqlgate"
)

// caught calls f, whose panic is the user's.
func caught(f func()) {
	defer func() { _ = recover() }()
	f()
}

// rude are steps of programs that panic, hang, or use what they have given back.
var rude = map[string]func(p *prover, ctx context.Context, r *rand.Rand){
	"an argument that panics": func(p *prover, ctx context.Context, r *rand.Rand) {
		caught(func() {
			switch r.IntN(4) {
			case 0:
				_, _ = p.pool.Exec(ctx, "select $1::text", bomb{})
			case 1:
				_, _ = p.pool.Query(ctx, "select $1::text", bomb{})
			case 2:
				_ = p.pool.QueryRow(ctx, "select $1::text", bomb{}).Scan(new(string))
			case 3:
				b := &pgx.Batch{}
				b.Queue("select $1::text", bomb{})
				_ = p.pool.SendBatch(ctx, b).Close()
			}
		})
	},
	"a copy that panics": func(p *prover, ctx context.Context, r *rand.Rand) {
		id, rows, n := p.change(), r.IntN(3), 0
		p.tell(id, errRolledBack)
		caught(func() {
			_, _ = p.pool.CopyFrom(ctx, pgx.Identifier{"proved"}, []string{"id"}, pgx.CopyFromFunc(func() ([]any, error) {
				if n++; n > rows {
					panic("the user's")
				}
				return []any{id}, nil
			}))
		})
	},
	"a copy that waits": func(p *prover, ctx context.Context, r *rand.Rand) {
		id := p.change()
		p.tell(id, p.copyAfter(ctx, id, time.Duration(r.IntN(400))*time.Millisecond)) // it may outlast the call
	},
	"a transaction that panics": func(p *prover, ctx context.Context, r *rand.Rand) {
		id := p.change()
		p.tell(id, errRolledBack)
		caught(func() {
			if r.IntN(2) == 0 {
				_ = p.pool.InTx(ctx, func(tx pgx.Tx) error { _, _ = tx.Exec(ctx, proveInsert, id); panic("the user's") })
			} else {
				_ = dsql.InTx(ctx, p.db, nil, func(tx *sql.Tx) error { _, _ = tx.ExecContext(ctx, proveInsert, id); panic("the user's") })
			}
		})
	},
	"used after its release": func(p *prover, ctx context.Context, r *rand.Rand) {
		id := p.change()
		p.tell(id, errRolledBack)
		conn, err := p.pool.Acquire(ctx)
		if err != nil {
			return
		}
		old, err := conn.Begin(ctx)
		conn.Release()
		if err != nil {
			return
		}
		time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
		_, err = old.Exec(ctx, proveInsert, id)
		assert.ErrorIs(p.t, err, pgx.ErrTxClosed)
		_, err = conn.Exec(ctx, proveInsert, id)
		assert.ErrorIs(p.t, err, dsql.ErrReleased)
		assert.ErrorIs(p.t, old.Commit(ctx), pgx.ErrTxClosed)
		assert.Error(p.t, conn.SendBatch(ctx, &pgx.Batch{}).Close())
		_, err = conn.Begin(ctx)
		assert.ErrorIs(p.t, err, dsql.ErrReleased)
	},
	"a batch that begins": func(p *prover, ctx context.Context, r *rand.Rand) {
		id := p.change()
		b := &pgx.Batch{}
		b.BeginTx(pgx.TxOptions{})
		b.Queue(proveInsert, id)
		results := p.pool.SendBatch(ctx, b)
		err := results.Close()
		tx := results.Tx()
		if err != nil || r.IntN(3) == 0 {
			_ = tx.Rollback(ctx)
			p.tell(id, errRolledBack)
			return
		}
		p.tell(id, committed(tx.Commit(ctx)))
	},
	"a batch that begins within a transaction": func(p *prover, ctx context.Context, r *rand.Rand) {
		id := p.change()
		p.tell(id, errRolledBack)
		tx, err := p.pool.Begin(ctx)
		if err != nil {
			return
		}
		_, _ = tx.Exec(ctx, proveInsert, id)
		b := &pgx.Batch{}
		b.BeginTx(pgx.TxOptions{})
		b.Queue("select 1")
		results := tx.SendBatch(ctx, b)
		_ = results.Close()
		_ = results.Tx().Commit(ctx)
		_ = tx.Rollback(ctx)
	},
	"all that is idle": func(p *prover, ctx context.Context, _ *rand.Rand) {
		var all []*dsql.Conn
		caught(func() { all = p.pool.AcquireAllIdle(ctx) })
		for _, c := range all {
			id := p.change()
			_, err := c.Exec(ctx, proveInsert, id)
			p.tell(id, err)
			c.Release()
		}
	},
	"settings": func(p *prover, ctx context.Context, r *rand.Rand) {
		if r.IntN(2) == 0 {
			_, _ = p.pool.Exec(ctx, "set work_mem = '77kB'")
		} else {
			_, _ = p.db.ExecContext(ctx, "set work_mem = '77kB'")
		}
	},
	"a connection of database/sql": func(p *prover, ctx context.Context, r *rand.Rand) {
		conn, err := p.db.Conn(ctx)
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		id := p.change()
		p.tell(id, errRolledBack)
		if _, err := conn.ExecContext(ctx, "begin"); err != nil {
			p.tell(id, errRolledBack)
			return
		}
		_, _ = conn.ExecContext(ctx, proveInsert, id)
		if r.IntN(2) == 0 {
			caught(func() { _ = conn.Raw(func(any) error { panic("the user's") }) })
		}
	},
	"prepared in a transaction": func(p *prover, ctx context.Context, r *rand.Rand) {
		id := p.change()
		tx, err := p.db.BeginTx(ctx, nil)
		if err != nil {
			p.tell(id, errors.Join(errRolledBack, err))
			return
		}
		stmt, err := tx.PrepareContext(ctx, proveInsert)
		if err == nil {
			_, err = stmt.ExecContext(ctx, id)
			_ = stmt.Close()
		}
		if err != nil || r.IntN(3) == 0 {
			_ = tx.Rollback()
			p.tell(id, errRolledBack)
			return
		}
		p.tell(id, committed(tx.Commit()))
	},
	"rows let go": func(p *prover, ctx context.Context, _ *rand.Rand) {
		conn, err := p.pool.Acquire(ctx)
		if err != nil {
			return
		}
		defer conn.Release()
		_, _ = conn.Query(ctx, "select generate_series(1, 2000)")
	},
	"what the next borrower sees": func(p *prover, ctx context.Context, _ *rand.Rand) {
		conn, err := p.pool.Acquire(ctx)
		if err != nil {
			return
		}
		defer conn.Release()
		assert.EqualValues(p.t, 'I', conn.Conn().PgConn().TxStatus())
		var mem string
		if conn.QueryRow(ctx, "show work_mem").Scan(&mem) == nil {
			assert.Equal(p.t, "4MB", mem, "somebody else's setting")
		}
	},
}

// A scene is a cluster whose server and hooks fail as chance has it.
type scene struct {
	mu      sync.Mutex
	chance  *rand.Rand
	quiet   atomic.Bool // nothing fails any more
	expired atomic.Bool
	denies  bool // opens, now and then
}

func (s *scene) n(most int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chance.IntN(most)
}

// hook is what a function of the user's does with a connection.
func (s *scene) hook(ctx context.Context, conn *pgx.Conn, statement string) error {
	if !s.quiet.Load() {
		switch s.n(80) {
		case 0:
			return errors.New("not today")
		case 1:
			panic("the user's")
		case 2:
			_, err := conn.Exec(ctx, "begin")
			return err
		case 3:
			_, err := conn.Query(ctx, "select 1")
			return err
		case 4:
			_, err := conn.Exec(ctx, "select pg_sleep(20)")
			return err
		case 5:
			short, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			_, _ = conn.Exec(short, "select pg_sleep(20)")
			if _, err := conn.Exec(ctx, statement); err != nil {
				// The request to cancel may come late and stop this one: the hook's own affair, which
				// must not pass for a cancel of the pool's.
				return fmt.Errorf("behind a statement of the hook's that was cut: %v", err) //nolint:errorlint // see above
			}
			return nil
		}
	}
	_, err := conn.Exec(ctx, statement)
	return err
}

func (s *scene) fault(g *dsqlgate.Gate) {
	switch s.n(250) {
	case 0, 1, 2:
		g.FailCommits(1, "OC000")
	case 3:
		g.FailCommits(1, "OC001")
	case 4, 5:
		g.DropAtCommit(1)
	case 6, 7:
		g.DropAtAnswer(1)
	case 8:
		g.DropAll()
	case 9:
		g.ResetAll()
	case 10:
		g.FreezeAll()
	case 11:
		g.HalfOpenAll()
	case 12:
		g.Refuse(1+s.n(3), "53400")
	case 13:
		g.Refuse(1, "53300")
	case 14:
		if s.denies {
			g.Refuse(1, "08006")
		}
	case 15, 16, 17:
		g.DelayCancels(1)
	case 18:
		g.SlowHandshakes(time.Duration(s.n(300)) * time.Millisecond)
	case 19:
		s.expired.Store(s.denies && !s.expired.Load())
	}
}

func TestNoFailureOfServerOrUserBreaksWhatCallersAreTold(t *testing.T) {
	scenes, seed := 2, rand.Uint64()
	if n, err := strconv.Atoi(os.Getenv("PROVE_SCENES")); err == nil {
		scenes = n
	}
	if n, err := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64); err == nil {
		seed = n
	}
	for i := range scenes {
		t.Run(fmt.Sprint(seed+uint64(i)), func(t *testing.T) { playScene(t, seed+uint64(i)) })
	}
}

func playScene(t *testing.T, seed uint64) {
	const workers, each, grace, slack = 4, 30, 300 * time.Millisecond, 8 * time.Second
	s := &scene{chance: rand.New(rand.NewPCG(seed, 1))}
	size := 1 + s.n(4)
	s.denies = s.n(3) == 0
	g := startGate(t, func(o *dsqlgate.Options) {
		if s.n(3) == 0 {
			o.SessionLimit = time.Duration(200+s.n(800)) * time.Millisecond
		}
	})
	cfg := config(g, func(c *dsql.Config) {
		c.MaxSize, c.CancelGrace, c.OpenTimeout, c.CloseTimeout, c.CheckTimeout = size, grace, time.Second, time.Second, 300*time.Millisecond
		c.OnDemand = s.n(3) == 0
		inner := c.Credentials
		c.Credentials = aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
			if s.expired.Load() {
				return aws.Credentials{}, errors.New("expired")
			}
			k, err := inner.Retrieve(ctx)
			k.CanExpire, k.Expires = true, time.Now().Add(3*time.Second)
			return k, err
		})
		c.OnReturn = func(ctx context.Context, conn *pgx.Conn) error { return s.hook(ctx, conn, "reset all") }
		if s.n(2) == 0 {
			c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return s.hook(ctx, conn, "select 1") }
		}
		if s.n(2) == 0 {
			c.BeforeAcquire = func(ctx context.Context, conn *pgx.Conn) bool { return s.hook(ctx, conn, "select 1") == nil }
		}
		c.BeforeClose = func(*pgx.Conn) {
			if s.n(20) == 0 && !s.quiet.Load() {
				panic("the user's")
			}
		}
	})
	c, err := dsql.NewCluster(t.Context(), cfg)
	require.NoError(t, err)
	p := &prover{t: t, told: map[int]error{}}
	p.pool, p.db = both(t, c)
	long := within(t, 180*time.Second)
	direct, err := pgx.Connect(long, dsql.Postgres.DSN())
	require.NoError(t, err)
	defer func() { require.NoError(t, direct.Close(long)) }()
	for _, s := range []string{"drop table if exists proved", "create table proved (id int)"} {
		_, err := direct.Exec(long, s)
		require.NoError(t, err)
	}
	s.quiet.Store(true)
	p.stmt, err = p.db.PrepareContext(long, "select $1::int")
	require.NoError(t, err)
	s.quiet.Store(false)
	programs := maps.Clone(steps)
	maps.Copy(programs, rude)
	names := slices.Sorted(maps.Keys(programs))
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)+2))
			for range each {
				limit := 700 * time.Millisecond
				if r.IntN(2) == 0 {
					limit = time.Duration(r.IntN(12_000)) * time.Microsecond
				}
				ctx, cancel := context.WithTimeout(long, limit)
				name, began := names[r.IntN(len(names))], time.Now()
				// A hook's panic reaches the caller; what it was told then is nothing.
				caught(func() { programs[name](p, ctx, r) })
				assert.Less(t, time.Since(began), limit+slack, "%s", name)
				cancel()
				s.fault(g)
			}
		})
	}
	all.Wait()
	s.quiet.Store(true)
	s.expired.Store(false)
	g.SlowHandshakes(0)
	g.DropAll() // what is frozen
	reach(t, "nothing is lent", func() bool { return c.Stats().Reservoir.InUse == 0 })
	p.whole(long, c, size)
	_ = p.stmt.Close() // its connection may be lost
	require.NoError(t, p.db.Close())
	closeSoon(t, c.Close)
	reach(t, "nothing is left at the server", func() bool { return g.Stats().Live == 0 && g.Stats().Sockets == 0 })
	require.Zero(t, c.Stats().Leases.InUse)
	p.judgeBy(long, direct)
}

// whole proves that no connection was lost to the pools: all can be had at once.
func (p *prover) whole(ctx context.Context, c *dsql.Cluster, size int) {
	var held []*dsql.Conn
	for end := time.Now().Add(60 * time.Second); len(held) < size; { // opens may pause for 30s
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		conn, err := p.pool.Acquire(short)
		cancel()
		if err == nil {
			held = append(held, conn)
			continue
		}
		time.Sleep(time.Millisecond) // it may fail at once
		require.True(p.t, time.Now().Before(end), "%d of %d: %v: %+v", len(held), size, err, c.Stats())
	}
	for _, conn := range held {
		conn.Release()
	}
}
