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
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/driverapi"
	"github.com/flightpool/flightpool/testserver"
)

// drawnTx is a transaction and what was said in it.
type drawnTx struct {
	*sql.Tx
	ctx    context.Context
	stop   context.CancelFunc
	conn   *sql.Conn
	over   bool
	values []*sqlSaid
}

type drawnRows struct {
	*sql.Rows
	want, got int
	tx        *drawnTx
	conn      *sql.Conn
	stop      context.CancelFunc
}

type drawnStmt struct {
	*sql.Stmt
	tx     *drawnTx
	closed bool
	insert bool
}

// sqlDraw is a program of random calls of database/sql.
type sqlDraw struct {
	*rand.Rand
	r      rig
	db     *sql.DB
	txs    []*drawnTx
	conns  []*sql.Conn
	table  string
	busy   map[*sql.Conn]int
	rows   []*drawnRows
	stmts  []*drawnStmt
	next   int
	values map[int]*bounds
	log    []string
	broken []string
}

type bounds struct {
	least, most int
	why         string
}

func (p *sqlDraw) say(f string, a ...any)   { p.log = append(p.log, fmt.Sprintf(f, a...)) }
func (p *sqlDraw) wrong(f string, a ...any) { p.broken = append(p.broken, fmt.Sprintf(f, a...)) }

// call runs a call with a context, which ends soon, later or has ended.
func (p *sqlDraw) call(name string, f func(ctx context.Context) error) error {
	limit := []time.Duration{0, time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond, 300 * time.Millisecond, 300 * time.Millisecond, 600 * time.Millisecond}[p.IntN(9)]
	ctx, stop := context.WithTimeout(p.r.Context(), limit)
	defer stop()
	return p.timed(name, limit+slackTime, func() error { return f(ctx) })
}

func (p *sqlDraw) timed(name string, limit time.Duration, f func() error) error {
	began := time.Now()
	err := f()
	p.say("%s (in %s of %s): %v", name, time.Since(began), limit, err)
	if took := time.Since(began); took > limit {
		p.wrong("%s took %s of %s: %v", name, took, limit, err)
	}
	if err != nil && (strings.Contains(err.Error(), "%!") || err.Error() == "") {
		p.wrong("%s fails with %q", name, err)
	}
	return err
}

func draw[T any](p *sqlDraw, all []T) (item T, ok bool) {
	if len(all) == 0 {
		return item, false
	}
	return all[p.IntN(len(all))], true
}

func (p *sqlDraw) on() (sqlOn, *drawnTx, string) {
	switch p.IntN(4) {
	case 0:
		if c, ok := draw(p, p.conns); ok && p.busy[c] == 0 {
			return c, nil, "Conn."
		}
	case 1, 2:
		if tx, ok := draw(p, p.txs); ok {
			return tx, tx, "Tx."
		}
	}
	return p.db, nil, "DB."
}

// said notes what a call said of a value.
func (p *sqlDraw) said(v int, tx *drawnTx, err error) {
	b := &bounds{0, 1, fmt.Sprint(err)}
	p.values[v] = b
	switch {
	case tx != nil:
		b.most = 0
		if !tx.over {
			tx.values = append(tx.values, &sqlSaid{v, err})
		}
	case err == nil:
		b.least = 1
	case errors.Is(err, driver.ErrBadConn), flightpool.SafeToRetry(err):
		b.most = 0
	}
}

func (p *sqlDraw) exec() {
	p.next++
	v := p.next
	on, tx, name := p.on()
	err := p.call(fmt.Sprint(name, "Exec ", v), func(ctx context.Context) (err error) {
		var done sql.Result
		if p.IntN(2) == 0 {
			done, err = on.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s VALUES (%d)", p.table, v))
		} else {
			done, err = on.ExecContext(ctx, "INSERT INTO "+p.table+" VALUES (?)", v)
		}
		if err == nil {
			if n, err := done.RowsAffected(); err == nil && n != 1 && !p.r.server.Profile().ZeroCounts {
				p.wrong("%d rows affected", n)
			}
		}
		return err
	})
	p.said(v, tx, err)
}

func (p *sqlDraw) bad() {
	on, _, name := p.on()
	text := []string{"BAD", "SELECT error('x')", "BEGIN", "SELECT * FROM nowhere", ""}[p.IntN(5)]
	_ = p.call(name+"Exec "+text, func(ctx context.Context) error {
		_, err := on.ExecContext(ctx, text)
		if err == nil {
			p.wrong("%q succeeds", text)
		}
		return err
	})
}

func (p *sqlDraw) slow() {
	on, _, name := p.on()
	_ = p.call(name+"sleep", func(ctx context.Context) error {
		var v any
		return on.QueryRowContext(ctx, "SELECT sleep('50ms')").Scan(&v)
	})
}

func (p *sqlDraw) query() {
	on, tx, name := p.on()
	n := []int{0, 3, 3000, 100000}[p.IntN(4)]
	ctx, stop := context.WithTimeout(p.r.Context(), time.Duration(1+p.IntN(400))*time.Millisecond)
	var rows *sql.Rows
	err := p.timed(fmt.Sprint(name, "Query ", n), 400*time.Millisecond+slackTime+slackTime, func() (err error) {
		rows, err = on.QueryContext(ctx, fmt.Sprintf("SELECT * FROM generate(%d, 500)", n))
		return err
	})
	if err != nil {
		stop()
		return
	}
	held, _ := on.(*sql.Conn)
	if held != nil {
		p.busy[held]++
	}
	p.rows = append(p.rows, &drawnRows{Rows: rows, want: n, tx: tx, stop: stop, conn: held})
}

func (p *sqlDraw) next1() {
	r, ok := draw(p, p.rows)
	if !ok {
		return
	}
	_ = p.timed("Next", 400*time.Millisecond+slackTime+slackTime, func() error {
		for range []int{1, 10, 1000000}[p.IntN(3)] {
			if !r.Next() {
				if r.Err() == nil && r.got != r.want && r.got >= 0 {
					p.wrong("%d rows of %d and no error", r.got, r.want)
				}
				r.got = -1 << 40
				return r.Err()
			}
			r.got++
		}
		return nil
	})
}

func (p *sqlDraw) closeRows() {
	r, ok := draw(p, p.rows)
	if !ok {
		return
	}
	r.got = -1 << 40
	_ = p.timed("Rows.Close", 400*time.Millisecond+slackTime+slackTime, r.Close)
	r.stop()
	if r.conn != nil {
		p.busy[r.conn]--
	}
	p.rows = slices.DeleteFunc(p.rows, func(o *drawnRows) bool { return o == r })
}

func (p *sqlDraw) begin() {
	if len(p.txs)+len(p.conns) > 2 {
		return
	}
	var on interface {
		BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
	} = p.db
	name := "DB."
	var held *sql.Conn
	if c, ok := draw(p, p.conns); ok && p.IntN(2) == 0 && p.busy[c] == 0 {
		on, name, held = c, "Conn.", c
	}
	ctx, stop := context.WithCancel(p.r.Context())
	if p.IntN(2) == 0 {
		ctx, stop = context.WithTimeout(p.r.Context(), time.Duration(1+p.IntN(500))*time.Millisecond)
	}
	short := time.AfterFunc(500*time.Millisecond, stop)
	tx := &drawnTx{ctx: ctx, stop: stop, conn: held}
	if p.timed(name+"BeginTx", 500*time.Millisecond+slackTime, func() (err error) { tx.Tx, err = on.BeginTx(ctx, nil); return err }) != nil {
		stop()
		return
	}
	short.Stop()
	if held != nil {
		p.busy[held]++
	}
	p.txs = append(p.txs, tx)
}

func (p *sqlDraw) end() {
	if tx, ok := draw(p, p.txs); ok {
		p.endOf(tx, p.IntN(3) > 0)
	}
}

func (p *sqlDraw) endOf(tx *drawnTx, commit bool) {
	p.txs = slices.DeleteFunc(p.txs, func(o *drawnTx) bool { return o == tx })
	tx.over = true
	name := "Rollback"
	if commit {
		name = "Commit"
	}
	err := p.timed(name, driverapi.NoCtxTimeout+slackTime, func() error {
		if commit {
			return tx.Commit()
		}
		return tx.Rollback()
	})
	if errors.Is(err, driver.ErrBadConn) && commit {
		p.wrong("Commit says ErrBadConn: %v", err)
	}
	for _, s := range tx.values {
		b := p.values[s.value]
		b.why += fmt.Sprintf("; %s: %v", name, err)
		switch {
		case commit && err == nil && s.err == nil:
			b.least, b.most = 1, 1
		case commit && err == nil:
			b.least, b.most = 0, 0
		case commit && errors.Is(err, flightpool.ErrCommitUnknown):
			b.most = 1
		}
	}
	tx.stop()
	if tx.conn != nil {
		p.busy[tx.conn]--
	}
}

func (p *sqlDraw) conn() {
	if len(p.txs)+len(p.conns) > 2 {
		return
	}
	var c *sql.Conn
	if p.call("Conn", func(ctx context.Context) (err error) { c, err = p.db.Conn(ctx); return err }) == nil {
		p.conns = append(p.conns, c)
	}
}

func (p *sqlDraw) closeConn() {
	c, ok := draw(p, p.conns)
	if !ok || p.busy[c] > 0 {
		return
	}
	_ = p.timed("Conn.Close", driverapi.NoCtxTimeout, c.Close)
	p.conns = slices.DeleteFunc(p.conns, func(o *sql.Conn) bool { return o == c })
}

func (p *sqlDraw) prepare() {
	on, tx, name := p.on()
	s := &drawnStmt{tx: tx, insert: p.IntN(2) == 0}
	text := "SELECT 1, ?"
	if s.insert {
		text = "INSERT INTO " + p.table + " VALUES (?)"
	}
	if p.call(name+"Prepare "+text, func(ctx context.Context) (err error) { s.Stmt, err = on.PrepareContext(ctx, text); return err }) == nil {
		p.stmts = append(p.stmts, s)
	}
}

func (p *sqlDraw) run() {
	s, ok := draw(p, p.stmts)
	if !ok {
		return
	}
	if tx, ok := draw(p, p.txs); ok && p.IntN(2) == 0 && (s.tx == nil || s.tx == tx) {
		bound := tx.StmtContext(tx.ctx, s.Stmt)
		s = &drawnStmt{Stmt: bound, tx: tx, insert: s.insert, closed: s.closed}
	}
	p.next++
	v := p.next
	if !s.insert {
		_ = p.call("Stmt.Query", func(ctx context.Context) error {
			var a, b int
			err := s.QueryRowContext(ctx, v).Scan(&a, &b)
			if err == nil && (a != 1 || b != v) {
				p.wrong("%d, %d", a, b)
			}
			if errors.Is(err, sql.ErrNoRows) {
				p.wrong("no rows: %v", err)
			}
			return err
		})
		return
	}
	err := p.call(fmt.Sprint("Stmt.Exec ", v), func(ctx context.Context) error {
		_, err := s.ExecContext(ctx, v)
		return err
	})
	p.said(v, s.tx, err)
}

func (p *sqlDraw) closeStmt() {
	s, ok := draw(p, p.stmts)
	if !ok {
		return
	}
	_ = p.timed("Stmt.Close", 400*time.Millisecond+slackTime, s.Close) // it waits for a statement's rows
	p.stmts = slices.DeleteFunc(p.stmts, func(o *drawnStmt) bool { return o == s })
}

func (p *sqlDraw) pause() {
	time.Sleep(time.Duration(p.IntN(100)) * time.Millisecond)
}

func (p *sqlDraw) row() {
	on, _, name := p.on()
	_ = p.call(name+"QueryRow", func(ctx context.Context) error {
		var a, b int
		err := on.QueryRowContext(ctx, "SELECT 1, ?", 7).Scan(&a, &b)
		if err == nil && (a != 1 || b != 7) {
			p.wrong("%d, %d", a, b)
		}
		if errors.Is(err, sql.ErrNoRows) {
			p.wrong("no rows: %v", err)
		}
		return err
	})
}

func (p *sqlDraw) step() {
	moves := []func(){p.exec, p.exec, p.exec, p.bad, p.slow, p.query, p.query, p.next1, p.next1, p.closeRows, p.begin, p.begin, p.end, p.end, p.conn, p.closeConn, p.prepare, p.run, p.run, p.closeStmt, p.pause, p.row}
	moves[p.IntN(len(moves))]()
}

// loanBackWithin is how long a connection may be on loan behind a program that has closed
// everything: for a rollback whose context had ended before, its cancel chain, and the
// close of the session, of which the last two have 5 s each.
const loanBackWithin = driverapi.NoCtxTimeout + 2*5*time.Second + slackTime

func drawSQL(t *testing.T, kind string, profile testserver.Profile, seed uint64, n int, faulty bool) (broken []string) {
	s, err := testserver.Start(testserver.Options{Profile: profile, Listen: testserver.InMemory})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	r := rig{t, s}
	judge := r.pool("native")
	r.update(judge, "CREATE TABLE "+tableOf(profile)+" (v BIGINT)")
	pool, err := r.tryPool(kind, func(c *flightpool.Config) { c.MaxSize = 3 })
	require.NoError(t, err)
	p := &sqlDraw{Rand: rand.New(rand.NewPCG(seed, 7)), r: r, db: OpenDB(pool), values: map[int]*bounds{}, busy: map[*sql.Conn]int{}, table: tableOf(profile)}
	var set *testserver.SetFault
	if faulty {
		effects := slices.Sorted(maps.Keys(sqlEffects))
		f := sqlFault{on: sqlPoints[p.IntN(len(sqlPoints))], after: p.IntN(2) == 0, skip: p.IntN(20), effect: effects[p.IntN(len(effects))]}
		if f.after && slices.Contains(refusals, f.effect) {
			f.after = false
		}
		if profile.Name != "strict" && f.effect == "evict" && f.on == testserver.OnStatement {
			f.effect = "kill"
		}
		p.say("%+v", f)
		set = s.Faults().Set(testserver.Fault{On: f.on, After: f.after, Skip: f.skip, Times: 1 + p.IntN(2), Do: sqlEffects[f.effect]})
	}
	for range n {
		p.step()
		if len(p.broken) > 0 {
			break
		}
	}
	for _, r := range p.rows {
		_ = p.timed("Rows.Close", 400*time.Millisecond+slackTime, r.Close)
		r.stop()
	}
	for _, tx := range slices.Clone(p.txs) {
		p.endOf(tx, false)
	}
	for _, s := range p.stmts {
		_ = p.timed("Stmt.Close", slackTime, s.Close)
	}
	for _, c := range p.conns {
		_ = p.timed("Conn.Close", driverapi.NoCtxTimeout, c.Close)
	}
	_ = p.timed("DB.Close", driverapi.NoCtxTimeout, p.db.Close)
	if set != nil {
		set.Clear()
		s.Faults().ThawConns()
	}
	for end := time.Now().Add(loanBackWithin); pool.Stats().InUse > 0 && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	if in := pool.Stats().InUse; in > 0 {
		p.wrong("%d connections are on loan", in)
	}
	_ = p.timed("Pool.Close", 10*time.Second, func() error { return pool.Close(r.Context()) })
	kept := profile.SessionTTL > 0 && faulty // such sessions outlive their connections
	for range 100 {
		if now := s.Ledger().Snapshot(); (kept || now.Transactions == 0) && now.Conns <= 2 && (profile.SessionTTL > 0 || now.Prepared == 0) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	stored := map[int]int{}
	rows, err := judge.Query(r.Context(), "SELECT * FROM "+tableOf(profile))
	require.NoError(t, err)
	for _, v := range r.values(rows) {
		n, err := strconv.Atoi(v)
		require.NoError(t, err)
		stored[n]++
	}
	rows.Release()
	for v, b := range p.values {
		if stored[v] < b.least || stored[v] > b.most {
			p.wrong("%d is stored %d times, not %d to %d: %s", v, stored[v], b.least, b.most, b.why)
		}
	}
	if now := s.Ledger().Snapshot(); now.Transactions > 0 && !kept || now.Conns > 2 || profile.SessionTTL == 0 && now.Prepared > 0 {
		p.wrong("left on the server: %v", now)
	}
	if len(p.broken) > 0 {
		broken = append(slices.Clone(p.broken), p.log...)
	}
	return broken
}

// tableOf is a table of the server's that all sessions share.
func tableOf(p testserver.Profile) string {
	if p.AppendTo != "" {
		return p.AppendTo + ".t"
	}
	return "t"
}

// slackTime is for a machine that has much else to do: what a call may take is
// tested in virtual time elsewhere, in which database/sql's locks stand still.
const slackTime = 20 * time.Second

// Random calls of database/sql, in any order, on transactions, connections,
// statements and rows of which several are open, with contexts that end at any
// moment, without a fault and with one: none hangs, no result is short without an
// error, what is stored is what the calls have said, and nothing is left.
// PROVE_SEED makes other programs, PROVE_SCENES more.
func TestSQLCallsInAnyOrder(t *testing.T) {
	const calls = 60
	seed, _ := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64)
	n, _ := strconv.Atoi(os.Getenv("PROVE_SCENES"))
	servers := map[string]testserver.Profile{"strict": testserver.Strict(), "SwanLake": testserver.SwanLake()}
	for i := range uint64(max(n, 1)) {
		for _, kind := range kinds {
			for _, server := range slices.Sorted(maps.Keys(servers)) {
				for _, faulty := range []bool{false, true} {
					t.Run(fmt.Sprint(kind, server, faulty, seed+i), func(t *testing.T) {
						t.Parallel()
						if broken := drawSQL(t, kind, servers[server], seed+i, calls, faulty); len(broken) > 0 {
							t.Errorf("%s, %s, faulty %t, PROVE_SEED=%d: %s", kind, server, faulty, seed+i, strings.Join(broken, "\n   "))
						}
					})
				}
			}
		}
	}
}
