package sqlconn_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// programs are borrowers that share a reservoir, and what they were told of each number.
type programs struct {
	t     *testing.T
	db    *database
	conns *reservoir.Reservoir[*sqlconn.Conn]
	keeps bool

	mu          sync.Mutex
	next, loans int
	least, most map[int]int
	atomic      [][]int // all of them are stored, or none
}

func (p *programs) number() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	return p.next
}

// tell records how often a number can be stored at least and at most.
func (p *programs) tell(n, least, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.least[n], p.most[n] = least, most
}

// toldOf is what an error says of a change.
func toldOf(err error) (least, most int) {
	switch {
	case err == nil:
		return 1, 1
	case errors.Is(err, errDBRefused), errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone):
		return 0, 0
	}
	return 0, 1
}

// A borrower has one loan.
type borrower struct {
	*programs
	r    *rand.Rand
	loan int
	conn *sql.Conn
	rows []*sql.Rows
	stmt []*sql.Stmt
	tx   []*openTx
	ends []context.CancelFunc
}

type openTx struct {
	*sql.Tx
	ctx        context.Context
	endable    bool
	sure, open []int // numbers that were inserted well, and those of which that is not known
	saved      int   // numbers of sure at the savepoint; -1: there is none
}

// context is one that may end: now, soon or by a step.
func (b *borrower) context(parent context.Context) context.Context {
	switch b.r.IntN(8) {
	case 0:
		ctx, cancel := context.WithTimeout(parent, time.Duration(b.r.IntN(150))*time.Millisecond)
		b.ends = append(b.ends, cancel)
		return ctx
	case 1:
		ctx, cancel := context.WithCancel(parent)
		b.ends = append(b.ends, cancel)
		if n := b.r.IntN(3); n == 0 {
			cancel()
		} else if n == 1 {
			steps := b.r.IntN(300)
			go func() {
				for range steps {
					runtime.Gosched()
				}
				cancel()
			}()
		}
		return ctx
	}
	return parent
}

func (b *borrower) text(format string, args ...any) string {
	return fmt.Sprintf(format, args...) + fmt.Sprintf(" /*loan %d*/", b.loan)
}

// guarded passes over what the borrower's own code panics with.
func guarded(f func()) {
	defer func() {
		if v := recover(); v != nil && v != "the borrower's" {
			panic(v)
		}
	}()
	f()
}

// endableTx reports whether a transaction whose context may end is open: at its end database/sql
// closes the *sql.Conn, and waits for rows by a lock, past which time does not go on in a bubble.
func (b *borrower) endableTx() bool {
	for _, tx := range b.tx {
		if tx.endable {
			return true
		}
	}
	return false
}

func pick[T any](r *rand.Rand, of []T) (v T, ok bool) {
	if len(of) == 0 {
		return v, false
	}
	return of[r.IntN(len(of))], true
}

// step is one call of the borrower's.
func (b *borrower) step() {
	t := b.t
	tx, hasTx := pick(b.r, b.tx)
	rows, hasRows := pick(b.r, b.rows)
	stmt, hasStmt := pick(b.r, b.stmt)
	switch n := b.r.IntN(18); {
	case n < 3 && (!hasTx || b.r.IntN(4) == 0):
		b.insert(t.Context(), hasTx, func(ctx context.Context, text string, args ...any) error {
			_, err := b.conn.ExecContext(ctx, text, args...)
			return err
		})
	case n == 3 && !b.endableTx():
		b.keep(b.conn.QueryContext(b.context(t.Context()), b.text("SELECT 7"))) //nolint:sqlclosecheck // see keep
	case n == 4:
		_ = b.conn.PingContext(b.context(t.Context()))
	case n == 5:
		_, _ = b.conn.ExecContext(b.context(t.Context()), b.text("SET red"))
	case n == 6 && !hasTx:
		b.begin()
	case n == 7:
		if stmt, err := b.conn.PrepareContext(b.context(t.Context()), b.text("SELECT 8")); err == nil {
			b.stmt = append(b.stmt, stmt) //nolint:sqlclosecheck // by the program, or at its end
		}
	case n == 8 && hasStmt && !b.endableTx():
		b.keep(stmt.QueryContext(b.context(t.Context()))) //nolint:sqlclosecheck // see keep
	case n == 9 && hasStmt:
		_ = stmt.Close()
	case n >= 10 && n < 13 && hasTx:
		b.inTx(tx)
	case n == 13 && hasTx:
		b.endTx(tx, true)
	case n == 14 && hasTx && b.r.IntN(2) == 0:
		b.endTx(tx, false)
	case n == 15 && hasRows:
		for rows.Next() && b.r.IntN(2) == 0 {
			continue
		}
	case n == 16 && hasRows:
		_ = rows.Close()
	case n == 17 && b.r.IntN(3) == 0:
		guarded(func() {
			_ = sqlconn.Raw(b.conn, func(any) error {
				if b.r.IntN(2) == 0 {
					panic("the borrower's")
				}
				return nil
			})
		})
	}
}

func (b *borrower) keep(rows *sql.Rows, err error) {
	if err == nil {
		b.rows = append(b.rows, rows) //nolint:sqlclosecheck // by the program, or at its end
	}
}

// insert makes a change. Beside a transaction of the same connection it may be a part of that,
// and nothing is expected of it.
func (b *borrower) insert(ctx context.Context, beside bool, exec func(ctx context.Context, text string, args ...any) error) {
	n := b.number()
	var args []any
	if b.r.IntN(2) == 0 {
		args = []any{1}
	}
	b.tell(n, 0, 1)
	err := exec(b.context(ctx), b.text("INSERT %d", n), args...)
	if least, most := toldOf(err); beside {
		b.tell(n, 0, most)
	} else {
		b.tell(n, least, most)
	}
}

func (b *borrower) begin() {
	ctx, endable := b.t.Context(), false
	if len(b.rows) == 0 && b.r.IntN(2) == 0 {
		ctx = b.context(ctx)
		if endable = ctx.Done() != b.t.Context().Done(); endable {
			ctx = context.WithValue(ctx, endableKey{}, true)
		}
	}
	if tx, err := b.conn.BeginTx(ctx, nil); err == nil {
		b.tx = append(b.tx, &openTx{Tx: tx, ctx: ctx, endable: endable, saved: -1})
	}
}

// inTx runs a statement in a transaction.
func (b *borrower) inTx(tx *openTx) {
	ctx := b.context(tx.ctx)
	switch b.r.IntN(6) {
	case 0:
		if _, err := tx.ExecContext(ctx, b.text("SAVEPOINT s")); err == nil && tx.saved < 0 {
			tx.saved = len(tx.sure)
		}
	case 1:
		if tx.saved < 0 || b.db.style.abortsTx {
			return
		}
		_, err := tx.ExecContext(ctx, b.text("ROLLBACK TO s"))
		if err == nil || !errors.Is(err, errDBRefused) && !errors.Is(err, driver.ErrBadConn) {
			tx.open, tx.sure = append(tx.open, tx.sure...), nil // which of two savepoints is not followed here
			tx.saved = 0
		}
	case 2:
		rows, err := tx.QueryContext(ctx, b.text("SELECT 9"))
		if err == nil {
			rows.Next()
			_ = rows.Close()
			_ = rows.Err()
		}
	default:
		n := b.number()
		b.tell(n, 0, 0)
		_, err := tx.ExecContext(ctx, b.text("INSERT %d", n))
		if err == nil {
			tx.sure = append(tx.sure, n)
		} else if _, most := toldOf(err); most > 0 {
			tx.open = append(tx.open, n)
		}
	}
}

// endTx ends a transaction. Until then none of its numbers can be stored.
func (b *borrower) endTx(tx *openTx, commit bool) {
	for i := range b.tx {
		if b.tx[i] == tx {
			b.tx = append(b.tx[:i:i], b.tx[i+1:]...)
			break
		}
	}
	if !commit {
		_ = tx.Rollback()
		return
	}
	for _, n := range append(append([]int(nil), tx.sure...), tx.open...) {
		b.tell(n, 0, 1)
	}
	least, most := toldOf(tx.Commit())
	for _, n := range tx.sure {
		b.tell(n, least, most)
	}
	for _, n := range tx.open {
		b.tell(n, 0, most)
	}
	b.mu.Lock()
	b.atomic = append(b.atomic, tx.sure)
	b.mu.Unlock()
}

// borrow has one loan with some steps.
func (p *programs) borrow(r *rand.Rand) {
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	loan, err := p.conns.Acquire(ctx)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.loans++
	b := &borrower{programs: p, r: r, loan: p.loans}
	p.mu.Unlock()
	b.conn, err = loan.Value().Lend(p.t.Context())
	if err != nil {
		p.db.fail("Lend: %v", err)
		_ = loan.Discard(err)
		return
	}
	b.look()
	for range r.IntN(14) {
		b.step()
	}
	for _, rows := range b.rows {
		_ = rows.Close()
	}
	for len(b.tx) > 0 { // else the end of the loan waits for them by a lock
		b.endTx(b.tx[0], r.IntN(3) == 0)
	}
	discard := r.IntN(12) == 0
	defer b.cleanUp(discard)
	if discard {
		sqlconn.Abandon(b.conn)
		_ = loan.Discard(errors.New("the borrower says so"))
		return
	}
	if err := sqlconn.ReturnWithin(time.Second, b.conn); err != nil {
		p.db.fail("loan %d: Return: %v", b.loan, err)
		_ = loan.Discard(err)
		return
	}
	_ = loan.Release()
}

// look sees what a borrower before has left.
func (b *borrower) look() {
	var state string
	var rows int
	if b.conn.QueryRowContext(b.t.Context(), b.text("STATE")).Scan(&state, &rows) != nil {
		return
	}
	if b.keeps {
		state = state[:5]
	}
	if (state != "false " && state != "false") || rows != 0 {
		b.db.fail("loan %d finds %q and %d open rows", b.loan, state, rows)
	}
}

// cleanUp uses what is over, and lets go of it.
func (b *borrower) cleanUp(abandoned bool) {
	if !abandoned { // else the close waits for the call by a lock
		n := b.number()
		b.tell(n, 0, 0)
		if _, err := b.conn.ExecContext(b.t.Context(), b.text("INSERT %d", n)); err == nil {
			b.db.fail("loan %d: a statement after its end went well", b.loan)
		}
	}
	for _, stmt := range b.stmt {
		if !abandoned {
			_, _ = stmt.ExecContext(b.t.Context())
		}
		_ = stmt.Close()
	}
	for _, cancel := range b.ends {
		cancel()
	}
}

// judge compares what was told with what is stored.
func (p *programs) judge(say string) {
	p.db.mu.Lock()
	defer p.db.mu.Unlock()
	for n := 1; n <= p.next; n++ {
		if got := p.db.stored[n]; got < p.least[n] || got > p.most[n] {
			p.db.fail("%s: %d is stored %d times, and was told to be from %d to %d", say, n, got, p.least[n], p.most[n])
		}
	}
	for _, together := range p.atomic {
		for _, n := range together {
			if p.db.stored[n] != p.db.stored[together[0]] {
				p.db.fail("%s: of %v a part is stored", say, together)
			}
		}
	}
	for _, s := range p.db.sessions {
		if s.closes != 1 || s.inTx || s.calls != 0 {
			p.db.fail("%s: session %d was closed %d times, %d calls are under way, in a transaction: %v", say, s.number, s.closes, s.calls, s.inTx)
		}
	}
}

func anyStyle(r *rand.Rand) style {
	yes := func() bool { return r.IntN(2) == 0 }
	return style{abortsTx: yes(), oneCall: yes(), busyCloses: yes(), skips: yes(), noValidator: yes(), cancels: yes(), strictTx: yes()}
}

// runPrograms runs one world.
func runPrograms(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 0))
		kinds := []sqlconn.Kind{{}, sqlconn.PostgreSQL, sqlconn.MySQL, sqlconn.SQLServer, sqlconn.Firebird, sqlconn.DSQL}
		db := &database{t: t, rand: rand.New(rand.NewPCG(seed, 1)), kind: kinds[r.IntN(len(kinds))], style: anyStyle(r), stored: map[int]int{}, talks: os.Getenv("PROVE_SEED") != ""}
		p := &programs{t: t, db: db, keeps: r.IntN(6) == 0, least: map[int]int{}, most: map[int]int{}}
		wrapper := sqlconn.NewWrapper()
		cfg := sqlconn.Config{Connector: db, Kind: db.kind, Check: sqlconn.CheckKind(r.IntN(3)), KeepState: p.keeps}
		if r.IntN(2) == 0 {
			cfg.QueryTimeout = time.Duration(50+r.IntN(200)) * time.Millisecond
		}
		target, err := sqlconn.New(wrapper, cfg)
		require.NoError(t, err)
		p.conns, err = reservoir.New(reservoir.Config[*sqlconn.Conn]{
			Open: target.Open, Close: target.Close, Check: target.Check, Reset: target.Reset, MinIdle: r.IntN(2), MaxSize: 1 + r.IntN(3), MaxLifetime: 2 * time.Hour,
		})
		require.NoError(t, err)
		var all sync.WaitGroup
		for w := range 1 + r.IntN(3) {
			all.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(w+2)))
				for range 12 {
					p.borrow(r)
					switch r.IntN(24) {
					case 0, 1, 2:
						time.Sleep(time.Duration(r.IntN(5)) * time.Hour)
					case 3:
						p.conns.Reset()
					case 4:
						p.conns.EvictIdle()
					case 5:
						_ = p.conns.Resize(1 + r.IntN(3))
					}
				}
			})
		}
		all.Wait()
		time.Sleep(time.Hour)
		if n := p.conns.Stats().OnLoan; n != 0 { // InUse may be a check
			db.fail("%d are on loan", n)
		}
		require.NoError(t, p.conns.Close(context.Background()))
		require.NoError(t, wrapper.Close())
		time.Sleep(time.Minute)
		p.judge(fmt.Sprintf("%s %+v", db.kind.Name, db.style))
	})
}

// Random borrowers of a database that fails in every way: what they were told is so, nothing is made
// twice, no borrower sees what another has left, and nothing is left in the end.
func TestWhatBorrowersAreToldIsSo(t *testing.T) {
	limit := 2 * time.Second
	if s := os.Getenv("PROVE"); s != "" {
		var err error
		limit, err = time.ParseDuration(s)
		require.NoError(t, err)
	}
	if s := os.Getenv("PROVE_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		runPrograms(t, seed)
		return
	}
	const begunBehindItsCaller = 11538341176150189478 // a BEGIN that had waited for a rollback, under which the connection was closed
	t.Run("seed", func(t *testing.T) { runPrograms(t, begunBehindItsCaller) })
	worlds := 0
	for began := time.Now(); time.Since(began) < limit && !t.Failed(); worlds++ {
		seed := rand.Uint64()
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { runPrograms(t, seed) })
	}
	t.Logf("%d worlds", worlds)
}
