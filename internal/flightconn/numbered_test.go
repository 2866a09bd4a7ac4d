package flightconn

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
)

// SwanLake tells the columns that parameters are for in the order of the text, and has them bound by their numbers.
func TestParametersAreToldByTheirNumbers(t *testing.T) {
	const counted, other = "\x00\x00\x00\x00\x00\x00\x00\x07", "\x01\x00\x00\x00\x00\x00\x00\x07"
	for _, c := range []struct{ sql, handle, told, want string }{
		{"UPDATE t SET due = $2 WHERE id = $1", counted, "due id", "id due"},
		{"INSERT INTO t (a, b, c) VALUES ($3, $1, $2)", counted, "a b c", "b c a"},
		{"UPDATE t SET due = $2 WHERE id = $1", other, "due id", "due id"},
		{"UPDATE t SET due = $2 WHERE id = $1", counted, "$1 $2", "$1 $2"},
		{"UPDATE t SET due = $1 WHERE id = $2", counted, "due id", "due id"},
		{"UPDATE t SET due = ? WHERE id = ?", counted, "due id", "due id"},
		{"UPDATE t SET due = $1 WHERE id = $2 OR f($1)", counted, "due id", "due id"},
		{"UPDATE t SET due = $2 WHERE id = $1 OR f($2)", counted, "due id", ""},
		{"UPDATE t SET due = $3 WHERE id = $1", counted, "due id", ""},
		{"UPDATE t SET due = $2 WHERE id = $2", counted, "due id", ""},
		{"UPDATE t SET due = $0 WHERE id = $2", counted, "due id", ""},
		{"SELECT 1", counted, "", ""},
	} {
		f := &fake{action: func(_ *pb.Action, s pb.FlightService_DoActionServer) error {
			return s.Send(&pb.Result{Body: pack(&pb.ActionCreatePreparedStatementResult{
				PreparedStatementHandle: []byte(c.handle), ParameterSchema: flight.SerializeSchema(namedFields(c.told), memory.DefaultAllocator),
			})})
		}}
		inBubble(t, f, func(b *bubble) {
			p, err := b.open().Prepare(b.Context(), c.sql, backend.Call{})
			require.NoError(b, err)
			var names []string
			if told := p.ParameterSchema(); told != nil {
				for _, field := range told.Fields() {
					names = append(names, field.Name)
				}
			}
			require.Equal(b, c.want, strings.Join(names, " "), c.sql)
		})
	}
}
