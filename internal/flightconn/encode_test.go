package flightconn

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

func split(t testing.TB, batch arrow.RecordBatch, limit int) ([]*pb.FlightData, error) {
	t.Helper()
	e := newEncoder(describe(&pb.CommandGetCatalogs{}), batch.Schema(), limit)
	defer e.close()
	return e.flightData(batch)
}

// flightData is encode for those who read what it gives.
func (e *encoder) flightData(batch arrow.RecordBatch) (out []*pb.FlightData, err error) {
	messages, err := e.encode(batch)
	for _, m := range messages {
		out = append(out, m.flightData())
	}
	return out, err
}

// A message may be as large as the limit, and not a byte larger.
func TestMessagesAreUpToTheLimit(t *testing.T) {
	b := array.NewBuilder(memory.DefaultAllocator, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String})
	defer b.Release()
	require.NoError(t, b.AppendValueFromString(strings.Repeat("x", 5000)))
	column := b.NewArray()
	defer column.Release()
	coded := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "d", Type: column.DataType()}}, nil), []arrow.Array{column}, 1)
	defer coded.Release()
	for name, c := range map[string]struct {
		batch  arrow.RecordBatch
		splits bool
		what   string
	}{
		"two rows":     {texts(strings.Repeat("a", 999), strings.Repeat("b", 999)), true, ""},
		"a row":        {texts(strings.Repeat("a", 999)), false, "row 0"},
		"a dictionary": {coded, false, "a schema or dictionary"},
	} {
		clean, err := split(t, c.batch, 1<<20)
		require.NoError(t, err)
		limit := 0
		for i, m := range clean {
			limit = max(limit, proto.Size(m))
			require.Equal(t, i == 0, m.GetFlightDescriptor() != nil, "%s: the first message alone names the command", name)
		}
		fits, err := split(t, c.batch, limit)
		require.NoError(t, err, name)
		require.Len(t, fits, len(clean), name)
		less, err := split(t, c.batch, limit-1)
		if c.splits {
			require.NoError(t, err, name)
			require.Len(t, less, len(clean)+1, name)
		} else {
			require.ErrorContains(t, err, c.what, name)
		}
	}
}

// Large rows make the messages after them no smaller than they need be.
func TestMessagesAreNearlyFull(t *testing.T) {
	const limit = 4 << 10
	for name, sizes := range map[string]func(i int) int{
		"even":                       func(int) int { return 100 },
		"large ones first":           func(i int) int { return 20 + 2500*max(0, 10-i)/10 },
		"large ones in the middle":   func(i int) int { return 20 + 2500*max(0, 5-max(i-400, 400-i))/5 },
		"one row in each message":    func(int) int { return 3000 },
		"next to nothing in each":    func(int) int { return 1 },
		"every tenth a hundred fold": func(i int) int { return 10 + 1000*max(0, 1-i%10) },
	} {
		rows, total := make([]string, 800), 0
		for i := range rows {
			rows[i] = strings.Repeat("x", sizes(i))
			total += len(rows[i]) + 4
		}
		batch := texts(rows...)
		messages, err := split(t, batch, limit)
		require.NoError(t, err)
		count := int64(0)
		for _, m := range messages {
			require.LessOrEqual(t, proto.Size(m), limit, name)
			count++
		}
		require.LessOrEqual(t, count, int64(20+3*total/limit), name)
		batch.Release()
	}
}
