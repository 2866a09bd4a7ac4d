package flightotel

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
)

// A kindKey is what spans and measurements of one kind have in common. span is the name of
// the span, empty for calls; what is the summary of a statement, or the table of an ingestion.
type kindKey struct{ target, span, op, what string }

// A kind has what is made once for many spans.
type kind struct {
	span  string // as in the key
	name  string
	attrs []attribute.KeyValue
	start []trace.SpanStartOption
	ok    []metric.RecordOption
}

// A cache keeps some values. Statements with values in their texts are many, and each is
// seen once: what was kept is forgotten when it is maxKept.
type cache[K comparable, V any] struct {
	mu   sync.RWMutex
	kept map[K]V // guarded by mu
}

const maxKept = 1024

func (c *cache[K, V]) get(key K, create func(K) V) V {
	c.mu.RLock()
	v, ok := c.kept[key]
	c.mu.RUnlock()
	if ok {
		return v
	}
	v = create(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) >= maxKept {
		clear(c.kept)
	}
	c.kept[key] = v
	return v
}

// maxText is how long a text is, in bytes, whose summary is kept.
const maxText = 4096

func (t *Tracer) summaryOf(sql string) string {
	if len(sql) > maxText {
		return summarize(sql)
	}
	return t.summaries.get(sql, summarize)
}

func summarize(sql string) string { return flightpool.QueryStartData{SQL: sql}.Summary() }

// valid is a text as UTF-8. With anything else in one span or point, exporters refuse all
// that they are given, and points are in every export from then on.
func valid(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// maxName is how much of the name of a table is shown, in bytes.
const maxName = 200

// nameOf is the name of a table, which a caller may have made of anything.
func nameOf(table string) string {
	if len(table) <= maxName {
		return valid(table)
	}
	return strings.ToValidUTF8(strings.Clone(table[:maxName]), "") + "…"
}

func (t *Tracer) kindOf(key kindKey) *kind { return t.kinds.get(key, t.newKind) }

func (t *Tracer) newKind(key kindKey) *kind {
	attrs := common(key.target, t.attrs)
	k := &kind{span: key.span, name: key.span}
	spanKind := trace.SpanKindClient
	switch {
	case key.span == spanAcquire, key.span == spanBatch:
		spanKind = trace.SpanKindInternal
	case key.span != "":
	case key.op == opIngest:
		k.name = opIngest + " " + key.what
		attrs = append(attrs, semconv.DBOperationName(opIngest), semconv.DBCollectionName(key.what))
	default:
		k.name = strings.TrimSpace(key.op + " " + key.target)
		attrs = append(attrs, semconv.DBOperationName(key.op))
		if key.what != "" && key.what != "?" {
			k.name = key.what
			attrs = append(attrs, semconv.DBQuerySummary(key.what))
		}
	}
	k.attrs = slices.Clip(attrs)
	k.start = slices.Clip([]trace.SpanStartOption{trace.WithSpanKind(spanKind), trace.WithAttributes(attrs...)})
	k.ok = []metric.RecordOption{metric.WithAttributes(attrs...)}
	return k
}

// with is the option of a measurement with another attribute.
func (k *kind) with(attr attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(k.attrs, attr)...)
}

// outcome is how a measurement is recorded.
func (k *kind) outcome(err error) []metric.RecordOption {
	if err == nil {
		return k.ok
	}
	return []metric.RecordOption{k.with(errorType(err))}
}

// errorType is the fault of an error. Its text, and the SQLSTATE that is looked for in a
// server's text, may be values.
func errorType(err error) attribute.KeyValue {
	return semconv.ErrorTypeKey.String(backend.FaultIn(err).String())
}

// common is the attributes of all spans and instruments of a pool.
func common(target string, attrs []attribute.KeyValue) []attribute.KeyValue {
	all := []attribute.KeyValue{semconv.DBSystemNameOtherSQL}
	if target != "" { // it is, where a driver opens the connections
		all = append(all, semconv.DBClientConnectionPoolName(target))
		host, port, _ := net.SplitHostPort(target)
		if n, err := strconv.Atoi(port); err == nil {
			all = append(all, semconv.ServerAddress(host), semconv.ServerPort(n))
		} else {
			all = append(all, semconv.ServerAddress(target)) // a socket's path
		}
	}
	set := attribute.NewSet(append(all, attrs...)...) // the last of a name counts
	return set.ToSlice()
}
