package registry

import (
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// The names of the statistics as tables; Table gives their contents.
const (
	TablePools       = "sys.remote_pool_stats"
	TableUsers       = "sys.remote_user_pool_stats"
	TableConnections = "sys.remote_connections"
)

// column is one column of a table of statistics: a value per row, nil for NULL.
type column[T any] struct {
	name  string
	kind  arrow.DataType
	value func(row T) any
}

var (
	timestamp = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	names     = arrow.BinaryTypes.String
	counts    = arrow.PrimitiveTypes.Int64
	millis    = arrow.PrimitiveTypes.Float64
	flags     = arrow.FixedWidthTypes.Boolean
)

func ms(d time.Duration) any { return float64(d) / float64(time.Millisecond) }

func at(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

// poolColumns are those that servers and users have in common.
func poolColumns[T any](pool func(row T) Pool) []column[T] {
	count := func(name string, value func(p Pool) int64) column[T] {
		return column[T]{name, counts, func(row T) any { return value(pool(row)) }}
	}
	bytes := func(name string, value func(p Pool) uint64) column[T] {
		return column[T]{name, counts, func(row T) any {
			if p := pool(row); p.BytesCounted {
				return int64(value(p))
			}
			return nil
		}}
	}
	return []column[T]{
		count("total_conns", func(p Pool) int64 { return int64(p.Total) }),
		count("active", func(p Pool) int64 { return int64(p.Active) }),
		count("idle", func(p Pool) int64 { return int64(p.Idle) }),
		count("opening", func(p Pool) int64 { return int64(p.Opening) }),
		count("closing", func(p Pool) int64 { return int64(p.Closing) }),
		count("waiting", func(p Pool) int64 { return int64(p.Waiting) }),
		count("acquires", func(p Pool) int64 { return int64(p.Acquires) }),
		count("releases", func(p Pool) int64 { return int64(p.Releases) }),
		count("timeouts", func(p Pool) int64 { return int64(p.AcquireTimeouts) }),
		count("shed", func(p Pool) int64 { return int64(p.Shed) }),
		count("connection_errors", func(p Pool) int64 { return int64(p.ConnectionErrors) }),
		count("validation_failures", func(p Pool) int64 { return int64(p.ValidationFailures) }),
		count("connections_created", func(p Pool) int64 { return int64(p.Created) }),
		count("connections_destroyed", func(p Pool) int64 { return int64(p.Destroyed) }),
		count("queries", func(p Pool) int64 { return int64(p.Queries) }),
		count("query_failures", func(p Pool) int64 { return int64(p.QueryFailures) }),
		{"avg_query_ms", millis, func(row T) any { return ms(pool(row).MeanQuery) }},
		bytes("bytes_sent", func(p Pool) uint64 { return p.BytesSent }),
		bytes("bytes_received", func(p Pool) uint64 { return p.BytesRead }),
		{"avg_lifetime_sec", millis, func(row T) any { return pool(row).MeanLifetime.Seconds() }},
	}
}

var serverColumns = append(append([]column[ServerStats]{
	{"server_name", names, func(s ServerStats) any { return s.ServerName }},
	{"db_type", names, func(s ServerStats) any { return s.Kind }},
	{"healthy", flags, func(s ServerStats) any { return s.Healthy }},
}, poolColumns(func(s ServerStats) Pool { return s.Pool })...), []column[ServerStats]{
	{"user_pools", counts, func(s ServerStats) any { return int64(s.UserPools) }},
	{"max_connections", counts, func(s ServerStats) any { return int64(s.MaxConnections) }},
	{"unhealthy_reason", names, func(s ServerStats) any {
		if s.Healthy {
			return nil
		}
		return s.UnhealthyReason
	}},
	{"unhealthy_since", timestamp, func(s ServerStats) any { return at(s.UnhealthySince) }},
	{"next_probe", timestamp, func(s ServerStats) any { return at(s.NextProbe) }},
	{"last_healthy", timestamp, func(s ServerStats) any { return at(s.LastHealthy) }},
	{"checks_passed", counts, func(s ServerStats) any { return int64(s.ChecksPassed) }},
	{"checks_failed", counts, func(s ServerStats) any { return int64(s.ChecksFailed) }},
	{"created_at", timestamp, func(s ServerStats) any { return at(s.CreatedAt) }},
	{"last_activity", timestamp, func(s ServerStats) any { return at(s.LastActivity) }},
}...)

var userColumns = append(append([]column[UserStats]{
	{"server_name", names, func(u UserStats) any { return u.ServerName }},
	{"local_user", names, func(u UserStats) any { return u.User }},
	{"remote_user", names, func(u UserStats) any { return u.RemoteUser }},
}, poolColumns(func(u UserStats) Pool { return u.Pool })...), []column[UserStats]{
	{"avg_wait_ms", millis, func(u UserStats) any { return ms(u.Wait.Mean) }},
	{"p50_wait_ms", millis, func(u UserStats) any { return ms(u.Wait.P50) }},
	{"p90_wait_ms", millis, func(u UserStats) any { return ms(u.Wait.P90) }},
	{"p99_wait_ms", millis, func(u UserStats) any { return ms(u.Wait.P99) }},
	{"p999_wait_ms", millis, func(u UserStats) any { return ms(u.Wait.P999) }},
}...)

var connectionColumns = []column[ConnectionStats]{
	{"server_name", names, func(c ConnectionStats) any { return c.ServerName }},
	{"local_user", names, func(c ConnectionStats) any { return c.User }},
	{"id", counts, func(c ConnectionStats) any {
		if c.ID == 0 {
			return nil
		}
		return int64(c.ID)
	}},
	{"state", names, func(c ConnectionStats) any {
		if c.InUse {
			return "active"
		}
		return "idle"
	}},
	{"opened_at", timestamp, func(c ConnectionStats) any { return at(c.OpenedAt) }},
	{"used_at", timestamp, func(c ConnectionStats) any { return at(c.UsedAt) }},
	{"use_count", counts, func(c ConnectionStats) any { return int64(c.Uses) }},
	{"queries", counts, func(c ConnectionStats) any { return int64(c.Queries) }},
	{"query_failures", counts, func(c ConnectionStats) any { return int64(c.Failures) }},
	{"query_time_ms", millis, func(c ConnectionStats) any { return ms(c.QueryTime) }},
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
		return batch(mem, serverColumns, gather(r, func(s string) ([]ServerStats, error) {
			st, err := r.ServerStats(s)
			return []ServerStats{st}, err
		})), nil
	case TableUsers:
		return batch(mem, userColumns, gather(r, r.UserStats)), nil
	case TableConnections:
		return batch(mem, connectionColumns, gather(r, r.Connections)), nil
	}
	return nil, fmt.Errorf("registry: there is no table %q", name)
}

// gather collects the rows of all servers; one that goes meanwhile is left out.
func gather[T any](r *Registry, rows func(server string) ([]T, error)) (all []T) {
	for _, name := range r.Servers() {
		if of, err := rows(name); err == nil {
			all = append(all, of...)
		}
	}
	return all
}

func batch[T any](mem memory.Allocator, columns []column[T], rows []T) arrow.RecordBatch {
	fields := make([]arrow.Field, len(columns))
	for i, c := range columns {
		fields[i] = arrow.Field{Name: c.name, Type: c.kind, Nullable: true}
	}
	b := array.NewRecordBuilder(mem, arrow.NewSchema(fields, nil))
	defer b.Release()
	for i, c := range columns {
		for _, row := range rows {
			appendTo(b.Field(i), c.value(row))
		}
	}
	return b.NewRecordBatch()
}

// appendTo adds a value of the type that the column was declared with.
func appendTo(b array.Builder, value any) {
	switch v := value.(type) {
	case nil:
		b.AppendNull()
	case string:
		b.(*array.StringBuilder).Append(v)
	case int64:
		b.(*array.Int64Builder).Append(v)
	case float64:
		b.(*array.Float64Builder).Append(v)
	case bool:
		b.(*array.BooleanBuilder).Append(v)
	case time.Time:
		b.(*array.TimestampBuilder).Append(arrow.Timestamp(v.UnixMicro()))
	}
}
