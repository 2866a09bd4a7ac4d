package flightotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/flightpool/flightpool/lease"
)

// RegisterBudget is Register for a fleet's budget of connections and that of opens, those
// of Config.Leases and Config.Limiter. Either may be nil. Each point has name as flightpool.budget.
func RegisterBudget(meter metric.Meter, name string, leases lease.Leases, limiter lease.Limiter, attrs ...attribute.KeyValue) (metric.Registration, error) {
	set := attribute.NewSet(append([]attribute.KeyValue{attribute.String("flightpool.budget", name)}, attrs...)...)
	b := &budgetReport{meter: meter, attrs: set.ToSlice()}
	if leases != nil {
		addNumbers(b, "flightpool.lease.", leases.Stats, ofLeases)
	}
	if limiter != nil {
		addNumbers(b, "flightpool.limiter.", limiter.Stats, ofLimiters)
	}
	if b.fault != nil {
		return nil, b.fault
	}
	return meter.RegisterCallback(func(_ context.Context, to metric.Observer) (err error) {
		defer func() { // the Stats may be the program's own; a reader of the SDK has a goroutine
			if recover() != nil {
				err = errStats
			}
		}()
		for _, read := range b.reads {
			read(to)
		}
		return nil
	}, b.instruments...)
}

var errStats = errors.New("flightotel: the Stats of a budget panicked")

// A number is one of the Stats of a budget. With a kind, which is an attribute, several
// make one instrument, of which the first has the description.
type number[S any] struct {
	name, unit, about string
	grows             bool
	kind              attribute.KeyValue
	value             func(*S) int64
}

func now[S any](name, unit, about string, value func(*S) int) number[S] {
	return number[S]{name: name, unit: unit, about: about, value: func(s *S) int64 { return int64(value(s)) }}
}

func count[S any](name, unit, about string, value func(*S) uint64, kind ...string) number[S] {
	n := number[S]{name: name, unit: unit, about: about, grows: true, value: func(s *S) int64 { return int64(value(s)) }} //nolint:gosec // not in our time
	if len(kind) == 2 {
		n.kind = attribute.String(kind[0], kind[1])
	}
	return n
}

func flag(on bool) int {
	if on {
		return 1
	}
	return 0
}

var ofLeases = append([]number[lease.Stats]{
	now("limit", "{connection}", "Connections that the fleet may have; 0: not known yet.", func(s *lease.Stats) int { return s.Limit }),
	now("used", "{connection}", "Connections of the whole fleet, as last seen.", func(s *lease.Stats) int { return s.Used }),
	now("in_use", "{connection}", "Connections of this process.", func(s *lease.Stats) int { return s.InUse }),
	now("spare", "{lease}", "Leases that this process holds in advance.", func(s *lease.Stats) int { return s.Spare }),
	now("unbacked", "{connection}", "Connections of this process that the table does not know.", func(s *lease.Stats) int { return s.Unbacked }),
	now("share", "{connection}", "The most that this process may have while the fleet is short; 0: it is not.", func(s *lease.Stats) int { return s.Share }),
	now("owners", "{process}", "Processes that share the limit, as last seen.", func(s *lease.Stats) int { return s.Owners }),
	now("opens_waiting", "{open}", "Opens that wait for a lease.", func(s *lease.Stats) int { return s.Waiting }),
	now("unreachable", "1", "1 while the lease table cannot be reached.", func(s *lease.Stats) int { return flag(s.Degraded) }),
	count("grants", "{lease}", "Leases asked for, by outcome.", func(s *lease.Stats) uint64 { return s.Granted }, "flightpool.budget.outcome", "ok"),
	count("grants", "{lease}", "", func(s *lease.Stats) uint64 { return s.Denied }, "flightpool.budget.outcome", "failed"),
	count("fallbacks", "{lease}", "Leases that the fallback granted.", func(s *lease.Stats) uint64 { return s.Fallbacks }),
	count("losses", "{loss}", "Times this process was taken for dead.", func(s *lease.Stats) uint64 { return s.Losses }),
	count("reaped", "{process}", "Dead processes whose leases were freed from here.", func(s *lease.Stats) uint64 { return s.Reaped }),
}, traffic(func(s *lease.Stats) *lease.Traffic { return &s.Traffic })...)

var ofLimiters = append([]number[lease.LimiterStats]{
	now("opens_waiting", "{open}", "Opens that wait for a permit.", func(s *lease.LimiterStats) int { return s.Waiting }),
	now("unreachable", "1", "1 while the limiter's table cannot be reached.", func(s *lease.LimiterStats) int { return flag(s.Degraded) }),
	count("permits", "{permit}", "Permits asked for, by outcome.", func(s *lease.LimiterStats) uint64 { return s.Granted }, "flightpool.budget.outcome", "ok"),
	count("permits", "{permit}", "", func(s *lease.LimiterStats) uint64 { return s.Denied }, "flightpool.budget.outcome", "failed"),
	count("fallbacks", "{permit}", "Permits at the rate of this process's own.", func(s *lease.LimiterStats) uint64 { return s.Fallbacks }),
	count("dropped", "{permit}", "Permits that were not used in time.", func(s *lease.LimiterStats) uint64 { return s.Dropped }),
	count("refusals", "{open}", "Opens that the server refused as too fast.", func(s *lease.LimiterStats) uint64 { return s.Refusals }),
}, traffic(func(s *lease.LimiterStats) *lease.Traffic { return &s.Traffic })...)

// traffic is what a budget asks of its table.
func traffic[S any](of func(*S) *lease.Traffic) []number[S] {
	return []number[S]{
		count("table_requests", "{request}", "Requests to the table.", func(s *S) uint64 { return of(s).Reads }, "flightpool.budget.op", "read"),
		count("table_requests", "{request}", "", func(s *S) uint64 { return of(s).Writes }, "flightpool.budget.op", "write"),
		count("table_failures", "{request}", "Requests to the table without a definite answer.", func(s *S) uint64 { return of(s).Failures }),
	}
}

// A budgetReport is the instruments while they are made, and how they are read.
type budgetReport struct {
	meter       metric.Meter
	attrs       []attribute.KeyValue
	instruments []metric.Observable
	reads       []func(metric.Observer)
	fault       error
}

// addNumbers makes the instruments of numbers. One look at the Stats serves all.
func addNumbers[S any](b *budgetReport, prefix string, stats func() S, numbers []number[S]) {
	made := map[string]metric.Int64Observable{}
	observe := make([]func(metric.Observer, *S), 0, len(numbers))
	for _, n := range numbers {
		i := made[n.name]
		if i == nil {
			var err error
			if i, err = b.instrument(prefix+n.name, n.unit, n.about, n.grows); err != nil {
				b.fault = err
				return
			}
			made[n.name] = i
			b.instruments = append(b.instruments, i)
		}
		attrs := append([]attribute.KeyValue{}, b.attrs...)
		if n.kind.Valid() {
			attrs = append(attrs, n.kind)
		}
		with := metric.WithAttributes(attrs...)
		observe = append(observe, func(to metric.Observer, s *S) { to.ObserveInt64(i, n.value(s), with) })
	}
	b.reads = append(b.reads, func(to metric.Observer) {
		s := stats()
		for _, one := range observe {
			one(to, &s)
		}
	})
}

func (b *budgetReport) instrument(name, unit, about string, grows bool) (metric.Int64Observable, error) {
	if grows {
		return b.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(about))
	}
	return b.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(about))
}
