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
		{"UPDATE t SET due = $2 WHERE id = $1 OR f($2)", counted, "due id", "id due"},
		{"UPDATE t SET name = trim($1), due = $2 WHERE id = $3 AND (due IS NULL OR due < $2)", counted, "due id due", ""},
		{"UPDATE t SET due = $2, name = trim($1) WHERE id = $3 AND due < $2", counted, "due id due", ""},
		{"UPDATE t SET due = f($1) WHERE due = $2 AND id > $2", counted, "due id", ""},
		{"SELECT * FROM t WHERE ($1 IS NULL OR Due = $1) AND (id IN ($3, $2) OR f($2))", counted, "due id id", "due id id"},
		{"SELECT * FROM t WHERE ($1 IS NULL OR $1 <= t.due) AND id = $2", counted, "due id", "due id"},
		{"SELECT * FROM t WHERE due BETWEEN $1 AND CAST($2 AS DATE) OR f($2)", counted, "due due", "due due"},
		{"SELECT * FROM t WHERE since <= $1 AND due >= $1 AND ($2 IS NULL OR seen >= date_trunc('hour', $2))", counted, "since due", ""},
		{"SELECT * FROM t WHERE since <= $1 AND due >= $1 AND date_diff('hour', due, $2) > 3", counted, "since due", ""},
		{"INSERT INTO t (a, b) VALUES ($1, $2) ON CONFLICT (a) DO UPDATE SET b = $2", counted, "a b", "a b"},
		{"INSERT INTO t (a, b) VALUES ($2, $1) ON CONFLICT (a) DO UPDATE SET b = $1", counted, "a b", "b a"},
		{"INSERT INTO t (a, b) VALUES ($1, $1) ON CONFLICT (a) DO UPDATE SET b = $2", counted, "a b", ""},
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
