package flightpool

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/rowscan"
	"github.com/flightpool/flightpool/testserver"
	"github.com/stretchr/testify/require"
)

// profiles are the servers of the table, in the order of its columns.
var profiles = [...]testserver.Profile{
	testserver.Strict(), testserver.SwanLake(), testserver.GizmoSQL(), testserver.Dremio(), testserver.Doris(), testserver.ClickHouse(), testserver.InfluxDB(),
}

// want is what a user gets of a feature on one server.
type want struct {
	fault Fault
	stage backend.Stage
	says  string // part of the error's text; empty: it works
}

var yes = want{}

// refuses is a typed error which says what the server does not have.
func refuses(what string) want {
	return want{FaultUnsupported, backend.StageExecute, what}
}

// silently is a lack that the server itself does not tell of; says is the
// test's own word for it.
func silently(says string) want { return want{says: says} }

// cells has an expectation for every server: the compiler counts them.
type cells [len(profiles)]want

var (
	noTx     = refuses("BeginTransaction")
	noUpdate = refuses("CommandStatementUpdate")
	noIngest = refuses("CommandStatementIngest")
	// InfluxDB has no sessions, so what one call prepares the next does not know.
	forgets = want{FaultStatement, backend.StagePrepare, "unknown prepared statement"}
)

// features are what a user can ask of a pool. Each is tried through the public
// API on a fresh server of each profile, in virtual time.
var features = []struct {
	name  string
	try   func(r *rig) error
	cells cells // strict, swanlake, gizmosql, dremio, doris, clickhouse, influxdb
}{
	{"query", tryQuery, cells{yes, yes, yes, yes, yes, yes, yes}},
	{"struct rows", tryRows, cells{yes, yes, yes, yes, yes, yes, yes}},
	{"concurrent use", tryConcurrent, cells{yes, yes, yes, yes, yes, yes, yes}},
	{"metadata", tryMetadata, cells{yes, yes, yes, yes, yes, yes, yes}},
	{"reconnect after a restart", tryRestart, cells{yes, yes, yes, yes, yes, yes, yes}},
	{"query with parameters", tryQueryParams, cells{yes, yes, yes, yes, yes, yes, forgets}},
	{"prepared query", tryPrepared, cells{yes, yes, yes, yes, yes, yes, forgets}},
	{"change", tryUpdate, cells{yes, yes, yes, yes, yes, yes, noUpdate}},
	{"count of rows changed", tryCounts, cells{yes, silently("0 rows"), yes, yes, yes, yes, noUpdate}},
	{"change with a batch of parameters", tryUpdateBatch, cells{yes, yes, yes, yes, yes, yes, noUpdate}},
	{"execute tells rows from changes", tryExecute, cells{yes, yes, yes, yes, yes, yes, noUpdate}},
	{"transaction", tryTransaction, cells{yes, yes, yes, noTx, noTx, noTx, noTx}},
	{"savepoint", trySavepoint, cells{yes, refuses("BeginSavepoint"), yes, noTx, noTx, noTx, noTx}},
	{"temporary table, gone for the next borrower", tryTemp, cells{yes, yes, yes, yes, yes, yes, noUpdate}},
	{"setting, gone for the next borrower", trySetting, cells{yes, yes, yes, yes, yes, yes, noUpdate}},
	{"session option, gone for the next borrower", tryOption, cells{yes, refuses("GetSessionOptions"), yes, yes, yes, yes, refuses("GetSessionOptions")}},
	{"ingest: create, append, replace", tryIngest, cells{yes, noIngest, yes, noIngest, noIngest, noIngest, noIngest}},
	{"ingest in a transaction", tryIngestTx, cells{yes, noIngest, yes, noTx, noTx, noTx, noTx}},
	{"deadline stops the statement on the server", tryDeadline, cells{yes, silently("runs on"), yes, yes, yes, yes, yes}},
}

// TestEveryFeatureOnEveryServer holds each cell of the table against the
// server: what must work yes, and what cannot be had is one clear error,
// after which the pool serves on.
func TestEveryFeatureOnEveryServer(t *testing.T) {
	for column, profile := range profiles {
		for _, f := range features {
			t.Run(profile.Name+"/"+f.name, func(t *testing.T) {
				onProfile(t, profile, Config{MaxSize: 2}, func(r *rig) {
					err := f.try(r)
					switch want := f.cells[column]; {
					case want.says == "":
						require.NoError(r, err)
					case want == silently(want.says):
						require.ErrorContains(r, err, want.says)
					default:
						var e *Error
						require.ErrorAs(r, err, &e)
						require.ErrorContains(r, err, want.says)
						require.Equal(r, want.fault, e.Fault, "%v", err)
						require.Equal(r, want.stage, e.Stage, "%v", err)
						require.Zero(r, r.pool.Stats().CancelsUnconfirmed)
					}
					require.NoError(r, tryQuery(r), "the pool serves on")
				})
			})
		}
	}
}

// onProfile is inBubble for servers that want a user or a header, too.
func onProfile(t *testing.T, profile testserver.Profile, cfg Config, f func(r *rig)) {
	t.Helper()
	if profile.SessionKey == testserver.ByHeader {
		cfg.SessionHeader = profile.KeyName
	}
	if profile.SessionKey != testserver.ByBearer {
		inBubble(t, profile, cfg, f)
		return
	}
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Profile: profile, Listen: testserver.InMemory, Users: map[string]string{"u": "p"}})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		cfg.Dialer, cfg.Auth = srv.Dial, BasicAuth("u", "p")
		pool, err := New(t.Context(), srv.URI(), cfg) // whose address it names as a location
		require.NoError(t, err)
		r := &rig{t, srv, pool}
		defer r.closePool()
		f(r)
	})
}

// expect is an error unless got is what a query should give.
func (r *rig) expect(q querier, sql, want string) error {
	got, err := firstValue(r.Context(), q, sql)
	if err == nil && got != want {
		err = fmt.Errorf("%s gives %s, not %s", sql, got, want)
	}
	return err
}

// update is the error of a change.
func (r *rig) update(sql string) error {
	_, err := r.pool.Update(r.Context(), sql)
	return err
}

// inSession runs f with a handle.
func (r *rig) inSession(f func(s *SessionHandle) error) error {
	s, err := r.pool.AcquireSession(r.Context())
	if err != nil {
		return err
	}
	err = f(s)
	_ = s.Close() // its error says that the connection was discarded, which harms nobody
	return err
}

func tryQuery(r *rig) error {
	res, err := r.pool.Query(r.Context(), "SELECT * FROM generate(5000)")
	if err != nil {
		return err
	}
	n := int64(0)
	for batch, err := range res.Batches() {
		if err != nil {
			return err
		}
		for _, v := range batch.Column(0).(*array.Int64).Int64Values() {
			if v != n {
				return fmt.Errorf("row %d holds %d", n, v)
			}
			n++
		}
	}
	if n != 5000 {
		return fmt.Errorf("%d rows", n)
	}
	return nil
}

func tryRows(r *rig) error {
	res, err := r.pool.Query(r.Context(), "SELECT * FROM generate(3)")
	if err != nil {
		return err
	}
	type row struct {
		Number int64 `arrow:"i"`
	}
	sum := int64(0)
	for got, err := range rowscan.Rows[row](res) {
		if err != nil {
			return err
		}
		sum += got.Number
	}
	if sum != 3 {
		return fmt.Errorf("the sum of 0, 1 and 2 is %d", sum)
	}
	return nil
}

func tryConcurrent(r *rig) error {
	var all sync.WaitGroup
	errs := make([]error, 32)
	for g := range errs {
		all.Go(func() {
			for i := range 10 {
				errs[g] = errors.Join(errs[g], r.expect(r.pool, fmt.Sprintf("SELECT %d", g*100+i), strconv.Itoa(g*100+i)))
			}
		})
	}
	all.Wait()
	if s := r.srv.Ledger().Snapshot(); s.ConnsPeak > 2+1 { // the last one for locations
		return fmt.Errorf("%d connections", s.ConnsPeak)
	}
	return errors.Join(errs...)
}

func tryMetadata(r *rig) error {
	ctx := r.Context()
	calls := []func() (*QueryResult, error){
		func() (*QueryResult, error) { return r.pool.Catalogs(ctx) },
		func() (*QueryResult, error) { return r.pool.Schemas(ctx, nil, nil) },
		func() (*QueryResult, error) { return r.pool.Tables(ctx, TableFilter{IncludeColumns: true}) },
		func() (*QueryResult, error) { return r.pool.TableTypes(ctx) },
		func() (*QueryResult, error) { return r.pool.PrimaryKeys(ctx, TableRef{Table: "t"}) },
		func() (*QueryResult, error) { return r.pool.ImportedKeys(ctx, TableRef{Table: "t"}) },
		func() (*QueryResult, error) { return r.pool.ExportedKeys(ctx, TableRef{Table: "t"}) },
		func() (*QueryResult, error) { return r.pool.SQLInfo(ctx) },
	}
	for _, call := range calls {
		res, err := call()
		if err != nil {
			return err
		}
		table, err := res.ReadAll(ctx)
		if err != nil {
			return err
		}
		table.Release()
	}
	return nil
}

func tryRestart(r *rig) error {
	if err := r.pool.WaitReady(r.Context(), 1); err != nil {
		return err
	}
	r.srv.Faults().EvictSessions()
	if r.srv.Faults().KillConns() == 0 {
		return errors.New("there was no connection to kill")
	}
	for range 3 {
		if err := r.expect(r.pool, "SELECT 7", "7"); err != nil {
			return err
		}
	}
	return nil
}

func tryQueryParams(r *rig) error {
	params := ints("p", 7)
	defer params.Release()
	res, err := r.pool.QueryWithParams(r.Context(), "SELECT ?", params)
	if err != nil {
		return err
	}
	defer res.Release()
	if !res.Next() || res.RecordBatch().Column(0).ValueStr(0) != "7" {
		return fmt.Errorf("no 7: %w", res.Err())
	}
	for res.Next() {
		continue
	}
	return res.Err()
}

func tryPrepared(r *rig) error {
	return r.inSession(func(s *SessionHandle) error {
		q, err := s.PrepareQuery(r.Context(), "SELECT ?")
		if err != nil {
			return err
		}
		for _, v := range []int64{7, 8} {
			params := ints("p", v)
			defer params.Release()
			res, err := q.Query(r.Context(), params)
			if err != nil {
				return err
			}
			table, err := res.ReadAll(r.Context())
			if err != nil {
				return err
			}
			got := table.Column(0).Data().Chunk(0).ValueStr(0)
			table.Release()
			if got != strconv.FormatInt(v, 10) {
				return fmt.Errorf("%s, not %d", got, v)
			}
		}
		return q.Close(r.Context())
	})
}

func tryUpdate(r *rig) error {
	if err := r.update("CREATE TABLE t (a BIGINT)"); err != nil {
		return err
	}
	if err := r.update("INSERT INTO t VALUES (1), (2)"); err != nil {
		return err
	}
	if n := r.executions("INSERT INTO t VALUES (1), (2)"); n != 1 {
		return fmt.Errorf("it ran %d times", n)
	}
	return r.expect(r.pool, "SELECT count(*) FROM t", "2")
}

func tryCounts(r *rig) error {
	if err := r.update("CREATE TABLE t (a BIGINT)"); err != nil {
		return err
	}
	done, err := r.pool.Update(r.Context(), "INSERT INTO t VALUES (1), (2)")
	if err == nil && done.RowsAffected != 2 {
		err = fmt.Errorf("%d rows", done.RowsAffected)
	}
	return err
}

func tryUpdateBatch(r *rig) error {
	t := r.bulkTable()
	if err := r.update("CREATE TABLE " + t + " (a BIGINT)"); err != nil {
		return err
	}
	values := make([]int64, 100)
	params := ints("a", values...)
	defer params.Release()
	if _, err := r.pool.UpdateWithRecordBatch(r.Context(), "INSERT INTO "+t+" VALUES (?)", params); err != nil {
		return err
	}
	return r.expect(r.pool, "SELECT count(*) FROM "+t, "100")
}

func tryExecute(r *rig) error {
	res, err := r.pool.Execute(r.Context(), "SELECT 1")
	if err != nil {
		return err
	}
	res.Release()
	res, err = r.pool.Execute(r.Context(), "CREATE TABLE t (a BIGINT)")
	if err != nil {
		return err
	}
	defer res.Release()
	if res.Next() {
		return errors.New("a change has rows")
	}
	return res.Err()
}

func tryTransaction(r *rig) error {
	// On servers without changes the transaction comes first in what fails.
	err := r.inSession(func(s *SessionHandle) error {
		if err := s.BeginTransaction(r.Context()); err != nil {
			return err
		}
		return s.Rollback(r.Context())
	})
	if err != nil {
		return err
	}
	if err := r.update("CREATE TABLE t (a BIGINT)"); err != nil {
		return err
	}
	for _, end := range []func(*SessionHandle) error{
		func(s *SessionHandle) error { return s.Commit(r.Context()) },
		func(s *SessionHandle) error { return s.Rollback(r.Context()) },
	} {
		err := r.inSession(func(s *SessionHandle) error {
			if err := s.BeginTransaction(r.Context()); err != nil {
				return err
			}
			if _, err := s.Update(r.Context(), "INSERT INTO t VALUES (1)"); err != nil {
				return err
			}
			return end(s)
		})
		if err != nil {
			return err
		}
		if err := r.expect(r.pool, "SELECT count(*) FROM t", "1"); err != nil {
			return err
		}
	}
	return nil
}

func trySavepoint(r *rig) error {
	return r.inSession(func(s *SessionHandle) error {
		ctx := r.Context()
		if err := s.BeginTransaction(ctx); err != nil {
			return err
		}
		if _, err := s.Update(ctx, "CREATE TABLE t (a BIGINT)"); err != nil {
			return err
		}
		if err := s.Savepoint(ctx, "here"); err != nil {
			return err
		}
		if _, err := s.Update(ctx, "INSERT INTO t VALUES (1)"); err != nil {
			return err
		}
		if err := s.RollbackTo(ctx, "here"); err != nil {
			return err
		}
		if err := s.ReleaseSavepoint(ctx, "here"); err != nil {
			return err
		}
		if err := r.expect(s, "SELECT count(*) FROM t", "0"); err != nil {
			return err
		}
		return s.Commit(ctx)
	})
}

func tryTemp(r *rig) error {
	err := r.inSession(func(s *SessionHandle) error {
		for _, sql := range []string{"CREATE TEMP TABLE mine (a BIGINT)", "INSERT INTO mine VALUES (1)"} {
			if _, err := s.Update(r.Context(), sql); err != nil {
				return err
			}
		}
		return r.expect(s, "SELECT count(*) FROM mine", "1")
	})
	if err != nil {
		return err
	}
	if _, err := firstValue(r.Context(), r.pool, "SELECT * FROM mine"); backend.FaultIn(err) != FaultStatement {
		return fmt.Errorf("the next borrower sees it: %w", err)
	}
	return nil
}

func trySetting(r *rig) error {
	err := r.inSession(func(s *SessionHandle) error {
		if _, err := s.Update(r.Context(), "SET colour = 'red'"); err != nil {
			return err
		}
		return r.expect(s, "SELECT current_setting('colour')", "red")
	})
	if err != nil {
		return err
	}
	if v, err := firstValue(r.Context(), r.pool, "SELECT current_setting('colour')"); err == nil && v == "red" {
		return errors.New("the next borrower sees it")
	}
	return nil
}

func tryOption(r *rig) error {
	err := r.inSession(func(s *SessionHandle) error {
		if err := s.SetOption(r.Context(), "colour", "red"); err != nil {
			return err
		}
		got, err := s.Options(r.Context())
		if err == nil && got["colour"] != "red" {
			err = fmt.Errorf("options %v", got)
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.inSession(func(s *SessionHandle) error {
		got, err := s.Options(r.Context())
		if err == nil && got["colour"] != nil {
			err = fmt.Errorf("the next borrower sees %v", got)
		}
		return err
	})
}

// rows is a reader of n rows.
func (r *rig) rows(n int) array.RecordReader {
	batch := ints("a", make([]int64, n)...)
	defer batch.Release()
	rows, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
	require.NoError(r, err)
	r.Cleanup(rows.Release)
	return rows
}

func tryIngest(r *rig) error {
	for _, step := range []struct {
		mode IngestMode
		want string
	}{
		{IngestCreate, "10"},
		{IngestAppend, "20"},
		{IngestCreateAppend, "30"},
		{IngestReplace, "10"},
	} {
		n, err := r.pool.Ingest(r.Context(), "loaded", r.rows(10), IngestOptions{Mode: step.mode})
		if err != nil {
			return err
		}
		if n != 10 {
			return fmt.Errorf("%d rows", n)
		}
		if err := r.expect(r.pool, "SELECT count(*) FROM loaded", step.want); err != nil {
			return err
		}
	}
	if _, err := r.pool.Ingest(r.Context(), "loaded", r.rows(10), IngestOptions{Mode: IngestCreate}); backend.FaultIn(err) != FaultStatement {
		return fmt.Errorf("a table was created twice: %w", err)
	}
	return nil
}

func tryIngestTx(r *rig) error {
	err := r.inSession(func(s *SessionHandle) error {
		if err := s.BeginTransaction(r.Context()); err != nil {
			return err
		}
		if _, err := s.Ingest(r.Context(), "loaded", r.rows(10), IngestOptions{}); err != nil {
			return err
		}
		if err := r.expect(s, "SELECT count(*) FROM loaded", "10"); err != nil {
			return err
		}
		return s.Rollback(r.Context())
	})
	if err != nil {
		return err
	}
	if _, err := firstValue(r.Context(), r.pool, "SELECT * FROM loaded"); backend.FaultIn(err) != FaultStatement {
		return fmt.Errorf("it is stored: %w", err)
	}
	return nil
}

func tryDeadline(r *rig) error {
	r.cancelled(r.pool, "SELECT sleep('2m')", 200*ms)
	// Not so late that it was the end of the connection that stopped it.
	ctx, stop := context.WithTimeout(r.Context(), 2*time.Second)
	defer stop()
	if err := r.srv.Ledger().Wait(ctx, func(s testserver.Snapshot) bool { return s.Running == 0 }); err != nil {
		return fmt.Errorf("the statement runs on: %w", err)
	}
	return nil
}
