package dsql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/dsql"
)

// A prover runs random programs: statements and transactions of pgx and
// database/sql, whose contexts end at any moment, on few connections, with
// conflicts and, if cuts, with connections that the server drops. Its oracle is
// what the database holds in the end: every change has a number, and what its
// caller was told has to be so. Every read asks for its own number.
type prover struct {
	t    *testing.T
	pool *dsql.Pool
	db   *sql.DB
	stmt *sql.Stmt

	mu   sync.Mutex
	next int
	told map[int]error // what was said of each change; nil: made
	// together are changes of which all are stored, or none.
	together   [][]int
	virtual    bool // time is
	ownCancels bool // nothing else cancels a statement
}

var (
	errRolledBack = errors.New("rolled back")
	errUntold     = errors.New("nobody was told") // a function of the user's has panicked
)

// change gives out the number of a change.
func (p *prover) change() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	p.told[p.next] = errUntold
	return p.next
}

func (p *prover) tell(id int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var pg *pgconn.PgError
	if p.ownCancels && errors.As(err, &pg) && pg.Code == "57014" && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		assert.Fail(p.t, "cancelled for the context of another statement", "change %d: %v", id, err)
	}
	p.told[id] = err
}

// may says how often the change of which err was told can be in the database.
func may(err error) (least, most int) {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return 1, 1
	case errors.Is(err, dsql.ErrCommitUnknown), errors.Is(err, dsql.ErrLost):
		return 0, 1
	case errors.Is(err, errRolledBack), errors.Is(err, dsql.ErrReservoirEmpty), pgconn.SafeToRetry(err):
		return 0, 0
	case errors.As(err, &pg) && pg.Code != "57P01":
		return 0, 0 // the server says that it did not
	}
	return 0, 1
}

const proveInsert = "insert into proved values ($1)"

// steps are what a program is made of. Each makes one change or reads.
var steps = map[string]func(p *prover, ctx context.Context, r *rand.Rand){
	"pgx insert": func(p *prover, ctx context.Context, _ *rand.Rand) {
		id := p.change()
		_, err := p.pool.Exec(ctx, proveInsert, id)
		p.tell(id, err)
	},
	"sql insert": func(p *prover, ctx context.Context, _ *rand.Rand) {
		id := p.change()
		_, err := p.db.ExecContext(ctx, proveInsert, id)
		p.tell(id, err)
	},
	"pgx insert, simple protocol": func(p *prover, ctx context.Context, _ *rand.Rand) {
		id := p.change()
		_, err := p.pool.Exec(ctx, fmt.Sprintf("insert into proved values (%d)", id))
		p.tell(id, err)
	},
	"sql insert, simple protocol": func(p *prover, ctx context.Context, _ *rand.Rand) {
		id := p.change()
		_, err := p.db.ExecContext(ctx, fmt.Sprintf("insert into proved values (%d)", id))
		p.tell(id, err)
	},
	"slow insert": func(p *prover, ctx context.Context, r *rand.Rand) {
		id := p.change()
		_, err := p.pool.Exec(ctx, "insert into proved select $1 from pg_sleep($2)", id, r.Float64()*0.008)
		p.tell(id, err)
	},
	"batch": func(p *prover, ctx context.Context, _ *rand.Rand) {
		id := p.change()
		b := &pgx.Batch{}
		b.Queue("select pg_sleep(0.002)")
		b.Queue(proveInsert, id)
		p.tell(id, p.pool.SendBatch(ctx, b).Close())
	},
	"copy": func(p *prover, ctx context.Context, r *rand.Rand) {
		id := p.change()
		p.tell(id, p.copyAfter(ctx, id, time.Duration(r.IntN(4))*time.Millisecond))
	},
	"a connection of one's own": func(p *prover, ctx context.Context, r *rand.Rand) {
		conn, err := p.pool.Acquire(ctx)
		if err != nil {
			return
		}
		defer conn.Release()
		for range 3 {
			short, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(5000))*time.Microsecond)
			id := p.change()
			tx, err := conn.Begin(short)
			if err != nil {
				p.tell(id, errors.Join(errRolledBack, err))
				cancel()
				continue
			}
			_, err = tx.Exec(short, "insert into proved select $1 from pg_sleep($2)", id, r.Float64()*0.003)
			if err != nil || r.IntN(2) == 0 {
				_ = tx.Rollback(short) // as below
				p.tell(id, errRolledBack)
			} else {
				p.tell(id, committed(tx.Commit(short)))
			}
			cancel()
			id = p.change()
			_, err = conn.Exec(ctx, proveInsert, id) // of no transaction, in particular not of that one
			p.tell(id, err)
		}
	},
	"pgx transaction": func(p *prover, ctx context.Context, r *rand.Rand) {
		id := p.change()
		tx, err := p.pool.Begin(ctx)
		if err != nil {
			p.tell(id, errors.Join(errRolledBack, err))
			return
		}
		_, err = tx.Exec(ctx, proveInsert, id)
		time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
		if err != nil || r.IntN(3) == 0 {
			_ = tx.Rollback(ctx) // whether it worked or not, nothing is committed
			p.tell(id, errRolledBack)
			return
		}
		p.tell(id, committed(tx.Commit(ctx)))
	},
	"sql transaction": func(p *prover, ctx context.Context, r *rand.Rand) {
		id := p.change()
		tx, err := p.db.BeginTx(ctx, nil)
		if err != nil {
			p.tell(id, errors.Join(errRolledBack, err))
			return
		}
		_, err = tx.ExecContext(ctx, proveInsert, id)
		time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
		if err != nil || r.IntN(3) == 0 {
			_ = tx.Rollback() // as above
			p.tell(id, errRolledBack)
			return
		}
		p.tell(id, committed(tx.Commit()))
	},
	"pgx, again after conflicts": func(p *prover, ctx context.Context, _ *rand.Rand) {
		id := p.change()
		p.tell(id, committed(p.pool.InTx(ctx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, proveInsert, id); return err })))
	},
	"sql, again after conflicts": func(p *prover, ctx context.Context, _ *rand.Rand) {
		id := p.change()
		p.tell(id, committed(dsql.InTx(ctx, p.db, nil, func(tx *sql.Tx) error { _, err := tx.ExecContext(ctx, proveInsert, id); return err })))
	},
	"left open": func(p *prover, ctx context.Context, _ *rand.Rand) {
		id := p.change()
		p.tell(id, errRolledBack)
		conn, err := p.pool.Acquire(ctx)
		if err != nil {
			return
		}
		defer conn.Release()
		if _, err := conn.Begin(ctx); err == nil {
			_, _ = conn.Exec(ctx, proveInsert, id)
		}
	},
	"pgx read": func(p *prover, ctx context.Context, r *rand.Rand) {
		want, got := r.IntN(1e9), 0
		if p.pool.QueryRow(ctx, "select $1::int from pg_sleep($2)", want, r.Float64()*0.004).Scan(&got) == nil {
			assert.Equal(p.t, want, got, "somebody else's answer")
		}
	},
	"sql read": func(p *prover, ctx context.Context, r *rand.Rand) {
		want, got := r.IntN(1e9), 0
		if p.db.QueryRowContext(ctx, "select $1::int from pg_sleep($2)", want, r.Float64()*0.004).Scan(&got) == nil {
			assert.Equal(p.t, want, got, "somebody else's answer")
		}
	},
	"prepared read": func(p *prover, ctx context.Context, r *rand.Rand) {
		want, got := r.IntN(1e9), 0
		if p.stmt.QueryRowContext(ctx, want).Scan(&got) == nil {
			assert.Equal(p.t, want, got, "somebody else's answer")
		}
	},
	"many rows": func(p *prover, ctx context.Context, r *rand.Rand) {
		rows, err := p.db.QueryContext(ctx, "select generate_series(1, 3000)")
		if err != nil {
			return
		}
		n, stop := 0, r.IntN(4000)
		for n < stop && rows.Next() {
			n++
		}
		if err := rows.Err(); err == nil && stop > 3000 {
			assert.Equal(p.t, 3000, n, "a short result without an error")
		}
		_ = rows.Close() // its error is that of the context
	},
	"no time": func(p *prover, ctx context.Context, _ *rand.Rand) {
		id := p.change()
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		_, err := p.pool.Exec(ctx, proveInsert, id)
		assert.ErrorIs(p.t, err, ctx.Err()) // not Canceled where its time was over before
		p.tell(id, errors.Join(errRolledBack, err))
	},
}

// committed keeps what is known of a COMMIT: an error other than these says that
// nothing was committed.
func committed(err error) error {
	if err == nil || errors.Is(err, dsql.ErrCommitUnknown) {
		return err
	}
	return fmt.Errorf("%w: %w", errRolledBack, err)
}

func TestWhatCallersAreToldIsSo(t *testing.T) {
	const size, workers, each = 3, 6, 60
	for name, cuts := range map[string]bool{"timeouts and conflicts": false, "cuts too": true} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			g := startGate(t, nil)
			c := newCluster(t, g, patient(size))
			p := &prover{t: t, told: map[int]error{}}
			p.pool, p.db = both(t, c)
			long := within(t, 120*time.Second)
			for _, s := range []string{"drop table if exists proved", "create table proved (id int)"} {
				_, err := p.pool.Exec(long, s)
				require.NoError(t, err)
			}
			var err error
			p.stmt, err = p.db.PrepareContext(long, "select $1::int")
			require.NoError(t, err)
			require.NoError(t, c.WaitReady(long, size))
			var names []string
			for n := range steps {
				names = append(names, n)
			}
			var all sync.WaitGroup
			for w := range workers {
				all.Go(func() {
					r := rand.New(rand.NewPCG(seed, uint64(w)))
					for range each {
						limit := 30 * time.Second
						if r.IntN(2) == 0 {
							limit = time.Duration(r.IntN(12_000)) * time.Microsecond
						}
						ctx, cancel := context.WithTimeout(long, limit)
						steps[names[r.IntN(len(names))]](p, ctx, r)
						cancel()
						p.fault(g, r, cuts)
					}
				})
			}
			all.Wait()
			require.NoError(t, p.stmt.Close())
			p.judge(long)
			reach(t, "nothing is lent", func() bool { return c.Stats().Reservoir.InUse == 0 })
			if !cuts {
				require.EqualValues(t, size, c.Stats().Opened, "neither the end of a context nor a conflict costs a connection")
			}
			require.LessOrEqual(t, g.Stats().Peak, size)
			var open int
			require.NoError(t, p.pool.QueryRow(long, "select count(*) from pg_stat_activity where state like 'idle in%' and query like '%proved%'").Scan(&open))
			require.Zero(t, open, "a transaction was left open at the server")
		})
	}
}

// fault does something to the server now and then.
func (p *prover) fault(g interface {
	FailCommits(int, string)
	DropAtCommit(int)
	DropAtAnswer(int)
	DropAll() int
}, r *rand.Rand, cuts bool,
) {
	switch n := r.IntN(60); {
	case n < 4:
		g.FailCommits(1, "OC000")
	case n < 6:
		g.FailCommits(1, "OC001")
	case !cuts:
	case n < 8:
		g.DropAtCommit(1)
	case n < 10:
		g.DropAtAnswer(1)
	case n < 11:
		g.DropAll()
	}
}

// copyAfter copies one row, which its source has after a pause.
func (p *prover) copyAfter(ctx context.Context, id int, pause time.Duration) error {
	done := false
	_, err := p.pool.CopyFrom(ctx, pgx.Identifier{"proved"}, []string{"id"}, pgx.CopyFromFunc(func() ([]any, error) {
		if done {
			return nil, nil
		}
		done = true
		time.Sleep(pause)
		return []any{id}, nil
	}))
	return err
}

// judge compares what was told with what is there.
func (p *prover) judge(ctx context.Context) { p.judgeBy(ctx, p.pool) }

func (p *prover) judgeBy(ctx context.Context, db interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}) {
	found := map[int]int{}
	rows, err := db.Query(ctx, "select id, count(*) from proved group by id")
	require.NoError(p.t, err)
	var id, n int
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error { found[id] = n; return nil })
	require.NoError(p.t, err)
	made := 0
	for id, err := range p.told {
		least, most := may(err)
		assert.GreaterOrEqual(p.t, found[id], least, "change %d was lost", id)
		assert.LessOrEqual(p.t, found[id], most, "change %d was told to have failed with %v", id, err)
		if err == nil {
			made++
		}
		delete(found, id)
	}
	assert.Empty(p.t, found, "nobody made these changes")
	p.t.Logf("%d changes, %d made", len(p.told), made)
}
