package flightotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/semconv/v1.41.0/dbconv"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/reservoir"
)

// A Source has numbers to report: *flightpool.FlightSQLPool.
type Source interface {
	Stats() flightpool.Stats
	Target() string
}

var _ Source = (*flightpool.FlightSQLPool)(nil)

// Register makes the instruments of the package comment that are read from Stats, and
// reports pool through them whenever meter's provider collects, until the registration is
// undone. attrs are added to each, and replace those of the package comment; two pools
// for one server need a db.client.connection.pool.name each. It returns the first fault.
func Register(meter metric.Meter, pool Source, attrs ...attribute.KeyValue) (metric.Registration, error) {
	r := &report{meter: meter, attrs: common(pool.Target(), attrs)}
	r.states()
	r.events()
	if r.fault != nil {
		return nil, r.fault
	}
	return meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		s := pool.Stats()
		for _, read := range r.reads {
			read(to, s)
		}
		return nil
	}, r.instruments...)
}

// A report is the instruments while they are made, and how each is read.
type report struct {
	meter       metric.Meter
	attrs       []attribute.KeyValue
	instruments []metric.Observable
	reads       []func(metric.Observer, flightpool.Stats)
	fault       error
}

// add adds an instrument. Its points have attrs besides those of all.
func (r *report) add(i metric.Int64Observable, err error, value func(flightpool.Stats) int64, attrs ...attribute.KeyValue) {
	if err != nil {
		if r.fault == nil {
			r.fault = err
		}
		return
	}
	with := metric.WithAttributes(append(attrs, r.attrs...)...)
	r.instruments = append(r.instruments, i)
	r.reads = append(r.reads, func(to metric.Observer, s flightpool.Stats) { to.ObserveInt64(i, value(s), with) })
}

func (r *report) states() {
	count, err := dbconv.NewClientConnectionCountObservable(r.meter)
	for state, value := range map[dbconv.ClientConnectionStateAttr]func(flightpool.Stats) int64{
		dbconv.ClientConnectionStateIdle: func(s flightpool.Stats) int64 { return int64(s.Idle) },
		dbconv.ClientConnectionStateUsed: func(s flightpool.Stats) int64 { return int64(s.InUse) },
		"opening":                        func(s flightpool.Stats) int64 { return int64(s.Opening) },
		"closing":                        func(s flightpool.Stats) int64 { return int64(s.Closing) },
	} {
		r.add(count.Inst(), err, value, count.AttrClientConnectionState(state))
	}
	size := func(s flightpool.Stats) int64 { return int64(s.MaxSize) }
	most, err := dbconv.NewClientConnectionMaxObservable(r.meter)
	r.add(most.Inst(), err, size)
	idleMax, err := dbconv.NewClientConnectionIdleMaxObservable(r.meter)
	r.add(idleMax.Inst(), err, size)
	idleMin, err := dbconv.NewClientConnectionIdleMinObservable(r.meter)
	r.add(idleMin.Inst(), err, func(s flightpool.Stats) int64 { return int64(s.MinIdle) })
	pending, err := dbconv.NewClientConnectionPendingRequestsObservable(r.meter)
	r.add(pending.Inst(), err, func(s flightpool.Stats) int64 { return int64(s.Waiting) })
	unhealthy, err := r.meter.Int64ObservableGauge("flightpool.unhealthy", metric.WithUnit("1"),
		metric.WithDescription("1 while the server is taken to be unreachable."))
	r.add(unhealthy, err, func(s flightpool.Stats) int64 {
		if s.UnhealthySince.IsZero() {
			return 0
		}
		return 1
	})
}

func (r *report) events() {
	timeouts, err := dbconv.NewClientConnectionTimeoutsObservable(r.meter)
	r.add(timeouts.Inst(), err, func(s flightpool.Stats) int64 { return int64(s.Timeouts) })
	for _, c := range []struct {
		name, unit, about string
		value             func(flightpool.Stats) uint64
	}{
		{"flightpool.connection.opens", "{open}", "Opens that have begun.", func(s flightpool.Stats) uint64 { return s.Opens }},
		{"flightpool.connection.open_failures", "{open}", "Opens that failed.", func(s flightpool.Stats) uint64 { return s.OpenFailures }},
		{"flightpool.connection.leaks", "{connection}", "Connections that were lent for longer than LeakAfter.", func(s flightpool.Stats) uint64 { return s.Leaks }},
		{"flightpool.retries", "{call}", "Calls that were repeated on another connection.", func(s flightpool.Stats) uint64 { return s.Retries }},
	} {
		i, err := r.counter(c.name, c.unit, c.about)
		r.add(i, err, func(s flightpool.Stats) int64 { return int64(c.value(s)) })
	}
	discards, err := r.counter("flightpool.connection.discards", "{connection}", "Connections that were closed, by reason.")
	for i := range (flightpool.Stats{}).Closed {
		r.add(discards, err, func(s flightpool.Stats) int64 { return int64(s.Closed[i]) }, attribute.String("flightpool.discard.reason", reservoir.Reason(i).String()))
	}
	cancels, err := r.counter("flightpool.cancels", "{cancel}", "Cancels of calls, by whether the end of the statement was confirmed.")
	r.add(cancels, err, func(s flightpool.Stats) int64 { return int64(s.CancelsConfirmed) }, attribute.String("flightpool.cancel.outcome", "confirmed"))
	r.add(cancels, err, func(s flightpool.Stats) int64 { return int64(s.CancelsUnconfirmed) }, attribute.String("flightpool.cancel.outcome", "unconfirmed"))
}

func (r *report) counter(name, unit, about string) (metric.Int64ObservableCounter, error) {
	return r.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(about))
}
