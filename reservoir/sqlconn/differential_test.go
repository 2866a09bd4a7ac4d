package sqlconn_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// A twin is a driver whose answers depend on its seed and on the calls before alone: the same
// program is answered the same over plain database/sql and over a lent connection.
type twin struct {
	seed  uint64
	calls []string
	// over says that what follows may differ, as documented.
	over    bool
	open    int // rows and transactions
	methods uint64
}

var errTwin = errors.New("the driver's")

// has says whether the driver has an optional interface.
func (d *twin) has(what int) bool { return d.methods&(1<<what) != 0 }

const (
	twinExec = iota
	twinQuery
	twinSkips
	twinPrepares
	twinPings
	twinBegins
	twinTypes
	twinStmtContext
	twinNoSets
)

// answer is the answer to a call.
func (d *twin) answer(what string) (n int, err error) {
	d.calls = append(d.calls, what)
	r := rand.New(rand.NewPCG(d.seed, uint64(len(d.calls))))
	n = r.IntN(1 << 30)
	switch r.IntN(24) {
	case 0:
		return n, fmt.Errorf("%w at %d", errTwin, len(d.calls))
	case 1, 2:
		// Of a connection that rows or a transaction hold, plain database/sql waits for those then.
		holds := 0
		if slices.Contains([]string{"next", "next set", "rows close", "Commit", "Rollback"}, what) {
			holds = 1
		}
		if d.open > holds {
			return n, nil
		}
		if n%2 == 0 {
			return n, driver.ErrBadConn
		}
		return n, fmt.Errorf("wrapped: %w", driver.ErrBadConn)
	case 3:
		return n, io.ErrUnexpectedEOF
	}
	return n, nil
}

func (d *twin) Connect(context.Context) (driver.Conn, error) { return twinConn(d), nil }
func (d *twin) Driver() driver.Driver                        { return nil }

// twinConn is a connection with the optional interfaces that the driver has.
func twinConn(d *twin) driver.Conn {
	base := twinBase{d}
	e, q, p, b, c := twinExecer{d}, twinQueryer{d}, twinPinger{d}, twinBeginner{d}, twinPreparer{d}
	switch exec, query := d.has(twinExec), d.has(twinQuery); {
	case exec && query && d.has(twinPrepares) && d.has(twinBegins) && d.has(twinPings):
		return struct {
			twinBase
			twinExecer
			twinQueryer
			twinPinger
			twinBeginner
			twinPreparer
		}{base, e, q, p, b, c}
	case exec && query && d.has(twinBegins):
		return struct {
			twinBase
			twinExecer
			twinQueryer
			twinBeginner
		}{base, e, q, b}
	case exec && query:
		return struct {
			twinBase
			twinExecer
			twinQueryer
			twinPinger
		}{base, e, q, p}
	case exec:
		return struct {
			twinBase
			twinExecer
			twinPreparer
		}{base, e, c}
	case query:
		return struct {
			twinBase
			twinQueryer
			twinBeginner
		}{base, q, b}
	}
	return struct {
		twinBase
		twinPinger
	}{base, p}
}

type (
	twinBase     struct{ d *twin }
	twinExecer   struct{ d *twin }
	twinQueryer  struct{ d *twin }
	twinPinger   struct{ d *twin }
	twinBeginner struct{ d *twin }
	twinPreparer struct{ d *twin }
	twinTx       struct{ d *twin }
	twinStmt     struct{ d *twin }
	twinStmtCtx  struct{ twinStmt }
)

func (twinBase) Close() error { return nil }
func (c twinBase) Prepare(query string) (driver.Stmt, error) {
	if _, err := c.d.answer("Prepare " + query); err != nil {
		return nil, err
	}
	return c.d.stmt(), nil
}

func (d *twin) stmt() driver.Stmt {
	if d.has(twinStmtContext) {
		return twinStmtCtx{twinStmt{d}}
	}
	return twinStmt{d}
}

func (c twinBase) Begin() (driver.Tx, error) { return c.d.begin() }
func (c twinBeginner) BeginTx(_ context.Context, o driver.TxOptions) (driver.Tx, error) {
	c.d.calls = append(c.d.calls, fmt.Sprint(o))
	return c.d.begin()
}

func (d *twin) begin() (driver.Tx, error) {
	_, err := d.answer("Begin")
	if err != nil {
		d.over = true // it is rolled back
		return nil, err
	}
	d.open++
	return twinTx{d}, nil
}
func (t twinTx) Commit() error   { return t.d.end("Commit") }
func (t twinTx) Rollback() error { return t.d.end("Rollback") }
func (d *twin) end(what string) error {
	_, err := d.answer(what)
	d.open--
	d.over = d.over || err != nil // it is rolled back
	return err
}

func (c twinPinger) Ping(context.Context) error { _, err := c.d.answer("Ping"); return err }
func (c twinPreparer) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	return twinBase(c).Prepare(query)
}

func (d *twin) skips() bool {
	n, _ := d.answer("skips")
	return d.has(twinSkips) && n%2 == 0
}

func (c twinExecer) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.d.skips() {
		return nil, driver.ErrSkip
	}
	return c.d.exec(fmt.Sprint(query, args))
}

func (d *twin) exec(what string) (driver.Result, error) {
	n, err := d.answer("Exec " + what)
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(n), nil
}

func (c twinQueryer) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.d.skips() {
		return nil, driver.ErrSkip
	}
	return c.d.query(fmt.Sprint(query, args))
}

func (d *twin) query(what string) (driver.Rows, error) {
	if _, err := d.answer("Query " + what); err != nil {
		return nil, err
	}
	d.open++
	r := &twinRows{d: d}
	if d.has(twinNoSets) {
		return r, nil
	}
	sets := &twinSets{r}
	if d.has(twinTypes) {
		return twinTyped{sets}, nil
	}
	return sets, nil
}

func (twinStmt) Close() error  { return nil }
func (twinStmt) NumInput() int { return -1 }
func (s twinStmt) Exec(args []driver.Value) (driver.Result, error) {
	return s.d.exec(fmt.Sprint("stmt", args))
}
func (s twinStmt) Query(args []driver.Value) (driver.Rows, error) {
	return s.d.query(fmt.Sprint("stmt", args))
}
func (s twinStmtCtx) ExecContext(_ context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.d.exec(fmt.Sprint("stmt ctx", args))
}
func (s twinStmtCtx) QueryContext(_ context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.d.query(fmt.Sprint("stmt ctx", args))
}

// twinRows have up to four results of up to four columns and rows.
type twinRows struct {
	d            *twin
	set, n, cols int
	closed       bool
}

func (r *twinRows) Columns() []string {
	if r.cols == 0 {
		r.cols = 1 + int((r.d.seed+uint64(r.set))%4)
	}
	return []string{"a", "b", "c", "d"}[:r.cols]
}

func (r *twinRows) Close() error {
	_, err := r.d.answer("rows close")
	if !r.closed {
		r.closed = true
		r.d.open--
	}
	return err
}

func (r *twinRows) Next(dest []driver.Value) error {
	n, err := r.d.answer("next")
	if r.n++; n%5 == 0 || r.n > 4 {
		return io.EOF
	}
	for i := range dest {
		dest[i] = []driver.Value{int64(n), fmt.Appendf(nil, "%d", n), fmt.Sprint(n), nil, n%2 == 0}[(n+i)%5]
	}
	return err
}

type twinSets struct{ *twinRows }

func (r *twinSets) HasNextResultSet() bool {
	r.d.calls = append(r.d.calls, "has next")
	return r.set < 3
}
func (r *twinSets) NextResultSet() error {
	n, err := r.d.answer("next set")
	if err != nil {
		return err
	}
	if n%7 == 0 {
		return io.EOF
	}
	r.set, r.n, r.cols = r.set+1, 0, 0
	return nil
}

type twinTyped struct{ *twinSets }

func (twinTyped) ColumnTypeDatabaseTypeName(i int) string             { return fmt.Sprint("T", i) }
func (twinTyped) ColumnTypeLength(i int) (int64, bool)                { return int64(i), i%2 == 0 }
func (twinTyped) ColumnTypeNullable(i int) (nullable, ok bool)        { return i == 1, i < 2 }
func (twinTyped) ColumnTypePrecisionScale(i int) (int64, int64, bool) { return int64(i), 2, true }
func (twinTyped) ColumnTypeScanType(i int) reflect.Type               { return reflect.TypeFor[int]() }

// A twinProgram is a random program, and what it was told.
type twinProgram struct {
	d    *twin
	r    *rand.Rand
	conn *sql.Conn
	tx   *sql.Tx
	rows []*sql.Rows
	stmt []*sql.Stmt
	ends []context.CancelFunc
	told []string
}

func (p *twinProgram) tell(format string, args ...any) {
	p.told = append(p.told, fmt.Sprintf(format, args...))
}

func (p *twinProgram) ctx() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	if p.r.IntN(12) == 0 {
		cancel()
	}
	p.ends = append(p.ends, cancel)
	return ctx
}

// kindOf is an error of this package's own, or another one as it is.
func kindOf(err error) any {
	if err != nil && strings.HasPrefix(err.Error(), "sql") {
		return "no"
	}
	return err
}

func (p *twinProgram) keep(rows *sql.Rows, err error) {
	p.tell("query: %v", err)
	if err == nil {
		p.rows = append(p.rows, rows)
	}
}

func (p *twinProgram) step() {
	ctx, args := p.ctx(), []any{1, "x"}[:p.r.IntN(3)]
	rows, hasRows := pick(p.r, p.rows)
	stmt, hasStmt := pick(p.r, p.stmt)
	switch n := p.r.IntN(30); {
	case n < 3:
		res, err := p.conn.ExecContext(ctx, "exec", args...)
		affected := int64(0)
		if err == nil {
			affected, _ = res.RowsAffected()
		}
		p.tell("exec: %d %v", affected, err)
	case n < 6:
		p.keep(p.conn.QueryContext(ctx, "query", args...)) //nolint:sqlclosecheck // at the end
	case n == 6:
		p.tell("ping: %v", p.conn.PingContext(ctx))
	case n == 7:
		stmt, err := p.conn.PrepareContext(ctx, "prepared")
		p.tell("prepare: %v", err)
		if err == nil {
			p.stmt = append(p.stmt, stmt)
		}
	case n == 8 && hasStmt:
		p.keep(stmt.QueryContext(ctx, args...)) //nolint:sqlclosecheck // at the end
	case n == 9 && hasStmt:
		_, err := stmt.ExecContext(ctx, args...)
		p.tell("stmt exec: %v", err)
	case n == 10 && hasStmt:
		p.tell("stmt close: %v", stmt.Close())
	case n == 11 && p.tx == nil:
		var err error
		p.tx, err = p.conn.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: p.r.IntN(6) == 0})
		p.tell("begin: %v", kindOf(err))
	case n == 12 && p.tx != nil:
		_, err := p.tx.ExecContext(ctx, "tx exec", args...)
		p.tell("tx exec: %v", err)
	case n == 13 && p.tx != nil:
		p.keep(p.tx.QueryContext(ctx, "tx query", args...)) //nolint:sqlclosecheck // at the end
	case n == 14 && p.tx != nil:
		p.closeAllButOne()
		p.tell("commit: %v", p.tx.Commit())
		p.tx = nil
	case n == 15 && p.tx != nil:
		p.closeAllButOne()
		p.tell("rollback: %v", p.tx.Rollback())
		p.tx = nil
	case n == 16 && p.r.IntN(3) == 0:
		end, _ := pick(p.r, p.ends)
		end()
	case n > 16 && hasRows:
		p.read(rows, n)
	}
	synctest.Wait()
}

// closeAllButOne closes rows before a transaction ends: database/sql closes those that are left on
// goroutines of their own, in no order.
func (p *twinProgram) closeAllButOne() {
	for _, rows := range p.rows[min(1, len(p.rows)):] {
		p.tell("close: %v, err %v", rows.Close(), rows.Err())
	}
}

// read reads of rows.
func (p *twinProgram) read(rows *sql.Rows, n int) {
	switch {
	case n < 22:
		more := rows.Next()
		p.tell("next: %v", more)
		if columns, err := rows.Columns(); err == nil && more {
			values, to := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				to[i] = &values[i]
			}
			err := rows.Scan(to...)
			p.tell("scan: %v %v", values, err)
		}
	case n < 26:
		p.tell("next set: %v", rows.NextResultSet())
	case n == 26:
		types, err := rows.ColumnTypes()
		for _, t := range types {
			length, hasLength := t.Length()
			nullable, known := t.Nullable()
			precision, scale, decimal := t.DecimalSize()
			p.tell("type: %v %v %v %v %v %v %v %v %v %v", t.Name(), t.DatabaseTypeName(), t.ScanType(), length, hasLength, nullable, known, precision, scale, decimal)
		}
		p.tell("types: %v", err)
	case n == 27:
		p.tell("err: %v", rows.Err())
	case n == 28:
		columns, err := rows.Columns()
		p.tell("columns: %v %v", columns, err)
	case n == 29:
		p.tell("close: %v, err %v", rows.Close(), rows.Err())
	}
}

// play runs the program of a seed for so many steps. It ends where what follows may differ.
func (p *twinProgram) play(steps int) int {
	n := 0
	for ; n < steps && !p.d.over; n++ {
		p.step()
	}
	for _, rows := range p.rows {
		if !p.d.over {
			p.tell("close: %v, err %v", rows.Close(), rows.Err())
		}
		_ = rows.Close()
	}
	if p.tx != nil && !p.d.over {
		p.tell("rollback: %v", p.tx.Rollback())
	}
	for _, end := range p.ends {
		end()
	}
	return n
}

// A program over a lent connection is told what it is told over plain database/sql, and the same calls
// reach the driver, until something fails whose consequences are documented to differ.
func TestALentConnectionIsAsAPlainOne(t *testing.T) {
	limit, seed := time.Second, rand.Uint64()
	if s := os.Getenv("PROVE"); s != "" {
		var err error
		limit, err = time.ParseDuration(s)
		require.NoError(t, err)
	}
	worlds, steps := 0, 0
	if n, err := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64); err == nil {
		seed, limit = n, 1
	}
	for began := time.Now(); worlds == 0 || time.Since(began) < limit && !t.Failed(); worlds++ {
		t.Run(fmt.Sprint("seed ", seed+uint64(worlds)), func(t *testing.T) { steps += compareTwins(t, seed+uint64(worlds)) })
	}
	t.Logf("%d programs of %d steps", worlds, steps)
}

func compareTwins(t *testing.T, seed uint64) (steps int) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 1))
		methods, length, timed := r.Uint64(), 5+r.IntN(40), r.IntN(2) == 0
		program := func() *twinProgram {
			return &twinProgram{d: &twin{seed: seed, methods: methods}, r: rand.New(rand.NewPCG(seed, 2))}
		}
		plain, lent := program(), program()

		db := sql.OpenDB(plain.d)
		var err error
		plain.conn, err = db.Conn(t.Context())
		require.NoError(t, err)
		steps = plain.play(length)
		_ = plain.conn.Close()
		require.NoError(t, db.Close())

		wrapper := sqlconn.NewWrapper()
		cfg := sqlconn.Config{Connector: lent.d}
		if timed {
			cfg.QueryTimeout = time.Minute
		}
		target, err := sqlconn.New(wrapper, cfg)
		require.NoError(t, err)
		pc, err := target.Open(t.Context())
		require.NoError(t, err)
		lent.conn, err = pc.Lend(t.Context())
		require.NoError(t, err)
		lent.d.calls, lent.d.over = nil, false // of the open
		lent.play(length)
		_ = lent.conn.Close()
		_ = target.Close(pc)
		require.NoError(t, wrapper.Close())

		if plain.d.over {
			// The call at which it was over is told differently, or followed by others.
			n := min(len(plain.told), len(lent.told)) - 1
			for n > 0 && plain.told[n-1] != lent.told[n-1] && n > len(plain.told)-3 {
				n--
			}
			plain.told, lent.told = plain.told[:max(n, 0)], lent.told[:max(n, 0)]
			m := max(0, min(len(plain.d.calls), len(lent.d.calls))-4)
			plain.d.calls, lent.d.calls = plain.d.calls[:m], lent.d.calls[:m]
		}
		require.Equal(t, plain.told, lent.told)
		require.Equal(t, plain.d.calls, lent.d.calls)
	})
	return steps
}
