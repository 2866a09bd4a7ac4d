package adbcconn

import (
	"strings"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"

	"github.com/flightpool/flightpool/backend"
)

// InfluxDB 3 knows the parameters of a query by the numbers that it has told of them alone.
func TestColumnsOfABatchAreTheParametersOfTheirPositionThroughTheDriver(t *testing.T) {
	fields := func(names ...string) *arrow.Schema {
		var all []arrow.Field
		for _, name := range names {
			all = append(all, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64, Nullable: true})
		}
		return arrow.NewSchema(all, nil)
	}
	var got []string
	withFake(t, &fake{params: flight.SerializeSchema(fields("$2", "$1"), memory.DefaultAllocator), put: func(s pb.FlightService_DoPutServer) error {
		rows, err := flight.NewRecordReader(s)
		if err != nil {
			return err
		}
		defer rows.Release()
		for _, field := range rows.Schema().Fields() {
			got = append(got, field.Name)
		}
		for rows.Next() {
			continue // to the end
		}
		return rows.Err()
	}}, func(t *testing.T, c backend.Conn) {
		stmt, err := c.Prepare(t.Context(), "SELECT", backend.Call{})
		require.NoError(t, err)
		b := array.NewRecordBuilder(memory.DefaultAllocator, fields("host", "zone"))
		b.Field(0).AppendNull()
		b.Field(1).AppendNull()
		_, err = stmt.Query(t.Context(), b.NewRecordBatch(), backend.Call{})
		require.Error(t, err, "nothing is planned")
		require.Equal(t, []string{"1", "2"}, got)
	})
}

func TestParametersAreToldByTheirNumbersThroughTheDriver(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "due", Type: arrow.FixedWidthTypes.Date32, Nullable: true}, {Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
	withFake(t, &fake{handle: "\x00\x00\x00\x00\x00\x00\x00\x07", params: flight.SerializeSchema(schema, memory.DefaultAllocator)}, func(t *testing.T, c backend.Conn) {
		stmt, err := c.Prepare(t.Context(), "UPDATE t SET due = $2 WHERE id = $1", backend.Call{})
		require.NoError(t, err)
		require.Equal(t, "id", stmt.ParameterSchema().Field(0).Name)
		require.Equal(t, "due", stmt.ParameterSchema().Field(1).Name)
	})
}

// tellingStatement is one of a driver that tells its parameters.
type tellingStatement struct {
	adbc.Statement
	told *arrow.Schema
}

func (s *tellingStatement) GetParameterSchema() (*arrow.Schema, error) { return s.told, nil }

// A driver of ADBC's does not tell the handle by which SwanLake is known.
func TestParametersAreToldByTheirNumbersThroughADriverThatTellsNoHandle(t *testing.T) {
	for _, c := range []struct{ sql, told, want string }{
		{"UPDATE t SET due = $2 WHERE id = $1", "due id", "id due"},
		{"UPDATE t SET name = trim($1), due = $2 WHERE id = $3 AND due < $2", "due id due", ""},
		{"UPDATE t SET due = $2 WHERE id = $1", "parameter_1 parameter_2", "parameter_1 parameter_2"}, // GizmoSQL's are in their order
		{"UPDATE t SET due = $2 WHERE id = $1", "$1 $2", "$1 $2"},
		{"UPDATE t SET due = ? WHERE id = ?", "due id", "due id"},
		{"UPDATE t SET due = now()", "", ""},
	} {
		var fields []arrow.Field
		for _, name := range strings.Fields(c.told) {
			fields = append(fields, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64})
		}
		for _, flightSQL := range []bool{true, false} {
			p := &genericPrepared{conn: &GenericConn{isFlightSQL: flightSQL}, sql: c.sql}
			require.NoError(t, p.describe(t.Context(), &tellingStatement{told: arrow.NewSchema(fields, nil)}))
			var names []string
			if told := p.ParameterSchema(); told != nil {
				for _, field := range told.Fields() {
					names = append(names, field.Name)
				}
			}
			want := c.want
			if !flightSQL {
				want = c.told
			}
			require.Equal(t, want, strings.Join(names, " "), "%v %v", c, flightSQL)
		}
	}
}
