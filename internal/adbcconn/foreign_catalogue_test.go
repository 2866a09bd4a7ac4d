package adbcconn

import (
	"cmp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/backend"
)

// The empty name means objects without a catalogue, to ADBC as to Flight SQL. Those were left out.
func TestTheEmptyCatalogueOfAForeignDriverIsNone(t *testing.T) {
	withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
		for _, none := range []string{"null", `""`} {
			tree, _, err := array.RecordFromJSON(memory.DefaultAllocator, adbc.GetObjectsSchema, strings.NewReader(`[
				{"catalog_name": `+none+`, "catalog_db_schemas": [{"db_schema_name": "s", "db_schema_tables": [{"table_name": "without", "table_type": "t"}]}]},
				{"catalog_name": "c", "catalog_db_schemas": [{"db_schema_name": "s", "db_schema_tables": [{"table_name": "with", "table_type": "t"}]}]}]`))
			require.NoError(t, err)
			d.malformed = tree
			for _, tc := range []struct {
				catalog *string
				want    string
			}{{nil, `["without" "with"]`}, {new(string), `["without"]`}, {ptr("c"), `["with"]`}, {ptr("d"), `[]`}} {
				rows, err := c.Metadata(t.Context(), backend.MetadataRequest{Kind: backend.MetadataTables, Catalog: tc.catalog}, backend.Call{})
				require.NoError(t, err)
				b, err := rows.Next()
				require.NoError(t, err)
				require.Equal(t, tc.want, b.Column(2).String())
				rows.Close()
			}
			tree.Release()
		}
	})
}

// ADBC's driver manager, by which drivers in C are used, gives them a list of types without an end, at which
// the process ended.
func TestTheTypesOfTablesAreNotLeftToAForeignDriver(t *testing.T) {
	withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
		tree, _, err := array.RecordFromJSON(memory.DefaultAllocator, adbc.GetObjectsSchema, strings.NewReader(`[
			{"catalog_name": "c", "catalog_db_schemas": [{"db_schema_name": "s", "db_schema_tables": [
				{"table_name": "t", "table_type": "table"}, {"table_name": "v", "table_type": "view"}, {"table_name": "x", "table_type": "TABLE"}]}]}]`))
		require.NoError(t, err)
		defer tree.Release()
		d.malformed = tree
		for _, tc := range []struct {
			types []string
			want  string
		}{{nil, `["t" "v" "x"]`}, {[]string{}, `["t" "v" "x"]`}, {[]string{"view", "other"}, `["v"]`}, {[]string{"table", "view"}, `["t" "v"]`}, {[]string{"none"}, `[]`}} {
			rows, err := c.Metadata(t.Context(), backend.MetadataRequest{Kind: backend.MetadataTables, TableTypes: tc.types}, backend.Call{})
			require.NoError(t, err)
			b, err := rows.Next()
			require.NoError(t, err)
			require.Equal(t, tc.want, b.Column(2).String())
			rows.Close()
		}
	})
}

// That of PostgreSQL compares the schema with the pattern, and found none.
func TestPatternsOfACatalogueAreNotLeftToAForeignDriver(t *testing.T) {
	withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
		tree, _, err := array.RecordFromJSON(memory.DefaultAllocator, adbc.GetObjectsSchema, strings.NewReader(`[
			{"catalog_name": "c", "catalog_db_schemas": [
				{"db_schema_name": "a_1", "db_schema_tables": [{"table_name": "t_1", "table_type": "t"}, {"table_name": "t21", "table_type": "t"}]},
				{"db_schema_name": "ab1", "db_schema_tables": [{"table_name": "u", "table_type": "t"}]}, {"db_schema_name": null, "db_schema_tables": []}]}]`))
		require.NoError(t, err)
		defer tree.Release()
		d.malformed = tree
		ask := func(req backend.MetadataRequest, column int) string {
			rows, err := c.Metadata(t.Context(), req, backend.Call{})
			require.NoError(t, err)
			defer rows.Close()
			b, err := rows.Next()
			require.NoError(t, err)
			return b.Column(column).String()
		}
		for pattern, want := range map[string]string{`a%`: `["a_1" "ab1"]`, `a_1`: `["a_1" "ab1"]`, `a\_1`: `["a_1"]`, `b%`: `[]`, `%`: `["a_1" "ab1" ""]`} {
			require.Equal(t, want, ask(backend.MetadataRequest{Kind: backend.MetadataSchemas, Schema: &pattern}, 1), pattern)
		}
		require.Equal(t, `["t_1" "t21"]`, ask(backend.MetadataRequest{Kind: backend.MetadataTables, Schema: ptr(`a\_%`)}, 2))
		require.Equal(t, `["t_1"]`, ask(backend.MetadataRequest{Kind: backend.MetadataTables, Table: ptr(`t\_1`)}, 2))
	})
}

func ptr[T any](v T) *T { return &v }

// A driver that has no headers did without those of a call.
func TestTheHeadersOfACatalogueCallAreSentOrItFails(t *testing.T) {
	withStubborn(t, func(t *testing.T, d *stubborn, c backend.Conn) {
		tree, _, err := array.RecordFromJSON(memory.DefaultAllocator, adbc.GetObjectsSchema, strings.NewReader(`[]`))
		require.NoError(t, err)
		defer tree.Release()
		d.malformed = tree
		d.begin = adbc.Error{Code: adbc.StatusNotImplemented, Msg: "no such option"}
		for _, kind := range []backend.MetadataKind{backend.MetadataTables, backend.MetadataTableTypes} {
			_, err = c.Metadata(t.Context(), backend.MetadataRequest{Kind: kind}, backend.Call{Headers: metadata.Pairs("x-who", "me")})
			require.Equal(t, backend.FaultUnsupported, backend.FaultIn(err), "%v", err)
		}
	})
}

func TestTheHeadersOfACatalogueCallAreThatCallsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen atomic.Pointer[metadata.MD] // the driver opens endpoints beside each other
		f := &fake{info: endpointsOf(3, true)}
		f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
			headers, _ := metadata.FromIncomingContext(s.Context())
			seen.Store(&headers)
			batch := int64s(7)
			defer batch.Release()
			w := flight.NewRecordWriter(s, ipc.WithSchema(batch.Schema()))
			return cmp.Or(w.Write(batch), w.Close())
		}
		c := foreignOn(t, f)
		rows, err := c.Metadata(t.Context(), backend.MetadataRequest{Kind: backend.MetadataTableTypes}, backend.Call{Headers: metadata.Pairs("x-who", "me")})
		require.NoError(t, err)
		got, err := ints(t, rows)
		require.NoError(t, err)
		require.Equal(t, []int64{7, 7, 7}, got)
		require.Equal(t, []string{"me"}, seen.Load().Get("x-who"))
		require.NoError(t, c.Ping(t.Context()))
		require.Empty(t, seen.Load().Get("x-who"))
	})
}
