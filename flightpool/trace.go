package flightpool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxvalues"
	"github.com/flightpool/flightpool/session"
)

// What a tracer is told of calls; see package session.
type (
	// QueryTracer sees every call but those of Ingest.
	QueryTracer = session.QueryTracer
	// IngestTracer sees every call of Ingest.
	IngestTracer = session.IngestTracer
	// CancelTracer sees what stops the statement of a call that was cut short.
	CancelTracer = session.CancelTracer

	// QueryStartData is a call that begins.
	QueryStartData = session.QueryStartData
	// QueryEndData is a call that has ended.
	QueryEndData = session.QueryEndData
	// IngestStartData is an ingestion that begins.
	IngestStartData = session.IngestStartData
	// IngestEndData is an ingestion that has ended.
	IngestEndData = session.IngestEndData
	// CancelStartData is a cancel that begins.
	CancelStartData = session.CancelStartData
	// CancelEndData is a cancel that has ended.
	CancelEndData = session.CancelEndData
	// Outcome is what came of a call.
	Outcome = session.Outcome
)

// A ConnectTracer sees every connection being made, from the dial to the proof of its
// session. ctx has the values of that of New, not those of a caller.
type ConnectTracer interface {
	TraceConnectStart(ctx context.Context, data ConnectStartData) context.Context
	TraceConnectEnd(ctx context.Context, data ConnectEndData)
}

// An AcquireTracer sees every call for a connection: within a call of the pool, once for
// each attempt, or for a session or transaction.
type AcquireTracer interface {
	TraceAcquireStart(ctx context.Context, data AcquireStartData) context.Context
	TraceAcquireEnd(ctx context.Context, data AcquireEndData)
}

// A ReleaseTracer sees every connection that comes back. ctx has the values of the call
// that has acquired it.
type ReleaseTracer interface {
	TraceRelease(ctx context.Context, data ReleaseData)
}

// ConnectStartData is an open that begins.
type ConnectStartData struct{ Target string }

// ConnectEndData is an open that has ended.
type ConnectEndData struct {
	ConnectStartData
	Took time.Duration
	Err  error
}

// AcquireStartData is a call for a connection, on behalf of the method Op.
type AcquireStartData struct{ Op, Target string }

// AcquireEndData is what came of it.
type AcquireEndData struct {
	AcquireStartData
	ConnectionID uint64 // as Connections has it; 0: there is an error
	Took         time.Duration
	Err          error
}

// ReleaseData is a connection that came back.
type ReleaseData struct {
	Target       string
	ConnectionID uint64
	Held         time.Duration
	// Discard is why the connection is not used again; nil: it is.
	Discard error
}

// Tracers are several tracers in the place of one, for Config.Tracer. They are told of a
// start in their order, and of an end in the reverse.
type Tracers []any

// tracing calls the user's tracers: nobody waits for one in the background for long, and
// a panic in one is counted and has no other consequence.
type tracing struct {
	queries  []QueryTracer
	ingests  []IngestTracer
	batches  []BatchTracer
	cancels  []CancelTracer
	connects []ConnectTracer
	acquires []AcquireTracer
	releases []ReleaseTracer
	failed   func(error)
}

// add sorts a tracer, or several, by what they implement.
func (t *tracing) add(tracer any) error {
	if all, ok := tracer.(Tracers); ok {
		for _, each := range all {
			if err := t.add(each); err != nil {
				return err
			}
		}
		return nil
	}
	known := appendIf(&t.queries, tracer)
	known = appendIf(&t.ingests, tracer) || known
	known = appendIf(&t.batches, tracer) || known
	known = appendIf(&t.cancels, tracer) || known
	known = appendIf(&t.connects, tracer) || known
	known = appendIf(&t.acquires, tracer) || known
	known = appendIf(&t.releases, tracer) || known
	if !known {
		return fmt.Errorf("%T implements none of QueryTracer, IngestTracer, BatchTracer, CancelTracer, ConnectTracer, AcquireTracer and ReleaseTracer", tracer)
	}
	return nil
}

func appendIf[T any](list *[]T, tracer any) bool {
	t, ok := tracer.(T)
	if ok {
		*list = append(*list, t)
	}
	return ok
}

// startAll tells tracers of a start. The context that comes back has the values of those
// that they return, and the end of ctx.
func startAll[T any](ctx context.Context, t *tracing, tracers []T, start func(T, context.Context) context.Context) context.Context {
	values := ctx
	for _, tracer := range tracers {
		if told := guarded(t, func() context.Context { return start(tracer, values) }); told != nil {
			values = told //nolint:fatcontext // one for each tracer
		}
	}
	return ctxvalues.From(ctx, values)
}

// endAll tells tracers of an end, in the reverse of their order; also those behind one
// that ends the goroutine.
func endAll[T any](t *tracing, tracers []T, end func(T)) {
	for _, tracer := range tracers {
		defer guarded(t, func() struct{} { end(tracer); return struct{}{} }) // there are few
	}
}

// guarded is what f returns, or nothing if it panics.
func guarded[T any](t *tracing, f func() T) (v T) {
	callback.Guard(userCode, func() error { v = f(); return nil }, func(err error) {
		if err != nil {
			t.failed(err)
		}
	})
	return v
}

// tracerWait is how long what runs in the background waits for a tracer, with a
// connection that others may need.
const tracerWait = 100 * time.Millisecond

// A startedKey is the key of what startInBackground has begun.
type startedKey struct{}

// startInBackground is startAll where no caller waits: without the values of tracers that do
// not return in time. Each has a goroutine of its own, which it may end.
func startInBackground[T any](ctx context.Context, t *tracing, tracers []T, start func(T, context.Context) context.Context) context.Context {
	if len(tracers) == 0 {
		return ctx
	}
	call := callback.Go(func() (context.Context, error) {
		return startAll(ctx, t, tracers, func(tracer T, ctx context.Context) context.Context {
			return isolated(t, func() context.Context { return start(tracer, ctx) })
		}), nil
	})
	if callback.EndsWithin(call.Done, tracerWait) {
		ctx = ctxvalues.From(ctx, call.Value)
	} else {
		t.failed(errTracerSlow)
	}
	return context.WithValue(ctx, startedKey{}, call)
}

// endInBackground is endAll where no caller waits. Nobody is told of an end before all have
// returned from the start that ctx is of.
func endInBackground[T any](ctx context.Context, t *tracing, tracers []T, end func(T, context.Context)) {
	call, _ := ctx.Value(startedKey{}).(*callback.Call[context.Context])
	if call == nil {
		return
	}
	all := callback.Go(callback.NoValue(func() error {
		<-call.Done
		ctx := ctxvalues.From(ctx, call.Value)
		endAll(t, tracers, func(tracer T) { isolated(t, func() struct{} { end(tracer, ctx); return struct{}{} }) })
		return nil
	}))
	if !callback.EndsWithin(all.Done, tracerWait) {
		t.failed(errTracerSlow)
	}
}

// isolated is guarded on a goroutine of its own, which f may end.
func isolated[T any](t *tracing, f func() T) (v T) {
	if err := callback.Isolate(userCode, func() error { v = f(); return nil }); err != nil {
		t.failed(err)
	}
	return v
}

var errTracerSlow = errors.New("a tracer does not return in time")

func (t *tracing) TraceQueryStart(ctx context.Context, data QueryStartData) context.Context {
	return startAll(ctx, t, t.queries, func(q QueryTracer, ctx context.Context) context.Context { return q.TraceQueryStart(ctx, data) })
}

func (t *tracing) TraceQueryEnd(ctx context.Context, data QueryEndData) {
	endAll(t, t.queries, func(q QueryTracer) { q.TraceQueryEnd(ctx, data) })
}

func (t *tracing) TraceIngestStart(ctx context.Context, data IngestStartData) context.Context {
	return startAll(ctx, t, t.ingests, func(i IngestTracer, ctx context.Context) context.Context { return i.TraceIngestStart(ctx, data) })
}

func (t *tracing) TraceIngestEnd(ctx context.Context, data IngestEndData) {
	endAll(t, t.ingests, func(i IngestTracer) { i.TraceIngestEnd(ctx, data) })
}

func (t *tracing) TraceCancelStart(ctx context.Context, data CancelStartData) context.Context {
	return startInBackground(ctx, t, t.cancels, func(c CancelTracer, ctx context.Context) context.Context { return c.TraceCancelStart(ctx, data) })
}

func (t *tracing) TraceCancelEnd(ctx context.Context, data CancelEndData) {
	endInBackground(ctx, t, t.cancels, func(c CancelTracer, ctx context.Context) { c.TraceCancelEnd(ctx, data) })
}

// startConnect tells of an open. The function tells of its end.
func (t *tracing) startConnect(ctx context.Context, target string) (context.Context, func(error)) {
	if t == nil || len(t.connects) == 0 {
		return ctx, func(error) {}
	}
	end := ConnectEndData{ConnectStartData: ConnectStartData{target}}
	began := time.Now()
	ctx = startInBackground(ctx, t, t.connects, func(c ConnectTracer, ctx context.Context) context.Context {
		return c.TraceConnectStart(ctx, end.ConnectStartData)
	})
	return ctx, func(err error) {
		end.Took, end.Err = time.Since(began), err
		endInBackground(ctx, t, t.connects, func(c ConnectTracer, ctx context.Context) { c.TraceConnectEnd(ctx, end) })
	}
}

// startAcquire tells of a call for a connection. The function tells of its end.
func (t *tracing) startAcquire(ctx context.Context, op, target string) (context.Context, func(connectionID uint64, err error)) {
	if t == nil || len(t.acquires) == 0 {
		return ctx, func(uint64, error) {}
	}
	end := AcquireEndData{AcquireStartData: AcquireStartData{op, target}}
	began := time.Now()
	ctx = startAll(ctx, t, t.acquires, func(a AcquireTracer, ctx context.Context) context.Context {
		return a.TraceAcquireStart(ctx, end.AcquireStartData)
	})
	return ctx, func(connectionID uint64, err error) {
		end.Took, end.Err = time.Since(began), err
		if err == nil {
			end.ConnectionID = connectionID
		}
		endAll(t, t.acquires, func(a AcquireTracer) { a.TraceAcquireEnd(ctx, end) })
	}
}

// onRelease has give, which gives a connection back, tell of it.
func (t *tracing) onRelease(ctx context.Context, target string, connectionID uint64, give func(discard error)) func(discard error) {
	if t == nil || len(t.releases) == 0 {
		return give
	}
	acquired := time.Now()
	return func(discard error) {
		defer endAll(t, t.releases, func(r ReleaseTracer) {
			r.TraceRelease(ctx, ReleaseData{target, connectionID, time.Since(acquired), discard})
		})
		give(discard)
	}
}
