package poolz

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
)

// A watcher is the tracer of one pool.
type watcher struct {
	page *Page
	name string

	mu     sync.Mutex
	latest map[uint64]*borrowing // by connection
}

// A borrowing is the latest that is known of a connection: who has borrowed it, and the
// latest call on it.
type borrowing struct {
	borrower string
	call     *call
}

// A call is one that runs or has ended.
type call struct {
	op, statement string
	began         time.Time
	took          atomic.Int64 // 0: it runs
}

// A slowCall is a call that took long.
type slowCall struct {
	At         time.Time `json:"at"` // its end
	Source     string    `json:"source"`
	Op         string    `json:"op"`
	Statement  string    `json:"statement"`
	Took       seconds   `json:"took"`
	Wait       seconds   `json:"wait"`
	FirstBatch seconds   `json:"first_batch"`
	Rows       int64     `json:"rows"`
	Bytes      int64     `json:"bytes"`
	Retries    int       `json:"retries"`
	Error      string    `json:"error,omitempty"`
}

type seconds float64

// Of the texts of statements no more is kept than maxText, and of connections of a pool that
// is not added no more than maxLatest.
const (
	maxText   = 4 << 10
	maxLatest = 20_000
)

type callKey struct{ *watcher }

// TraceQueryStart implements flightpool.QueryTracer.
func (w *watcher) TraceQueryStart(ctx context.Context, d flightpool.QueryStartData) context.Context {
	statement := ""
	switch {
	case w.page.cfg.Texts:
		statement = cut(d.SQL)
	case d.SQL != "":
		statement = d.Summary()
	}
	return w.start(ctx, d.ConnectionID, &call{op: d.Op, statement: statement})
}

// TraceIngestStart implements flightpool.IngestTracer.
func (w *watcher) TraceIngestStart(ctx context.Context, d flightpool.IngestStartData) context.Context {
	return w.start(ctx, d.ConnectionID, &call{op: "Ingest", statement: cut(d.Table)})
}

func (w *watcher) start(ctx context.Context, connection uint64, c *call) context.Context {
	c.began = time.Now()
	if connection != 0 {
		w.set(connection, func(b *borrowing) { b.call = c })
	}
	return context.WithValue(ctx, callKey{w}, c)
}

// TraceAcquireStart implements flightpool.AcquireTracer.
func (*watcher) TraceAcquireStart(ctx context.Context, _ flightpool.AcquireStartData) context.Context {
	return ctx
}

// TraceAcquireEnd implements flightpool.AcquireTracer.
func (w *watcher) TraceAcquireEnd(ctx context.Context, d flightpool.AcquireEndData) {
	if d.Err != nil {
		return
	}
	c, _ := ctx.Value(callKey{w}).(*call)
	if c != nil && c.took.Load() != 0 {
		c = nil // ctx is that of another call, which has ended
	}
	w.set(d.ConnectionID, func(b *borrowing) { b.borrower, b.call = d.Op, cmp.Or(c, b.call) })
	if name := w.page.cfg.Borrower; name != nil { // after that: it may panic, and the one before has left
		borrower := cut(name(ctx))
		w.set(d.ConnectionID, func(b *borrowing) { b.borrower = cmp.Or(borrower, d.Op) })
	}
}

// TraceQueryEnd implements flightpool.QueryTracer.
func (w *watcher) TraceQueryEnd(ctx context.Context, d flightpool.QueryEndData) {
	w.end(ctx, d.Outcome)
}

// TraceIngestEnd implements flightpool.IngestTracer.
func (w *watcher) TraceIngestEnd(ctx context.Context, d flightpool.IngestEndData) {
	w.end(ctx, d.Outcome)
}

// end notes a call that was slow, and one that failed for another reason than its caller's.
func (w *watcher) end(ctx context.Context, o flightpool.Outcome) {
	c, _ := ctx.Value(callKey{w}).(*call)
	if c == nil {
		return
	}
	c.took.Store(int64(max(1, o.Took)))
	slow := w.page.cfg.SlowerThan
	isSlow, isGrave := slow >= 0 && o.Took > slow, o.Err != nil && !isCallers(o.Err)
	if !isSlow && !isGrave {
		return
	}
	failure := describe(o.Err, w.page.cfg.Texts)
	p, now := w.page, time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if isGrave {
		p.addEvent(event{At: now, Source: w.name, Text: joinText("a call failed", failure), Grave: true, Count: 1})
	}
	if isSlow {
		p.mu.slow.add(slowCall{
			At: now, Source: w.name, Op: c.op, Statement: c.statement, Took: seconds(o.Took.Seconds()), Wait: seconds(o.Wait.Seconds()), FirstBatch: seconds(o.FirstBatch.Seconds()),
			Rows: o.Rows, Bytes: o.Bytes, Retries: o.Retries, Error: failure,
		})
	}
}

// set changes what is known of a connection.
func (w *watcher) set(connection uint64, change func(*borrowing)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.latest[connection]
	if b == nil {
		if len(w.latest) >= maxLatest {
			clear(w.latest)
		}
		b = &borrowing{}
		w.latest[connection] = b
	}
	change(b)
}

// of is what is known of some connections.
func (w *watcher) of(connections []flightpool.Connection) map[uint64]borrowing {
	known := make(map[uint64]borrowing, len(connections))
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range connections {
		if b := w.latest[c.ID]; b != nil {
			known[c.ID] = *b
		}
	}
	return known
}

// forgetClosed forgets connections that are closed, once they are more than those that
// are open, of which there are total.
func (w *watcher) forgetClosed(pool *flightpool.FlightSQLPool, total int) {
	w.mu.Lock()
	few := len(w.latest) <= 2*total+64
	w.mu.Unlock()
	if few {
		return
	}
	open := w.of(pool.Connections())
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.latest {
		if _, ok := open[id]; !ok {
			delete(w.latest, id)
		}
	}
}

// cut is a text, or its beginning.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(strings.Clone(text[:maxText]), "") + "…"
}

// isCallers says that a failure is what the caller has brought about.
func isCallers(err error) bool {
	switch backend.FaultIn(err) {
	case backend.FaultUsage, backend.FaultStatement, backend.FaultUnsupported, backend.FaultContext:
		return true
	default:
		return false
	}
}
