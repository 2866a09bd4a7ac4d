package registry

import (
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/internal/bind"
	"github.com/flightpool/flightpool/internal/errjoin"
)

// The names of the statistics as tables; Table gives their contents.
const (
	TablePools       = "sys.remote_pool_stats"
	TableUsers       = "sys.remote_user_pool_stats"
	TableConnections = "sys.remote_connections"
)

// column is one column of a table of statistics: a value of its type for each row, nil for
// NULL.
type column[T any] struct {
	name     string
	dataType arrow.DataType
	value    func(row T) any
}

var (
	timestampType = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	textType      = arrow.BinaryTypes.String
	countType     = arrow.PrimitiveTypes.Int64
	floatType     = arrow.PrimitiveTypes.Float64
	boolType      = arrow.FixedWidthTypes.Boolean
)

func inMilliseconds(d time.Duration) any { return float64(d) / float64(time.Millisecond) }

func timeOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

// poolColumns are those that servers and users have in common. Bytes are NULL where the
// kind cannot count them, which is not zero.
func poolColumns[T any](pool func(row T) PoolStats) []column[T] {
	count := func(name string, value func(p PoolStats) int64) column[T] {
		return column[T]{name, countType, func(row T) any { return value(pool(row)) }}
	}
	bytes := func(name string, value func(p PoolStats) uint64) column[T] {
		return column[T]{name, countType, func(row T) any {
			if p := pool(row); p.BytesCounted {
				return int64(value(p))
			}
			return nil
		}}
	}
	return []column[T]{
		count("total_conns", func(p PoolStats) int64 { return int64(p.Total) }),
		count("active", func(p PoolStats) int64 { return int64(p.Active) }),
		count("idle", func(p PoolStats) int64 { return int64(p.Idle) }),
		count("opening", func(p PoolStats) int64 { return int64(p.Opening) }),
		count("closing", func(p PoolStats) int64 { return int64(p.Closing) }),
		count("waiting", func(p PoolStats) int64 { return int64(p.Waiting) }),
		count("acquires", func(p PoolStats) int64 { return int64(p.Acquires) }),
		count("releases", func(p PoolStats) int64 { return int64(p.Releases) }),
		count("timeouts", func(p PoolStats) int64 { return int64(p.AcquireTimeouts) }),
		count("shed", func(p PoolStats) int64 { return int64(p.Rejected) }),
		count("connection_errors", func(p PoolStats) int64 { return int64(p.ConnectionErrors) }),
		count("validation_failures", func(p PoolStats) int64 { return int64(p.ValidationFailures) }),
		count("leaks", func(p PoolStats) int64 { return int64(p.Leaks) }),
		count("cancels_confirmed", func(p PoolStats) int64 { return int64(p.CancelsConfirmed) }),
		count("cancels_unconfirmed", func(p PoolStats) int64 { return int64(p.CancelsUnconfirmed) }),
		count("connections_created", func(p PoolStats) int64 { return int64(p.Created) }),
		count("connections_destroyed", func(p PoolStats) int64 { return int64(p.Destroyed) }),
		count("queries", func(p PoolStats) int64 { return int64(p.Queries) }),
		count("query_failures", func(p PoolStats) int64 { return int64(p.QueryFailures) }),
		{"avg_query_ms", floatType, func(row T) any { return inMilliseconds(pool(row).MeanQuery) }},
		bytes("bytes_sent", func(p PoolStats) uint64 { return p.BytesSent }),
		bytes("bytes_received", func(p PoolStats) uint64 { return p.BytesRead }),
		{"avg_lifetime_sec", floatType, func(row T) any { return pool(row).MeanLifetime.Seconds() }},
	}
}

var serverColumns = append(append([]column[ServerStats]{
	{"server_name", textType, func(s ServerStats) any { return s.ServerName }},
	{"db_type", textType, func(s ServerStats) any { return s.Kind }},
	{"healthy", boolType, func(s ServerStats) any { return s.Healthy }},
}, poolColumns(func(s ServerStats) PoolStats { return s.PoolStats })...), []column[ServerStats]{
	{"user_pools", countType, func(s ServerStats) any { return int64(s.UserPools) }},
	{"max_connections", countType, func(s ServerStats) any { return int64(s.MaxSize) }},
	{"unhealthy_reason", textType, func(s ServerStats) any {
		if s.Healthy {
			return nil
		}
		return s.UnhealthyReason
	}},
	{"unhealthy_since", timestampType, func(s ServerStats) any { return timeOrNull(s.UnhealthySince) }},
	{"next_probe", timestampType, func(s ServerStats) any { return timeOrNull(s.NextProbe) }},
	{"last_healthy", timestampType, func(s ServerStats) any { return timeOrNull(s.LastHealthy) }},
	{"checks_passed", countType, func(s ServerStats) any { return int64(s.ChecksPassed) }},
	{"checks_failed", countType, func(s ServerStats) any { return int64(s.ChecksFailed) }},
	{"created_at", timestampType, func(s ServerStats) any { return timeOrNull(s.CreatedAt) }},
	{"last_activity", timestampType, func(s ServerStats) any { return timeOrNull(s.LastActivity) }},
}...)

var userColumns = append(append([]column[UserStats]{
	{"server_name", textType, func(u UserStats) any { return u.ServerName }},
	{"local_user", textType, func(u UserStats) any { return u.User }},
	{"remote_user", textType, func(u UserStats) any { return u.RemoteUser }},
}, poolColumns(func(u UserStats) PoolStats { return u.PoolStats })...), []column[UserStats]{
	{"avg_wait_ms", floatType, func(u UserStats) any { return inMilliseconds(u.Wait.Mean) }},
	{"p50_wait_ms", floatType, func(u UserStats) any { return inMilliseconds(u.Wait.P50) }},
	{"p90_wait_ms", floatType, func(u UserStats) any { return inMilliseconds(u.Wait.P90) }},
	{"p99_wait_ms", floatType, func(u UserStats) any { return inMilliseconds(u.Wait.P99) }},
	{"p999_wait_ms", floatType, func(u UserStats) any { return inMilliseconds(u.Wait.P999) }},
}...)

var connectionColumns = []column[ConnectionStats]{
	{"server_name", textType, func(c ConnectionStats) any { return c.ServerName }},
	{"local_user", textType, func(c ConnectionStats) any { return c.User }},
	{"id", countType, func(c ConnectionStats) any { return int64(c.ID) }},
	{"state", textType, func(c ConnectionStats) any {
		if c.InUse {
			return "active"
		}
		return "idle"
	}},
	{"opened_at", timestampType, func(c ConnectionStats) any { return timeOrNull(c.OpenedAt) }},
	{"used_at", timestampType, func(c ConnectionStats) any { return timeOrNull(c.UsedAt) }},
	{"use_count", countType, func(c ConnectionStats) any { return int64(c.Uses) }},
	{"queries", countType, func(c ConnectionStats) any { return int64(c.Queries) }},
	{"query_failures", countType, func(c ConnectionStats) any { return int64(c.Failures) }},
	{"query_time_ms", floatType, func(c ConnectionStats) any { return inMilliseconds(c.QueryTime) }},
}

// Table gives the statistics of a name, TablePools, TableUsers or
// TableConnections, as one record batch of all servers, which the caller must
// release. mem nil means memory.DefaultAllocator.
func (r *Registry) Table(name string, mem memory.Allocator) (arrow.RecordBatch, error) {
	if mem == nil {
		mem = memory.DefaultAllocator
	}
	switch name {
	case TablePools:
		return batch(mem, serverColumns, rowsOfServers(r, func(s string) ([]ServerStats, error) {
			st, err := r.ServerStats(s)
			return []ServerStats{st}, err
		}))
	case TableUsers:
		return batch(mem, userColumns, rowsOfServers(r, r.UserStats))
	case TableConnections:
		return batch(mem, connectionColumns, rowsOfServers(r, r.Connections))
	}
	return nil, fmt.Errorf("registry: there is no table %q", name)
}

// rowsOfServers collects the rows of all servers; one that goes meanwhile is left out.
func rowsOfServers[T any](r *Registry, rows func(server string) ([]T, error)) (all []T) {
	for _, name := range r.Servers() {
		if of, err := rows(name); err == nil {
			all = append(all, of...)
		}
	}
	return all
}

// batch is one record batch with a row for each of rows. All columns may be NULL.
func batch[T any](mem memory.Allocator, columns []column[T], rows []T) (arrow.RecordBatch, error) {
	fields := make([]arrow.Field, len(columns))
	for i, c := range columns {
		fields[i] = arrow.Field{Name: c.name, Type: c.dataType, Nullable: true}
	}
	b := array.NewRecordBuilder(mem, arrow.NewSchema(fields, nil))
	defer b.Release()
	for i, c := range columns {
		for _, row := range rows {
			v, err := bind.ValueOf(c.value(row))
			if err := errjoin.Join(err, v.AppendTo(b.Field(i))); err != nil {
				return nil, fmt.Errorf("registry: column %s: %w", c.name, err)
			}
		}
	}
	return b.NewRecordBatch(), nil
}
