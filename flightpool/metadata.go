package flightpool

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/flightconn"
)

// TableFilter narrows Tables; nil pointers and an empty list mean no filter.
type TableFilter struct {
	Catalog       *string  // exact
	SchemaPattern *string  // SQL LIKE
	TablePattern  *string  // SQL LIKE
	Types         []string // such as "TABLE" and "VIEW"

	// IncludeColumns adds each table's Arrow schema, serialized, in the
	// column table_schema: see TableSchema.
	IncludeColumns bool
}

// TableRef names one table; nil means the session's own catalogue or schema.
type TableRef struct {
	Catalog, Schema *string
	Table           string
}

// Catalogs lists the catalogues.
func (p *FlightSQLPool) Catalogs(ctx context.Context) (*QueryResult, error) {
	return p.metadata(ctx, "Catalogs", backend.MetadataRequest{Kind: backend.MetadataCatalogs})
}

// Schemas lists the schemas of a catalogue whose names match a LIKE pattern;
// nil means all.
func (p *FlightSQLPool) Schemas(ctx context.Context, catalog, pattern *string) (*QueryResult, error) {
	return p.metadata(ctx, "Schemas", backend.MetadataRequest{Kind: backend.MetadataSchemas, Catalog: catalog, Schema: pattern})
}

// Tables lists tables.
func (p *FlightSQLPool) Tables(ctx context.Context, f TableFilter) (*QueryResult, error) {
	return p.metadata(ctx, "Tables", backend.MetadataRequest{
		Kind: backend.MetadataTables, Catalog: f.Catalog, Schema: f.SchemaPattern, Table: f.TablePattern,
		TableTypes: f.Types, IncludeColumns: f.IncludeColumns,
	})
}

// TableSchema reads a value of the column table_schema, which Tables has with IncludeColumns.
// Unlike Arrow's flight.DeserializeSchema it checks the bytes, which are the server's: those of no
// schema are an error, whatever sizes they claim.
func TableSchema(serialized []byte) (*arrow.Schema, error) {
	return flightconn.DecodeSchema(serialized)
}

// TableTypes lists the kinds of table that the server has.
func (p *FlightSQLPool) TableTypes(ctx context.Context) (*QueryResult, error) {
	return p.metadata(ctx, "TableTypes", backend.MetadataRequest{Kind: backend.MetadataTableTypes})
}

// PrimaryKeys lists the primary key columns of a table.
func (p *FlightSQLPool) PrimaryKeys(ctx context.Context, t TableRef) (*QueryResult, error) {
	return p.keys(ctx, "PrimaryKeys", backend.MetadataPrimaryKeys, t)
}

// ImportedKeys lists the foreign keys of a table.
func (p *FlightSQLPool) ImportedKeys(ctx context.Context, t TableRef) (*QueryResult, error) {
	return p.keys(ctx, "ImportedKeys", backend.MetadataImportedKeys, t)
}

// ExportedKeys lists the foreign keys of other tables that refer to a table.
func (p *FlightSQLPool) ExportedKeys(ctx context.Context, t TableRef) (*QueryResult, error) {
	return p.keys(ctx, "ExportedKeys", backend.MetadataExportedKeys, t)
}

// SQLInfo asks what the server is and can do, by the codes of Flight SQL's
// SqlInfo; none means all.
func (p *FlightSQLPool) SQLInfo(ctx context.Context, codes ...uint32) (*QueryResult, error) {
	return p.metadata(ctx, "SQLInfo", backend.MetadataRequest{Kind: backend.MetadataSQLInfo, Info: codes})
}

func (p *FlightSQLPool) keys(ctx context.Context, op string, kind backend.MetadataKind, t TableRef) (*QueryResult, error) {
	if t.Table == "" {
		return nil, badArgument(op, p.target, "TableRef.Table: a table name is needed")
	}
	return p.metadata(ctx, op, backend.MetadataRequest{Kind: kind, Catalog: t.Catalog, Schema: t.Schema, Table: &t.Table})
}

func (p *FlightSQLPool) metadata(ctx context.Context, op string, req backend.MetadataRequest) (*QueryResult, error) {
	return runStateless(ctx, p, op, "", QueryOptions{}, func(ctx context.Context, s *SessionHandle, _ QueryOptions) (*QueryResult, error) {
		return s.Metadata(ctx, req)
	})
}
