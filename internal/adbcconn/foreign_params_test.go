package adbcconn

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// Bind is that of ADBC's driver manager, which exports what it is given: without a batch it crashes.
func (s *stubbornStatement) Bind(_ context.Context, params arrow.RecordBatch) error {
	params.Retain()
	s.unbind()
	s.bound = params
	return nil
}

func (s *stubbornStatement) unbind() {
	if s.bound != nil {
		s.bound.Release()
	}
}

func (s *stubbornStatement) ExecuteUpdate(context.Context) (int64, error) {
	s.driver.enter(s.driver.query)
	if s.stream == nil {
		return 1, nil
	}
	return s.load()
}

// ADBC lets a driver keep parameters until others are bound or the statement is closed, and has
// no way to take them back: the driver manager, which all drivers in C are used by, crashed at it.
func TestParametersOfAForeignStatementStayBoundUntilItsEnd(t *testing.T) {
	withStubborn(t, func(t *testing.T, _ *stubborn, c backend.Conn) {
		mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
		defer mem.AssertSize(t, 0)
		p, err := c.Prepare(t.Context(), "q", backend.Call{})
		require.NoError(t, err)
		for range 2 {
			b := array.NewRecordBuilder(mem, arrow.NewSchema([]arrow.Field{{Name: "1", Type: arrow.PrimitiveTypes.Int64}}, nil))
			b.Field(0).(*array.Int64Builder).Append(7)
			params := b.NewRecordBatch()
			b.Release()
			rows, err := p.Query(t.Context(), params, backend.Call{})
			require.NoError(t, err)
			_, err = ints(t, rows)
			require.NoError(t, err)
			n, err := p.Update(t.Context(), params, backend.Call{})
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			params.Release()
		}
		require.NoError(t, p.Close(t.Context()))
		require.NoError(t, c.Lost())
	})
}
