package registry

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/tracers"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// sqlTracing tells the tracers of a user's pool on a server of database/sql what its
// borrowers do; nil: there are none. A tracer has a goroutine of its own, since database/sql
// holds a lock while it makes a call: one that ends its goroutine would keep that.
type sqlTracing struct {
	target   string
	queries  []flightpool.QueryTracer
	acquires []flightpool.AcquireTracer
	releases []flightpool.ReleaseTracer
	failed   func(error)
}

// tracer is that of the user's pool; nil: there is none.
func (u *userPool) tracer() any {
	if of := u.server.registry.cfg.Tracer; of != nil {
		return of(u.server.name, u.name)
	}
	return nil
}

func (u *userPool) newSQLTracing(p ConnectParams) (*sqlTracing, error) {
	tracer := u.tracer()
	if tracer == nil {
		return nil, nil //nolint:nilnil // a nil one tells nobody
	}
	t := &sqlTracing{target: cmp.Or(p.address(), u.server.name), failed: u.logTracerFailure}
	return t, t.add(tracer)
}

// add sorts a tracer, or several, by what they implement.
func (t *sqlTracing) add(tracer any) error {
	if all, ok := tracer.(flightpool.Tracers); ok {
		for _, each := range all {
			if err := t.add(each); err != nil {
				return err
			}
		}
		return nil
	}
	known := tracers.AppendIf(&t.queries, tracer)
	known = tracers.AppendIf(&t.acquires, tracer) || known
	known = tracers.AppendIf(&t.releases, tracer) || known
	if !known && !isTracer(tracer) {
		return fmt.Errorf("registry: Config.Tracer: %T implements no tracer of package flightpool", tracer)
	}
	return nil
}

// isTracer reports whether a tracer sees what servers of database/sql do not have.
func isTracer(tracer any) bool {
	switch tracer.(type) {
	case flightpool.IngestTracer, flightpool.BatchTracer, flightpool.CancelTracer, flightpool.ConnectTracer:
		return true
	}
	return false
}

// address is that of the server, where its options have it.
func (p *ConnectParams) address() string {
	if p.Options["host"] == "" || p.Options["port"] == "" {
		return ""
	}
	return net.JoinHostPort(p.Options["host"], p.Options["port"])
}

// acquire tells of a call for a connection. The functions tell of its end, and of the
// connection's return.
func (t *sqlTracing) acquire(ctx context.Context) (ended func(connectionID uint64, err error), released func(discard error)) {
	if t == nil {
		return func(uint64, error) {}, func(error) {}
	}
	end := flightpool.AcquireEndData{AcquireStartData: flightpool.AcquireStartData{Op: "Acquire", Target: t.target}}
	began := time.Now()
	within := start(ctx, t, t.acquires, func(a flightpool.AcquireTracer, ctx context.Context) context.Context {
		return a.TraceAcquireStart(ctx, end.AcquireStartData)
	})
	var lent time.Time
	ended = func(connectionID uint64, err error) {
		lent = time.Now()
		end.ConnectionID, end.Took, end.Err = connectionID, lent.Sub(began), err
		tell(t, t.acquires, func(a flightpool.AcquireTracer) { a.TraceAcquireEnd(within, end) })
	}
	return ended, func(discard error) {
		data := flightpool.ReleaseData{Target: t.target, ConnectionID: end.ConnectionID, Held: time.Since(lent), Discard: discard}
		tell(t, t.releases, func(r flightpool.ReleaseTracer) { r.TraceRelease(ctx, data) })
	}
}

// calls tells of the calls on a connection.
func (t *sqlTracing) calls(connectionID uint64) sqlconn.Trace {
	if t == nil || len(t.queries) == 0 {
		return nil
	}
	return func(ctx context.Context, op, text string) (context.Context, func(sqlconn.Outcome)) {
		began := time.Now()
		end := flightpool.QueryEndData{QueryStartData: flightpool.QueryStartData{Op: op, Target: t.target, SQL: text, ConnectionID: connectionID}}
		ctx = start(ctx, t, t.queries, func(q flightpool.QueryTracer, ctx context.Context) context.Context {
			return q.TraceQueryStart(ctx, end.QueryStartData)
		})
		return ctx, func(o sqlconn.Outcome) {
			end.Outcome = flightpool.Outcome{Took: time.Since(began), FirstBatch: o.Answered, Rows: o.Rows, RowsAffected: o.RowsAffected, Err: t.failure(op, o.Err)}
			tell(t, t.queries, func(q flightpool.QueryTracer) { q.TraceQueryEnd(ctx, end) })
		}
	}
}

func start[T any](ctx context.Context, t *sqlTracing, all []T, start func(T, context.Context) context.Context) context.Context {
	return tracers.Start(ctx, t.failed, all, func(tracer T, ctx context.Context) context.Context {
		return tracers.Isolated(t.failed, func() context.Context { return start(tracer, ctx) })
	})
}

func tell[T any](t *sqlTracing, all []T, end func(T)) {
	tracers.End(t.failed, all, func(tracer T) {
		tracers.Isolated(t.failed, func() struct{} { end(tracer); return struct{}{} })
	})
}

// failure is the error of a driver as tracers know errors.
func (t *sqlTracing) failure(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &backend.Error{Op: op, Stage: backend.StageExecute, Fault: backend.FaultStatement, Target: t.target, Err: err}
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		e.SQLState = state.SQLState()
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Fault = backend.FaultContext
	case errors.Is(err, driver.ErrBadConn), sqlconn.Broken(err):
		e.Fault = backend.FaultTransport
	}
	return e
}

// logTracerFailure tells of a tracer that has panicked or ended its goroutine.
func (u *userPool) logTracerFailure(err error) {
	if log := u.server.registry.cfg.Logger; log != nil {
		log.Error("registry: a tracer has failed", "server", u.server.name, "user", u.name, "error", err)
	}
}
