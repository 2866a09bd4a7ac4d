package poolz

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
)

// A watcher is the tracer of one pool, of a registry that of a user on a server.
type watcher struct {
	page       *Page
	name, user string
}

// latestUses are what is known of connections, of whichever pool. Callers wait for the lock:
// what is done with many connections is done with each under a hold of its own.
type latestUses struct {
	mu   sync.Mutex
	byID map[uint64]*borrowing
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
	User       string    `json:"user,omitempty"`
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

// Of texts no more is kept than maxText, and of connections no more than maxLatest.
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
		statement = w.page.summaries.of(d)
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
		w.page.latest.set(connection, func(b *borrowing) { b.call = c })
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
	latest := &w.page.latest
	latest.set(d.ConnectionID, func(b *borrowing) { b.borrower, b.call = d.Op, cmp.Or(c, b.call) })
	if name := w.page.cfg.Borrower; name != nil { // after that: it may panic, and the one before has left
		borrower := cut(name(ctx))
		latest.set(d.ConnectionID, func(b *borrowing) { b.borrower = cmp.Or(borrower, d.Op) })
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
	p, now, what := w.page, time.Now(), "a call failed"
	if w.user != "" {
		what = "a call of " + w.user + " failed"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if isGrave {
		p.addEvent(event{At: now, Source: w.name, Text: joinText(what, failure), Grave: true, Count: 1})
	}
	if isSlow {
		p.mu.slow.add(slowCall{
			At: now, Source: w.name, User: w.user, Op: c.op, Statement: c.statement, Took: seconds(o.Took.Seconds()), Wait: seconds(o.Wait.Seconds()), FirstBatch: seconds(o.FirstBatch.Seconds()),
			Rows: o.Rows, Bytes: o.Bytes, Retries: o.Retries, Error: failure,
		})
	}
}

// set changes what is known of a connection.
func (l *latestUses) set(connection uint64, change func(*borrowing)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.byID[connection]
	if b == nil {
		if len(l.byID) >= maxLatest {
			clear(l.byID)
		}
		b = &borrowing{}
		l.byID[connection] = b
	}
	change(b)
}

// of is what is known of a connection.
func (l *latestUses) of(connection uint64) (known borrowing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.byID[connection]; b != nil {
		known = *b
	}
	return known
}

// forgetClosed forgets connections that are not open, once those that are known are more than
// twice the open ones, of which there are total.
//
// INVARIANT: open is asked after known was read: a connection that is opened and lent meanwhile
// is not taken for one that is closed.
func (l *latestUses) forgetClosed(total int, open func() map[uint64]bool) {
	known := l.moreThan(2*total + 64)
	if known == nil {
		return
	}
	isOpen := open()
	for _, id := range known {
		if !isOpen[id] {
			l.forget(id)
		}
	}
}

// moreThan are the connections that are known; nil: they are no more than n.
func (l *latestUses) moreThan(n int) []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.byID) <= n {
		return nil
	}
	return slices.Collect(maps.Keys(l.byID))
}

func (l *latestUses) forget(connection uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byID, connection)
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
