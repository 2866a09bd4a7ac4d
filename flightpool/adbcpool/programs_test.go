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
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// playedReader is a result and how much of it was read.
type playedReader struct {
	array.RecordReader
	want, got int
	refs      int
	stmt      *playedStmt
	conn      *playedConn
	ended     bool
}

// playedStmt is a statement and what it was told.
type playedStmt struct {
	adbc.Statement
	conn   *playedConn
	sql    string
	bound  string
	boundV []int
	table  string
	closed bool
	last   *playedReader
}

// playedConn is a connection and what its transaction will store.
type playedConn struct {
	adbc.Connection
	manual  bool
	pending []int
	doubt   bool // of the pending: a statement has failed
	closed  bool
}

// adbcPlay is one program on a database, and what it expects.
type adbcPlay struct {
	*rand.Rand
	r       rig
	alloc   *memory.CheckedAllocator
	db      adbc.Database
	conns   []*playedConn
	stmts   []*playedStmt
	readers []*playedReader
	next    int
	least   map[int]int
	most    map[int]int
	log     []string
	broken  []string
}

func (p *adbcPlay) say(f string, a ...any)   { p.log = append(p.log, fmt.Sprintf(f, a...)) }
func (p *adbcPlay) wrong(f string, a ...any) { p.broken = append(p.broken, fmt.Sprintf(f, a...)) }

// call runs a call; panics of a stream come through.
func (p *adbcPlay) call(name string, f func(ctx context.Context) error) (err error) {
	ctx, stop := context.WithTimeout(p.r.Context(), time.Second)
	defer stop()
	began := time.Now()
	defer func() {
		if took := time.Since(began); took > 1050*time.Millisecond {
			p.wrong("%s took %s", name, took)
		}
		if r := recover(); r != nil {
			if fmt.Sprint(r) != "stream panics" {
				panic(r)
			}
			err = errors.New("panic")
			p.say("%s: panics", name)
			return
		}
		p.say("%s: %v", name, err)
		var a adbc.Error
		if err != nil && !errors.As(err, &a) {
			p.wrong("%s: no adbc.Error: %v", name, err)
		}
		if err != nil && a.Code == adbc.StatusOK {
			p.wrong("%s: status OK: %v", name, err)
		}
	}()
	return f(ctx)
}

func pick[T any](p *adbcPlay, all []T) (item T, ok bool) {
	if len(all) == 0 {
		return item, false
	}
	return all[p.IntN(len(all))], true
}

func (p *adbcPlay) batch(values ...int) arrow.RecordBatch {
	b := array.NewRecordBuilder(p.alloc, arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Int64}}, nil))
	defer b.Release()
	for _, v := range values {
		b.Field(0).(*array.Int64Builder).Append(int64(v))
	}
	return b.NewRecordBatch()
}

type badStream struct {
	array.RecordReader
	at  int
	how string
	err error
}

func (s *badStream) Next() bool {
	if s.at--; s.at >= 0 {
		return s.RecordReader.Next()
	}
	switch s.how {
	case "fails":
		s.err = errors.New("stream fails")
		return false
	case "panics":
		panic("stream panics")
	case "blocks":
		time.Sleep(time.Minute)
	}
	return s.RecordReader.Next()
}
func (s *badStream) Err() error {
	if s.err != nil {
		return s.err
	}
	return s.RecordReader.Err()
}

func (p *adbcPlay) step() {
	moves := []func(){p.open, p.closeConn, p.stmt, p.stmt, p.text, p.text, p.text, p.prepare, p.bind, p.bind, p.bindStream, p.query, p.query, p.query, p.update, p.update, p.update,
		p.read, p.read, p.readAll, p.release, p.closeStmt, p.commit, p.rollback, p.autocommit, p.meta, p.option, p.ingest, p.schema}
	moves[p.IntN(len(moves))]()
}

func (p *adbcPlay) open() {
	if len(p.conns) > 1 && p.IntN(10) > 0 {
		return
	}
	live := 0
	for _, c := range p.conns {
		if !c.closed {
			live++
		}
	}
	_ = p.call("Open", func(ctx context.Context) error {
		c, err := p.db.Open(ctx)
		if err == nil {
			p.conns = append(p.conns, &playedConn{Connection: c})
		} else if live < 2 {
			p.wrong("Open: %v", err)
		}
		return err
	})
}

func (p *adbcPlay) drop(c *playedConn, least, most int) {
	for _, v := range c.pending {
		p.least[v] += least
		p.most[v] += most
	}
	c.pending, c.doubt = nil, false
}

func (p *adbcPlay) closeConn() {
	c, ok := pick(p, p.conns)
	if !ok || p.IntN(3) > 0 {
		return
	}
	err := p.call("Connection.Close", func(context.Context) error { return c.Close() })
	if (err != nil) != c.closed {
		p.wrong("Connection.Close, closed %t: %v", c.closed, err)
	}
	if !c.closed {
		p.drop(c, 0, 0)
	}
	c.closed = true
}

func (p *adbcPlay) stmt() {
	c, ok := pick(p, p.conns)
	if !ok {
		return
	}
	err := p.call("NewStatement", func(context.Context) error {
		s, err := c.NewStatement()
		if err == nil {
			p.stmts = append(p.stmts, &playedStmt{Statement: s, conn: c})
		}
		return err
	})
	if (err != nil) != c.closed {
		p.wrong("NewStatement: %v", err)
	}
}

func (p *adbcPlay) text() {
	s, ok := pick(p, p.stmts)
	if !ok {
		return
	}
	p.next++
	text := []string{generate(3000), generate(3000), "SELECT * FROM generate(10000, 100)", "insert", "insert", "insert", "INSERT INTO t VALUES (?)", "INSERT INTO t VALUES (?)", "SELECT ?", "BAD", "SELECT error('x')", "", "SELECT * FROM t"}[p.IntN(13)]
	if text == "insert" {
		text = fmt.Sprintf("INSERT INTO t VALUES (%d)", p.next)
	}
	err := p.call("SetSqlQuery "+text, func(context.Context) error { return s.SetSqlQuery(text) })
	if err == nil {
		s.sql, s.table = text, ""
	}
}

func (p *adbcPlay) prepare() {
	if s, ok := pick(p, p.stmts); ok {
		_ = p.call("Prepare "+s.sql, s.Prepare)
	}
}

func (p *adbcPlay) bind() {
	s, ok := pick(p, p.stmts)
	if !ok {
		return
	}
	p.next++
	b := p.batch(p.next)
	defer b.Release()
	if p.IntN(8) == 0 {
		if p.call("Bind nil", func(ctx context.Context) error { return s.Bind(ctx, nil) }) == nil {
			s.bound = ""
		}
		return
	}
	if p.call("Bind", func(ctx context.Context) error { return s.Bind(ctx, b) }) == nil {
		s.bound, s.boundV = "batch", []int{p.next}
	}
}

func (p *adbcPlay) bindStream() {
	s, ok := pick(p, p.stmts)
	if !ok {
		return
	}
	p.next += 3
	v := []int{p.next - 2, p.next - 1, p.next}
	var batches []arrow.RecordBatch
	for _, v := range v {
		batches = append(batches, p.batch(v))
	}
	inner, err := array.NewRecordReader(batches[0].Schema(), batches)
	require.NoError(p.r, err)
	for _, b := range batches {
		b.Release()
	}
	how := []string{"good", "good", "fails", "panics", "blocks"}[p.IntN(5)]
	stream := &badStream{RecordReader: inner, at: p.IntN(3), how: how}
	if how == "good" {
		stream.at = 99
	}
	if p.call("BindStream "+how, func(ctx context.Context) error { return s.BindStream(ctx, stream) }) == nil {
		s.bound, s.boundV = how, v
	}
	inner.Release()
}

// will is what an execution of s stores if it succeeds.
func (p *adbcPlay) will(s *playedStmt) []int {
	switch {
	case s.table != "" && s.bound != "":
		return s.boundV
	case s.table != "":
		return nil
	case s.sql == "INSERT INTO t VALUES (?)" && s.bound != "":
		return s.boundV
	case strings.HasPrefix(s.sql, "INSERT INTO t VALUES (") && s.sql != "INSERT INTO t VALUES (?)":
		v, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(s.sql, "INSERT INTO t VALUES ("), ")"))
		return []int{v}
	}
	return nil
}

func (p *adbcPlay) executed(s *playedStmt, err error) {
	values := p.will(s)
	c := s.conn
	if s.bound != "batch" && s.bound != "" || s.table != "" {
		if s.bound != "" && (s.table != "" || s.sql != "") {
			s.bound = ""
		}
	}
	if c.closed {
		if err == nil {
			p.wrong("an execution on a closed connection succeeds")
		}
		return
	}
	switch {
	case c.manual && err == nil:
		c.pending = append(c.pending, values...)
	case c.manual:
	case err == nil:
		for _, v := range values {
			p.least[v]++
			p.most[v]++
		}
	}
}

func (p *adbcPlay) query() {
	s, ok := pick(p, p.stmts)
	if !ok {
		return
	}
	if s.sql == "" && s.table == "" {
		return
	}
	var rows array.RecordReader
	was := s.last
	err := p.call("ExecuteQuery "+s.sql+s.table+" bound "+s.bound, func(ctx context.Context) (err error) {
		rows, _, err = s.ExecuteQuery(ctx)
		return err
	})
	if was != nil {
		was.ended = true
	}
	s.last = nil
	if err == nil && rows != nil {
		want := -1
		switch s.sql {
		case generate(3000):
			want = 3000
		case "SELECT * FROM generate(10000, 100)":
			want = 10000
		}
		if s.bound != "" {
			want = -1
		}
		r := &playedReader{RecordReader: rows, want: want, refs: 1, stmt: s, conn: s.conn}
		s.last = r
		p.readers = append(p.readers, r)
		if p.IntN(3) > 0 && strings.HasPrefix(s.sql, "INSERT") {
			for rows.Next() {
				continue
			}
			if rows.Err() != nil {
				p.wrong("rows of an insert: %v", rows.Err())
			}
			rows.Release()
			r.refs--
		}
	}
	p.executed(s, err)
}

func (p *adbcPlay) update() {
	s, ok := pick(p, p.stmts)
	if !ok {
		return
	}
	err := p.call("ExecuteUpdate "+s.sql+s.table+" bound "+s.bound, func(ctx context.Context) error {
		_, err := s.ExecuteUpdate(ctx)
		return err
	})
	if s.last != nil {
		s.last.ended = true
		s.last = nil
	}
	p.executed(s, err)
}

func (p *adbcPlay) schema() {
	if s, ok := pick(p, p.stmts); ok {
		_ = p.call("ExecuteSchema", func(ctx context.Context) error {
			_, err := s.Statement.(adbc.StatementExecuteSchema).ExecuteSchema(ctx)
			return err
		})
		_ = p.call("GetParameterSchema", func(context.Context) error { _, err := s.GetParameterSchema(); return err })
	}
}

func (p *adbcPlay) readSome(n int) {
	r, ok := pick(p, p.readers)
	if !ok || r.refs == 0 {
		return
	}
	_ = p.call("Next", func(context.Context) error {
		for range n {
			if !r.Next() {
				err := r.Err()
				if err == nil && r.want >= 0 && r.got != r.want {
					p.wrong("%d rows of %d and no error (closed conn %t)", r.got, r.want, r.conn.closed)
				}
				return err
			}
			r.got += int(r.RecordBatch().NumRows())
		}
		return nil
	})
}
func (p *adbcPlay) read()    { p.readSome(1) }
func (p *adbcPlay) readAll() { p.readSome(1000) }

func (p *adbcPlay) release() {
	r, ok := pick(p, p.readers)
	if !ok || r.refs == 0 {
		return
	}
	_ = p.call("Release", func(context.Context) error {
		if p.IntN(4) == 0 {
			r.Retain()
			r.refs++
			return nil
		}
		r.Release()
		r.refs--
		return nil
	})
}

func (p *adbcPlay) closeStmt() {
	s, ok := pick(p, p.stmts)
	if !ok || p.IntN(2) > 0 {
		return
	}
	err := p.call("Statement.Close", func(context.Context) error { return s.Close() })
	if s.closed && err == nil {
		p.wrong("a second Close of a statement succeeds")
	}
	if !s.closed && err != nil {
		p.wrong("Statement.Close: %v (connection closed %t)", err, s.conn.closed)
	}
	s.closed = true
}

func (p *adbcPlay) finished(c *playedConn, err error, commit bool) {
	switch {
	case c.closed || !c.manual:
		if err == nil {
			p.wrong("an end without a transaction succeeds")
		}
	case err == nil && commit:
		p.drop(c, 1, 1)
	case err == nil:
		p.drop(c, 0, 0)
	case errors.Is(err, flightpool.ErrCommitUnknown):
		p.drop(c, 0, 1)
	case canEndAgain(err):
	default:
		p.drop(c, 0, 0)
	}
}

func (p *adbcPlay) commit() {
	if c, ok := pick(p, p.conns); ok {
		p.finished(c, p.call("Commit", c.Commit), true)
	}
}

func (p *adbcPlay) rollback() {
	if c, ok := pick(p, p.conns); ok {
		p.finished(c, p.call("Rollback", c.Rollback), false)
	}
}

func (p *adbcPlay) autocommit() {
	c, ok := pick(p, p.conns)
	if !ok {
		return
	}
	on := p.IntN(2) == 0
	err := p.call(fmt.Sprint("autocommit ", on), func(context.Context) error {
		return c.Connection.(adbc.PostInitOptions).SetOption(adbc.OptionKeyAutoCommit, fmt.Sprint(on))
	})
	if c.closed {
		return
	}
	if on && c.manual {
		p.finished(c, err, true)
	}
	if err == nil {
		c.manual = !on
	}
	got, err := c.Connection.(adbc.GetSetOptions).GetOption(adbc.OptionKeyAutoCommit)
	if err != nil || got != fmt.Sprint(!c.manual) {
		p.wrong("autocommit is %s (%v), not %t", got, err, !c.manual)
	}
}

func (p *adbcPlay) meta() {
	c, ok := pick(p, p.conns)
	if !ok {
		return
	}
	let := func(r array.RecordReader, err error) error {
		if err == nil {
			for r.Next() {
				continue
			}
			err = r.Err()
			r.Release()
		}
		return err
	}
	text := func() *string {
		v := []string{"", "%", "t", "_", "a'b", "\\%", "nothing"}[p.IntN(7)]
		if p.IntN(2) == 0 {
			return nil
		}
		return &v
	}
	switch p.IntN(4) {
	case 0:
		_ = p.call("GetObjects", func(ctx context.Context) error {
			return let(c.GetObjects(ctx, adbc.ObjectDepth(p.IntN(6)-1), text(), text(), text(), text(), nil))
		})
	case 1:
		_ = p.call("GetTableTypes", func(ctx context.Context) error { return let(c.GetTableTypes(ctx)) })
	case 2:
		_ = p.call("GetInfo", func(ctx context.Context) error { return let(c.GetInfo(ctx, nil)) })
	case 3:
		_ = p.call("GetTableSchema", func(ctx context.Context) error { _, err := c.GetTableSchema(ctx, nil, nil, "t"); return err })
	}
}

func (p *adbcPlay) option() {
	keys := []string{adbc.OptionKeyReadOnly, adbc.OptionKeyIsolationLevel, adbc.OptionKeyCurrentCatalog, "nonsense", flightsql.OptionSessionOptionPrefix + "x", flightsql.OptionRPCCallHeaderPrefix + "x-a", flightsql.OptionRPCCallHeaderPrefix, OptionConstraints, OptionRoute, adbc.OptionKeyIngestMode, flightsql.OptionSessionOptions, flightsql.OptionStringListSessionOptionPrefix + "l", flightsql.OptionBoolSessionOptionPrefix + "b", flightsql.OptionEraseSessionOptionPrefix + "x"}
	key := keys[p.IntN(len(keys))]
	value := []string{"", "true", "false", "[\"a\"]", "memory", "x", adbc.OptionValueIngestModeAppend}[p.IntN(7)]
	var o adbc.GetSetOptions
	if c, ok := pick(p, p.conns); ok && p.IntN(2) == 0 {
		o = c.Connection.(adbc.GetSetOptions)
	} else if s, ok := pick(p, p.stmts); ok {
		o = s.Statement.(adbc.GetSetOptions)
	} else {
		return
	}
	_ = p.call("SetOption "+key+"="+value, func(context.Context) error { return o.SetOption(key, value) })
	_ = p.call("GetOption "+key, func(context.Context) error { _, err := o.GetOption(key); return err })
	_ = p.call("GetOptionInt "+key, func(context.Context) error { _, err := o.GetOptionInt(key); return err })
}

func (p *adbcPlay) ingest() {
	s, ok := pick(p, p.stmts)
	if !ok {
		return
	}
	err := p.call("ingest into t", func(context.Context) error {
		return errors.Join(s.SetOption(adbc.OptionKeyIngestTargetTable, "t"), s.SetOption(adbc.OptionKeyIngestMode, adbc.OptionValueIngestModeAppend))
	})
	if err == nil {
		s.sql, s.table = "", "t"
	}
}

func (p *adbcPlay) run(n int) {
	for range n {
		p.step()
		if len(p.broken) > 0 {
			break
		}
	}
	for _, c := range p.conns {
		if !c.closed {
			c.closed = true
			_ = p.call("Connection.Close", func(context.Context) error { return c.Close() })
			p.drop(c, 0, 0)
		}
	}
	for _, s := range p.stmts {
		if !s.closed {
			_ = p.call("Statement.Close", func(context.Context) error { return s.Close() })
		}
	}
	for _, r := range p.readers {
		for r.refs > 0 {
			r.Release()
			r.refs--
		}
	}
}

func playADBC(t *testing.T, kind string, seed uint64, n int) (broken []string) {
	synctest.Test(t, func(t *testing.T) {
		s, err := testserver.Start(testserver.Options{Profile: testserver.Strict(), Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		r := rig{t, s}
		judge := r.pool("native")
		r.update(judge, "CREATE TABLE t (v BIGINT)")
		alloc := memory.NewCheckedAllocator(memory.DefaultAllocator)
		pool, err := r.tryPool(kind, func(c *flightpool.Config) {
			if kind != "new" {
				c.Allocator = alloc
			}
		})
		require.NoError(t, err)
		p := &adbcPlay{Rand: rand.New(rand.NewPCG(seed, 1)), r: r, alloc: alloc, db: Database(pool), least: map[int]int{}, most: map[int]int{}}
		p.run(n)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if in := pool.Stats().InUse; in > 0 {
			p.wrong("%d connections are on loan", in)
		}
		require.NoError(t, pool.Close(r.Context()))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if left := alloc.CurrentAlloc(); left > 0 {
			p.wrong("%d bytes are left", left)
		}
		rows, err := judge.Query(r.Context(), "SELECT * FROM t")
		require.NoError(t, err)
		stored := map[int]int{}
		for _, v := range r.values(rows) {
			n, err := strconv.Atoi(v)
			require.NoError(t, err)
			stored[n]++
		}
		rows.Release()
		for v := 1; v <= p.next; v++ {
			if stored[v] < p.least[v] || stored[v] > p.most[v] {
				p.wrong("%d is stored %d times, not %d to %d", v, stored[v], p.least[v], p.most[v])
			}
		}
		if s.Ledger().Snapshot().Transactions > 0 {
			p.wrong("a transaction is open")
		}
		if len(p.broken) > 0 {
			broken = append(slices.Clone(p.broken), p.log...)
		}
	})
	return broken
}

// Random calls of ADBC's interfaces, in any order, on what is open and what is
// closed, with readers that fail, panic and block: each fails as it should, none
// outlasts its context, no result is short without an error, what is stored is
// what the calls have said, and no connection and no memory is left. PROVE_SEED
// makes other programs, PROVE_SCENES more.
func TestADBCsCallsInAnyOrder(t *testing.T) {
	const calls = 60
	seed, _ := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64)
	n, _ := strconv.Atoi(os.Getenv("PROVE_SCENES"))
	for i := range uint64(max(n, 2)) {
		for _, kind := range kinds {
			if broken := playADBC(t, kind, seed+i, calls); len(broken) > 0 {
				t.Errorf("%s, PROVE_SEED=%d: %s", kind, seed+i, strings.Join(broken, "\n   "))
			}
		}
	}
}
