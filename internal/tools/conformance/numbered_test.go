//go:build duckdb_arrow

package conformance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/duckdb"
)

// SwanLake tells the columns that parameters are for in the order of the text.
func TestParametersWithNumbersAreSentInTheirOwnFormByEachBackend(t *testing.T) {
	for _, tested := range []string{"native", "open", "new"} {
		srv, err := duckdb.Start(t.Context(), duckdb.Config{}, testserver.Options{Profile: testserver.SwanLake()})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, srv.Close()) })
		pool := poolOf(t, tested, srv.Addr())
		for _, sql := range []string{"CREATE TABLE swanlake.o (id INTEGER, due DATE)", "INSERT INTO swanlake.o VALUES (1, NULL)"} {
			_, err := pool.Update(t.Context(), sql)
			require.NoError(t, err, sql)
		}
		due := time.Date(2024, 5, 1, 0, 0, 0, 0, time.FixedZone("", 2*60*60))
		_, err = pool.Update(t.Context(), "UPDATE swanlake.o SET due = $2 WHERE id = $1", 1, due)
		require.NoError(t, err, tested)
		rows, err := flightpool.CollectRows[string](pool.Query(t.Context(), "SELECT due::VARCHAR FROM swanlake.o"))
		require.NoError(t, err, tested)
		require.Equal(t, []string{"2024-05-01"}, rows, tested)
	}
}
