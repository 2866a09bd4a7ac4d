package sqldriver

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestRowsOfBatchesOfAnySize: long batches are read column by column, short ones are not.
func TestRowsOfBatchesOfAnySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, open := inMemory(t, 0)
		p, err := open(t.Context())
		require.NoError(t, err)
		db := OpenDB(p)
		for _, size := range []int{1, manyRows - 1, manyRows, manyRows + 3} {
			n := 3*size + manyRows/2 // and a batch that is shorter
			rows, err := db.QueryContext(t.Context(), fmt.Sprintf("SELECT * FROM generate(%d, %d)", n, size))
			require.NoError(t, err)
			var i int
			for rows.Next() {
				var v any
				require.NoError(t, rows.Scan(&v))
				require.Equal(t, int64(i), v)
				i++
			}
			require.NoError(t, rows.Err())
			require.Equal(t, n, i)
		}
		require.NoError(t, db.Close())
		require.NoError(t, p.Close(context.Background()))
	})
}
