package flightpool

import (
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// asking is an argument that asks the pool for its value.
type asking struct{ value func() (driver.Value, error) }

func (a asking) Value() (driver.Value, error) { return a.value() }

// A Value method runs before the call has a connection, and once, however often the call
// is sent.
func TestArgumentsAreReadBeforeAConnectionIsTaken(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		calls := 0
		arg := asking{func() (driver.Value, error) {
			calls++
			var n int64
			err := r.pool.QueryRow(r.Context(), "SELECT * FROM generate(1)").Scan(&n)
			return n, err
		}}
		var n int64
		_ = r.pool.QueryRow(r.Context(), "SELECT ?", arg).Scan(&n)
		require.Equal(r, 1, calls)
		_, _ = r.pool.Update(r.Context(), "INSERT INTO t VALUES (?)", arg)
		require.Equal(r, 2, calls)
		refused := errors.New("no value")
		_, err := r.pool.Query(r.Context(), "SELECT ?", asking{func() (driver.Value, error) { return nil, refused }})
		require.ErrorIs(r, err, refused)
		require.Zero(r, r.pool.Stats().InUse)
		require.Panics(r, func() { _, _ = r.pool.Query(r.Context(), "SELECT ?", asking{}) })
		require.Zero(r, r.pool.Stats().InUse)
	})
}
