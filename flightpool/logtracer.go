package flightpool

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/flightpool/flightpool/backend"
)

// A LogTracer is a tracer that logs calls which take long, and with Failures those that
// fail: each with what it did, the wait, the time to the first batch, rows and bytes.
// A statement is logged as its summary, and an error as its fault, stage and SQLSTATE:
// the texts of both may hold values. A LogTracer must not be changed while a pool has it.
type LogTracer struct {
	Logger     *slog.Logger  // where to (slog.Default())
	SlowerThan time.Duration // log calls that take longer, at level Warn; negative: none (1 s)

	// Failures logs calls that fail: at level Info where the fault is the statement's, of
	// its arguments or of the caller's context, else, with the server's, the network's or
	// of a pool that has no connection to give, at level Error.
	Failures bool

	// Texts logs the texts of statements and errors too.
	Texts bool
}

const defaultSlowerThan = time.Second

// TraceQueryStart implements QueryTracer.
func (*LogTracer) TraceQueryStart(ctx context.Context, _ QueryStartData) context.Context { return ctx }

// TraceIngestStart implements IngestTracer.
func (*LogTracer) TraceIngestStart(ctx context.Context, _ IngestStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements QueryTracer.
func (l *LogTracer) TraceQueryEnd(ctx context.Context, d QueryEndData) {
	if level, message := l.judge(d.Outcome); message != "" && l.logger().Enabled(ctx, level) {
		statement := d.SQL
		if !l.Texts {
			statement = d.Summary()
		}
		l.log(ctx, level, message, d.Outcome, slog.String("op", d.Op), slog.String("target", d.Target), slog.String("statement", statement))
	}
}

// TraceIngestEnd implements IngestTracer.
func (l *LogTracer) TraceIngestEnd(ctx context.Context, d IngestEndData) {
	if level, message := l.judge(d.Outcome); message != "" && l.logger().Enabled(ctx, level) {
		l.log(ctx, level, message, d.Outcome, slog.String("op", "Ingest"), slog.String("target", d.Target), slog.String("table", d.Table))
	}
}

func (l *LogTracer) logger() *slog.Logger { return cmp.Or(l.Logger, slog.Default()) }

// judge says what to log of a call, and how; nothing: an empty message.
func (l *LogTracer) judge(o Outcome) (level slog.Level, message string) {
	slow := cmp.Or(l.SlowerThan, defaultSlowerThan)
	switch {
	case l.Failures && o.Err != nil:
		return failureLevel(o.Err), "flightpool: the call failed"
	case slow >= 0 && o.Took > slow:
		return slog.LevelWarn, "flightpool: slow call"
	default:
		return 0, ""
	}
}

// failureLevel is Info for what a caller brings about, and is told.
func failureLevel(err error) slog.Level {
	if errors.Is(err, ErrExhausted) || errors.Is(err, ErrUnhealthy) {
		return slog.LevelError
	}
	switch backend.FaultIn(err) {
	case backend.FaultUsage, backend.FaultStatement, backend.FaultUnsupported, backend.FaultContext:
		return slog.LevelInfo
	default:
		return slog.LevelError
	}
}

// log writes a call with what it has cost; what is zero is left out.
func (l *LogTracer) log(ctx context.Context, level slog.Level, message string, o Outcome, attrs ...slog.Attr) {
	attrs = append(attrs, slog.Duration("took", o.Took))
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"wait", o.Wait}, {"first_batch", o.FirstBatch}} {
		if d.d != 0 {
			attrs = append(attrs, slog.Duration(d.name, d.d))
		}
	}
	for _, n := range []struct {
		name string
		n    int64
	}{{"rows", o.Rows}, {"bytes", o.Bytes}, {"rows_affected", max(0, o.RowsAffected)}, {"retries", int64(o.Retries)}} {
		if n.n != 0 {
			attrs = append(attrs, slog.Int64(n.name, n.n))
		}
	}
	if o.Err != nil {
		attrs = append(attrs, slog.String("fault", backend.FaultIn(o.Err).String()), slog.Bool("safe_to_retry", backend.SafeToRetry(o.Err)))
		if e := (*backend.Error)(nil); errors.As(o.Err, &e) {
			attrs = append(attrs, slog.String("stage", e.Stage.String()))
			if e.SQLState != "" {
				attrs = append(attrs, slog.String("sqlstate", e.SQLState))
			}
		}
		if l.Texts {
			attrs = append(attrs, slog.String("error", o.Err.Error()))
		}
	}
	l.logger().LogAttrs(ctx, level, message, attrs...)
}
