package dsql_test

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/reservoir/dsql"
)

func TestAfterConnectPreparesEveryConnection(t *testing.T) {
	g := startGate(t, nil)
	type mood string
	var asked atomic.Int32
	p := newPool(t, g, func(c *dsql.Config) {
		c.MaxSize = 2
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			asked.Add(1)
			conn.TypeMap().RegisterDefaultPgType(mood(""), "text")
			conn.TypeMap().RegisterType(&pgtype.Type{Name: "own", OID: 99999, Codec: pgtype.TextCodec{}})
			_, err := conn.Exec(ctx, "set application_name = 'prepared'")
			return err
		}
	})
	ctx := within(t, 20*time.Second)
	require.NoError(t, p.WaitReady(ctx, 2))
	all := p.AcquireAllIdle(ctx)
	require.Len(t, all, 2)
	for _, c := range all {
		var name string
		require.NoError(t, c.QueryRow(ctx, "select current_setting('application_name') || $1", mood("!")).Scan(&name))
		require.Equal(t, "prepared!", name)
		_, known := c.Conn().TypeMap().TypeForName("own")
		require.True(t, known)
		c.Release()
	}
	require.EqualValues(t, 2, asked.Load())
}

func TestAnAfterConnectThatFailsOrPanicsLeavesNoConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		fail func() error
		says string
	}{
		"fails":              {func() error { return errors.New("not today") }, "not today"},
		"panics":             {func() error { panic("not today") }, "not today"},
		"ends its goroutine": {func() error { runtime.Goexit(); return nil }, "Goexit"},
	} {
		t.Run(name, func(t *testing.T) {
			g := startGate(t, nil)
			p := newPool(t, g, func(c *dsql.Config) {
				c.MaxSize, c.OnDemand = 1, true
				c.AfterConnect = func(context.Context, *pgx.Conn) error { return tc.fail() }
			})
			require.ErrorContains(t, p.Ping(within(t, 20*time.Second)), tc.says)
			closeSoon(t, p.Close)
			reach(t, "nothing is left at the server", func() bool { return g.Stats().Live == 0 })
			require.Zero(t, p.Stats().Leases.InUse)
		})
	}
}

func TestBeforeAcquireChooses(t *testing.T) {
	g := startGate(t, nil)
	type key struct{}
	var unwanted atomic.Uint32
	var all atomic.Bool
	p := newPool(t, g, func(c *dsql.Config) {
		c.MaxSize = 2
		c.BeforeAcquire = func(ctx context.Context, conn *pgx.Conn) bool {
			require.Equal(t, "the caller's", ctx.Value(key{}))
			return conn.PgConn().PID() != unwanted.Load() && !all.Load()
		}
	})
	ctx := context.WithValue(within(t, 60*time.Second), key{}, "the caller's")
	conn, err := p.Acquire(ctx)
	require.NoError(t, err)
	unwanted.Store(conn.Conn().PgConn().PID())
	conn.Release()
	for range 10 {
		conn, err := p.Acquire(ctx)
		require.NoError(t, err)
		require.NotEqual(t, unwanted.Load(), conn.Conn().PgConn().PID())
		conn.Release()
	}
	all.Store(true)
	before := g.Stats().Admitted
	_, err = p.Acquire(ctx)
	require.ErrorIs(t, err, dsql.ErrReservoirEmpty)
	require.ErrorContains(t, err, "BeforeAcquire")
	require.LessOrEqual(t, g.Stats().Admitted-before, 8, "it does not open for ever")
	all.Store(false)
	require.NoError(t, p.Ping(ctx))
}

// A panic or Goexit in a function of the user's reaches the caller and costs nothing.
func TestPanicsInFunctionsOfTheUsersLoseNothing(t *testing.T) {
	for name, set := range map[string]func(*dsql.Config, func()){
		"BeforeAcquire": func(c *dsql.Config, fail func()) {
			c.BeforeAcquire = func(context.Context, *pgx.Conn) bool { fail(); return true }
		},
		"AcquireTracer": func(c *dsql.Config, fail func()) { c.AcquireTracer = &tracer{onEnd: fail} },
		"BeforeClose":   func(c *dsql.Config, fail func()) { c.BeforeClose = func(*pgx.Conn) { fail() } },
	} {
		for how, end := range map[string]func(){"panics": func() { panic("the user's") }, "ends its goroutine": runtime.Goexit} {
			t.Run(name+" "+how, func(t *testing.T) {
				g := startGate(t, nil)
				var fails atomic.Bool
				p := newPool(t, g, func(c *dsql.Config) {
					c.MaxSize = 1
					set(c, func() {
						if fails.Load() {
							end()
						}
					})
				})
				ctx := within(t, 30*time.Second)
				require.NoError(t, p.Ping(ctx))
				for range 3 {
					fails.Store(true)
					if name == "BeforeClose" {
						conn, err := p.Acquire(ctx)
						require.NoError(t, err)
						conn.Discard(errors.New("over"))
					} else {
						require.Equal(t, how, endOf(func() { _ = p.Ping(ctx) }))
					}
					reach(t, "nothing is lent", func() bool { return p.Stats().Reservoir.InUse == 0 })
					fails.Store(false)
					require.NoError(t, p.Ping(ctx))
				}
				fails.Store(true)
				closeSoon(t, p.Close)
				reach(t, "nothing is left at the server", func() bool { return g.Stats().Live == 0 })
			})
		}
	}
}

// endOf runs f on a goroutine of its own, and says how that ended.
func endOf(f func()) string {
	ended := make(chan string, 1)
	go func() {
		how := "ends its goroutine"
		defer func() {
			if recover() != nil {
				how = "panics"
			}
			ended <- how
		}()
		f()
		how = "returns"
	}()
	return <-ended
}

// tracer notes what it hears.
type tracer struct {
	mu    sync.Mutex
	heard []string
	onEnd func()
}

type traced struct{}

func (r *tracer) TraceAcquireStart(ctx context.Context, data dsql.TraceAcquireStartData) context.Context {
	r.note("start of " + data.Cluster.Config().User)
	return context.WithValue(ctx, traced{}, "begun")
}

func (r *tracer) TraceAcquireEnd(ctx context.Context, data dsql.TraceAcquireEndData) {
	what, _ := ctx.Value(traced{}).(string)
	switch {
	case data.Err != nil:
		what += ", failed"
	case data.Conn != nil:
		what += ", got one"
	}
	r.note(what)
	if r.onEnd != nil {
		r.onEnd()
	}
}

func (r *tracer) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = append(r.heard, what)
}

func TestATracerHearsOfEveryCall(t *testing.T) {
	var r tracer
	c := newCluster(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize, c.AcquireTracer = 1, &r })
	pool, db := both(t, c)
	ctx := within(t, 20*time.Second)
	require.NoError(t, db.PingContext(ctx))
	conn, err := pool.Acquire(ctx)
	require.NoError(t, err)
	_, err = pool.Acquire(within(t, 20*time.Millisecond))
	require.Error(t, err)
	conn.Release()
	require.Equal(t, []string{"start of admin", "begun, got one", "start of admin", "begun, got one", "start of admin", "begun, failed"}, r.heard)
}

// A hangingTracer does not return where it is told to hang, whatever its context says.
type hangingTracer struct {
	atStart, atEnd atomic.Bool
	released       chan struct{}
}

func (h *hangingTracer) TraceAcquireStart(ctx context.Context, _ dsql.TraceAcquireStartData) context.Context {
	if h.atStart.Load() {
		<-h.released
	}
	return ctx
}

func (h *hangingTracer) TraceAcquireEnd(_ context.Context, d dsql.TraceAcquireEndData) {
	if h.atEnd.Load() {
		<-h.released
		if d.Conn != nil {
			_ = d.Conn.Ping(context.Background()) // nobody else uses it
		}
	}
}

func TestATracerThatHangsHoldsNoCaller(t *testing.T) {
	h := &hangingTracer{released: make(chan struct{})}
	p := newPool(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize, c.AcquireTracer = 2, h })
	ctx := within(t, 30*time.Second)
	require.NoError(t, p.Ping(ctx))
	for _, hangs := range []*atomic.Bool{&h.atStart, &h.atEnd} {
		hangs.Store(true)
		for range 3 { // more than there are connections
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			began := time.Now()
			_, err := p.Acquire(short)
			require.ErrorIs(t, err, dsql.ErrReservoirEmpty)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(began), 10*time.Second)
			cancel()
		}
		hangs.Store(false)
		require.NoError(t, p.Ping(ctx), "nothing is held")
	}
	close(h.released)
	reach(t, "nothing is lent", func() bool { return p.Stats().Reservoir.InUse == 0 })
}

func TestALoanThatIsOutForLongIsReported(t *testing.T) {
	leaks := make(chan reservoir.Leak, 1)
	p := newPool(t, startGate(t, nil), func(c *dsql.Config) {
		c.MaxSize, c.LeakAfter, c.Hooks.Leaked = 1, 20*time.Millisecond, func(l reservoir.Leak) { leaks <- l }
	})
	conn, err := p.Acquire(within(t, 20*time.Second))
	require.NoError(t, err)
	leak := <-leaks
	require.Contains(t, leak.Stack, "TestALoanThatIsOutForLongIsReported")
	conn.Release()
}

func TestUnusedConnectionsAreClosedAfterIdleTTL(t *testing.T) {
	p := newPool(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize, c.OnDemand, c.IdleTTL = 2, true, 50*time.Millisecond })
	require.NoError(t, p.Ping(within(t, 20*time.Second)))
	reach(t, "it is closed", func() bool { return p.Stats().Reservoir.Closed[reservoir.IdleTimeout] == 1 })
}

func TestAStarvedCallerIsToldOfTheFleet(t *testing.T) {
	leases := lease.NewLeases("fleet", 1)
	release, err := leases.Acquire(t.Context())
	require.NoError(t, err)
	defer release()
	p := newPool(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize, c.Leases = 2, leases })
	reach(t, "an open waits for a lease", func() bool { return leases.Stats().Waiting > 0 })
	_, err = p.Acquire(within(t, 50*time.Millisecond))
	require.ErrorContains(t, err, "wait for a lease, the fleet has 1 of 1")
	var empty *dsql.EmptyError
	require.ErrorAs(t, err, &empty)
	require.Equal(t, 1, empty.Leases.Used)
}

func TestAStarvedCallerIsToldOfItsShareOfTheFleet(t *testing.T) {
	for says, stats := range map[string]lease.Stats{
		"2 opens wait for a lease, the fleet has 100 of 100 in 12 processes, of which each may have 8": {Waiting: 2, Used: 100, Limit: 100, Owners: 12, Share: 8},
		"2 opens wait for a lease, the fleet has 90 of 100 in 3 processes":                             {Waiting: 2, Used: 90, Limit: 100, Owners: 3},
		"2 opens wait for a lease, the fleet has 90 of 100":                                            {Waiting: 2, Used: 90, Limit: 100},
	} {
		err := &dsql.EmptyError{Cause: context.DeadlineExceeded, Leases: stats}
		require.True(t, strings.HasSuffix(err.Error(), says), err.Error())
	}
}

// A function of the user's that leaves a connection in a transaction, or busy, does
// not hand that to whoever borrows it.
func TestWhatFunctionsOfTheUsersLeaveOpenIsNotLent(t *testing.T) {
	begin := func(ctx context.Context, conn *pgx.Conn) error { _, err := conn.Exec(ctx, "begin"); return err }
	busy := func(ctx context.Context, conn *pgx.Conn) error { _, err := conn.Query(ctx, "select 1"); return err }
	for name, leave := range map[string]func(context.Context, *pgx.Conn) error{"in a transaction": begin, "busy": busy} {
		for hook, set := range map[string]func(*dsql.Config, func(context.Context, *pgx.Conn) error){
			"AfterConnect": func(c *dsql.Config, f func(context.Context, *pgx.Conn) error) { c.AfterConnect = f },
			"OnReturn":     func(c *dsql.Config, f func(context.Context, *pgx.Conn) error) { c.OnReturn = f },
			"BeforeAcquire": func(c *dsql.Config, f func(context.Context, *pgx.Conn) error) {
				c.BeforeAcquire = func(ctx context.Context, conn *pgx.Conn) bool { return f(ctx, conn) == nil }
			},
		} {
			t.Run(hook+" "+name, func(t *testing.T) {
				var left atomic.Bool
				p := newPool(t, startGate(t, nil), func(c *dsql.Config) {
					c.MaxSize = 1
					set(c, func(ctx context.Context, conn *pgx.Conn) error {
						if left.Swap(true) {
							return nil
						}
						return leave(ctx, conn)
					})
				})
				ctx := within(t, 20*time.Second)
				for range 3 {
					conn, err := p.Acquire(ctx)
					if hook == "AfterConnect" && err != nil { // the open's error
						require.ErrorContains(t, err, "AfterConnect")
						continue
					}
					require.NoError(t, err)
					require.EqualValues(t, 'I', conn.Conn().PgConn().TxStatus())
					require.NoError(t, conn.Ping(ctx))
					conn.Release()
				}
				require.NoError(t, p.Ping(ctx))
			})
		}
	}
}

// A BeforeAcquire that ignores its context holds neither the caller nor a place, and
// what it does with its connection afterwards is nobody else's.
func TestABeforeAcquireThatHangsHoldsNoCaller(t *testing.T) {
	hold := make(chan struct{})
	var calls, ended atomic.Int32
	p := newPool(t, startGate(t, nil), func(c *dsql.Config) {
		c.MaxSize = 1
		c.BeforeAcquire = func(_ context.Context, conn *pgx.Conn) bool {
			if calls.Add(1) == 1 {
				<-hold
				_, _ = conn.Exec(context.WithoutCancel(t.Context()), "select 1") // it was cut
				ended.Add(1)
			}
			return true
		}
	})
	ctx := within(t, 20*time.Second)
	require.NoError(t, p.WaitReady(ctx, 1))
	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.Ping(soon), context.DeadlineExceeded)
	require.Zero(t, ended.Load())
	require.NoError(t, p.Ping(ctx), "on another connection")
	close(hold)
	reach(t, "it ends", func() bool { return ended.Load() == 1 })
	require.NoError(t, p.Ping(ctx))
}

func TestACallerWhoseContextEndsInBeforeAcquireCostsOneConnection(t *testing.T) {
	g := startGate(t, nil)
	p := newPool(t, g, func(c *dsql.Config) {
		c.MaxSize = 6
		c.BeforeAcquire = func(ctx context.Context, conn *pgx.Conn) bool {
			_, impatient := ctx.Value(impatience{}).(bool)
			if impatient {
				<-ctx.Done()
			}
			return conn.Ping(ctx) == nil
		}
	})
	ctx := within(t, 20*time.Second)
	require.NoError(t, p.WaitReady(ctx, 6))
	soon, cancel := context.WithTimeout(context.WithValue(ctx, impatience{}, true), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.Ping(soon), context.DeadlineExceeded)
	require.NoError(t, p.WaitReady(ctx, 6))
	require.LessOrEqual(t, g.Stats().Admitted, 7)
}

type impatience struct{}

func TestAPanicOfBeforeAcquireLosesNoneOfAllIdle(t *testing.T) {
	var calls atomic.Int32
	p := newPool(t, startGate(t, nil), func(c *dsql.Config) {
		c.MaxSize = 4
		c.BeforeAcquire = func(context.Context, *pgx.Conn) bool {
			if calls.Add(1) == 3 {
				panic("the user's")
			}
			return true
		}
	})
	ctx := within(t, 20*time.Second)
	require.NoError(t, p.WaitReady(ctx, 4))
	require.PanicsWithValue(t, "the user's", func() { p.AcquireAllIdle(ctx) })
	reach(t, "nothing is lent", func() bool { return p.Stats().Reservoir.InUse == 0 })
	require.NoError(t, p.WaitReady(ctx, 4))
	all := p.AcquireAllIdle(ctx)
	require.Len(t, all, 4)
	for _, c := range all {
		c.Release()
	}
}

// pgx takes a statement that the user has prepared for every query of its text:
// those of database/sql have a text of their own.
func TestAStatementThatWasPreparedDoesNotSpoilPlainQueries(t *testing.T) {
	db := openDB(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize = 1 })
	ctx := within(t, 30*time.Second)
	for _, s := range []string{"drop table if exists altered", "create table altered (a int)", "insert into altered values (1)"} {
		_, err := db.ExecContext(ctx, s)
		require.NoError(t, err)
	}
	stmt, err := db.PrepareContext(ctx, "select * from altered")
	require.NoError(t, err)
	var a int
	require.NoError(t, stmt.QueryRowContext(ctx).Scan(&a))
	require.Equal(t, 1, a)
	require.NoError(t, stmt.Close())
	_, err = db.ExecContext(ctx, "alter table altered add column b int")
	require.NoError(t, err)
	var b sql.NullInt64
	for i := range 5 {
		require.NoError(t, db.QueryRowContext(ctx, "select * from altered").Scan(&a, &b), "query %d", i)
	}
}

func TestTransactionsOfDatabaseSQLRunAgainAfterConflicts(t *testing.T) {
	g := startGate(t, nil)
	db := openDB(t, g, nil)
	ctx := within(t, 30*time.Second)
	for _, s := range []string{"create table if not exists retried (n int)", "delete from retried"} {
		_, err := db.ExecContext(ctx, s)
		require.NoError(t, err)
	}
	number := func() (n int) {
		require.NoError(t, db.QueryRowContext(ctx, "select count(*) from retried").Scan(&n))
		return n
	}
	runs := 0
	insert := func(tx *sql.Tx) error {
		runs++
		_, err := tx.ExecContext(ctx, "insert into retried values (1)")
		return err
	}
	g.FailCommits(2, "OC000")
	require.NoError(t, dsql.InTx(ctx, db, nil, insert))
	require.Equal(t, 3, runs)
	require.Equal(t, 1, number())

	runs = 0
	g.DropAtCommit(1)
	require.ErrorIs(t, dsql.InTx(ctx, db, nil, insert), dsql.ErrCommitUnknown)
	require.Equal(t, 1, runs)
	require.Equal(t, 2, number())

	runs = 0
	g.FailCommits(2, "OC001")
	var lost *dsql.OCCError
	require.ErrorAs(t, dsql.OCCPolicy{Attempts: 2}.InTx(ctx, db, nil, insert), &lost)
	require.Equal(t, 2, runs)

	broken := errors.New("broken")
	require.ErrorIs(t, dsql.InTx(ctx, db, nil, func(tx *sql.Tx) error { return errors.Join(insert(tx), broken) }), broken)
	require.Panics(t, func() { _ = dsql.InTx(ctx, db, nil, func(tx *sql.Tx) error { _ = insert(tx); panic("the user's") }) })
	require.ErrorContains(t, dsql.InTx(ctx, db, &sql.TxOptions{ReadOnly: true}, insert), "read-only")
	require.Equal(t, 2, number(), "what failed was rolled back")
	require.Zero(t, db.Stats().InUse)
}

// A function that has ended its transaction is not run again, whatever it returns: what
// it has committed would be stored twice.
func TestInTxDoesNotRunAgainWhatItsFunctionHasCommitted(t *testing.T) {
	g := startGate(t, nil)
	db, p := openDB(t, g, nil), newPool(t, g, nil)
	ctx := within(t, 30*time.Second)
	for _, s := range []string{"create table if not exists ended (n int)", "delete from ended"} {
		_, err := db.ExecContext(ctx, s)
		require.NoError(t, err)
	}
	conflict := &pgconn.PgError{Code: "40001"}
	const insert = "insert into ended values (1)"
	runs := 0
	bySQL := func(end func(tx *sql.Tx) error) error {
		return dsql.InTx(ctx, db, nil, func(tx *sql.Tx) error {
			runs++
			_, err := tx.ExecContext(ctx, insert)
			return errors.Join(err, end(tx))
		})
	}
	byPgx := func(end func(tx pgx.Tx) error) error {
		return p.InTx(ctx, func(tx pgx.Tx) error {
			runs++
			_, err := tx.Exec(ctx, insert)
			return errors.Join(err, end(tx))
		})
	}
	for _, tc := range []struct {
		name         string
		call         func() error
		fails        int // commits that are refused
		unknown      bool
		runs, stored int
	}{
		{"database/sql, and a conflict", func() error { return bySQL(func(tx *sql.Tx) error { return errors.Join(tx.Commit(), conflict) }) }, 0, true, 1, 1},
		{"database/sql, and no error", func() error { return bySQL((*sql.Tx).Commit) }, 0, true, 1, 1},
		{"database/sql, rolled back", func() error { return bySQL(func(tx *sql.Tx) error { return errors.Join(tx.Rollback(), conflict) }) }, 0, true, 1, 0},
		{"pgx, and a conflict", func() error { return byPgx(func(tx pgx.Tx) error { return errors.Join(tx.Commit(ctx), conflict) }) }, 0, true, 1, 1},
		{"pgx, and no error", func() error { return byPgx(func(tx pgx.Tx) error { return tx.Commit(ctx) }) }, 0, true, 1, 1},
		{"pgx, refused", func() error { return byPgx(func(tx pgx.Tx) error { return tx.Commit(ctx) }) }, 1, true, 2, 1},
		{"pgx, refused once, and then not committed", func() error {
			return byPgx(func(tx pgx.Tx) error {
				if runs == 1 {
					return tx.Commit(ctx)
				}
				return nil
			})
		}, 1, false, 2, 1},
	} {
		_, err := db.ExecContext(ctx, "delete from ended")
		require.NoError(t, err)
		runs = 0
		g.FailCommits(tc.fails, "OC000")
		err = tc.call()
		require.Equal(t, tc.unknown, errors.Is(err, dsql.ErrCommitUnknown), "%s: %v", tc.name, err)
		require.False(t, dsql.IsConflict(err), tc.name)
		require.Equal(t, tc.runs, runs, tc.name)
		var n int
		require.NoError(t, db.QueryRowContext(ctx, "select count(*) from ended").Scan(&n))
		require.Equal(t, tc.stored, n, tc.name)
	}
}

func TestInTxWithOptions(t *testing.T) {
	p := newPool(t, startGate(t, nil), nil)
	ctx := within(t, 20*time.Second)
	runs := 0
	readOnly := dsql.TxOptions{TxOptions: pgx.TxOptions{AccessMode: pgx.ReadOnly}, OCC: dsql.OCCPolicy{Attempts: 1}}
	var mode string
	require.NoError(t, p.InTxWith(ctx, readOnly, func(tx pgx.Tx) error {
		runs++
		return tx.QueryRow(ctx, "show transaction_read_only").Scan(&mode)
	}))
	require.Equal(t, "on", mode)
	require.Equal(t, 1, runs)
}
