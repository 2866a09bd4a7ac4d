package session

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/internal/ctxvalues"
	"github.com/flightpool/flightpool/internal/printing"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// A QueryTracer sees every call, but those of Ingest, once: of a pool from before its
// wait for a connection and with its repetition, of a session when it begins, also where
// the session refuses it. A call with a result ends with that.
//
// The RPCs of the call, and its cancel, run on a context with the values of the one that
// TraceQueryStart returns; metadata.AppendToOutgoingContext and interceptors find them.
// The end of that context does not count.
//
// The methods of a tracer are called from many goroutines at a time: that of the caller,
// or one of the pool's if the caller has left. They should be quick. A call ends for the
// tracer when its connection is free again, or being cancelled, or when its caller has
// left it. What a panic or runtime.Goexit in a tracer costs, Hooks of the pool say.
type QueryTracer interface {
	TraceQueryStart(ctx context.Context, data QueryStartData) context.Context
	TraceQueryEnd(ctx context.Context, data QueryEndData)
}

// An IngestTracer sees every call of Ingest once.
type IngestTracer interface {
	TraceIngestStart(ctx context.Context, data IngestStartData) context.Context
	TraceIngestEnd(ctx context.Context, data IngestEndData)
}

// A CancelTracer sees every cancel of a call whose server may be at work still. It begins with
// the end of the call, before or after that is told, on a context with the values of the call's.
type CancelTracer interface {
	TraceCancelStart(ctx context.Context, data CancelStartData) context.Context
	TraceCancelEnd(ctx context.Context, data CancelEndData)
}

// QueryStartData is a call that begins. It prints itself without values of its text.
type QueryStartData struct {
	Op     string // the method, such as "Query", "Commit" or "PreparedQuery.Update"
	Target string // the server's address
	SQL    string // empty where the call has none

	// ConnectionID is that of the session's connection; 0 for a call of a pool, which has
	// none yet: an AcquireTracer is told of it.
	ConnectionID uint64
}

// Summary has the verbs of SQL and the names of tables that are not quoted, and no
// literals: "SELECT flights airports".
func (d QueryStartData) Summary() string { return sqlscan.Summary(d.SQL) }

// IngestStartData is an ingestion that begins.
type IngestStartData struct {
	Target, Table string
	ConnectionID  uint64 // as in QueryStartData
}

// Outcome is what came of a call.
type Outcome struct {
	Took       time.Duration // from start to end
	Wait       time.Duration // of it, the wait for a connection; of pools only
	FirstBatch time.Duration // until the first batch was there, or the end of a result without one; 0: neither

	Batches, Rows, Bytes int64 // that the result's reader was given
	RowsAffected         int64 // -1: not known
	Retries              int   // repetitions by the pool

	// Err is what the caller was told: nil, or an error that wraps an *Error, of which
	// Fault, Stage and SafeToRetry say more. Its text may repeat values of the statement.
	// Where a panic or runtime.Goexit has ended the call, no *Error need be in it.
	Err error
}

// QueryEndData is a call that has ended.
type QueryEndData struct {
	QueryStartData
	Outcome
}

// IngestEndData is an ingestion that has ended.
type IngestEndData struct {
	IngestStartData
	Outcome
}

// CancelStartData is the cancel of a call.
type CancelStartData struct{ Op, Target string }

// CancelEndData is what the cancel has come to; Report.Safe says whether the connection
// is used again.
type CancelEndData struct {
	CancelStartData
	Report cancel.Report
}

// String has the call and the summary of its text.
func (d QueryStartData) String() string { return d.Op + " " + d.Target + " " + d.Summary() }

// Format prints String under every verb.
func (d QueryStartData) Format(f fmt.State, _ rune) { printing.Format(f, d.String()) }

// LogValue is String, for slog.
func (d QueryStartData) LogValue() slog.Value { return slog.StringValue(d.String()) }

// MarshalJSON gives String.
func (d QueryStartData) MarshalJSON() ([]byte, error) { return printing.JSON(d.String()) }

// Tracer is what the calls of a Policy's sessions are told to. The contexts that it
// returns end as those that it is given.
type Tracer interface {
	QueryTracer
	IngestTracer
	BatchTracer
	CancelTracer
}

// A Trace is one call as a Tracer sees it. Whoever has begun it ends it. The methods of
// nil, the Trace without a Tracer, do nothing.
//
// What ended does not guard belongs to the goroutine that runs the call; what a result
// counts is guarded by its lock, and is not written when the result has ended.
type Trace struct {
	tracer  Tracer
	ctx     context.Context //nolint:containedctx // the end is told on it
	began   time.Time
	data    QueryStartData // of an ingestion, SQL is the table
	outcome Outcome
	ended   atomic.Bool
}

const opIngest = "Ingest"

// StartTrace tells tracer, which may be nil, of a call that begins. text is its statement,
// or the table of an ingestion.
func StartTrace(ctx context.Context, tracer Tracer, op, target, text string) (context.Context, *Trace) {
	return newTrace(ctx, tracer, QueryStartData{Op: op, Target: target, SQL: text})
}

func newTrace(ctx context.Context, tracer Tracer, data QueryStartData) (context.Context, *Trace) {
	if tracer == nil {
		return ctx, nil
	}
	t := &Trace{tracer: tracer, began: time.Now(), data: data, outcome: Outcome{RowsAffected: -1}}
	if data.Op == opIngest {
		t.ctx = tracer.TraceIngestStart(ctx, t.ingestion())
	} else {
		t.ctx = tracer.TraceQueryStart(ctx, t.data)
	}
	return t.ctx, t
}

// ingestion is data of a call of Ingest.
func (t *Trace) ingestion() IngestStartData {
	return IngestStartData{t.data.Target, t.data.SQL, t.data.ConnectionID}
}

// End tells of the end of the call, in err. Only the first End counts.
func (t *Trace) End(err error) {
	if t == nil || t.ended.Swap(true) {
		return
	}
	out := t.outcome
	out.Took, out.Err = time.Since(t.began), err
	if t.data.Op == opIngest {
		t.tracer.TraceIngestEnd(t.ctx, IngestEndData{t.ingestion(), out})
	} else {
		t.tracer.TraceQueryEnd(t.ctx, QueryEndData{t.data, out})
	}
}

// Now is the time; without a trace nobody asks for it.
func (t *Trace) Now() (now time.Time) {
	if t != nil {
		now = time.Now()
	}
	return now
}

// Waited counts a wait for a connection that has begun then.
func (t *Trace) Waited(began time.Time) {
	if t != nil {
		t.outcome.Wait += time.Since(began)
	}
}

// Retried counts a repetition.
func (t *Trace) Retried() {
	if t != nil {
		t.outcome.Retries++
	}
}

// startTrace is the trace of a call of the handle: that of its pool, or a new one. What is
// quiet and finds the session over is no call.
func (s *SessionHandle) startTrace(ctx context.Context, op string, opts QueryOptions) (context.Context, *Trace) {
	if s.trace != nil || s.policy.Tracer == nil || opts.backgroundRollback || opts.quiet && s.isOver() {
		return ctx, s.trace
	}
	return newTrace(ctx, s.policy.Tracer, QueryStartData{Op: op, Target: s.policy.Target, SQL: opts.text, ConnectionID: s.id})
}

func (s *SessionHandle) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.closing || s.mu.state == closed || s.mu.state == cleaning || s.mu.lost != nil
}

// endTrace ends the trace of the call with what the caller was told. It was ended before
// where the caller has left without a result (see tellLeaver), and is ended by the pool
// where it got an error: it may make the call again.
func (c *call) endTrace(o outcome, e *backend.Error) {
	if c.trace == nil {
		return
	}
	r := c.attachedResult()
	switch {
	case r == nil && (c.failureReported || e != nil && c.s.trace != nil):
	case r != nil && (e == nil || o.interruptedBy == errReleasedEarly): //nolint:errorlint // as in Err
		c.trace.End(r.Err())
	case e != nil && (!c.quiet || !e.Unsent):
		c.trace.End(e)
	default:
		c.trace.End(c.answer)
	}
}

func (c *call) attachedResult() *QueryResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.result
}

// tellLeaver is the error of a caller who leaves the call, whose end nobody waits for.
func (c *call) tellLeaver() (e *backend.Error) {
	e = &backend.Error{Op: c.op, Stage: backend.StageExecute, Fault: backend.FaultContext, Err: errCallbackExited}
	defer func() {
		if c.s.trace == nil {
			c.trace.End(e)
		}
	}()
	return c.callerLeftError()
}

// countOutcome is the toOutcome of steps that tell how many rows they have touched.
func (c *call) countOutcome(n int64, inTime bool, err error) outcome {
	c.trace.affected(n, inTime && err == nil)
	return outcome{err: err}
}

// answered notes that the first batch of a result is there, or its end.
func (t *Trace) answered() {
	if t != nil {
		t.outcome.FirstBatch = time.Since(t.began)
	}
}

// affected notes how many rows a change has touched.
func (t *Trace) affected(n int64, known bool) {
	if t != nil && known {
		t.outcome.RowsAffected = n
	}
}

// delivered counts a batch that the reader is given. The result's lock is held.
func (t *Trace) delivered(batch arrow.RecordBatch) {
	if t != nil {
		t.outcome.Batches++
		t.outcome.Rows += batch.NumRows()
		t.outcome.Bytes += sizeOf(batch)
	}
}

// runTraced runs the chain of a cancel, and then whatever makes the session free. The caller may be gone by
// then, and its context another request's.
func (s *SessionHandle) runTraced(c *call, chain func(ctx context.Context) cancel.Report) {
	ctx, t := s.policy.OwnerContext, s.policy.Tracer
	if t == nil {
		chain(ctx)
		return
	}
	end := CancelEndData{CancelStartData: CancelStartData{c.op, s.policy.Target}}
	ctx = t.TraceCancelStart(ctxvalues.From(ctx, &valuesBehind{Context: c.ctx, wait: s.policy.grace()}), end.CancelStartData)
	defer func() { t.TraceCancelEnd(ctx, end) }()
	end.Report = chain(ctx)
}
