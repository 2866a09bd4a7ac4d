//go:build duckdb_arrow

package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/validation"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/adbcpool"
)

// quirks is what the validation suite must know of a server, and the driver that
// it tests: ADBC's own, or ours over one of the backends.
type quirks struct {
	server, client string
	db             adbc.Database
}

var _ validation.DriverQuirks = (*quirks)(nil)

// NewDatabase is part of adbc.Driver.
func (q *quirks) NewDatabase(map[string]string) (adbc.Database, error) { return q.db, nil }

// SetupDriver starts a server, and a client that ends before it.
func (q *quirks) SetupDriver(t *testing.T) adbc.Driver {
	start := startDuckDB
	if q.server == "SQLite" {
		start = startSQLite
	}
	addr, _ := start(t)
	q.db = q.connect(t, addr)
	return q
}

func (q *quirks) connect(t *testing.T, addr string) adbc.Database {
	if q.client == ownDriver {
		return unclosed{flightDriver(t, addr)}
	}
	return adbcpool.Database(poolOf(t, q.client, addr))
}

// poolOf makes a pool over one of the backends, which is closed at the end.
func poolOf(t *testing.T, tested, addr string) *flightpool.FlightSQLPool {
	cfg := flightpool.Config{MaxSize: 4}
	var p *flightpool.FlightSQLPool
	var err error
	switch tested {
	case "native":
		p, err = flightpool.New(t.Context(), "grpc://"+addr, cfg)
	case "open":
		p, err = adbcpool.Open(t.Context(), "grpc://"+addr, cfg)
	default:
		p, err = adbcpool.New(t.Context(), flightDriver(t, addr), cfg)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	return p
}

// unclosed is a database that is closed by the test's end, once.
type unclosed struct{ adbc.Database }

func (unclosed) Close() error { return nil }

// SetOption and the rest are those of adbc.GetSetOptions, which the suite looks
// for.
func (u unclosed) options() adbc.GetSetOptions { return u.Database.(adbc.GetSetOptions) }

func (u unclosed) SetOption(k, v string) error             { return u.options().SetOption(k, v) }
func (u unclosed) SetOptionBytes(k string, v []byte) error { return u.options().SetOptionBytes(k, v) }
func (u unclosed) SetOptionInt(k string, v int64) error    { return u.options().SetOptionInt(k, v) }
func (u unclosed) SetOptionDouble(k string, v float64) error {
	return u.options().SetOptionDouble(k, v)
}
func (u unclosed) GetOption(k string) (string, error)        { return u.options().GetOption(k) }
func (u unclosed) GetOptionBytes(k string) ([]byte, error)   { return u.options().GetOptionBytes(k) }
func (u unclosed) GetOptionInt(k string) (int64, error)      { return u.options().GetOptionInt(k) }
func (u unclosed) GetOptionDouble(k string) (float64, error) { return u.options().GetOptionDouble(k) }

func (q *quirks) TearDownDriver(*testing.T, adbc.Driver) {} // the test's clean-up does it

func (q *quirks) DatabaseOptions() map[string]string          { return nil }
func (q *quirks) BindParameter(int) string                    { return "?" }
func (q *quirks) SupportsBulkIngest(string) bool              { return q.server == "DuckDB" }
func (q *quirks) SupportsConcurrentStatements() bool          { return false }
func (q *quirks) SupportsCurrentCatalogSchema() bool          { return false }
func (q *quirks) SupportsGetSetOptions() bool                 { return true }
func (q *quirks) SupportsExecuteSchema() bool                 { return true }
func (q *quirks) SupportsPartitionedData() bool               { return q.client == ownDriver }
func (q *quirks) SupportsStatistics() bool                    { return false }
func (q *quirks) SupportsTransactions() bool                  { return true }
func (q *quirks) SupportsGetParameterSchema() bool            { return true }
func (q *quirks) SupportsDynamicParameterBinding() bool       { return true }
func (q *quirks) SupportsErrorIngestIncompatibleSchema() bool { return true }
func (q *quirks) Alloc() memory.Allocator                     { return memory.DefaultAllocator }

func (q *quirks) SampleTableSchemaMetadata(string, arrow.DataType) arrow.Metadata {
	return arrow.Metadata{}
}

// GetMetadata is what GetInfo must answer.
func (q *quirks) GetMetadata(code adbc.InfoCode) any {
	switch code {
	case adbc.InfoDriverName:
		if q.client == ownDriver {
			return "ADBC Flight SQL Driver - Go"
		}
		return "flightpool ADBC driver"
	case adbc.InfoDriverVersion, adbc.InfoDriverArrowVersion:
		if q.client == ownDriver { // it reads the build information, which tests have not
			return "(unknown or development build)"
		}
		return arrow.PkgVersion
	case adbc.InfoVendorArrowVersion:
		return arrow.PkgVersion
	case adbc.InfoDriverADBCVersion:
		return adbc.AdbcVersion1_1_0
	case adbc.InfoVendorName:
		return map[string]string{"DuckDB": "DuckDB", "SQLite": "db_name"}[q.server]
	case adbc.InfoVendorVersion:
		return map[string]string{"DuckDB": "v1.5.5", "SQLite": "sqlite 3"}[q.server]
	default:
		return nil
	}
}

func (q *quirks) Catalog() string {
	return map[string]string{"DuckDB": "memory", "SQLite": "main"}[q.server]
}

func (q *quirks) DBSchema() string {
	return map[string]string{"DuckDB": "main", "SQLite": ""}[q.server]
}

func (q *quirks) CreateSampleTable(name string, r arrow.RecordBatch) error {
	cn, err := q.db.Open(context.Background())
	if err != nil {
		return err
	}
	defer func() { _ = cn.Close() }()
	types := map[arrow.Type]map[string]string{
		arrow.INT64:  {"DuckDB": "BIGINT", "SQLite": "INTEGER"},
		arrow.STRING: {"DuckDB": "VARCHAR", "SQLite": "TEXT"},
	}
	var columns []string
	for _, f := range r.Schema().Fields() {
		columns = append(columns, f.Name+" "+types[f.Type.ID()][q.server])
	}
	if err := runADBC(cn, "CREATE TABLE "+name+" ("+strings.Join(columns, ", ")+")"); err != nil {
		return err
	}
	for i := range int(r.NumRows()) {
		var values []string
		for c := range int(r.NumCols()) {
			switch column := r.Column(c); {
			case column.IsNull(i):
				values = append(values, "NULL")
			case column.DataType().ID() == arrow.STRING:
				values = append(values, "'"+column.ValueStr(i)+"'")
			default:
				values = append(values, column.ValueStr(i))
			}
		}
		if err := runADBC(cn, fmt.Sprintf("INSERT INTO %s VALUES (%s)", name, strings.Join(values, ", "))); err != nil {
			return err
		}
	}
	return nil
}

func (q *quirks) DropTable(cn adbc.Connection, name string) error {
	return runADBC(cn, "DROP TABLE IF EXISTS "+name)
}

// runADBC runs a change.
func runADBC(cn adbc.Connection, sql string) error {
	st, err := cn.NewStatement()
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	if err := st.SetSqlQuery(sql); err != nil {
		return err
	}
	_, err = st.ExecuteUpdate(context.Background())
	return err
}

// validationFailures are the tests that fail, by server and name: with every
// client, because of what the server does, or only with those that are named.
// docs/adbc.md tells why.
var validationFailures = map[string]map[string][]string{
	"DuckDB": {
		"TestSQLPrepareSelectParams": nil,
		"TestSqlIngestErrors":        nil,
		"TestSqlIngestInts":          {ownDriver},
		"TestSqlIngestAppend":        {ownDriver},
		"TestSqlIngestReplace":       {ownDriver},
		"TestSqlIngestCreateAppend":  {ownDriver},
	},
	"SQLite": {
		"TestMetadataGetTableSchema":       nil,
		"TestSQLPrepareGetParameterSchema": nil,
		"TestSqlExecuteSchema":             nil,
	},
}
