//go:build duckdb_arrow

package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/adbcpool"
	"github.com/flightpool/flightpool/flightpool/sqldriver"
	"github.com/flightpool/flightpool/rowscan"
	"github.com/stretchr/testify/require"
)

// caller is one user of an interface, with at most one transaction open.
type caller interface {
	begin(ctx context.Context) error
	end(ctx context.Context, commit bool) error
	exec(ctx context.Context, sql string, args ...int64) (int64, error)
	// read reads the first n rows of a query, all for -1, and lets go of the rest.
	read(ctx context.Context, n int, sql string, args ...int64) ([]int64, error)
	renew(ctx context.Context) error
	close() error
}

// model is what a caller's table must hold.
type model struct {
	stored []int64
	within []int64 // the open transaction's view, or nil
	inTx   bool
	broken bool // a statement of it has failed
}

func (m *model) view() []int64 {
	if m.inTx {
		return m.within
	}
	return m.stored
}

func (m *model) set(rows []int64) {
	slices.Sort(rows)
	if m.inTx {
		m.within = rows
	} else {
		m.stored = rows
	}
}

// story runs random statements, and compares each answer with the model's.
type story struct {
	*rand.Rand
	t     *testing.T
	c     caller
	table string
	m     model
	next  int64
	log   []string
}

func (p *story) say(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf(format, args...))
}

func (p *story) wrong(format string, args ...any) error {
	return fmt.Errorf("%s\n  after %s", fmt.Sprintf(format, args...), strings.Join(p.log, "; "))
}

// step runs one of the moves.
func (p *story) step(ctx context.Context) error {
	moves := []func(context.Context) error{p.insert, p.insert, p.remove, p.readAll, p.readSome, p.returning, p.fails, p.cancelled, p.transaction, p.transaction}
	return moves[p.IntN(len(moves))](ctx)
}

// effect runs a change of which the model expects n rows.
func (p *story) effect(ctx context.Context, after []int64, sql string, args ...int64) error {
	p.say("%s %v", sql, args)
	n, err := p.c.exec(ctx, sql, args...)
	switch {
	case p.m.broken:
		if err == nil {
			return p.wrong("a change succeeds in an aborted transaction")
		}
		return nil
	case err != nil:
		return p.wrong("%v", err)
	}
	if want := int64(len(after) - len(p.m.view())); n != max(want, -want) {
		return p.wrong("%d rows affected, not %d", n, max(want, -want))
	}
	p.m.set(after)
	return nil
}

func (p *story) insert(ctx context.Context) error {
	a, b := p.next, p.next+1
	p.next += 2
	return p.effect(ctx, append(slices.Clone(p.m.view()), a, b), "INSERT INTO "+p.table+" VALUES (?), (?)", a, b)
}

func (p *story) remove(ctx context.Context) error {
	if len(p.m.view()) == 0 {
		return nil
	}
	at := p.m.view()[p.IntN(len(p.m.view()))]
	after := slices.DeleteFunc(slices.Clone(p.m.view()), func(v int64) bool { return v == at })
	return p.effect(ctx, after, "DELETE FROM "+p.table+" WHERE v = ?", at)
}

func (p *story) rows(ctx context.Context, n int) error {
	p.say("read %d", n)
	got, err := p.c.read(ctx, n, "SELECT v FROM "+p.table+" ORDER BY v")
	switch {
	case p.m.broken:
		if err == nil {
			return p.wrong("a query succeeds in an aborted transaction")
		}
		return nil
	case err != nil:
		return p.wrong("%v", err)
	}
	want := p.m.view()
	if n >= 0 {
		want = want[:min(n, len(want))]
	}
	if !slices.Equal(got, want) {
		return p.wrong("%v, not %v", got, want)
	}
	return nil
}

func (p *story) readAll(ctx context.Context) error  { return p.rows(ctx, -1) }
func (p *story) readSome(ctx context.Context) error { return p.rows(ctx, p.IntN(3)) }

// returning reads one row of a change that returns two, which is done all the
// same.
func (p *story) returning(ctx context.Context) error {
	a, b := p.next, p.next+1
	p.next += 2
	p.say("insert returning %d %d", a, b)
	got, err := p.c.read(ctx, 1, "INSERT INTO "+p.table+" VALUES (?), (?) RETURNING v", a, b)
	switch {
	case p.m.broken:
		if err == nil {
			return p.wrong("a change succeeds in an aborted transaction")
		}
		return nil
	case err != nil:
		return p.wrong("%v", err)
	case !slices.Equal(got, []int64{a}):
		return p.wrong("%v returned, not %d", got, a)
	}
	p.m.set(append(slices.Clone(p.m.view()), a, b))
	return nil
}

func (p *story) fails(ctx context.Context) error {
	texts := []string{"SELECT v FROM nowhere", "SELECT 1/0::BIGINT FROM nothing", "INSERT INTO " + p.table + " VALUES ('word')", "SELEC 1"}
	text := texts[p.IntN(len(texts))]
	_, err := p.c.read(ctx, -1, text)
	p.say("%s: %v", text, err)
	if err == nil {
		return p.wrong("a statement that cannot be run succeeds")
	}
	var e *flightpool.Error
	refused := errors.As(err, &e) && e.Unsent // before it was sent, which breaks nothing
	p.m.broken = p.m.broken || p.m.inTx && !refused
	return nil
}

// cancelled ends a query's context while it runs. A session of which it is not
// certain that the query has stopped is lost, as a transaction would be: so it comes
// outside of transactions only, and to a caller who has a session gives another.
func (p *story) cancelled(ctx context.Context) error {
	if p.m.inTx {
		return nil // which of the two is the server's affair
	}
	p.say("cancelled")
	short, stop := context.WithTimeout(ctx, time.Duration(p.IntN(20))*time.Millisecond)
	defer stop()
	_, err := p.c.read(short, -1, "SELECT count(*) FROM range(1000000000) a, range(1000000) b WHERE (a.range * b.range) % 7 = 3")
	if !errors.Is(err, context.DeadlineExceeded) {
		return p.wrong("a query whose context has ended: %v", err)
	}
	return p.c.renew(ctx)
}

func (p *story) transaction(ctx context.Context) error {
	if !p.m.inTx {
		p.say("begin")
		if err := p.c.begin(ctx); err != nil {
			return p.wrong("%v", err)
		}
		p.m.inTx, p.m.within = true, slices.Clone(p.m.stored)
		return nil
	}
	commit := p.IntN(3) > 0
	p.say("end commit=%t", commit)
	err := p.c.end(ctx, commit)
	if (err != nil) != (commit && p.m.broken) {
		return p.wrong("commit=%t of a transaction, broken=%t: %v", commit, p.m.broken, err)
	}
	if commit && !p.m.broken {
		p.m.stored = p.m.within
	}
	p.m.inTx, p.m.broken, p.m.within = false, false, nil
	return nil
}

// sqlCaller is a caller of database/sql.
type sqlCaller struct {
	db *sql.DB
	tx *sql.Tx
}

type queryer interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}

func (c *sqlCaller) on() queryer {
	if c.tx != nil {
		return c.tx
	}
	return c.db
}

func (c *sqlCaller) begin(ctx context.Context) (err error) {
	c.tx, err = c.db.BeginTx(ctx, nil)
	return err
}

func (c *sqlCaller) end(_ context.Context, commit bool) error {
	tx := c.tx
	c.tx = nil
	if commit {
		return tx.Commit()
	}
	return tx.Rollback()
}

func anys(args []int64) (out []any) {
	for _, a := range args {
		out = append(out, a)
	}
	return out
}

func (c *sqlCaller) exec(ctx context.Context, sql string, args ...int64) (int64, error) {
	done, err := c.on().ExecContext(ctx, sql, anys(args)...)
	if err != nil {
		return 0, err
	}
	return done.RowsAffected()
}

func (c *sqlCaller) read(ctx context.Context, n int, sql string, args ...int64) (out []int64, err error) {
	rows, err := c.on().QueryContext(ctx, sql, anys(args)...)
	if err != nil {
		return nil, err
	}
	for len(out) != n && rows.Next() {
		var v int64
		if err := rows.Scan(&v); err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		out = append(out, v)
	}
	return out, errors.Join(rows.Close(), rows.Err())
}

func (*sqlCaller) renew(context.Context) error { return nil } // each call takes another session

func (*sqlCaller) close() error { return nil }

// adbcCaller is a caller of ADBC's interfaces.
type adbcCaller struct {
	db adbc.Database
	cn adbc.Connection
}

func (c *adbcCaller) renew(ctx context.Context) error {
	if err := c.cn.Close(); err != nil {
		return err
	}
	cn, err := c.db.Open(ctx)
	c.cn = cn
	return err
}

func (c *adbcCaller) autocommit(on bool) error {
	return c.cn.(adbc.PostInitOptions).SetOption(adbc.OptionKeyAutoCommit, fmt.Sprint(on))
}

func (c *adbcCaller) begin(context.Context) error { return c.autocommit(false) }

// end says what the commit or the rollback said. After a commit that was refused
// there is nothing left to roll back, or the transaction.
func (c *adbcCaller) end(ctx context.Context, commit bool) error {
	end := c.cn.Rollback
	if commit {
		end = c.cn.Commit
	}
	err := end(ctx)
	if err != nil {
		_ = c.cn.Rollback(ctx)
	}
	return errors.Join(err, c.autocommit(true))
}

func (c *adbcCaller) statement(ctx context.Context, sql string, args []int64) (adbc.Statement, error) {
	st, err := c.cn.NewStatement()
	if err != nil {
		return nil, err
	}
	err = st.SetSqlQuery(sql)
	if len(args) > 0 && err == nil {
		fields := make([]arrow.Field, len(args))
		columns := make([]arrow.Array, len(args))
		for i, arg := range args {
			b := array.NewInt64Builder(memory.DefaultAllocator)
			b.Append(arg)
			fields[i], columns[i] = arrow.Field{Name: fmt.Sprint(i), Type: arrow.PrimitiveTypes.Int64}, b.NewArray()
			b.Release()
		}
		batch := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 1)
		for _, column := range columns {
			column.Release()
		}
		err = st.Bind(ctx, batch)
		batch.Release()
	}
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return st, nil
}

func (c *adbcCaller) exec(ctx context.Context, sql string, args ...int64) (int64, error) {
	st, err := c.statement(ctx, sql, args)
	if err != nil {
		return 0, err
	}
	n, err := st.ExecuteUpdate(ctx)
	return n, errors.Join(err, st.Close())
}

func (c *adbcCaller) read(ctx context.Context, n int, sql string, args ...int64) (out []int64, err error) {
	st, err := c.statement(ctx, sql, args)
	if err != nil {
		return nil, err
	}
	rows, _, err := st.ExecuteQuery(ctx)
	if err = errors.Join(err, st.Close()); err != nil {
		return nil, err
	}
	defer rows.Release()
	for len(out) != n && rows.Next() {
		column := rows.RecordBatch().Column(0).(*array.Int64)
		for i := 0; i < column.Len() && len(out) != n; i++ {
			out = append(out, column.Value(i))
		}
	}
	return out, rows.Err()
}

func (c *adbcCaller) close() error { return c.cn.Close() }

// TestProgramsOfSQLAndADBC runs random programs of several callers at once on one
// pool, through database/sql and through ADBC, and compares the tables with what
// the model and another client say. PROVE_SEED makes other programs.
func TestProgramsOfSQLAndADBC(t *testing.T) {
	const callers, steps = 4, 60
	seed, _ := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64)
	for _, tested := range []string{"native", "open", "new"} {
		t.Run(tested, func(t *testing.T) {
			addr, _ := startDuckDB(t)
			pool := poolOf(t, tested, addr)
			judge := poolOf(t, "native", addr)
			db := sqldriver.OpenDB(pool)
			defer func() { require.NoError(t, db.Close()) }()
			var all sync.WaitGroup
			for i := range callers {
				p := &story{Rand: rand.New(rand.NewPCG(seed, uint64(i))), t: t, table: fmt.Sprint("t", i), next: 1}
				_, err := judge.Update(t.Context(), "CREATE TABLE "+p.table+" (v BIGINT)")
				require.NoError(t, err)
				if i%2 == 0 {
					p.c = &sqlCaller{db: db}
				} else {
					c := &adbcCaller{db: adbcpool.Database(pool)}
					c.cn, err = c.db.Open(t.Context())
					require.NoError(t, err)
					p.c = c
				}
				all.Go(func() { p.run(t.Context(), steps, judge) })
			}
			all.Wait()
		})
	}
}

func (p *story) run(ctx context.Context, steps int, judge *flightpool.FlightSQLPool) {
	defer func() {
		if err := p.c.close(); err != nil {
			p.t.Error(err)
		}
	}()
	for range steps {
		if err := p.step(ctx); err != nil {
			p.t.Error(p.table, err)
			return
		}
	}
	if p.m.inTx {
		if err := p.c.end(ctx, false); err != nil {
			p.t.Error(p.table, p.wrong("%v", err))
		}
	}
	rows, err := judge.Query(ctx, "SELECT v FROM "+p.table+" ORDER BY v")
	if err != nil {
		p.t.Error(err)
		return
	}
	var stored []int64
	for row, err := range rowscan.Rows[struct {
		V int64 `arrow:"v"`
	}](rows) {
		if err != nil {
			p.t.Error(err)
			return
		}
		stored = append(stored, row.V)
	}
	if !slices.Equal(stored, p.m.stored) {
		p.t.Error(p.table, p.wrong("the table holds %v, not %v", stored, p.m.stored))
	}
}
