package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// stateConn is a fakeConn whose session has settings and a place where names
// are looked for, as DuckDB's has. Its start values are not the server's
// defaults.
type stateConn struct {
	*fakeConn
	settings map[string]string // at the session's start: those of start
	own      map[string]string // values of the session's own, which are above those
	defaults map[string]string // what RESET leads to
	blind    bool              // it has no current_setting() and no current_schema()
	pathless bool              // it has no search_path
	namesake bool              // current_database() is its current_schema(), as in Spark
	stubborn string            // a setting that takes no SET
	temps    int
	prepared int // of the name that is asked for
}

func newStateConn() *stateConn {
	return &stateConn{
		fakeConn: &fakeConn{},
		own:      map[string]string{},
		settings: map[string]string{"threads": "3", "zone": "Tokyo", "search_path": "lake.main"},
		defaults: map[string]string{"threads": "8", "zone": "UTC", "search_path": "memory.main"},
	}
}

var (
	setting   = regexp.MustCompile(`^(?:EXPLAIN ANALYZE )?(?:SET|PRAGMA)( SESSION)? (\w+) (?:=|TO) '?([^']*)'?$`)
	resetting = regexp.MustCompile(`^RESET( SESSION)? (\w+)$`)
	using     = regexp.MustCompile(`^USE "?(\w+)"?(?:\."?(\w+)"?)?$`)
	current   = regexp.MustCompile(`current_setting\('(\w+)'\)|current_database\(\)|current_catalog\(\)|current_schema\(\)|duckdb_tables|duckdb_prepared`)
)

// settingNamed is the setting of a name, of which DuckDB's threads has two.
func settingNamed(name string) string {
	if name = strings.ToLower(name); name == "worker_threads" {
		return "threads"
	}
	return name
}

func (c *stateConn) Update(ctx context.Context, sql string, call backend.Call) (int64, error) {
	n, err := c.fakeConn.Update(ctx, sql, call)
	if err != nil {
		return n, err
	}
	for one := range strings.SplitSeq(sql, "; ") {
		c.run(one)
	}
	return n, nil
}

func (c *stateConn) run(sql string) {
	if m := setting.FindStringSubmatch(sql); m != nil && m[2] != c.stubborn {
		name, value := settingNamed(m[2]), m[3]
		if name == "schema" {
			name, value = "search_path", strings.Split(c.settings["search_path"], ".")[0]+"."+value
		}
		if m[1] != "" {
			c.own[name] = value
			return
		}
		c.settings[name] = value
	}
	if m := resetting.FindStringSubmatch(sql); m != nil {
		name := settingNamed(m[2])
		if m[1] != "" {
			delete(c.own, name)
			return
		}
		delete(c.settings, name)
		if v, ok := c.defaults[name]; ok {
			c.settings[name] = v
		}
	}
	if m := using.FindStringSubmatch(sql); m != nil {
		c.settings["search_path"] = m[1] + "." + "main"
		if m[2] != "" {
			c.settings["search_path"] = m[1] + "." + m[2]
		}
	}
}

func (c *stateConn) Query(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	found := current.FindAllStringSubmatch(sql, -1)
	if found == nil {
		return c.fakeConn.Query(ctx, sql, call)
	}
	if err := c.statement(ctx, sql, call.Tx); err != nil {
		return nil, err
	}
	fields := make([]arrow.Field, len(found))
	row := make([]arrow.Array, len(found))
	path := strings.Split(c.settings["search_path"], ".")
	for i, m := range found {
		value, ok := c.own[settingNamed(m[1])]
		if !ok {
			value, ok = c.settings[settingNamed(m[1])]
		}
		switch {
		case c.blind && !strings.Contains(m[0], "duckdb"), c.pathless && m[1] == "search_path":
			return nil, sqlError("no such function or setting")
		case m[0] == "current_catalog()" && !c.namesake:
			return nil, sqlError("no such function")
		case m[0] == "current_database()" && c.namesake:
			value, ok = path[1], true
		case m[0] == "current_database()", m[0] == "current_catalog()":
			value, ok = path[0], true
		case strings.HasPrefix(m[0], "current_schema"):
			value, ok = path[1], true
		case m[0] == "duckdb_prepared":
			value, ok = fmt.Sprint(c.prepared), true
		case m[0] == "duckdb_tables":
			value, ok = fmt.Sprint(c.temps), true
		}
		b := array.NewStringBuilder(memory.DefaultAllocator)
		if ok {
			b.Append(value)
		} else {
			b.AppendNull()
		}
		row[i] = b.NewArray()
		fields[i] = arrow.Field{Name: m[0], Type: arrow.BinaryTypes.String, Nullable: true}
	}
	schema := arrow.NewSchema(fields, nil)
	return &stateRow{schema: schema, batch: array.NewRecordBatch(schema, row, 1)}, nil
}

// stateRig is a rig on a stateConn.
func stateRig(t *testing.T, c *stateConn) *rig {
	r := newRig(t, c.fakeConn)
	r.handle = New(c, r.policy, r.returned)
	return r
}

func TestSettingsAreWhatTheyWereAtTheSessionsStart(t *testing.T) {
	for name, statements := range map[string][]string{
		"SET":             {"SET threads = 1"},
		"twice":           {"SET threads = 1", "SET threads = 2", "SET SESSION zone TO 'Oslo'"},
		"RESET":           {"RESET threads", "RESET zone"},
		"was not set":     {"SET fresh = 'x'"},
		"SET schema":      {"SET schema = 'other'"},
		"USE":             {"USE other", "USE a.b"},
		"RESET the place": {"RESET search_path"},
		"a script":        {"SET threads = 1; SET zone = 'Oslo'"},
		"in a PRAGMA":     {"PRAGMA threads = 1"},
		"EXPLAIN ANALYZE": {"EXPLAIN ANALYZE SET threads = 1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			start := maps.Clone(c.settings)
			r := stateRig(t, c)
			for _, sql := range statements {
				_, err := r.handle.Update(t.Context(), sql)
				must(t, err)
			}
			must(t, r.handle.Close())
			r.reused()
			delete(c.settings, "fresh")
			require.Equal(t, start, c.settings, name)
		})
	}
}

func TestASettingIsReadOnceAndPutBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		r := stateRig(t, c)
		for _, sql := range []string{"SET threads = 1", "SET THREADS = 2"} {
			_, err := r.handle.Update(t.Context(), sql)
			must(t, err)
		}
		must(t, r.handle.Close())
		require.Equal(t, []string{"Prepare", "SELECT current_setting('threads')", "SET threads = 1", "SET THREADS = 2", "ClosePrepared", "SET THREADS = '3'", "SELECT current_setting('THREADS')"}, r.conn.Log())
	})
}

// What the server cannot tell, or does not put back, costs the connection.
func TestWhatIsNotVerifiedCostsTheConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		conn func(*stateConn)
		sql  string
		why  string
	}{
		"no current_setting":         {func(c *stateConn) { c.blind = true }, "SET threads = 1", "the setting threads was changed, and the server could not tell it before"},
		"no current_schema":          {func(c *stateConn) { c.blind = true }, "USE other", "the catalogue or schema was changed"},
		"not put back":               {func(c *stateConn) { c.stubborn = "threads" }, "RESET threads", "the setting threads is not what it was"},
		"a refused RESET":            {func(c *stateConn) { c.fail = map[string]error{"RESET fresh": sqlError("no")} }, "SET fresh = 1", "RESET fresh"},
		"a search path not put back": {func(c *stateConn) { c.stubborn = "search_path" }, "USE other", "the search path is not what it was"},
		"a path that is not told":    {func(c *stateConn) { c.pathless = true }, "SET search_path = 'lake.main,x'", "the catalogue or schema was changed"},
		"a temporary table":          {func(c *stateConn) { c.temps = 1 }, "CREATE TEMP TABLE t (a INT)", "1 temporary objects are left"},
		"ATTACH":                     {nil, "ATTACH 'x.db'", "cannot be taken back"},
		"DETACH":                     {nil, "DETACH lake", "cannot be taken back"},
		"CREATE SECRET":              {nil, "CREATE SECRET s (TYPE s3)", "cannot be taken back"},
		"SET GLOBAL":                 {nil, "SET GLOBAL threads = 1", "cannot be taken back"},
		"ALTER SESSION":              {nil, "ALTER SESSION SET a = 1", "cannot be taken back"},
		"a procedure":                {nil, "CALL p()", "cannot be taken back"},
		"another's prepared name":    {nil, "DEALLOCATE q", "cannot be taken back"},
		"one of its own prepared":    {func(c *stateConn) { c.prepared = 1 }, "PREPARE q AS SELECT 1", "was replaced"},
		"a function":                 {nil, "SELECT set_config('a', 'b', false)", "cannot be taken back"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			if tc.conn != nil {
				tc.conn(c)
			}
			r := stateRig(t, c)
			_, err := r.handle.Update(t.Context(), tc.sql)
			must(t, err)
			require.ErrorContains(t, r.handle.Close(), tc.why, name)
			require.ErrorContains(t, r.discarded(), tc.why, name)
		})
	}
}

func TestAServerWithoutASearchPathIsPutBackByUSE(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		c.pathless = true
		r := stateRig(t, c)
		_, err := r.handle.Update(t.Context(), "USE other")
		must(t, err)
		must(t, r.handle.Close())
		r.reused()
		require.Equal(t, "lake.main", c.settings["search_path"])
	})
}

// A query that fails would spoil the transaction behind the caller's back.
func TestInsideATransactionOnlyWhatTheServerAnswersIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		r := stateRig(t, c)
		session := func(statements ...string) []string {
			r.handle, r.returns = New(c, r.policy, r.returned), nil
			must(t, r.handle.BeginTransaction(t.Context()))
			before := len(r.conn.Log())
			for _, sql := range statements {
				_, err := r.handle.Update(t.Context(), sql)
				must(t, err)
			}
			must(t, r.handle.Commit(t.Context()))
			log := r.conn.Log()[before:]
			_ = r.handle.Close()
			return log
		}
		log := session("SET threads = 1")
		require.False(t, slices.ContainsFunc(log, func(s string) bool { return strings.Contains(s, "SELECT current") }), "%q", log)
		require.Contains(t, r.discarded().Error(), "could not tell it before")
		c.settings = newStateConn().settings
		log = session("SET threads = 1")
		require.Contains(t, log[0], "SELECT current_setting('threads')", "the last session has found out that it can be read")
		r.reused()
		require.Equal(t, "3", c.settings["threads"])
	})
}

// The statement is not sent when what it changes could not be read for want of
// a connection.
func TestAReadBeforehandThatBreaksTheConnectionIsTheCallsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		c.fail = map[string]error{"SELECT current_setting('threads')": transportError()}
		r := stateRig(t, c)
		_, err := r.handle.Update(t.Context(), "SET threads = 1")
		require.ErrorIs(t, err, backend.ErrSessionLost)
		require.NotContains(t, r.conn.Log(), "SET threads = 1")
	})
}

func TestWhatASessionLeavesIsTakenBackInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		r := stateRig(t, c)
		for _, sql := range []string{"SET threads = 1", `CREATE TEMP TABLE s."t.1" (a INT)`, "CREATE TEMP VIEW v AS SELECT 1", "PREPARE a AS SELECT 1", "PREPARE b AS SELECT 1", "DEALLOCATE A"} {
			_, err := r.handle.Execute(t.Context(), sql)
			must(t, err)
		}
		q, err := r.handle.PrepareQuery(t.Context(), "SELECT 2")
		must(t, err)
		res, err := q.Query(t.Context())
		must(t, err)
		for res.Next() {
			continue
		}
		res.Release()
		must(t, r.handle.SetOption(t.Context(), "catalog", "x"))
		before := len(r.conn.Log())
		must(t, r.handle.Close())
		r.reused()
		log := r.conn.Log()[before:]
		require.Equal(t, []string{"ClosePrepared", "ClosePrepared", "SetOptions", "Options", searchPathQuery.sql, "DEALLOCATE b", tempsQuery.sql, "DROP VIEW IF EXISTS temp.main.v", `DROP TABLE IF EXISTS temp.main."t.1"`, "SET threads = '3'", "SELECT current_setting('threads')"}, log[:len(log)-1])
		r.clean()
	})
}

func TestASessionOptionThatIsNotPutBackCostsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, key := range []string{"catalog", "fresh"} {
			conn := &fakeConn{options: map[string]any{"catalog": "lake"}}
			r := newRig(t, conn)
			must(t, r.handle.SetOption(t.Context(), key, "x"))
			must(t, r.handle.Close())
			r.reused()
			require.Equal(t, map[string]any{"catalog": "lake"}, conn.options)

			r = newRig(t, conn)
			r.handle = New(forgetful{conn}, r.policy, r.returned)
			must(t, r.handle.SetOption(t.Context(), key, "x"))
			require.ErrorContains(t, r.handle.Close(), key+" is not what it was")
			require.ErrorContains(t, r.discarded(), key)
			delete(conn.options, "fresh")
			conn.options["catalog"] = "lake"
		}
	})
}

// forgetful is a connection whose server takes a new value and no old one.
type forgetful struct{ *fakeConn }

func (c forgetful) SetOptions(ctx context.Context, opts map[string]any) error {
	for _, v := range opts {
		if v != "x" {
			return nil
		}
	}
	return c.fakeConn.SetOptions(ctx, opts)
}

func TestResetModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := func(mode SessionReset, fail map[string]error, use func(s *SessionHandle)) *rig {
			r := newRig(t, &fakeConn{fail: fail})
			r.policy.OnReturn = mode
			use(r.stateless())
			return r
		}
		read := func(s *SessionHandle) {
			res, err := s.Query(t.Context(), "SELECT 0")
			must(t, err)
			res.Release()
		}
		set := func(s *SessionHandle) { _, err := s.Update(t.Context(), "SET a = 1"); must(t, err) }
		run(ResetDiscard, nil, read).reused()
		_ = run(ResetDiscard, nil, set).discarded()
		run(ResetNone, nil, set).reused()
		r := run(ResetSQL("RESET ALL", "USE home"), nil, set)
		r.reused()
		require.Equal(t, []string{"SET a = 1", "RESET ALL", "USE home"}, r.conn.Log())
		require.Equal(t, []string{"SELECT 0"}, run(ResetSQL("RESET ALL"), nil, read).conn.Log())
		_ = run(ResetSQL("RESET ALL"), map[string]error{"RESET ALL": sqlError("no")}, set).discarded()
		require.Equal(t, []string{"auto", "sql", "discard", "none"}, []string{ResetAuto.String(), ResetSQL("a").String(), ResetDiscard.String(), ResetNone.String()})
	})
}

// Close fails where the session could not be made clean, and not where its connection is closed as its owner wants it.
func TestCloseTellsOfAFailureAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, mode := range everyReset {
			r := newRig(t, &fakeConn{})
			r.policy.OnReturn = mode
			_, err := r.handle.Update(t.Context(), "DELETE FROM t")
			must(t, err)
			require.NoError(t, r.handle.Close(), mode)
		}
		r := newRig(t, &fakeConn{fail: map[string]error{"RESET ALL": sqlError("no")}})
		r.policy.OnReturn, r.policy.Target = ResetSQL("RESET ALL"), "db:1"
		_, err := r.handle.Update(t.Context(), "DELETE FROM t")
		must(t, err)
		err = r.handle.Close()
		var e *backend.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "Close", e.Op)
		require.Equal(t, backend.StageClose, e.Stage)
		require.Equal(t, backend.FaultStatement, e.Fault)
		require.Equal(t, "db:1", e.Target)
		require.False(t, backend.SafeToRetry(err))
		require.NotErrorIs(t, r.discarded(), err, "the reason is no call of the caller's")
	})
}

// There are servers that change a setting before they refuse its value, and leave the session elsewhere by a load that
// fails: the modes that read nothing before clean behind the refusal, too.
func TestARefusedCallIsLeftToNoBorrowerUnderAnyMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, sql := range []string{"SET calendar = NULL", "INSERT bad"} {
			run := func(mode SessionReset) *rig {
				r := newRig(t, &fakeConn{fail: map[string]error{sql: sqlError("Catalog Error: no")}})
				r.policy.OnReturn = mode
				_, err := r.stateless().Update(t.Context(), sql)
				require.Error(t, err)
				return r
			}
			r := run(ResetSQL("RESET ALL"))
			r.reused()
			require.Equal(t, []string{sql, "RESET ALL"}, r.conn.Log())
			_ = run(ResetDiscard).discarded()
			run(ResetNone).reused()
		}
	})
}

// stateRow is a stream of one row.
type stateRow struct {
	schema *arrow.Schema
	batch  arrow.RecordBatch
}

func (s *stateRow) Schema() *arrow.Schema { return s.schema }

func (s *stateRow) Next() (arrow.RecordBatch, error) {
	if s.batch == nil {
		return nil, io.EOF
	}
	batch := s.batch
	s.batch = nil
	return batch, nil
}

func (s *stateRow) RowsAffected() (int64, bool) { return 0, false }
func (s *stateRow) Close()                      {}

// A call of ours has set the option, so it is put back whatever the owner of the
// connections has decided for the statements' effects.
func TestOptionsArePutBackUnderEveryMode(t *testing.T) {
	for _, mode := range []SessionReset{ResetAuto, ResetSQL("RESET ALL"), ResetNone} {
		for name, c := range map[string]*stateConn{"a place": newStateConn(), "no place": {fakeConn: &fakeConn{}, blind: true}} {
			synctest.Test(t, func(t *testing.T) {
				start := maps.Clone(c.settings)
				c.options = map[string]any{"catalog": "lake"}
				r := newRig(t, c.fakeConn)
				r.policy.OnReturn = mode
				r.handle = New(leading{c}, r.policy, r.returned)
				must(t, r.handle.SetOption(t.Context(), "catalog", "other"))
				must(t, r.handle.SetOption(t.Context(), "fresh", "x"))
				must(t, r.handle.Close())
				r.reused()
				require.Equal(t, map[string]any{"catalog": "lake"}, c.options, "%s: %s", mode, name)
				require.Equal(t, start, c.settings, "%s: %s", mode, name)
				if mode.String() == "sql" {
					require.Equal(t, "RESET ALL", c.Log()[len(c.Log())-1], "the owner's statements come last")
				}
			})
		}
	}
}

// leading is a connection whose server looks for names where an option says.
type leading struct{ *stateConn }

func (c leading) SetOptions(ctx context.Context, opts map[string]any) error {
	if v, ok := opts["catalog"]; ok && c.settings != nil {
		c.settings["search_path"] = fmt.Sprint(v, ".main,and more")
	}
	return c.stateConn.SetOptions(ctx, opts)
}

// An option that the server refuses costs nothing: it is compared, not believed.
func TestARefusedOption(t *testing.T) {
	refused := sqlError("no such option")
	for name, tc := range map[string]struct {
		after   error // what the transaction answers then
		aborted bool
	}{
		"a transaction that goes on":  {},
		"one that the server aborted": {after: sqlError("current transaction is aborted"), aborted: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			conn := &fakeConn{fail: map[string]error{"SetOptions": refused, "tx1: SELECT 1": tc.after}}
			r := newRig(t, conn)
			r.policy.answeredQueries.add(searchPathQuery.key)
			must(t, r.handle.BeginTransaction(ctx))
			require.ErrorContains(t, r.handle.SetOption(ctx, "typo", "x"), "no such option")
			sent := len(conn.Log())
			_, err := r.handle.Update(ctx, "INSERT 1")
			if tc.aborted {
				require.ErrorIs(t, err, backend.ErrTxAborted, name)
				require.ErrorContains(t, err, "no such option")
				require.Len(t, conn.Log(), sent)
				must(t, r.handle.Rollback(ctx))
			} else {
				must(t, err)
				must(t, r.handle.Commit(ctx))
			}
			must(t, r.handle.Close())
			r.reused()
		})
	}
}

func TestARefusedOptionWhoseTransactionCannotBeProbedLosesTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{fail: map[string]error{"Options": sqlError("no"), "tx1: SELECT 1": transportError()}})
		must(t, r.handle.BeginTransaction(t.Context()))
		require.ErrorIs(t, r.handle.SetOption(t.Context(), "typo", "x"), backend.ErrSessionLost)
		_ = r.handle.Close()
		require.ErrorContains(t, r.discarded(), "reset")
	})
}

// Of a name that is prepared before anybody could ask whether the session has it already, nothing
// is known at the end: what OnConnect has prepared could be gone.
func TestANameThatIsFirstPreparedInATransaction(t *testing.T) {
	for _, texts := range [][]string{{"PREPARE q AS SELECT 1"}, {"PREPARE q AS SELECT 1", "DEALLOCATE q"}, {"PREPARE q AS SELECT 1; DEALLOCATE q"}} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			r := stateRig(t, c)
			prepare := func() {
				r.handle, r.returns = New(c, r.policy, r.returned), nil
				must(t, r.handle.BeginTransaction(t.Context()))
				for _, sql := range texts {
					_, err := r.handle.Update(t.Context(), sql)
					must(t, err)
				}
				must(t, r.handle.Commit(t.Context()))
				_ = r.handle.Close()
			}
			prepare()
			require.ErrorContains(t, r.discarded(), "may have replaced another")
			prepare()
			r.reused() // the server is known to tell
			c.prepared = 1
			prepare()
			require.ErrorContains(t, r.discarded(), "was replaced")

			r = stateRig(t, c)
			c.fail = map[string]error{preparedNameQuery(sqlscan.Effect{Name: "q"}).sql: sqlError("no such function")}
			prepare()
			r.reused() // such a server replaces none
			require.Contains(t, strings.Join(r.conn.Log(), ";"), "DEALLOCATE q")
		})
	}
}

// DuckDB leaves a setting of the whole server behind what fails in a transaction while it runs it
// as several statements.
func TestTheErrorPolicyIsTheServersAgainAfterAFailure(t *testing.T) {
	const policy, steps = "current_transaction_invalidation_policy", "ALTER TABLE t ADD b INT DEFAULT f()"
	for name, end := range map[string]func(*SessionHandle) error{
		"Close": (*SessionHandle).Close, "Discard": func(s *SessionHandle) error { return s.Discard(errors.New("not wanted")) },
		"a setting that cannot be put back": func(s *SessionHandle) error {
			_, err := s.Update(context.Background(), "CREATE TEMP MACRO m() AS 1")
			_ = s.Close()
			return err
		},
	} {
		for _, known := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				c := newStateConn()
				r := stateRig(t, c)
				must(t, r.handle.BeginTransaction(t.Context()))
				c.settings[policy], c.defaults[policy] = "all", "standard"
				c.fail = map[string]error{steps: sqlError("f fails")}
				if !known {
					c.fail["SELECT current_setting('"+policy+"')"] = sqlError("no such setting")
				}
				_, err := r.handle.Update(t.Context(), steps)
				require.Error(t, err)
				must(t, r.handle.Rollback(t.Context()))
				_ = end(r.handle)
				require.Equal(t, map[bool]string{true: "standard", false: "all"}[known], c.settings[policy], name)
				require.Equal(t, known, slices.Contains(r.conn.Log(), "RESET "+policy), name)
			})
		}
	}
}

// Elsewhere than in DuckDB, temp may be a catalogue like any other (Dremio), and what is named so in its main
// somebody's table.
func TestNothingIsDroppedWhereTempIsNoCatalogueOfTheSessions(t *testing.T) {
	for _, sql := range []string{"CREATE TABLE temp.x (a INT)", "CREATE VIEW temp.x AS SELECT 1", "CREATE TEMP TABLE x (a INT)"} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			c.fail = map[string]error{tempsQuery.sql: sqlError("no such function")}
			r := stateRig(t, c)
			exec(sql)(t, r.handle)
			require.ErrorContains(t, r.handle.Close(), "the temporary objects")
			require.Error(t, r.discarded())
			for _, sent := range c.Log() {
				require.NotContains(t, sent, "DROP", sql)
			}
		})
	}
}
