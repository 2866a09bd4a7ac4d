package flightpool

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

// withAnswers is inBubble on a server that answers these texts with one row.
func withAnswers(t *testing.T, texts []string, f func(r *rig)) {
	t.Helper()
	engine := script.New()
	for _, sql := range texts {
		engine.On(sql, script.Rows(ints("a", 1)))
	}
	inBubbleOn(t, testserver.Options{Engine: engine}, Config{}, f)
}

// What executes a change is not repeated when its reply is lost, however the
// change is wrapped.
func TestAWrappedChangeIsNotRepeated(t *testing.T) {
	texts := []string{
		"EXPLAIN (ANALYZE) DELETE FROM t", "EXPLAIN ANALYZE DROP TABLE t", "WITH a AS (SELECT 1) REPLACE INTO t SELECT * FROM a",
		"WITH x AS (WITH y AS (SELECT 1) DELETE FROM t RETURNING *) SELECT * FROM x", "FROM src INSERT INTO dst", "FROM t SELECT * INTO dst",
		"SELECT 1 /* never closed", `SELECT 'x\', '; DELETE FROM t; -- '`, "SELECT 1 --\r; DELETE FROM t", "SELECT nextval('s')", "INSERT INTO t VALUES (1) RETURNING a",
	}
	withAnswers(t, texts, func(r *rig) {
		for _, sql := range texts {
			for _, route := range []Route{RouteAuto, RouteQuery, RouteUpdate} {
				before := r.executions(sql)
				r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, After: true, SQL: sql, Times: 1, Do: testserver.Kill()})
				res, err := r.pool.QueryWithOptions(r.Context(), sql, QueryOptions{Route: route})
				if err == nil {
					res.Release()
				}
				require.LessOrEqual(r, r.executions(sql)-before, 1, "%s by %d: %v", sql, route, err)
				r.srv.Faults().Clear()
			}
		}
	})
}

// The rows of a statement come back, or it is not sent.
func TestRowsAreNotDroppedInSilence(t *testing.T) {
	rows := []string{"EXISTS TABLE t", "LIST JARS", "WITH a AS (SELECT 1) (SELECT * FROM a)", "PRAGMA table_info('t')", "CALL p()", "SELECT 1; SELECT 2"}
	refused := []string{"OPTIMIZE TABLE t", "SELEC 1", "SET x = 1; SELECT 1", "CREATE TEMP TABLE t AS SELECT 1; SELECT * FROM t", "EXPLAIN ANALYZE INSERT INTO t VALUES (1)",
		"WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a RETURNING *", "'text'", "SELECT 'never closed"}
	withAnswers(t, append(rows, refused...), func(r *rig) {
		for _, sql := range rows {
			require.Equal(r, "1", r.value(r.pool, sql), sql)
		}
		for _, sql := range refused {
			_, err := r.pool.Query(r.Context(), sql)
			require.ErrorIs(r, err, ErrAmbiguousRoute, sql)
			require.ErrorContains(r, err, "QueryOptions.Route", sql)
			var e *Error
			require.ErrorAs(r, err, &e)
			require.Equal(r, FaultUsage, e.Fault)
			require.True(r, e.Unsent)
			_, err = r.pool.Execute(r.Context(), sql)
			require.ErrorIs(r, err, ErrAmbiguousRoute, sql)
			require.Zero(r, r.executions(sql), sql)

			res, err := r.pool.QueryWithOptions(r.Context(), sql, QueryOptions{Route: RouteQuery})
			require.NoError(r, err, sql)
			require.True(r, res.Next(), sql)
			require.EqualValues(r, 1, res.RecordBatch().NumRows(), sql)
			res.Release()
			res, err = r.pool.QueryWithOptions(r.Context(), sql, QueryOptions{Route: RouteUpdate})
			require.NoError(r, err, sql)
			_, known := res.RowsAffected()
			require.True(r, known, sql)
			res.Release()
			_, err = r.pool.Update(r.Context(), sql)
			require.NoError(r, err, sql)
			require.Equal(r, 3, r.executions(sql), sql)
		}
		_, err := r.pool.UpdateWithOptions(r.Context(), "SELECT 1", QueryOptions{Route: RouteQuery})
		require.ErrorContains(r, err, "RouteQuery")
		_, err = r.pool.QueryWithOptions(r.Context(), "SELECT 1", QueryOptions{Route: 7})
		require.ErrorContains(r, err, "Route 7")
		s := r.session()
		q, err := s.PrepareQuery(r.Context(), "OPTIMIZE TABLE t")
		require.NoError(r, err)
		_, err = q.Query(r.Context())
		require.ErrorIs(r, err, ErrAmbiguousRoute)
		_, err = q.Update(r.Context())
		require.NoError(r, err)
		q, err = s.PrepareQueryWithOptions(r.Context(), "OPTIMIZE TABLE t", QueryOptions{Route: RouteQuery})
		require.NoError(r, err)
		require.NoError(r, readAll(q.Query(r.Context())))
		_, err = s.PrepareQueryWithOptions(r.Context(), "OPTIMIZE TABLE t", QueryOptions{Route: 7})
		require.ErrorContains(r, err, "Route 7")
		require.NoError(r, s.Close())
	})
}

// A server that executes a query twice is given none that changes something.
func TestAChangeWithRowsIsNotExecutedTwice(t *testing.T) {
	texts := []string{
		"INSERT INTO t VALUES (1) RETURNING a", "UPSERT INTO t VALUES (1) RETURNING a", "CALL p()", "EXECUTE p", "EXEC p", "FETCH NEXT FROM c",
		"SELECT nextval('s')", "UPDATE t SET a = 2 RETURNING a", "MERGE INTO t RETURNING a",
	}
	for _, profile := range []testserver.Profile{testserver.SwanLake(), testserver.Strict(), testserver.Dremio()} {
		twice := profile.Run == testserver.RunInBoth
		engine := script.New()
		for _, sql := range texts {
			engine.On(sql, script.Rows(ints("a", 1)))
		}
		calls := map[string]func(r *rig, sql string, route Route) error{
			"pool": func(r *rig, sql string, route Route) error {
				return readAll(r.pool.QueryWithOptions(r.Context(), sql, QueryOptions{Route: route}))
			},
			"parameters": func(r *rig, sql string, route Route) error {
				batch := ints("a", 1)
				defer batch.Release()
				return readAll(r.pool.QueryWithOptions(r.Context(), sql, QueryOptions{Route: route, Params: batch}))
			},
			"prepared": func(r *rig, sql string, route Route) error {
				s := r.session()
				defer func() { _ = s.Close() }()
				q, err := s.PrepareQueryWithOptions(r.Context(), sql, QueryOptions{Route: route})
				if err != nil {
					return err
				}
				return readAll(q.Query(r.Context()))
			},
			"transaction": func(r *rig, sql string, route Route) error {
				s := r.session()
				defer func() { _ = s.Close() }()
				if err := s.BeginTransaction(r.Context()); err != nil {
					return err
				}
				return readAll(s.QueryWithOptions(r.Context(), sql, QueryOptions{Route: route}))
			},
		}
		inBubbleOn(t, testserver.Options{Profile: profile, Engine: engine}, Config{MaxSize: 2}, func(r *rig) {
			for name, call := range calls {
				if name == "transaction" && profile.Name == "dremio" {
					continue
				}
				for _, sql := range texts {
					before := r.executions(sql)
					err := call(r, sql, RouteAuto)
					if twice {
						require.ErrorIs(r, err, ErrAmbiguousRoute, "%s: %s", name, sql)
						require.ErrorContains(r, err, "may execute it twice")
						require.Zero(r, r.executions(sql)-before, "%s: %s", name, sql)
					} else if name != "parameters" { // this engine knows the texts without
						require.NoError(r, err, "%s on %s: %s", name, profile.Name, sql)
						require.Equal(r, 1, r.executions(sql)-before, "%s: %s", name, sql)
					}
				}
			}
			if twice { // whoever asks for the rows gets them
				for name, call := range calls {
					require.NoError(r, call(r, "SELECT nextval('s')", RouteQuery), name)
				}
			}
		})
	}
}

// readAll reads a result to its end.
func readAll(res *QueryResult, err error) error {
	if err != nil {
		return err
	}
	defer res.Release()
	for res.Next() {
		continue
	}
	return res.Err()
}

// Several statements with parameters would be executed in part when they are
// prepared, and again when they are run.
func TestParametersAreForOneStatement(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		const sql = "INSERT INTO t VALUES (1); SELECT ?"
		batch := ints("a", 1)
		defer batch.Release()
		_, err := r.pool.QueryWithOptions(r.Context(), sql, QueryOptions{Params: batch, Route: RouteQuery})
		require.ErrorContains(r, err, "must be one statement; this one has 2")
		_, err = r.pool.UpdateWithRecordBatch(r.Context(), sql, batch)
		require.ErrorContains(r, err, "must be one statement")
		s := r.session()
		_, err = s.PrepareQuery(r.Context(), sql)
		require.ErrorContains(r, err, "must be one statement")
		require.NoError(r, s.Close())
	})
}

// A misspelt statement costs neither a connection nor the server's sessions.
func TestTyposCostNoConnection(t *testing.T) {
	inBubble(t, testserver.SwanLake(), Config{MaxSize: 2}, func(r *rig) {
		for range 110 {
			for _, sql := range []string{"SELEC 1", "SELECT FORM t", "INSRT INTO t VALUES (1)", "PRAGMA database_list"} {
				_, err := firstValue(r.Context(), r.pool, sql)
				require.Error(r, err)
				_, err = r.pool.Update(r.Context(), sql)
				require.Error(r, err)
			}
		}
		require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
		require.LessOrEqual(r, r.srv.Ledger().Snapshot().SessionsOpened, 2)
	})
}

// SwanLake loads an INSERT with parameters in bulk, whatever its text, and
// leaves the session at the table's catalogue.
func TestABulkLoadDoesNotMoveTheSession(t *testing.T) {
	inBubble(t, testserver.SwanLake(), Config{MaxSize: 1}, func(r *rig) {
		const where = "SELECT current_database()"
		r.exec("CREATE TABLE swanlake.t (a BIGINT)")
		batch := ints("a", 1, 2)
		defer batch.Release()
		const bad = "INSERT INTO swanlake.nosuch VALUES (?)"
		const good = "INSERT INTO swanlake.t VALUES (?)"
		home := r.value(r.pool, where)
		for range 2 {
			_, err := r.pool.UpdateWithRecordBatch(r.Context(), good, batch)
			require.NoError(r, err)
			require.Equal(r, home, r.value(r.pool, where), "stateless")
			_, err = r.pool.UpdateWithRecordBatch(r.Context(), bad, batch)
			require.Error(r, err)
			require.Equal(r, home, r.value(r.pool, where), "one that fails")

			s := r.session()
			q, err := s.PrepareQuery(r.Context(), good)
			require.NoError(r, err)
			_, err = q.Update(r.Context(), batch)
			require.NoError(r, err)
			require.Equal(r, home, r.value(s, where), "the handle itself goes on where it was")
			require.NoError(r, s.Close())
			require.Equal(r, home, r.value(r.pool, where), "prepared")

			s = r.session()
			require.NoError(r, s.BeginTransaction(r.Context()))
			_, err = s.UpdateWithRecordBatch(r.Context(), good, batch)
			require.NoError(r, err)
			require.NoError(r, s.Commit(r.Context()))
			require.NoError(r, s.Close())
			require.Equal(r, home, r.value(r.pool, where), "in a transaction")

			s = r.session()
			_, err = s.Update(r.Context(), "USE swanlake")
			require.NoError(r, err)
			_, err = s.UpdateWithRecordBatch(r.Context(), good, batch)
			require.NoError(r, err)
			require.Equal(r, "swanlake", r.value(s, where), "USE stays in force")
			require.NoError(r, s.Close())
			require.Equal(r, home, r.value(r.pool, where), "after USE")
		}
		require.Equal(r, 1, r.srv.Ledger().Snapshot().SessionsOpened, "none of it costs the connection")
	})
}

// The first INSERT of a pool may be inside of a transaction, where nothing is
// read that the server might not know: it is asked before the transaction.
func TestABulkLoadInAPoolsFirstTransactionCostsNoConnection(t *testing.T) {
	inBubble(t, testserver.SwanLake(), Config{MaxSize: 1}, func(r *rig) {
		const where = "SELECT current_database()"
		home := r.value(r.pool, where)
		r.exec("CREATE TABLE swanlake.t (a BIGINT)")
		batch := ints("a", 1, 2)
		defer batch.Release()
		for range 3 {
			s := r.session()
			require.NoError(r, s.BeginTransaction(r.Context()))
			_, err := s.UpdateWithRecordBatch(r.Context(), "INSERT INTO swanlake.t VALUES (?)", batch)
			require.NoError(r, err)
			require.NoError(r, s.Commit(r.Context()))
			_ = s.Close()
			require.Equal(r, home, r.value(r.pool, where))
			require.Equal(r, 1, r.srv.Ledger().Snapshot().SessionsOpened)
		}
	})
}

// On a server that leaves the session where it was nothing is lost by it.
func TestABulkLoadInATransactionThatMovesNothingCostsNoConnection(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		batch := ints("a", 1)
		defer batch.Release()
		for range 3 {
			s := r.session()
			require.NoError(r, s.BeginTransaction(r.Context()))
			q, err := s.PrepareQuery(r.Context(), "INSERT INTO t VALUES (?)")
			require.NoError(r, err)
			_, err = q.Update(r.Context(), batch)
			require.NoError(r, err)
			require.NoError(r, s.Close())
		}
		require.Equal(r, 1, r.srv.Ledger().Snapshot().SessionsOpened)
	})
}

// A server that leaves the session where it was is asked twice: what the first answers seem to say
// may be another session's, and only the second look has a witness.
func TestABulkLoadThatMovesNothingIsLookedAtTwice(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		batch := ints("a", 1)
		defer batch.Release()
		statements := func() int { return len(r.srv.Ledger().Statements()) }
		counts := make([]int, 4)
		for i := range counts {
			before := statements()
			_, err := r.pool.UpdateWithRecordBatch(r.Context(), "INSERT INTO t VALUES (?)", batch)
			require.NoError(r, err)
			counts[i] = statements() - before
		}
		require.Greater(r, counts[1], counts[0], "the second has a witness")
		require.Greater(r, counts[0], counts[2])
		require.Equal(r, counts[2], counts[3])
	})
}
