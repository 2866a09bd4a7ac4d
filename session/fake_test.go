package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// fakeConn is a server with one session: one statement at a time, as a real
// one. Statements are understood by their text: "SELECT n" gives n rows,
// "SELECT SLOW d" works for the duration d, "BAD …" fails.
type fakeConn struct {
	params []string // what prepared statements were executed with, guarded by mu

	ignoresCancel bool // a statement runs to its end whatever the client does
	forgives      bool // ends unknown transactions with success
	steps         func(op *backend.Operation) []cancel.Step
	value         int64            // added to every row
	fail          map[string]error // by call ("Begin", "Commit", …) or SQL text
	failOnce      map[string][]error
	failAll       error                    // by every call
	work          map[string]time.Duration // how long a call takes, by its name
	pace          time.Duration            // between two batches
	useParams     func()                   // called when parameters are used
	reused        string                   // the statement that another session has under every handle
	late          func()                   // called before the next proof is answered
	mem           memory.Allocator         // of batches; nil is Go's own
	deaf          bool                     // a batch that was asked for comes although its RPC has been ended

	mu       sync.Mutex
	log      []string
	lost     error
	closed   int
	freeAt   time.Time // when the statement at work ends
	tx       backend.TxID
	txCount  int
	handles  map[int]bool
	prepared func(*fakePrepared) backend.Prepared // what Prepare gives, if not its argument
	handleNo int
	streams  int
	options  map[string]any
}

func sqlError(text string) error {
	return &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.Internal, text)}
}

func transportError() error {
	return &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultTransport, Err: status.Error(codes.Unavailable, "connection reset")}
}

func (f *fakeConn) Log() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.log...)
}

// use is one round trip on the session: it waits for the statement at work.
func (f *fakeConn) use(ctx context.Context, call string, work time.Duration) error {
	f.mu.Lock()
	if f.lost != nil {
		defer f.mu.Unlock()
		return &backend.Error{Fault: backend.FaultTransport, Unsent: true, Err: fmt.Errorf("%w: %w", backend.ErrSessionLost, f.lost)}
	}
	wait := max(time.Until(f.freeAt), 0)
	work += f.work[call]
	f.freeAt = time.Now().Add(wait + work)
	f.log = append(f.log, call)
	err := f.fail[call]
	if f.failAll != nil {
		err = f.failAll
	}
	if once := f.failOnce[call]; len(once) > 0 {
		err, f.failOnce[call] = once[0], once[1:]
	}
	f.mu.Unlock()
	timer := time.NewTimer(wait + work)
	defer timer.Stop()
	select {
	case <-timer.C:
		return err
	case <-ctx.Done():
		if !f.ignoresCancel {
			f.mu.Lock()
			f.freeAt = time.Now()
			f.mu.Unlock()
		}
		return &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultContext, Err: status.FromContextError(ctx.Err()).Err()}
	}
}

func (f *fakeConn) statement(ctx context.Context, sql string, tx backend.TxID) error {
	var work time.Duration
	if i := strings.Index(sql, "SLOW "); i >= 0 {
		d, err := time.ParseDuration(strings.Fields(sql[i:])[1])
		if err != nil {
			panic(err)
		}
		work = d
	}
	text := sql
	if tx != "" {
		text = string(tx) + ": " + sql
	}
	if err := f.use(ctx, text, work); err != nil {
		return err
	}
	if strings.HasPrefix(sql, "BAD") || strings.Contains(sql, "bad") {
		return sqlError("Parser Error: bad statement")
	}
	return f.fail[sql]
}

func (f *fakeConn) Query(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	call.Op.SetName(sql)
	if call.Progress != nil {
		call.Progress(0.5, true)
	}
	if err := f.statement(ctx, sql, call.Tx); err != nil {
		return nil, err
	}
	n := 1
	_, _ = fmt.Sscanf(sql, "SELECT %d", &n)
	f.mu.Lock()
	f.streams++
	f.mu.Unlock()
	s := &fakeStream{f: f, ctx: ctx, left: n}
	if _, text, ok := strings.Cut(sql, "'"); ok {
		s.text = strings.TrimSuffix(text, "'")
	}
	return s, nil
}

func (f *fakeConn) Update(ctx context.Context, sql string, call backend.Call) (int64, error) {
	return 1, f.statement(ctx, sql, call.Tx)
}

func (f *fakeConn) Prepare(ctx context.Context, sql string, _ backend.Call) (backend.Prepared, error) {
	if err := f.use(ctx, "Prepare", 0); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handleNo++
	if f.handles == nil {
		f.handles = make(map[int]bool)
	}
	f.handles[f.handleNo] = true
	p := &fakePrepared{f: f, sql: sql, no: f.handleNo}
	if f.prepared != nil {
		return f.prepared(p), nil
	}
	return p, nil
}

func (f *fakeConn) Ingest(ctx context.Context, rows array.RecordReader, opts backend.IngestOptions, call backend.Call) (int64, error) {
	n := int64(0)
	for rows.Next() {
		n += rows.RecordBatch().NumRows()
	}
	return n, f.use(ctx, string(call.Tx)+" ingest "+opts.Table, 0)
}

func (f *fakeConn) Metadata(ctx context.Context, req backend.MetadataRequest, _ backend.Call) (backend.Stream, error) {
	if err := f.use(ctx, "Metadata", 0); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.streams++
	f.mu.Unlock()
	return &fakeStream{f: f, ctx: ctx, left: 1}, nil
}

func (f *fakeConn) Begin(ctx context.Context) (backend.TxID, error) {
	if err := f.use(ctx, "Begin", 0); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.txCount++
	f.tx = backend.TxID(fmt.Sprintf("tx%d", f.txCount))
	return f.tx, nil
}

func (f *fakeConn) EndTx(ctx context.Context, tx backend.TxID, commit bool) error {
	call := "Rollback"
	if commit {
		call = "Commit"
	}
	work := time.Duration(0)
	if f.fail["slow "+call] != nil {
		work = time.Second
	}
	if err := f.use(ctx, call, work); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if tx != f.tx && !f.forgives {
		return &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.NotFound, "no such transaction")}
	}
	f.tx = ""
	return nil
}

func (f *fakeConn) Savepoint(ctx context.Context, _ backend.TxID, name string) (backend.SavepointID, error) {
	return backend.SavepointID("sp-" + name), f.use(ctx, "Savepoint "+name, 0)
}

func (f *fakeConn) EndSavepoint(ctx context.Context, sp backend.SavepointID, end backend.SavepointEnd) error {
	return f.use(ctx, fmt.Sprintf("EndSavepoint %s %d", sp, end), 0)
}

func (f *fakeConn) SetOptions(ctx context.Context, opts map[string]any) error {
	if err := f.use(ctx, "SetOptions", 0); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, v := range opts {
		if f.options == nil {
			f.options = make(map[string]any)
		}
		f.options[k] = v
		if v == nil {
			delete(f.options, k)
		}
	}
	return nil
}

func (f *fakeConn) Options(ctx context.Context) (map[string]any, error) {
	err := f.use(ctx, "Options", 0)
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]any{}
	for k, v := range f.options {
		out[k] = v
	}
	return out, err
}

func (f *fakeConn) Ping(ctx context.Context) error { return f.use(ctx, "Ping", 0) }

func (f *fakeConn) RejectsUnknownTx(context.Context) (bool, error) { return !f.forgives, nil }

func (f *fakeConn) CancelSteps(op *backend.Operation) []cancel.Step {
	if f.steps == nil {
		return nil
	}
	return f.steps(op)
}

func (f *fakeConn) Lost() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

func (f *fakeConn) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
	return nil
}

// replaceSession is what a server does that forgets an idle session.
func (f *fakeConn) replaceSession() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tx, f.handles = "", nil
}

func (f *fakeConn) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = errors.New("cut")
}

type fakeStream struct {
	f      *fakeConn
	ctx    context.Context
	left   int
	text   string // what every row holds, instead of a number
	closed bool
	last   arrow.RecordBatch // what Next gave, until the next one
}

var fakeSchema = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)

var fakeTextSchema = arrow.NewSchema([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String}}, nil)

func (s *fakeStream) Schema() *arrow.Schema { return fakeSchema }

func (s *fakeStream) Next() (arrow.RecordBatch, error) {
	ended := s.ctx.Err()
	if pace := s.f.pace; pace > 0 {
		select {
		case <-time.After(pace):
		case <-s.ctx.Done():
		}
	}
	if !s.f.deaf {
		ended = s.ctx.Err()
	}
	if err := ended; err != nil {
		return nil, &backend.Error{Stage: backend.StageFetch, Fault: backend.FaultContext, Err: status.FromContextError(err).Err()}
	}
	if s.f.fail["stream"] != nil && s.left == 1 {
		return nil, s.f.fail["stream"]
	}
	if s.left == 0 {
		return nil, io.EOF
	}
	s.left--
	if s.text != "" {
		if s.f.late != nil {
			s.f.late()
		}
		b := array.NewStringBuilder(s.f.allocator())
		defer b.Release()
		b.Append(s.text)
		return s.give(fakeTextSchema, b.NewArray()), nil
	}
	b := array.NewInt64Builder(s.f.allocator())
	defer b.Release()
	b.Append(int64(s.left) + s.f.value)
	return s.give(fakeSchema, b.NewArray()), nil
}

func (f *fakeConn) allocator() memory.Allocator {
	if f.mem == nil {
		return memory.DefaultAllocator
	}
	return f.mem
}

// give makes a batch that is valid until the next.
func (s *fakeStream) give(schema *arrow.Schema, column arrow.Array) arrow.RecordBatch {
	defer column.Release()
	s.drop()
	s.last = array.NewRecordBatch(schema, []arrow.Array{column}, 1)
	return s.last
}

func (s *fakeStream) drop() {
	if s.last != nil {
		s.last.Release()
		s.last = nil
	}
}

func (s *fakeStream) RowsAffected() (int64, bool) { return 0, false }

func (s *fakeStream) Close() {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.drop()
		s.f.streams--
	}
}

type fakePrepared struct {
	f   *fakeConn
	sql string
	no  int
}

func (p *fakePrepared) alive() error {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if !p.f.handles[p.no] {
		return &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.InvalidArgument, "unknown prepared statement")}
	}
	return nil
}

// noteParams records what a statement was executed with.
func (f *fakeConn) noteParams(params arrow.RecordBatch) {
	text := "none"
	if params != nil {
		json, _ := params.MarshalJSON()
		text = string(json)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.params = append(f.params, text)
}

// executedWith is what noteParams has recorded.
func (f *fakeConn) executedWith() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.params)
}

func (p *fakePrepared) ParameterSchema() *arrow.Schema { return nil }

func (p *fakePrepared) Query(ctx context.Context, params arrow.RecordBatch, call backend.Call) (backend.Stream, error) {
	p.f.noteParams(params)
	if err := p.alive(); err != nil {
		return nil, err
	}
	p.f.mu.Lock()
	reused := p.f.reused
	p.f.mu.Unlock()
	if reused != "" {
		return p.f.Query(ctx, reused, call)
	}
	return p.f.Query(ctx, p.sql, call)
}

func (p *fakePrepared) Update(ctx context.Context, params arrow.RecordBatch, call backend.Call) (int64, error) {
	if err := p.alive(); err != nil {
		return 0, err
	}
	p.f.noteParams(params)
	err := p.f.statement(ctx, p.sql, call.Tx)
	if p.f.useParams != nil {
		p.f.useParams()
	}
	if params == nil {
		return 1, err
	}
	return params.NumRows(), err
}

func (p *fakePrepared) Close(ctx context.Context) error {
	if err := p.alive(); err != nil {
		return err
	}
	if err := p.f.use(ctx, "ClosePrepared", 0); err != nil {
		return err
	}
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	delete(p.f.handles, p.no)
	return nil
}

// rig is a handle on a fake connection, and what became of the connection.
type rig struct {
	t       *testing.T
	conn    *fakeConn
	policy  *Policy
	handle  *SessionHandle
	returns []error
	reports []cancel.Report
	mu      sync.Mutex
}

func newRig(t *testing.T, conn *fakeConn) *rig {
	r := &rig{t: t, conn: conn, policy: &Policy{Target: "fake:1", OwnerContext: t.Context()}}
	r.policy.Observe.Cancelled = func(_ string, rep cancel.Report) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reports = append(r.reports, rep)
	}
	r.handle = New(conn, r.policy, r.returned)
	return r
}

// change runs a statement that may change something and has the rows of sql.
func (r *rig) change(ctx context.Context, sql string) *QueryResult {
	r.t.Helper()
	c, err := r.handle.begin(ctx, "Query", QueryOptions{}, cancelWhenLeft)
	must(r.t, err)
	must(r.t, r.handle.checkStatement(c, sqlscan.Parse("DELETE FROM t RETURNING 1")))
	res, err := r.handle.openResult(c, func(ctx context.Context) (backend.Stream, error) { return r.conn.Query(ctx, sql, c.backendCall) })
	must(r.t, err)
	return res
}

func (r *rig) returned(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.returns = append(r.returns, err)
}

func (r *rig) stateless() *SessionHandle { return NewStateless(r.conn, r.policy, r.returned) }

// reused checks that the connection came back once, for reuse.
func (r *rig) reused() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Equal(r.t, []error{nil}, r.returns)
}

// discarded checks that the connection came back once, for discarding.
func (r *rig) discarded() error {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Len(r.t, r.returns, 1)
	require.Error(r.t, r.returns[0])
	return r.returns[0]
}

// held checks that the connection has not come back yet.
func (r *rig) held(why ...any) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Empty(r.t, r.returns, why...)
}

// chains are the reports of the cancel chains so far.
func (r *rig) chains() []cancel.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]cancel.Report(nil), r.reports...)
}

// left is what the server holds of the session.
func (f *fakeConn) left() (tx backend.TxID, handles, streams, options int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tx, len(f.handles), f.streams, len(f.options)
}

// clean checks that the server holds nothing.
func (r *rig) clean(why ...any) {
	r.t.Helper()
	tx, handles, streams, options := r.conn.left()
	require.Equal(r.t, []any{backend.TxID(""), 0, 0, 0}, []any{tx, handles, streams, options}, why...)
}

// scriptConn is a fakeConn that answers the query "SELECT SCRIPT", and catalogue
// calls, with the rows of its script.
type scriptConn struct {
	*fakeConn
	script func(ctx context.Context, call backend.Call) *scriptStream
}

func (c *scriptConn) Query(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	if sql != "SELECT SCRIPT" {
		return c.fakeConn.Query(ctx, sql, call)
	}
	return c.script(ctx, call), nil
}

func (c *scriptConn) Metadata(ctx context.Context, _ backend.MetadataRequest, call backend.Call) (backend.Stream, error) {
	return c.script(ctx, call), nil
}

// scriptStream is a stream whose n-th answer, from 1, is made by next, and which
// notes how it is used.
type scriptStream struct {
	next     func(n int) (arrow.RecordBatch, error)
	schema   func()
	asked    int
	affected int64
	closed   func()
	last     arrow.RecordBatch
	inside   atomic.Int32
	beside   atomic.Bool // two goroutines were inside at a time
}

func (s *scriptStream) Schema() *arrow.Schema {
	if s.schema != nil {
		s.schema()
	}
	return fakeSchema
}

func (s *scriptStream) Next() (arrow.RecordBatch, error) {
	if s.inside.Add(1) > 1 {
		s.beside.Store(true)
	}
	defer s.inside.Add(-1)
	if s.last != nil {
		s.last.Release()
		s.last = nil
	}
	s.asked++
	batch, err := s.next(s.asked)
	s.last = batch
	return batch, err
}

func (s *scriptStream) RowsAffected() (int64, bool) { return s.affected, s.affected > 0 }

func (s *scriptStream) Close() {
	if s.last != nil {
		s.last.Release()
		s.last = nil
	}
	if s.closed != nil {
		s.closed()
	}
}

// numbers is a batch of n numbers, which are 8 n bytes.
func numbers(n int) arrow.RecordBatch {
	data := array.NewData(arrow.PrimitiveTypes.Int64, n, []*memory.Buffer{nil, memory.NewBufferBytes(make([]byte, 8*n))}, nil, 0, 0)
	defer data.Release()
	column := array.NewInt64Data(data)
	defer column.Release()
	return array.NewRecordBatch(fakeSchema, []arrow.Array{column}, int64(n))
}
