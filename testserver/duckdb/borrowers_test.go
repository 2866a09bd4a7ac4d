//go:build duckdb_arrow

package duckdb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
)

// inAnyOrder are statements that depend on what came before them: names that come again for other
// things, what OnConnect has made and prepared, and things that are made, changed and taken away.
var inAnyOrder = []string{
	"CREATE TEMP TABLE x (a INT)", "CREATE OR REPLACE TEMP TABLE x AS SELECT 1 AS b", "CREATE TEMP TABLE IF NOT EXISTS x (a INT)", "CREATE OR REPLACE TEMP TABLE mine (b INT)", "DROP TABLE x", "DROP TABLE IF EXISTS x",
	"CREATE TABLE x (a INT)", "CREATE OR REPLACE TABLE x (c INT)", "DROP TABLE lake.main.x", "CREATE TEMP VIEW x AS SELECT 1", "CREATE OR REPLACE TEMP VIEW y AS FROM t", "DROP VIEW x", "DROP VIEW IF EXISTS y", "CREATE OR REPLACE VIEW y AS FROM t",
	"ALTER TABLE x RENAME TO y", "ALTER TABLE y RENAME TO x", "ALTER TABLE x ADD COLUMN d INT", "ALTER TABLE x ADD COLUMN d INT DEFAULT error('x')", "ALTER VIEW y RENAME TO x", "CREATE INDEX i ON x (a)", "CREATE TEMP TABLE y (a INT PRIMARY KEY); CREATE TEMP TABLE z (a INT REFERENCES y (a))",
	"DROP TABLE mine", "ALTER TABLE mine RENAME TO x", "EXPLAIN ANALYZE DROP TABLE mine", "EXPLAIN ANALYZE CREATE TEMP TABLE x (a INT)", "DROP VIEW yours", "CREATE OR REPLACE TEMP VIEW yours AS SELECT 3",
	"PREPARE q AS SELECT 1", "PREPARE Q AS SELECT 2", "DEALLOCATE q", "DEALLOCATE Q", "PREPARE atstart AS SELECT 2", "DEALLOCATE atstart", "PREPARE q AS SELECT 1; DEALLOCATE q", "PREPARE q AS SELECT error('x'); SELECT error('x'); DEALLOCATE q", "PREPARE q AS DROP TABLE mine", "EXECUTE q",
	"USE lake.other", "USE lake2", "USE lake", "SET schema = 'other'", "SET search_path = 'lake2,lake.other'", "SET search_path = 'temp.main,lake.main'", "RESET search_path", "RESET schema", "USE nosuch", "DROP SCHEMA lake.other CASCADE", "CREATE SCHEMA IF NOT EXISTS lake.other", "CREATE SCHEMA IF NOT EXISTS temp",
	"ATTACH ':memory:' AS more", "USE more", "DETACH more", "DETACH lake2", "SET VARIABLE v = 2", "SET VARIABLE w = 2", "RESET VARIABLE v", "CREATE TEMP MACRO m() AS 1", "CREATE TEMP SEQUENCE s", "CREATE TEMP TYPE e AS ENUM ('a')", "CREATE SECRET s (TYPE http, BEARER_TOKEN 'x')",
	"SET default_null_order = 'nulls_last'", "SET SESSION default_null_order = 'nulls_last'", "RESET default_null_order", "RESET SESSION default_null_order", "SET null_order = DEFAULT", "SET TimeZone = 'Asia/Tokyo'", "SET threads = 2", "RESET threads", "PRAGMA threads = 4", "SET threads = 'nosuch'", "SET threads = 2; SELECT error('x')",
	"SET errors_as_json = true", "RESET ALL", "PIVOT t ON a", "CREATE TEMP TABLE x AS PIVOT t ON a", "CREATE TABLE n AS PIVOT t ON a USING sum(nosuch)", "COPY FROM DATABASE lake2 TO nosuch", "SELECT error('x')", "FROM nosuch", "SELECT 1", "INSERT INTO t VALUES (4)", "FROM range(100000)",
}

// borrow is one borrower: it runs some statements, in transactions or not, to their ends or not, and goes. It
// tells what it did.
func borrow(t *testing.T, pool *flightpool.FlightSQLPool, rng *rand.Rand) (did []string) {
	h, err := pool.AcquireSession(t.Context())
	require.NoError(t, err)
	dir := filepath.ToSlash(t.TempDir())
	for range 1 + rng.IntN(7) {
		text := inAnyOrder[rng.IntN(len(inAnyOrder))]
		if rng.IntN(5) == 0 {
			text = tryOut[rng.IntN(len(tryOut))]
		}
		if strings.Contains(text, "memory_limit") { // which DuckDB tells rounded
			continue
		}
		sql := strings.ReplaceAll(text, "DIR", dir)
		var how string
		switch rng.IntN(20) {
		case 0:
			how, err = "begin", h.BeginTransaction(t.Context())
		case 1:
			how, err = "commit", h.Commit(t.Context())
		case 2:
			how, err = "rollback", h.Rollback(t.Context())
		case 3:
			how, err = "option", h.SetOption(t.Context(), "catalog", []string{"lake2", "memory", "nosuch"}[rng.IntN(3)])
		case 4:
			opts := flightpool.IngestOptions{Mode: []flightpool.IngestMode{flightpool.IngestCreate, flightpool.IngestReplace, flightpool.IngestAppend, flightpool.IngestCreateAppend}[rng.IntN(4)], Temporary: rng.IntN(2) == 0}
			how = fmt.Sprintf("ingest %+v", opts)
			_, err = flightpool.IngestRows(t.Context(), h, []string{"x", "mine"}[rng.IntN(2)], slices.Values([]struct{ A int32 }{{1}}), opts)
		case 5, 6:
			how = "prepared " + sql
			q, preparing := h.PrepareQuery(t.Context(), sql)
			if err = preparing; err == nil {
				for range rng.IntN(3) {
					_, err = q.Update(t.Context())
				}
			}
		case 7, 8:
			how = "cut " + sql
			ctx, cancel := context.WithCancel(t.Context())
			res, sending := h.QueryWithOptions(ctx, sql, flightpool.QueryOptions{Route: flightpool.RouteQuery})
			if err = sending; err == nil {
				cancel()
				res.Release()
			}
			cancel()
		case 9, 10:
			how = "update " + sql
			_, err = h.Update(t.Context(), sql)
		default:
			how, err = sql, nil
			if run(t, h, sql) {
				err = errors.New("refused")
			}
		}
		if err != nil {
			how += " (fails)"
		}
		did = append(did, how)
	}
	if rng.IntN(8) == 0 {
		_ = h.Discard(errors.New("not wanted any more")) // its error is the reason
		return append(did, "discard")
	}
	_ = h.Close() // its error says that the connection was discarded
	return did
}

// Whatever borrowers run after each other, the next one finds the session as OnConnect has left it. PROVE_SEED
// and PROVE_SCENES repeat it and make it longer.
func TestTheNextBorrowerFindsTheSessionAsItWasAfterAnything(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64)
	scenes, _ := strconv.ParseUint(os.Getenv("PROVE_SCENES"), 10, 64)
	_, pool, session := startAtStart(t, func(ctx context.Context, s *flightpool.SessionHandle) error {
		_, err := s.Update(ctx, "CREATE TEMP TABLE mine (a INT); CREATE TEMP VIEW yours AS SELECT 1; CREATE TEMP SEQUENCE mine_seq; CREATE TEMP MACRO mine_macro() AS 1; SET TimeZone = 'Europe/Oslo'; SET threads = 5; PREPARE atconnect AS SELECT 2")
		return err
	})
	start := session()
	for scene := range max(scenes, 25) {
		rng := rand.New(rand.NewPCG(seed+scene, 5)) //nolint:gosec // a repeatable sequence
		did := borrow(t, pool, rng)
		require.Equal(t, start, session(), "seed %d: %s", seed+scene, strings.Join(did, "\n"))
		if rng.IntN(10) == 0 {
			pool.Reset() // what is stored is gone with the session
		}
	}
}
