package testserver

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql/schema_ref"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/testserver/engine"
)

// The catalogue calls: GetFlightInfo answers with the command itself as the
// ticket, DoGet asks the engine.

func (h *handlers) GetFlightInfoCatalogs(_ context.Context, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return h.info(d, schema_ref.Catalogs, d.Cmd), nil
}

func (h *handlers) GetFlightInfoSchemas(_ context.Context, _ flightsql.GetDBSchemas, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return h.info(d, schema_ref.DBSchemas, d.Cmd), nil
}

func (h *handlers) GetFlightInfoTables(_ context.Context, q flightsql.GetTables, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return h.info(d, tablesSchema(q), d.Cmd), nil
}

func (h *handlers) GetFlightInfoTableTypes(_ context.Context, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return h.info(d, schema_ref.TableTypes, d.Cmd), nil
}

func (h *handlers) GetFlightInfoPrimaryKeys(_ context.Context, _ flightsql.TableRef, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return h.info(d, schema_ref.PrimaryKeys, d.Cmd), nil
}

func (h *handlers) GetFlightInfoImportedKeys(_ context.Context, _ flightsql.TableRef, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return h.info(d, schema_ref.ImportedKeys, d.Cmd), nil
}

func (h *handlers) GetFlightInfoExportedKeys(_ context.Context, _ flightsql.TableRef, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return h.info(d, schema_ref.ExportedKeys, d.Cmd), nil
}

func (h *handlers) GetFlightInfoCrossReference(_ context.Context, _ flightsql.CrossTableRef, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return h.info(d, schema_ref.CrossReference, d.Cmd), nil
}

// sqlInfoSchema is large, and part of the answer to every check of an idle connection.
var sqlInfoSchema = sync.OnceValue(func() []byte { return flight.SerializeSchema(schema_ref.SqlInfo, memory.DefaultAllocator) })

// GetFlightInfoSqlInfo is that of BaseServer, which makes the schema each time.
func (h *handlers) GetFlightInfoSqlInfo(_ context.Context, _ flightsql.GetSqlInfo, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	if m := h.srv.profile.SQLInfo; m != nil && len(m) == 0 {
		return nil, status.Error(codes.NotFound, "no sql information available")
	}
	return &flight.FlightInfo{
		FlightDescriptor: d, TotalRecords: -1, TotalBytes: -1, Schema: sqlInfoSchema(),
		Endpoint: []*flight.FlightEndpoint{{Ticket: &flight.Ticket{Ticket: d.Cmd}}},
	}, nil
}

// DoGetSqlInfo leaves out what Profile.SQLInfo does not have.
func (h *handlers) DoGetSqlInfo(ctx context.Context, q flightsql.GetSqlInfo) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	if h.srv.profile.SQLInfo == nil || len(q.GetInfo()) == 0 {
		return h.BaseServer.DoGetSqlInfo(ctx, q)
	}
	var known infoIDs
	for _, id := range q.GetInfo() {
		if _, ok := h.srv.profile.SQLInfo[flightsql.SqlInfo(id)]; ok {
			known = append(known, id)
		}
	}
	if len(known) > 0 {
		return h.BaseServer.DoGetSqlInfo(ctx, known)
	}
	return schema_ref.SqlInfo, h.send(ctx, nil), nil
}

// infoIDs is a flightsql.GetSqlInfo.
type infoIDs []uint32

func (ids infoIDs) GetInfo() []uint32 { return ids }

func (h *handlers) DoGetCatalogs(ctx context.Context) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	return h.catalogue(ctx, schema_ref.Catalogs, func(db engine.Session, add func(...any)) error {
		schemas, err := db.Schemas(ctx)
		var last string
		for i, s := range schemas {
			if i == 0 || s.Catalog != last {
				add(s.Catalog)
			}
			last = s.Catalog
		}
		return err
	})
}

func (h *handlers) DoGetDBSchemas(ctx context.Context, q flightsql.GetDBSchemas) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	return h.catalogue(ctx, schema_ref.DBSchemas, func(db engine.Session, add func(...any)) error {
		schemas, err := db.Schemas(ctx)
		for _, s := range schemas {
			if matchesFilter(q.GetCatalog(), s.Catalog) && matchesLike(q.GetDBSchemaFilterPattern(), s.Name) {
				add(s.Catalog, s.Name)
			}
		}
		return err
	})
}

func tablesSchema(q flightsql.GetTables) *arrow.Schema {
	if q.GetIncludeSchema() {
		return schema_ref.TablesWithIncludedSchema
	}
	return schema_ref.Tables
}

func (h *handlers) DoGetTables(ctx context.Context, q flightsql.GetTables) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	return h.catalogue(ctx, tablesSchema(q), func(db engine.Session, add func(...any)) error {
		all, err := db.Tables(ctx)
		for _, t := range all {
			types := q.GetTableTypes()
			if matchesFilter(q.GetCatalog(), t.Catalog) && matchesLike(q.GetDBSchemaFilterPattern(), t.Schema) &&
				matchesLike(q.GetTableNameFilterPattern(), t.Name) && (len(types) == 0 || slices.Contains(types, t.Type)) {
				row := []any{t.Catalog, t.Schema, t.Name, t.Type}
				if q.GetIncludeSchema() {
					row = append(row, flight.SerializeSchema(t.Columns, h.Alloc))
				}
				add(row...)
			}
		}
		return err
	})
}

func (h *handlers) DoGetTableTypes(ctx context.Context) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	return h.catalogue(ctx, schema_ref.TableTypes, func(_ engine.Session, add func(...any)) error {
		for _, t := range []string{"TABLE", "VIEW", "LOCAL TEMPORARY"} {
			add(t)
		}
		return nil
	})
}

func (h *handlers) DoGetPrimaryKeys(ctx context.Context, ref flightsql.TableRef) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	return h.catalogue(ctx, schema_ref.PrimaryKeys, func(db engine.Session, add func(...any)) error {
		all, err := db.Tables(ctx)
		for _, t := range all {
			if matchesFilter(ref.Catalog, t.Catalog) && matchesFilter(ref.DBSchema, t.Schema) && ref.Table == t.Name {
				for i, column := range t.PrimaryKey {
					add(t.Catalog, t.Schema, t.Name, column, int32(i+1), nil)
				}
			}
		}
		return err
	})
}

// Foreign keys are not modelled: there are none.

func (h *handlers) DoGetImportedKeys(ctx context.Context, _ flightsql.TableRef) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	return h.catalogue(ctx, schema_ref.ImportedKeys, func(engine.Session, func(...any)) error { return nil })
}

func (h *handlers) DoGetExportedKeys(ctx context.Context, _ flightsql.TableRef) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	return h.catalogue(ctx, schema_ref.ExportedKeys, func(engine.Session, func(...any)) error { return nil })
}

func (h *handlers) DoGetCrossReference(ctx context.Context, _ flightsql.CrossTableRef) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	return h.catalogue(ctx, schema_ref.CrossReference, func(engine.Session, func(...any)) error { return nil })
}

// catalogue makes one batch of the rows that list adds, with the session's engineLock.
func (h *handlers) catalogue(ctx context.Context, schema *arrow.Schema, list func(engine.Session, func(...any)) error) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	b := array.NewRecordBuilder(h.Alloc, schema)
	defer b.Release()
	add := func(row ...any) {
		for i, v := range row {
			switch col := b.Field(i).(type) {
			case *array.StringBuilder:
				if s, ok := v.(string); ok {
					col.Append(s)
				} else {
					col.AppendNull()
				}
			case *array.BinaryBuilder:
				raw, _ := v.([]byte)
				col.Append(raw)
			case *array.Int32Builder:
				n, _ := v.(int32)
				col.Append(n)
			}
		}
	}
	sess := callOf(ctx).sess
	err := sess.withEngineLock(ctx, func() error {
		return h.srv.statusOf(ctx, list(sess.engine, add))
	})
	if err != nil {
		return nil, nil, err
	}
	return schema, h.send(ctx, []arrow.RecordBatch{b.NewRecordBatch()}), nil
}

// matchesFilter reports whether a filter is absent or equal.
func matchesFilter(filter *string, value string) bool { return filter == nil || *filter == value }

// matchesLike reports whether a SQL LIKE pattern is absent or fits.
func matchesLike(pattern *string, value string) bool {
	if pattern == nil || *pattern == "" {
		return true
	}
	expr := regexp.QuoteMeta(*pattern)
	expr = strings.NewReplacer("%", ".*", "_", ".").Replace(expr)
	return regexp.MustCompile("(?s)^" + expr + "$").MatchString(value)
}
