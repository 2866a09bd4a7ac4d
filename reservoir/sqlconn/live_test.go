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
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// Worlds in real time: calls of the driver take time while rows and transactions are open, which
// no bubble allows, and contexts of all kinds end at any moment within them.

// moment may end a context. The lock is held, but not meanwhile.
func (d *database) moment() {
	if len(d.armed) == 0 || d.rand.IntN(6) > 0 {
		return
	}
	i := d.rand.IntN(len(d.armed))
	end := d.armed[i]
	d.armed = slices.Delete(d.armed, i, i+1)
	steps := d.rand.IntN(50)
	d.mu.Unlock()
	end()
	for range steps {
		runtime.Gosched()
	}
	d.mu.Lock()
}

// pause takes time now and then, and may look at ctx meanwhile. The lock is held, but not meanwhile.
func (s *dbSession) pause(ctx context.Context) {
	s.db.moment()
	looks := s.db.rand.IntN(3) > 0
	var takes time.Duration
	switch n := s.db.rand.IntN(300); {
	case n < 15:
		takes = time.Duration(s.db.rand.IntN(5000)) * time.Microsecond
	case n < 20:
		takes = time.Duration(s.db.rand.IntN(90)) * time.Millisecond
	case n == 20 && s.db.rand.IntN(8) == 0:
		takes = time.Duration(s.db.rand.IntN(6500)) * time.Millisecond
	default:
		return
	}
	if !looks {
		ctx = context.Background()
	}
	s.db.mu.Unlock()
	timer := time.NewTimer(takes)
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	timer.Stop()
	s.db.mu.Lock()
	s.db.moment()
}

// lose is the end of the connection. The lock is held.
func (s *dbSession) lose() {
	s.dead, s.gone = true, true
	s.rollBack()
}

// liveCall is call in real time. The lock is held, but not while it takes time.
func (s *dbSession) liveCall(ctx context.Context, query string, do func() error) error {
	s.pause(ctx)
	if s.gone { // closed meanwhile
		s.dead = true
		return errDBLost
	}
	if err := ctx.Err(); err != nil && s.db.rand.IntN(2) == 0 { // it is noticed before anything is sent, or not at all
		if !s.db.style.cancels && s.db.rand.IntN(2) == 0 {
			s.lose()
		}
		return err
	}
	switch s.db.rand.IntN(70) {
	case 0:
		s.lose()
		return driver.ErrBadConn
	case 1:
		s.lose()
		return errDBLost
	case 2:
		_ = do()
		s.lose()
		return errDBLost
	case 3:
		s.aborted = s.inTx && s.db.style.abortsTx
		return errDBRefused
	case 4:
		panic("the driver's")
	}
	err := do()
	s.pause(ctx)
	if ended := ctx.Err(); ended != nil && s.db.rand.IntN(2) == 0 { // though it was carried out
		if !s.db.style.cancels {
			s.lose()
		}
		return ended
	}
	if s.gone {
		return errDBLost
	}
	return err
}

// A liveWorld has borrowers that share a reservoir, and knows what they were told.
type liveWorld struct {
	t     *testing.T
	db    *database
	conns *reservoir.Reservoir[*sqlconn.Conn]
	keeps bool
	shut  atomic.Bool // the reservoir was closed over its borrowers

	mu          sync.Mutex
	next, loans int
	told        map[int][2]int
	txs         []*liveTx
}

type liveTx struct {
	*sql.Tx
	ctx         context.Context
	sure, open  []int
	saved       int // numbers of sure at the savepoint; -1: there is none
	least, most int
	say         string
}

func (w *liveWorld) number() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	w.told[w.next] = [2]int{0, 0}
	return w.next
}

func (w *liveWorld) tell(n, least, most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told[n] = [2]int{least, most}
}

// liveTold is what an error says of a change.
func liveTold(err error) (least, most int) {
	if err != nil {
		for _, unsent := range []string{"close them first", "run a statement before Raw", "about to be rolled back"} {
			if strings.Contains(err.Error(), unsent) && !strings.Contains(err.Error(), "is not known") {
				return 0, 0
			}
		}
	}
	return toldOf(err)
}

// A liveBorrower has one loan, which some goroutines use.
type liveBorrower struct {
	*liveWorld
	loan  int
	conn  *sql.Conn
	alone bool

	mu     sync.Mutex
	rows   []*sql.Rows
	stmt   []*sql.Stmt
	tx     []*liveTx
	ends   []context.CancelFunc
	begins int // calls of BeginTx
	txOpen int // those that may have made a transaction which has not ended
}

func (b *liveBorrower) context(parent context.Context, r *rand.Rand) context.Context {
	var ctx context.Context
	var cancel context.CancelFunc
	switch r.IntN(9) {
	case 0:
		ctx, cancel = context.WithTimeout(parent, time.Duration(r.IntN(20000))*time.Microsecond)
	case 1, 2, 3:
		ctx, cancel = context.WithCancel(parent)
		b.db.mu.Lock()
		b.db.armed = append(b.db.armed, cancel)
		b.db.mu.Unlock()
	case 4:
		ctx, cancel = context.WithCancel(parent)
		if r.IntN(3) == 0 {
			cancel()
		}
	default:
		return parent
	}
	b.mu.Lock()
	b.ends = append(b.ends, cancel)
	b.mu.Unlock()
	return ctx
}

func (b *liveBorrower) text(format string, args ...any) string {
	return fmt.Sprintf(format, args...) + fmt.Sprintf(" /*loan %d*/", b.loan)
}

func take[T any](b *liveBorrower, r *rand.Rand, of *[]T, remove bool) (v T, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(*of) == 0 {
		return v, false
	}
	i := r.IntN(len(*of))
	v = (*of)[i]
	if remove {
		*of = slices.Delete(slices.Clone(*of), i, i+1)
	}
	return v, true
}

// stepOnClosing passes over the nil pointer by which database/sql takes a call on a *sql.Conn that it
// closes meanwhile, as it does at the end of a transaction's context.
func stepOnClosing(step func()) {
	defer func() {
		var nilPointer runtime.Error
		if v := recover(); v != nil {
			if err, ok := v.(error); !ok || !errors.As(err, &nilPointer) || !strings.Contains(string(debug.Stack()), "database/sql.(*Conn)") {
				panic(v)
			}
		}
	}()
	step()
}

func (b *liveBorrower) step(r *rand.Rand) {
	ctx := b.context(b.t.Context(), r)
	tx, hasTx := take(b, r, &b.tx, false)
	switch n := r.IntN(20); {
	case n < 3:
		b.insert(ctx, r)
	case n == 3:
		b.keep(b.conn.QueryContext(ctx, b.text("SELECT 7"))) //nolint:sqlclosecheck // see keep
	case n == 4:
		_ = b.conn.PingContext(ctx)
	case n == 5:
		_, _ = b.conn.ExecContext(ctx, b.text("SET red"))
	case n == 6 || n == 7:
		b.begin(ctx, r)
	case n == 8:
		if stmt, err := b.conn.PrepareContext(ctx, b.text("SELECT 8")); err == nil {
			b.mu.Lock()
			b.stmt = append(b.stmt, stmt) //nolint:sqlclosecheck // at the end
			b.mu.Unlock()
		}
	case n == 9:
		if stmt, ok := take(b, r, &b.stmt, false); ok {
			b.keep(stmt.QueryContext(ctx)) //nolint:sqlclosecheck // see keep
		}
	case n >= 10 && n < 14 && hasTx:
		b.inTx(tx, r)
	case n == 14 && hasTx, n == 15 && hasTx && r.IntN(2) == 0:
		if tx, ok := take(b, r, &b.tx, true); ok {
			b.endTx(tx, n == 14)
		}
	case n == 16:
		if rows, ok := take(b, r, &b.rows, true); ok { // one goroutine at a time may read them
			for rows.Next() && r.IntN(2) == 0 {
				continue
			}
			b.keep(rows, nil)
		}
	case n == 17:
		if rows, ok := take(b, r, &b.rows, true); ok {
			_ = rows.Close()
		}
	case n == 18 && r.IntN(3) == 0:
		guarded(func() {
			_ = sqlconn.Raw(b.conn, func(any) error {
				if r.IntN(2) == 0 {
					panic("the borrower's")
				}
				return nil
			})
		})
	case n == 19 && hasTx:
		if stmt, ok := take(b, r, &b.stmt, false); ok {
			b.keep(tx.StmtContext(ctx, stmt).QueryContext(ctx)) //nolint:sqlclosecheck // see keep
		}
	}
}

func (b *liveBorrower) keep(rows *sql.Rows, err error) {
	if err == nil {
		b.mu.Lock()
		b.rows = append(b.rows, rows) //nolint:sqlclosecheck // by the program, or at its end
		b.mu.Unlock()
	}
}

// insert makes a change of no transaction, or, where one is open, maybe of that.
func (b *liveBorrower) insert(ctx context.Context, r *rand.Rand) {
	n := b.number()
	var args []any
	if r.IntN(2) == 0 {
		args = []any{1}
	}
	b.tell(n, 0, 1)
	b.mu.Lock()
	begins, beside := b.begins, b.txOpen > len(b.tx) // one is about to begin or end
	for _, tx := range b.tx {
		beside = beside || tx.ctx.Err() == nil
	}
	b.mu.Unlock()
	_, err := b.conn.ExecContext(ctx, b.text("INSERT %d", n), args...)
	least, most := liveTold(err)
	b.mu.Lock()
	beside = beside || b.begins != begins
	b.mu.Unlock()
	if beside {
		least = 0
	}
	b.tell(n, least, most)
}

func (b *liveBorrower) begin(ctx context.Context, r *rand.Rand) {
	b.mu.Lock()
	if b.txOpen > 0 {
		b.mu.Unlock()
		return
	}
	b.begins++
	b.txOpen++
	b.mu.Unlock()
	if r.IntN(3) == 0 {
		ctx = b.t.Context()
	}
	tx, err := b.conn.BeginTx(ctx, nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.txOpen--
		return
	}
	open := &liveTx{Tx: tx, ctx: ctx, saved: -1}
	b.tx = append(b.tx, open)
	b.liveWorld.mu.Lock()
	b.txs = append(b.txs, open)
	b.liveWorld.mu.Unlock()
}

// inTx runs a statement in a transaction.
func (b *liveBorrower) inTx(tx *liveTx, r *rand.Rand) {
	ctx := b.context(tx.ctx, r)
	switch n := r.IntN(7); {
	case n == 0 && b.alone:
		if _, err := tx.ExecContext(ctx, b.text("SAVEPOINT s")); err == nil && tx.saved < 0 {
			tx.saved = len(tx.sure)
		}
	case n == 1 && b.alone && tx.saved >= 0 && !b.db.style.abortsTx:
		_, err := tx.ExecContext(ctx, b.text("ROLLBACK TO s"))
		if err == nil || !errors.Is(err, errDBRefused) && !errors.Is(err, driver.ErrBadConn) {
			b.mu.Lock()
			tx.open, tx.sure, tx.saved = append(tx.open, tx.sure...), nil, 0
			b.mu.Unlock()
		}
	case n == 2:
		b.keep(tx.QueryContext(ctx, b.text("SELECT 9"))) //nolint:sqlclosecheck // see keep
	default:
		n := b.number()
		_, err := tx.ExecContext(ctx, b.text("INSERT %d", n))
		b.mu.Lock()
		defer b.mu.Unlock()
		if err == nil {
			tx.sure = append(tx.sure, n)
		} else if _, most := liveTold(err); most > 0 {
			tx.open = append(tx.open, n)
		}
	}
}

func (b *liveBorrower) endTx(tx *liveTx, commit bool) {
	if !commit {
		_ = tx.Rollback()
	} else {
		err := tx.Commit()
		tx.least, tx.most = liveTold(err)
		tx.say = fmt.Sprintf("loan %d: COMMIT: %v", b.loan, err)
	}
	b.mu.Lock()
	b.txOpen--
	b.mu.Unlock()
}

// borrow has one loan with some steps.
func (w *liveWorld) borrow(r *rand.Rand) {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	loan, err := w.conns.Acquire(ctx)
	if err != nil {
		if !w.shut.Load() && !errors.Is(err, errDBRefused) && !strings.Contains(err.Error(), "reservoir") {
			w.db.fail("Acquire: %v", err)
		}
		return
	}
	w.mu.Lock()
	w.loans++
	b := &liveBorrower{liveWorld: w, loan: w.loans, alone: r.IntN(3) > 0}
	w.mu.Unlock()
	b.conn, err = loan.Value().Lend(w.t.Context())
	if err != nil {
		w.db.fail("Lend: %v", err)
		_ = loan.Discard(err)
		return
	}
	b.look()
	var users sync.WaitGroup
	for range 1 + btoi(!b.alone) {
		r := rand.New(rand.NewPCG(r.Uint64(), 0))
		users.Go(func() {
			for range r.IntN(16) {
				stepOnClosing(func() { b.step(r) })
			}
			if !b.alone { // another may be waiting, by a lock of database/sql, for the end of what is open
				b.closeAll(r)
			}
		})
	}
	users.Wait()
	leave := r.IntN(12) == 0
	if !leave {
		b.closeAll(r)
	}
	released := false
	defer func() { b.cleanUp(r, released) }()
	if r.IntN(12) == 0 {
		sqlconn.Abandon(b.conn)
		_ = loan.Discard(errors.New("the borrower says so"))
		return
	}
	limit := 20 * time.Second
	if leave {
		limit = 5 * time.Millisecond
	}
	if err := sqlconn.ReturnWithin(limit, b.conn); err != nil {
		if !leave {
			w.db.fail("loan %d: Return: %v", b.loan, err)
		}
		_ = loan.Discard(err)
		return
	}
	released = true
	_ = loan.Release()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (b *liveBorrower) closeAll(r *rand.Rand) {
	for rows, ok := take(b, r, &b.rows, true); ok; rows, ok = take(b, r, &b.rows, true) {
		_ = rows.Close()
	}
	for tx, ok := take(b, r, &b.tx, true); ok; tx, ok = take(b, r, &b.tx, true) {
		b.endTx(tx, r.IntN(3) == 0)
	}
}

// look sees what a borrower before has left.
func (b *liveBorrower) look() {
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

// cleanUp uses what is over, and lets go of it. What is being closed meanwhile is not used:
// database/sql takes that for a nil pointer.
func (b *liveBorrower) cleanUp(r *rand.Rand, released bool) {
	b.closeAll(r)
	n := b.number()
	if released {
		if _, err := b.conn.ExecContext(b.t.Context(), b.text("INSERT %d", n)); err == nil {
			b.db.fail("loan %d: a statement after its end went well", b.loan)
		}
	}
	for _, stmt := range b.stmt {
		if released {
			_, err := stmt.ExecContext(b.t.Context())
			require.Error(b.t, err)
		}
		_ = stmt.Close()
	}
	for _, cancel := range b.ends {
		cancel()
	}
}

// judge compares what was told with what is stored.
func (w *liveWorld) judge() {
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	why := map[int]string{}
	for _, tx := range w.txs {
		for _, n := range tx.sure {
			w.told[n], why[n] = [2]int{tx.least, tx.most}, tx.say
			if w.db.stored[n] != w.db.stored[tx.sure[0]] {
				w.db.fail("of %v a part is stored: %s", tx.sure, tx.say)
			}
		}
		for _, n := range tx.open {
			w.told[n], why[n] = [2]int{0, tx.most}, tx.say
		}
	}
	for n := 1; n <= w.next; n++ {
		if got, told := w.db.stored[n], w.told[n]; got < told[0] || got > told[1] {
			w.db.fail("%d is stored %d times, and was told to be from %d to %d: %s", n, got, told[0], told[1], why[n])
		}
	}
	for _, s := range w.db.sessions {
		if s.closes != 1 || s.inTx || s.calls != 0 {
			w.db.fail("session %d was closed %d times, %d calls are under way, in a transaction: %v", s.number, s.closes, s.calls, s.inTx)
		}
	}
}

// runLive runs one world.
func runLive(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	kinds := []sqlconn.Kind{{}, sqlconn.PostgreSQL, sqlconn.MySQL, sqlconn.SQLServer, sqlconn.Firebird, sqlconn.DSQL}
	db := &database{t: t, rand: rand.New(rand.NewPCG(seed, 1)), kind: kinds[r.IntN(len(kinds))], style: anyStyle(r), stored: map[int]int{}, live: true, talks: os.Getenv("LIVE_SEED") != ""}
	db.style.keepsCtx = r.IntN(2) == 0
	w := &liveWorld{t: t, db: db, keeps: r.IntN(6) == 0, told: map[int][2]int{}}
	t.Logf("%s %+v", db.kind.Name, db.style)
	wrapper := sqlconn.NewWrapper()
	cfg := sqlconn.Config{Connector: db, Kind: db.kind, Check: sqlconn.CheckKind(r.IntN(3)), KeepState: w.keeps}
	if r.IntN(2) == 0 {
		cfg.QueryTimeout = time.Duration(1+r.IntN(100)) * time.Millisecond
	}
	target, err := sqlconn.New(wrapper, cfg)
	require.NoError(t, err)
	w.conns, err = reservoir.New(reservoir.Config[*sqlconn.Conn]{
		Open: target.Open, Close: target.Close, Check: target.Check, Reset: target.Reset, MinIdle: r.IntN(2), MaxSize: 1 + r.IntN(3), MaxLifetime: 2 * time.Hour,
		CheckTimeout: time.Duration(1+r.IntN(100)) * time.Millisecond,
	})
	require.NoError(t, err)
	var all sync.WaitGroup
	for i := range 1 + r.IntN(3) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i+2)))
			for range 8 {
				w.borrow(r)
				switch r.IntN(24) {
				case 0:
					w.conns.Reset()
				case 1:
					w.conns.EvictIdle()
				case 2:
					_ = w.conns.Resize(1 + r.IntN(3))
				}
			}
		})
	}
	if r.IntN(4) == 0 {
		all.Go(func() {
			time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
			w.shut.Store(true)
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(5))*time.Millisecond)
			defer cancel()
			_ = w.conns.Close(ctx)
		})
	}
	ended := make(chan struct{})
	go func() {
		select {
		case <-ended:
		case <-time.After(60 * time.Second):
			buf := make([]byte, 1<<20)
			panic(fmt.Sprintf("seed %d hangs: %s", seed, buf[:runtime.Stack(buf, true)]))
		}
	}()
	all.Wait()
	if n := w.conns.Stats().OnLoan; n != 0 && !w.shut.Load() {
		db.fail("%d are on loan", n)
	}
	_ = w.conns.Close(context.Background())
	require.NoError(t, wrapper.Close())
	for range 200 { // for calls that were given up
		db.mu.Lock()
		busy := slices.ContainsFunc(db.sessions, func(s *dbSession) bool { return s.calls > 0 || s.closes == 0 })
		db.mu.Unlock()
		if !busy {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	close(ended)
	w.judge()
}

func TestWhatBorrowersAreToldWhileCallsTakeTimeIsSo(t *testing.T) {
	if s := os.Getenv("LIVE_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		runLive(t, seed)
		return
	}
	limit := time.Second
	if s := os.Getenv("LIVE"); s != "" {
		var err error
		limit, err = time.ParseDuration(s)
		require.NoError(t, err)
	}
	var worlds atomic.Int64
	began := time.Now()
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for time.Since(began) < limit && !t.Failed() {
				seed := rand.Uint64()
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { runLive(t, seed) })
				worlds.Add(1)
			}
		})
	}
	all.Wait()
	t.Logf("%d worlds", worlds.Load())
}
