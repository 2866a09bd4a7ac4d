package flightpool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxvalues"
	"github.com/flightpool/flightpool/internal/tracers"
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
	known := tracers.AppendIf(&t.queries, tracer)
	known = tracers.AppendIf(&t.ingests, tracer) || known
	known = tracers.AppendIf(&t.batches, tracer) || known
	known = tracers.AppendIf(&t.cancels, tracer) || known
	known = tracers.AppendIf(&t.connects, tracer) || known
	known = tracers.AppendIf(&t.acquires, tracer) || known
	known = tracers.AppendIf(&t.releases, tracer) || known
	if !known {
		return fmt.Errorf("%T implements none of QueryTracer, IngestTracer, BatchTracer, CancelTracer, ConnectTracer, AcquireTracer and ReleaseTracer", tracer)
	}
	return nil
}

// tracerWait is how long what runs in the background waits for a tracer, with a
// connection that others may need.
const tracerWait = 100 * time.Millisecond

// A startedKey is the key of what startInBackground has begun.
type startedKey struct{}

// startInBackground is tracers.Start where no caller waits: without the values of tracers that do
// not return in time. Each has a goroutine of its own, which it may end.
func startInBackground[T any](ctx context.Context, t *tracing, all []T, start func(T, context.Context) context.Context) context.Context {
	if len(all) == 0 {
		return ctx
	}
	call := callback.Go(func() (context.Context, error) {
		return tracers.Start(ctx, t.failed, all, func(tracer T, ctx context.Context) context.Context {
			return tracers.Isolated(t.failed, func() context.Context { return start(tracer, ctx) })
		}), nil
	})
	if callback.EndsWithin(call.Done, tracerWait) {
		ctx = ctxvalues.From(ctx, call.Value)
	} else {
		t.failed(errTracerSlow)
	}
	return context.WithValue(ctx, startedKey{}, call)
}

// endInBackground is tracers.End where no caller waits. Nobody is told of an end before all have
// returned from the start that ctx is of.
func endInBackground[T any](ctx context.Context, t *tracing, all []T, end func(T, context.Context)) {
	if len(all) == 0 {
		return
	}
	call, _ := ctx.Value(startedKey{}).(*callback.Call[context.Context])
	if call == nil {
		return
	}
	telling := callback.Go(callback.NoValue(func() error {
		<-call.Done
		ctx := ctxvalues.From(ctx, call.Value)
		tracers.End(t.failed, all, func(tracer T) { tracers.Isolated(t.failed, func() struct{} { end(tracer, ctx); return struct{}{} }) })
		return nil
	}))
	if !callback.EndsWithin(telling.Done, tracerWait) {
		t.failed(errTracerSlow)
	}
}

var errTracerSlow = errors.New("a tracer does not return in time")

func (t *tracing) TraceQueryStart(ctx context.Context, data QueryStartData) context.Context {
	return tracers.Start(ctx, t.failed, t.queries, func(q QueryTracer, ctx context.Context) context.Context { return q.TraceQueryStart(ctx, data) })
}

func (t *tracing) TraceQueryEnd(ctx context.Context, data QueryEndData) {
	tracers.End(t.failed, t.queries, func(q QueryTracer) { q.TraceQueryEnd(ctx, data) })
}

func (t *tracing) TraceIngestStart(ctx context.Context, data IngestStartData) context.Context {
	return tracers.Start(ctx, t.failed, t.ingests, func(i IngestTracer, ctx context.Context) context.Context { return i.TraceIngestStart(ctx, data) })
}

func (t *tracing) TraceIngestEnd(ctx context.Context, data IngestEndData) {
	tracers.End(t.failed, t.ingests, func(i IngestTracer) { i.TraceIngestEnd(ctx, data) })
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
	ctx = tracers.Start(ctx, t.failed, t.acquires, func(a AcquireTracer, ctx context.Context) context.Context {
		return a.TraceAcquireStart(ctx, end.AcquireStartData)
	})
	return ctx, func(connectionID uint64, err error) {
		end.Took, end.Err = time.Since(began), err
		if err == nil {
			end.ConnectionID = connectionID
		}
		tracers.End(t.failed, t.acquires, func(a AcquireTracer) { a.TraceAcquireEnd(ctx, end) })
	}
}

// onRelease has give, which gives a connection back, tell of it.
func (t *tracing) onRelease(ctx context.Context, target string, connectionID uint64, give func(discard error)) func(discard error) {
	if t == nil || len(t.releases) == 0 {
		return give
	}
	acquired := time.Now()
	return func(discard error) {
		defer tracers.End(t.failed, t.releases, func(r ReleaseTracer) {
			r.TraceRelease(ctx, ReleaseData{target, connectionID, time.Since(acquired), discard})
		})
		give(discard)
	}
}
