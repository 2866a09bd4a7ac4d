//go:build duckdb_arrow

package duckdb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// Many borrowers of one DuckDB who change settings of the whole server and of their sessions, fail
// and discard: in the end all of it is as it was. PROVE_SEED and PROVE_SCENES repeat it and make it longer.
func TestManyBorrowersLeaveTheSettingsOfTheServer(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64)
	scenes, _ := strconv.ParseUint(os.Getenv("PROVE_SCENES"), 10, 64)
	srv, err := Start(t.Context(), Config{Settings: map[string]string{"threads": "3", "checkpoint_threshold": "20MB", "preserve_insertion_order": "false"}}, testserver.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Close()) }()
	pool, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{MaxSize: 5, HealthCheck: flightpool.HealthCheck{Interval: -1}})
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close(t.Context())) }()
	settings := func() map[string]string {
		type setting struct{ Name, Value string }
		rows, err := flightpool.CollectRows[setting](pool.Query(t.Context(), "SELECT name, coalesce(value, '') AS value FROM duckdb_settings()"))
		require.NoError(t, err)
		all := map[string]string{}
		for _, r := range rows {
			all[r.Name] = r.Value
		}
		return all
	}
	start := settings()
	for scene := range max(scenes, 3) {
		var wg sync.WaitGroup
		for i := range 5 {
			rnd := rand.New(rand.NewPCG(seed+scene, uint64(i))) //nolint:gosec // a repeatable sequence
			wg.Go(func() {
				for range 6 {
					borrowSettings(t.Context(), pool, rnd)
				}
			})
		}
		wg.Wait()
		require.NoError(t, srv.Ledger().WaitIdle(t.Context()))
		var handles []*flightpool.SessionHandle // all of them, so that what goes on behind callers has ended
		for range 5 {
			h, err := pool.AcquireSession(t.Context())
			require.NoError(t, err)
			handles = append(handles, h)
		}
		for _, h := range handles {
			require.NoError(t, h.Close())
		}
		for name, now := range settings() {
			require.Equal(t, start[name], now, "%s, seed %d", name, seed+scene)
		}
	}
}

// borrowSettings is one session of a borrower, who changes some settings.
func borrowSettings(ctx context.Context, pool *flightpool.FlightSQLPool, rnd *rand.Rand) {
	h, err := pool.AcquireSession(ctx)
	if err != nil {
		return
	}
	statements := []string{
		"SET threads = 1", "SET threads = 2", "RESET threads", "SET checkpoint_threshold = '1MB'", "SET preserve_insertion_order = true", "SET TimeZone = 'Asia/Tokyo'", "SET default_null_order = 'nulls_first'",
		"SET http_proxy_password = 'x'", "SET threads = 'nosuch'", "CREATE TEMP TABLE x (a INT)", "SET VARIABLE v = 1", "SELECT error('x')", "SELECT 1", "SET threads = 4; SELECT error('x')",
	}
	for range 1 + rnd.IntN(4) {
		_, _ = h.Update(ctx, statements[rnd.IntN(len(statements))])
	}
	switch rnd.IntN(5) {
	case 0:
		_ = h.Discard(errors.New("not wanted any more"))
	case 1:
		_ = h.BeginTransaction(ctx)
		_, _ = h.Update(ctx, fmt.Sprintf("SET threads = %d", 1+rnd.IntN(4)))
		_ = h.Close()
	default:
		_ = h.Close()
	}
}
