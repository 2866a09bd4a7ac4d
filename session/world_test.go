package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
)

// world is a server with one database and one session, which is a Conn as well.
// It keeps what statements do, so that what a call said can be held against it.
type world struct {
	forgives        bool // confirms the end of transactions that it does not know, and runs statements of them
	blind           bool // no current_setting(), no current_schema(), no catalogue functions
	pathless        bool // no search_path
	bare            bool // no session options, savepoints, prepared statements, catalogue calls
	confirmsAborted bool // the COMMIT of an aborted transaction succeeds and stores nothing
	bulkMoves       bool // an INSERT with parameters leaves the session at the table's catalogue
	cancels         bool // has a call that cancels
	emptyFirst      bool // results begin with a batch without rows
	binds           bool // see bindingWorld

	preparedWith []metadata.MD // the headers of every preparing

	faults map[int]worldFault // by round trip, from 1

	replacedBefore map[int]bool // round trips that are the first of a session which has replaced another
	counts         bool         // handles and ids of transactions are counted by each session

	ends   map[int]callerEnd // round trips in which the context of their caller ends
	caller *caller           // of the step under way, nil between steps
	late   chan struct{}     // closed when a statement has ended whose caller has gone

	mem counted // of batches

	// slow, if not nil, tells how long the session works on a round trip, and
	// whether a call that is ended keeps it from beginning.
	slow  func() (d time.Duration, heeds bool)
	queue chan struct{} // who works in the session

	working int // calls that are worked on

	mu     sync.Mutex
	struck int // the round trip that was answered with its fault
	trips  int
	log    []string
	ctxs   []context.Context // of the round trips
	lost   error
	stored map[int]int // how often each value was stored
	places map[int]string
	sess   worldSession
	txNo   int
	handle int

	ran      map[int]worldRun // how each value was stored last
	sessions int              // that were replaced
	proof    int              // the handle of the session's proof
	unproven int              // the round trip in which that was closed, or 0
	mistaken []string         // statements that were run by the handle of another
}

// worldRun is where a value was stored.
type worldRun struct {
	trip, session int
	inTx          bool
}

// counted is an allocator that knows how much of it is in use.
type counted struct{ bytes atomic.Int64 }

func (c *counted) Allocate(size int) []byte {
	c.bytes.Add(int64(size))
	return memory.DefaultAllocator.Allocate(size)
}

func (c *counted) Reallocate(size int, b []byte) []byte {
	c.bytes.Add(int64(size - len(b)))
	return memory.DefaultAllocator.Reallocate(size, b)
}

func (c *counted) Free(b []byte) {
	c.bytes.Add(-int64(len(b)))
	memory.DefaultAllocator.Free(b)
}

// worldSession is what a session of the server holds.
type worldSession struct {
	settings                      map[string]string
	own                           map[string]string // values of the session's own, which hide those
	temps, views, named, attached map[string]bool
	pivots                        int
	options                       map[string]any
	handles                       map[int]string
	streams                       int

	tx         backend.TxID
	pending    []int
	aborted    bool
	savepoints map[backend.SavepointID]int
	tempsOfTx  map[string]bool // temps at its begin
}

// worldFault is what becomes of one round trip.
type worldFault struct {
	kind  string
	after bool // what was asked is done all the same
}

func (f worldFault) String() string { return fmt.Sprintf("%s after=%t", f.kind, f.after) }

// worldFaults are all of them.
var worldFaults = []worldFault{
	{"refused", false}, {"aborted", false}, {"unsupported", false}, {"auth", false},
	{"limit", false}, {"limit", true}, {"unreadable", false}, {"unreadable", true},
	{"cut", false}, {"cut", true}, {"hang", false}, {"hang", true},
}

func newWorldSession() worldSession {
	return worldSession{
		settings: map[string]string{"threads": "3", "zone": "Tokyo", "search_path": "lake.main"},
		own:      map[string]string{},
		temps:    map[string]bool{}, views: map[string]bool{}, named: map[string]bool{}, attached: map[string]bool{},
		options: map[string]any{"kept": "yes"}, handles: map[int]string{},
	}
}

var worldDefaults = map[string]string{"threads": "8", "zone": "UTC", "search_path": "memory.main"}

func newWorld() *world {
	return &world{stored: map[int]int{}, places: map[int]string{}, ran: map[int]worldRun{}, sess: newWorldSession(), queue: make(chan struct{}, 1)}
}

// left are the things that the next borrower of the session could see.
func (w *world) left() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	start, s := newWorldSession(), w.sess
	var out []string
	note := func(what string, bad bool) {
		if bad {
			out = append(out, what)
		}
	}
	note(fmt.Sprintf("settings %v", s.settings), !maps.Equal(s.settings, start.settings))
	note(fmt.Sprintf("its own settings %v", s.own), len(s.own) > 0)
	note(fmt.Sprintf("options %v", s.options), !maps.Equal(s.options, start.options))
	note(fmt.Sprintf("temporary tables %v", s.temps), len(s.temps) > 0)
	note(fmt.Sprintf("temporary views %v", s.views), len(s.views) > 0)
	note(fmt.Sprintf("prepared names %v", s.named), len(s.named) > 0)
	note(fmt.Sprintf("attached %v", s.attached), len(s.attached) > 0)
	note(fmt.Sprintf("%d types of PIVOT", s.pivots), s.pivots > 0)
	note(fmt.Sprintf("%d prepared statements", len(s.handles)), len(s.handles) > 0)
	note(fmt.Sprintf("%d streams", s.streams), s.streams > 0)
	note("a transaction", s.tx != "")
	return out
}

// replaceSession puts another session in the place of this one, unsaid.
func (w *world) replaceSession() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replaceLocked()
}

// replaceLocked is replaceSession with the lock held.
func (w *world) replaceLocked() {
	streams := w.sess.streams
	w.sess = newWorldSession()
	w.sess.streams = streams
	if w.sessions++; w.counts {
		w.handle, w.txNo = 0, 0
	}
}

// errWorldPanic is what an interceptor or driver panics with.
var errWorldPanic = errors.New("injected: panic")

func worldError(fault backend.Fault, code codes.Code, text string) *backend.Error {
	return &backend.Error{Stage: backend.StageExecute, Fault: fault, Err: status.Error(code, text)}
}

// trip is one round trip, in which do is done. A statement that fails aborts the
// transaction.
func (w *world) trip(ctx context.Context, what string, statement bool, do func() error) error {
	w.mu.Lock()
	if w.lost != nil {
		defer w.mu.Unlock()
		return &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultTransport, Unsent: true, Err: fmt.Errorf("%w: %w", backend.ErrSessionLost, w.lost)}
	}
	w.trips++
	w.log = append(w.log, what)
	w.ctxs = append(w.ctxs, ctx)
	at := w.trips
	if w.replacedBefore[at] {
		w.replaceLocked()
	}
	f, faulty := w.faults[at]
	if end, ends := w.ends[at]; ends && w.caller != nil {
		c := w.caller
		w.mu.Unlock()
		return w.tripWithEnd(ctx, end, c, statement, do)
	}
	if late := w.late; late != nil {
		w.mu.Unlock()
		if err := awaitLate(ctx, late); err != nil {
			return err
		}
		w.mu.Lock()
	}
	if w.slow != nil {
		d, heeds := w.slow()
		w.mu.Unlock()
		return w.work(ctx, d, heeds, statement, f, faulty, do)
	}
	var err error
	if !faulty || f.after {
		err = do()
	}
	if faulty && f.kind == "cut" {
		w.lost = errors.New("connection reset")
	}
	if statement && (err != nil && backend.FaultIn(err) != backend.FaultUnsupported || faulty && !f.after && f.kind != "unsupported") {
		w.sess.aborted = w.sess.tx != ""
	}
	w.mu.Unlock()
	if ended := ctx.Err(); ended != nil {
		return worldError(backend.FaultContext, codes.Canceled, ended.Error())
	}
	if !faulty || err != nil {
		return err
	}
	w.struckAt(at)
	switch f.kind {
	case "panic":
		panic(errWorldPanic)
	case "hang":
		frozen := time.NewTimer(time.Minute)
		defer frozen.Stop()
		select {
		case <-frozen.C:
			return worldError(backend.FaultLimit, codes.ResourceExhausted, "injected: frozen")
		case <-ctx.Done():
			return worldError(backend.FaultContext, codes.Canceled, ctx.Err().Error())
		}
	default:
		return f.error()
	}
}

func (w *world) struckAt(trip int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.struck = trip
}

// work is a round trip that takes time, in its turn.
func (w *world) work(ctx context.Context, d time.Duration, heeds, statement bool, f worldFault, faulty bool, do func() error) error {
	done := make(chan error, 1)
	w.mu.Lock()
	w.working++
	w.mu.Unlock()
	go func() {
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.working--
		}()
		w.queue <- struct{}{}
		defer func() { <-w.queue }()
		if heeds {
			timer := time.NewTimer(d)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
				w.mu.Lock()
				if statement && w.sess.tx != "" {
					w.sess.aborted = true
				}
				w.mu.Unlock()
				done <- worldError(backend.FaultContext, codes.Canceled, "cancelled")
				return
			}
		} else {
			time.Sleep(d)
		}
		w.mu.Lock()
		var err error
		if !faulty || f.after {
			err = do()
		}
		if statement && (err != nil && backend.FaultIn(err) != backend.FaultUnsupported || faulty && !f.after && f.kind != "unsupported") {
			w.sess.aborted = w.sess.tx != ""
		}
		w.mu.Unlock()
		if faulty && f.kind == "hang" {
			return
		}
		if faulty && err == nil {
			err = f.error()
		}
		done <- err
	}()
	frozen := time.NewTimer(time.Minute)
	defer frozen.Stop()
	select {
	case err := <-done:
		if ended := ctx.Err(); ended != nil {
			return worldError(backend.FaultContext, codes.Canceled, ended.Error())
		}
		return err
	case <-frozen.C:
		return worldError(backend.FaultLimit, codes.ResourceExhausted, "injected: frozen")
	case <-ctx.Done():
		return worldError(backend.FaultContext, codes.Canceled, ctx.Err().Error())
	}
}

func (f worldFault) error() error {
	switch f.kind {
	case "refused":
		return worldError(backend.FaultStatement, codes.Internal, "injected: refused")
	case "aborted":
		return worldError(backend.FaultStatement, codes.FailedPrecondition, "injected: aborted")
	case "unsupported":
		return worldError(backend.FaultUnsupported, codes.Unimplemented, "injected: unsupported")
	case "auth":
		return worldError(backend.FaultAuth, codes.Unauthenticated, "injected: token expired")
	case "limit":
		return worldError(backend.FaultLimit, codes.ResourceExhausted, "injected: limit")
	case "cut":
		return worldError(backend.FaultTransport, codes.Unavailable, "injected: connection reset")
	default:
		return errors.New("injected: unreadable")
	}
}

// enter lets a statement into the session.
func (w *world) enter(tx backend.TxID) error {
	switch {
	case tx != "" && tx != w.sess.tx && !w.forgives:
		return worldError(backend.FaultStatement, codes.NotFound, "no such transaction")
	case tx == "" && w.sess.tx != "" && !w.forgives: // it would run outside of it
		return worldError(backend.FaultStatement, codes.FailedPrecondition, "a transaction is open: the statement must name it")
	case w.sess.tx != "" && w.sess.aborted:
		return worldError(backend.FaultStatement, codes.Internal, "current transaction is aborted")
	default:
		return nil
	}
}

var (
	worldInsert  = regexp.MustCompile(`^INSERT INTO (\S*)t (?:VALUES|SELECT) \(?(\d+)\)?`)
	worldSet     = regexp.MustCompile(`^SET (SESSION )?(\w+) = '?([^']*)'?$`)
	worldReset   = regexp.MustCompile(`^RESET (SESSION )?(\w+)$`)
	worldUse     = regexp.MustCompile(`^USE "?(\w+)"?(?:\."?(\w+)"?)?$`)
	worldCreate  = regexp.MustCompile(`^CREATE TEMP (TABLE|VIEW) (\w+) `)
	worldDrop    = regexp.MustCompile(`^DROP (TABLE|VIEW) IF EXISTS temp\.main\."?(\w+)"?$`)
	worldPrepare = regexp.MustCompile(`^(PREPARE|DEALLOCATE) (\w+)`)
	worldType    = regexp.MustCompile(`^DROP TYPE temp\.main\."__pivot_enum_(\d+)"$`)
	worldReads   = regexp.MustCompile(`current_setting\('(\w+)'\)|current_database\(\)|current_schema\(\)|duckdb_tables|duckdb_prepared|duckdb_types`)
	worldSleep   = regexp.MustCompile(`^UPDATE sleep SET s = (\d+)$`)
	worldAttach  = regexp.MustCompile(`^ATTACH '(\w+)`)
)

func (w *world) run(sql string) error {
	s := &w.sess
	if m := worldInsert.FindStringSubmatch(sql); m != nil {
		v, _ := strconv.Atoi(m[2])
		w.insert(v)
		return nil
	}
	if m := worldSet.FindStringSubmatch(sql); m != nil {
		name, value := strings.ToLower(m[2]), m[3]
		if name == "schema" {
			name, value = "search_path", strings.Split(s.settings["search_path"], ".")[0]+"."+value
		}
		if m[1] != "" {
			s.own[name] = value
			return nil
		}
		s.settings[name] = value
		return nil
	}
	if m := worldReset.FindStringSubmatch(sql); m != nil {
		if m[2] == "ALL" {
			fresh := newWorldSession() // a server that resets everything
			s.settings, s.own, s.temps, s.views, s.named, s.pivots = fresh.settings, fresh.own, fresh.temps, fresh.views, fresh.named, 0
			return nil
		}
		if m[1] != "" {
			delete(s.own, m[2])
			return nil
		}
		delete(s.settings, m[2])
		if v, ok := worldDefaults[m[2]]; ok {
			s.settings[m[2]] = v
		}
		return nil
	}
	if m := worldUse.FindStringSubmatch(sql); m != nil {
		s.settings["search_path"] = m[1] + "." + max(m[2], "main")
		return nil
	}
	if m := worldCreate.FindStringSubmatch(sql); m != nil {
		map[string]map[string]bool{"TABLE": s.temps, "VIEW": s.views}[m[1]][m[2]] = true
		return nil
	}
	if m := worldDrop.FindStringSubmatch(sql); m != nil {
		delete(map[string]map[string]bool{"TABLE": s.temps, "VIEW": s.views}[m[1]], m[2])
		return nil
	}
	if m := worldPrepare.FindStringSubmatch(sql); m != nil {
		if m[1] == "DEALLOCATE" && !s.named[m[2]] {
			return worldError(backend.FaultStatement, codes.NotFound, "no such prepared statement")
		}
		s.named[m[2]] = true
		if m[1] == "DEALLOCATE" {
			delete(s.named, m[2])
		}
		return nil
	}
	if m := worldType.FindStringSubmatch(sql); m != nil && m[1] == strconv.Itoa(s.pivots) {
		s.pivots--
		return nil
	}
	if worldSleep.MatchString(sql) {
		return nil
	}
	if m := worldAttach.FindStringSubmatch(sql); m != nil {
		s.attached[m[1]] = true
		return nil
	}
	return worldError(backend.FaultStatement, codes.InvalidArgument, "syntax error: "+sql)
}

func (w *world) insert(v int) {
	w.places[v] = w.sess.settings["search_path"]
	w.ran[v] = worldRun{w.trips, w.sessions, w.sess.tx != ""}
	if w.sess.tx != "" {
		w.sess.pending = append(w.sess.pending, v)
		return
	}
	w.stored[v]++
}

func (w *world) Update(ctx context.Context, sql string, call backend.Call) (int64, error) {
	return w.update(ctx, sql, nil, call)
}

// update is Update of a text, or by the handle of p.
func (w *world) update(ctx context.Context, sql string, p *worldPrepared, call backend.Call) (int64, error) {
	err := w.trip(ctx, string(call.Tx)+"|"+sql, true, func() (err error) {
		if sql, err = p.textOf(sql); err != nil {
			return err
		}
		if err := w.enter(call.Tx); err != nil {
			return err
		}
		for one := range strings.SplitSeq(sql, "; ") {
			if err := w.run(one); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if m := worldSleep.FindStringSubmatch(sql); m != nil {
		seconds, _ := strconv.Atoi(m[1])
		if err := w.cutAfter(ctx, time.Duration(seconds)*time.Second); err != nil {
			return 0, err
		}
	}
	return 1, nil
}

// cutAfter takes its time. A statement that is cut off aborts the transaction.
func (w *world) cutAfter(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		w.sess.aborted = w.sess.tx != ""
		return worldError(backend.FaultContext, codes.Canceled, ctx.Err().Error())
	}
}

// Query gives n rows for SELECT n, the text for SELECT 'text', and a row of texts
// for what asks for the session's state.
func (w *world) Query(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	return w.query(ctx, sql, nil, call)
}

// query is Query of a text, or by the handle of p.
func (w *world) query(ctx context.Context, sql string, p *worldPrepared, call backend.Call) (backend.Stream, error) {
	call.Op.SetName(sql)
	s := &worldStream{w: w, ctx: ctx, rows: 1}
	err := w.trip(ctx, string(call.Tx)+"|"+sql, true, func() (err error) {
		if sql, err = p.textOf(sql); err != nil {
			return err
		}
		if err := w.enter(call.Tx); err != nil {
			return err
		}
		_, text, quoted := strings.Cut(sql, "SELECT '")
		switch found := worldReads.FindAllStringSubmatch(sql, -1); {
		case found != nil:
			return w.tell(s, found, sql)
		case quoted:
			s.texts = []any{strings.TrimSuffix(text, "'")}
		case strings.HasPrefix(sql, "PIVOT"):
			if !w.blind {
				w.sess.pivots++
			}
		case strings.HasPrefix(sql, "INSERT"):
			s.change, s.tx = sql, call.Tx
		default:
			if _, err := fmt.Sscanf(sql, "SELECT %d", &s.rows); err != nil {
				return worldError(backend.FaultStatement, codes.InvalidArgument, "syntax error: "+sql)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.sess.streams++
	w.mu.Unlock()
	return s, nil
}

// tell answers what asks for the session's state.
func (w *world) tell(s *worldStream, found [][]string, sql string) error {
	path := strings.Split(w.sess.settings["search_path"], ".")
	for _, m := range found {
		value, ok := w.sess.own[strings.ToLower(m[1])]
		if !ok {
			value, ok = w.sess.settings[strings.ToLower(m[1])]
		}
		var cell any
		switch {
		case w.blind, w.pathless && m[1] == "search_path":
			return worldError(backend.FaultStatement, codes.InvalidArgument, "no such function or setting")
		case m[0] == "current_database()":
			cell = path[0]
		case m[0] == "current_schema()":
			cell = path[1]
		case m[0] == "duckdb_prepared":
			n := 0
			if _, name, cut := strings.Cut(sql, "lower(name) = '"); cut && w.sess.named[strings.TrimSuffix(name, "'")] {
				n = 1
			}
			cell = strconv.Itoa(n)
		case m[0] == "duckdb_types":
			s.texts = append(s.texts, strconv.Itoa(w.sess.pivots))
			cell = fmt.Sprintf("__pivot_enum_%d", w.sess.pivots)
		case m[0] == "duckdb_tables":
			cell = strconv.Itoa(len(w.sess.temps) + len(w.sess.views))
		case ok:
			cell = value
		}
		s.texts = append(s.texts, cell)
	}
	return nil
}

type worldStream struct {
	w      *world
	ctx    context.Context
	rows   int
	texts  []any // a row of these, instead of numbers
	change string
	values []int64      // which are stored in place of those of the change
	tx     backend.TxID // of the change
	closed bool
	begun  bool
	last   arrow.RecordBatch
}

func (s *worldStream) Schema() *arrow.Schema {
	if s.texts == nil {
		return fakeSchema
	}
	fields := make([]arrow.Field, len(s.texts))
	for i := range s.texts {
		fields[i] = arrow.Field{Name: "s" + strconv.Itoa(i), Type: arrow.BinaryTypes.String, Nullable: true}
	}
	return arrow.NewSchema(fields, nil)
}

// manyRows is how many a result may have that comes at once.
const manyRows = 100

// Next gives a row at a time. What changes something is stored at the end.
func (s *worldStream) Next() (arrow.RecordBatch, error) {
	s.drop()
	if s.w.emptyFirst && !s.begun {
		s.begun, s.last = true, batchWithoutRows(s.Schema())
		return s.last, nil
	}
	ended := s.rows == 0
	err := s.w.trip(s.ctx, "fetch", true, func() error {
		if ended && s.change != "" {
			if err := s.w.enter(s.tx); err != nil {
				return err
			}
			for _, v := range s.values {
				s.w.insert(int(v))
			}
			if s.values != nil {
				return nil
			}
			return s.w.run(s.change)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case ended:
		return nil, io.EOF
	case s.rows > manyRows:
		select {
		case <-time.After(200 * time.Millisecond):
		case <-s.ctx.Done(): // the rows that are not read abort nothing
			return nil, worldError(backend.FaultContext, codes.Canceled, s.ctx.Err().Error())
		}
	}
	s.rows--
	var columns []arrow.Array
	for _, cell := range s.texts {
		b := array.NewStringBuilder(&s.w.mem)
		if text, ok := cell.(string); ok {
			b.Append(text)
		} else {
			b.AppendNull()
		}
		columns = append(columns, b.NewArray())
	}
	if s.texts == nil {
		b := array.NewInt64Builder(&s.w.mem)
		b.Append(int64(s.rows))
		columns = append(columns, b.NewArray())
	}
	s.last = array.NewRecordBatch(s.Schema(), columns, 1)
	for _, c := range columns {
		c.Release()
	}
	return s.last, nil
}

func (s *worldStream) drop() {
	if s.last != nil {
		s.last.Release()
		s.last = nil
	}
}

func (s *worldStream) RowsAffected() (int64, bool) { return 0, false }

func (s *worldStream) Close() {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.drop()
		s.w.sess.streams--
	}
}

func (w *world) lacks(what string) error {
	if w.bare {
		return worldError(backend.FaultUnsupported, codes.Unimplemented, what+" is not implemented")
	}
	return nil
}

func (w *world) Prepare(ctx context.Context, sql string, call backend.Call) (backend.Prepared, error) {
	p := &worldPrepared{w: w, sql: sql, tx: call.Tx}
	err := w.trip(ctx, "Prepare "+sql, true, func() error {
		if err := w.lacks("Prepare"); err != nil {
			return err
		}
		if err := w.enter(call.Tx); err != nil {
			return err
		}
		w.preparedWith = append(w.preparedWith, call.Headers)
		w.handle++
		p.no = w.handle
		if nonce.MatchString(sql) && w.proof == 0 {
			w.proof = p.no
		}
		_, unheard := w.faults[w.trips]
		if end, ends := w.ends[w.trips]; !unheard && ctx.Err() == nil && (!ends || end.when == "answered") { // nobody could close it, or see it
			w.sess.handles[p.no] = sql
		}
		return nil
	})
	if err == nil {
		return p, nil
	}
	if e, ok := err.(*backend.Error); ok { //nolint:errorlint // the world's own
		e.Stage = backend.StagePrepare
	}
	return nil, err
}

// worldPrepared runs in the transaction in which it was prepared: its commands name none.
type worldPrepared struct {
	w   *world
	sql string
	tx  backend.TxID
	no  int
}

// textOf is what the server runs by the handle; of none it is sql. The lock is held.
func (p *worldPrepared) textOf(sql string) (string, error) {
	if p == nil {
		return sql, nil
	}
	text, known := p.w.sess.handles[p.no]
	if !known {
		return "", worldError(backend.FaultStatement, codes.InvalidArgument, "unknown prepared statement")
	}
	if text != p.sql {
		p.w.mistaken = append(p.w.mistaken, fmt.Sprintf("%q by the handle of %q", text, p.sql))
	}
	return text, nil
}

// FirstHandle is part of backend.HandleTeller.
func (p *worldPrepared) FirstHandle() string { return strconv.Itoa(p.no) }

func (p *worldPrepared) ParameterSchema() *arrow.Schema { return nil }

// stillThere looks at parameters whose caller may have gone.
func stillThere(params arrow.RecordBatch) {
	if params != nil {
		_ = params.Column(0).Len()
	}
}

func (p *worldPrepared) Query(ctx context.Context, params arrow.RecordBatch, call backend.Call) (backend.Stream, error) {
	defer stillThere(params)
	call.Tx = p.tx
	return p.w.query(ctx, p.sql, p, call)
}

// Update stores a value for each row, and may move the session.
func (p *worldPrepared) Update(ctx context.Context, params arrow.RecordBatch, call backend.Call) (int64, error) {
	call.Tx = p.tx
	if params == nil {
		return p.w.update(ctx, p.sql, p, call)
	}
	defer stillThere(params)
	values := slices.Clone(params.Column(0).(*array.Int64).Values())
	err := p.w.trip(ctx, string(call.Tx)+"|"+p.sql, true, func() error {
		if text, err := p.textOf(p.sql); err != nil {
			return err
		} else if strings.HasPrefix(text, "SELECT") {
			return worldError(backend.FaultStatement, codes.InvalidArgument, "the statement returns rows")
		}
		if err := p.w.enter(call.Tx); err != nil {
			return err
		}
		for _, v := range values {
			p.w.insert(int(v))
		}
		if p.w.bulkMoves {
			p.w.sess.settings["search_path"] = "bulk.main"
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return int64(len(values)), nil
}

func (p *worldPrepared) Close(ctx context.Context) error {
	return p.w.trip(ctx, "ClosePrepared", false, func() error {
		if p.no == p.w.proof && p.w.unproven == 0 && nonce.MatchString(p.sql) {
			p.w.unproven = p.w.trips
		}
		if _, known := p.w.sess.handles[p.no]; !known && p.w.sessions > 0 {
			return worldError(backend.FaultStatement, codes.InvalidArgument, "unknown prepared statement")
		}
		delete(p.w.sess.handles, p.no)
		return nil
	})
}

func (w *world) Ingest(ctx context.Context, rows array.RecordReader, opts backend.IngestOptions, call backend.Call) (int64, error) {
	var values []int64
	for rows.Next() {
		values = append(values, rows.RecordBatch().Column(0).(*array.Int64).Values()...)
	}
	err := w.trip(ctx, string(call.Tx)+"|ingest", true, func() error {
		if err := w.enter(call.Tx); err != nil {
			return err
		}
		for _, v := range values {
			w.insert(int(v))
		}
		if opts.Temporary {
			w.sess.temps[opts.Table] = true
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return int64(len(values)), nil
}

func (w *world) Metadata(ctx context.Context, _ backend.MetadataRequest, _ backend.Call) (backend.Stream, error) {
	err := w.trip(ctx, "Metadata", true, func() error { return w.lacks("Metadata") })
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.sess.streams++
	w.mu.Unlock()
	return &worldStream{w: w, ctx: ctx, rows: 2}, nil
}

func (w *world) Begin(ctx context.Context) (backend.TxID, error) {
	begun := make(chan backend.TxID, 1) // a call that was left begins one, too
	err := w.trip(ctx, "Begin", false, func() error {
		if w.sess.tx != "" {
			return worldError(backend.FaultStatement, codes.Internal, "a transaction is open already")
		}
		w.txNo++
		tx := backend.TxID("tx" + strconv.Itoa(w.txNo))
		w.sess.tx, w.sess.pending, w.sess.aborted = tx, nil, false
		w.sess.savepoints, w.sess.tempsOfTx = map[backend.SavepointID]int{}, maps.Clone(w.sess.temps)
		begun <- tx
		return nil
	})
	if err != nil {
		return "", err
	}
	return <-begun, nil
}

func (w *world) EndTx(ctx context.Context, tx backend.TxID, commit bool) error {
	what := "Rollback"
	if commit {
		what = "Commit"
	}
	return w.trip(ctx, what, false, func() error {
		s := &w.sess
		if tx != s.tx {
			if w.forgives {
				return nil
			}
			return worldError(backend.FaultStatement, codes.NotFound, "no such transaction")
		}
		aborted, pending := s.aborted, s.pending
		s.tx, s.pending, s.aborted = "", nil, false
		switch {
		case commit && aborted && !w.confirmsAborted:
			return worldError(backend.FaultStatement, codes.FailedPrecondition, "transaction aborted and rolled back")
		case commit && !aborted:
			for _, v := range pending {
				w.stored[v]++
			}
		default:
			s.temps = s.tempsOfTx
		}
		return nil
	})
}

func (w *world) Savepoint(ctx context.Context, _ backend.TxID, name string) (backend.SavepointID, error) {
	w.mu.Lock()
	w.handle++
	id := backend.SavepointID(fmt.Sprintf("%s-%d", name, w.handle))
	w.mu.Unlock()
	return id, w.trip(ctx, "Savepoint "+name, true, func() error {
		if err := w.lacks("Savepoint"); err != nil {
			return err
		}
		if w.sess.tx == "" {
			return worldError(backend.FaultStatement, codes.NotFound, "no transaction")
		}
		w.sess.savepoints[id] = len(w.sess.pending)
		return nil
	})
}

func (w *world) EndSavepoint(ctx context.Context, sp backend.SavepointID, end backend.SavepointEnd) error {
	return w.trip(ctx, fmt.Sprintf("EndSavepoint %s %d", sp, end), true, func() error {
		at, ok := w.sess.savepoints[sp]
		if !ok {
			return worldError(backend.FaultStatement, codes.NotFound, "no such savepoint")
		}
		for id, other := range w.sess.savepoints {
			if other > at || end == backend.SavepointRelease && id == sp {
				delete(w.sess.savepoints, id)
			}
		}
		if end == backend.SavepointRollback {
			w.sess.pending, w.sess.aborted = slices.Clone(w.sess.pending[:at]), false
		}
		return nil
	})
}

// SetOptions knows that the option "catalog" moves the session.
func (w *world) SetOptions(ctx context.Context, opts map[string]any) error {
	return w.trip(ctx, "SetOptions", false, func() error {
		if err := w.lacks("SetOptions"); err != nil {
			return err
		}
		for k, v := range opts {
			if k == "catalog" && !w.blind {
				w.sess.settings["search_path"] = worldDefaults["search_path"]
				if v != nil {
					w.sess.settings["search_path"] = fmt.Sprint(v) + ".main"
				}
			}
			w.sess.options[k] = v
			if v == nil {
				delete(w.sess.options, k)
			}
		}
		return nil
	})
}

func (w *world) Options(ctx context.Context) (opts map[string]any, err error) {
	var told atomic.Pointer[map[string]any] // of a call that was left, too
	err = w.trip(ctx, "Options", false, func() error {
		now := maps.Clone(w.sess.options)
		told.Store(&now)
		return w.lacks("Options")
	})
	if err != nil {
		return nil, err
	}
	return *told.Load(), nil
}

func (w *world) Ping(ctx context.Context) error {
	return w.trip(ctx, "Ping", false, func() error { return nil })
}

func (w *world) RejectsUnknownTx(ctx context.Context) (bool, error) {
	return !w.forgives, w.trip(ctx, "RejectsUnknownTx", false, func() error { return nil })
}

func (w *world) CancelSteps(*backend.Operation) []cancel.Step {
	if !w.cancels {
		return nil
	}
	return []cancel.Step{{Name: "Cancel", Timeout: time.Second, Do: func(ctx context.Context) (cancel.Outcome, error) {
		if err := w.trip(ctx, "Cancel", false, func() error { return nil }); err != nil {
			return cancel.Failed, err
		}
		return cancel.Confirmed, nil
	}}}
}

func (w *world) Lost() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

func (w *world) Close() error { return nil }
