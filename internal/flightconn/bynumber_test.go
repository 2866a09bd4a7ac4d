package flightconn

import (
	"context"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
)

func namedFields(names string) *arrow.Schema {
	var fields []arrow.Field
	for _, name := range strings.Fields(names) {
		fields = append(fields, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64, Nullable: true})
	}
	return arrow.NewSchema(fields, nil)
}

// Servers made with DataFusion (InfluxDB 3) tell the parameters of a statement by their numbers, in any order, and know
// those that they are given by these names alone. The columns of a batch stand by their position.
func TestColumnsOfABatchAreTheParametersOfTheirPosition(t *testing.T) {
	for _, c := range []struct{ told, given, want string }{
		{"$2 $1", "host zone", "1 2"},
		{"$1 $2", "host ", "1 2"},
		{"$2 $1", "1 2", "1 2"},
		{"$2 $1", "2 1", "2 1"},   // which is for the caller to say
		{"$2 $1", "$2 $1", "2 1"}, // as in the schema that the server has told
		{"$b $a", "$b $a", "b a"},
		{"$b $a", "b a", "b a"},
		{"2 1", "host zone", "host zone"},
		{"", "host zone", "host zone"},
	} {
		given := namedFields(c.given)
		if given.NumFields() == 1 {
			given = arrow.NewSchema([]arrow.Field{given.Field(0), {Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
		}
		var got []string
		f := &fake{
			action: func(_ *pb.Action, s pb.FlightService_DoActionServer) error {
				return s.Send(&pb.Result{Body: pack(&pb.ActionCreatePreparedStatementResult{
					PreparedStatementHandle: []byte("h1"), ParameterSchema: flight.SerializeSchema(namedFields(c.told), memory.DefaultAllocator),
				})})
			},
			put: func(s pb.FlightService_DoPutServer) error {
				in, err := take(s)
				if err != nil {
					return err
				}
				for _, field := range in.schema.Fields() {
					got = append(got, field.Name)
				}
				return nil
			},
			info: func(context.Context, *pb.FlightDescriptor) (*pb.FlightInfo, error) {
				return answer(int64Schema, "0"), nil
			},
			get: byTicket,
		}
		inBubble(t, f, func(b *bubble) {
			p, err := b.open().Prepare(b.Context(), "SELECT", backend.Call{})
			require.NoError(b, err)
			rows := array.NewRecordBuilder(memory.DefaultAllocator, given)
			defer rows.Release()
			rows.Field(0).AppendNull()
			rows.Field(1).AppendNull()
			batch := rows.NewRecordBatch()
			defer batch.Release()
			s, err := p.Query(b.Context(), batch, backend.Call{})
			require.NoError(b, err)
			s.Close()
			require.Equal(b, c.want, strings.Join(got, " "), "%v", c)
		})
	}
}
