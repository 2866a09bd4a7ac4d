package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// limitError is a failure of the moment, which says nothing of what was asked.
func limitError() error {
	return &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultLimit, Err: status.Error(codes.ResourceExhausted, "busy")}
}

// noVerdict is the answer of a server, or of what stands before it, that has taken too long.
func noVerdict() error {
	return &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.DeadlineExceeded, "too slow")}
}

// A secret is reset and not asked for, which servers do not show. What is left to others is left to them.
func TestASessionThatIsGivenUpResetsItsSecretsUnasked(t *testing.T) {
	for mode, want := range map[*SessionReset][]string{&ResetAuto: {"RESET password"}, &ResetNone: nil} {
		synctest.Test(t, func(t *testing.T) {
			require.Equal(t, append([]string{"ClosePrepared"}, want...), restored(t, newStateConn(), *mode, "SET password = 'x'"), mode.String())
		})
	}
}

// goneConn is lost, as its transport knows, although it takes calls.
type goneConn struct {
	*stateConn
	gone bool
}

func (c *goneConn) Lost() error {
	if c.gone {
		return errors.New("gone")
	}
	return nil
}

// What puts one setting back in vain, for a reason that holds for all of them, is not tried with the next.
func TestSettingsArePutBackAsLongAsThereIsAnybodyToHear(t *testing.T) {
	const look, put = "SELECT current_setting('zone')", "SET zone = 'Tokyo'"
	expired := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultAuth, Err: errors.New("expired")}
	for name, tc := range map[string]struct {
		end  func(c *goneConn)
		want []string
	}{
		"all is well":                     {func(*goneConn) {}, []string{look, put, look, "SELECT current_setting('threads')", "SET threads = '3'", "SELECT current_setting('threads')"}},
		"the time is over":                {func(c *goneConn) { c.work = map[string]time.Duration{look: time.Minute} }, []string{look}},
		"the connection is lost":          {func(c *goneConn) { c.gone = true }, []string{look, put, look}},
		"the credential ends at the look": {func(c *goneConn) { c.fail = map[string]error{look: expired} }, []string{look}},
		"the credential ends at the SET":  {func(c *goneConn) { c.fail = map[string]error{put: expired} }, []string{look, put}},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &goneConn{stateConn: newStateConn()}
			r := newRig(t, conn.fakeConn)
			r.handle = New(conn, r.policy, r.returned)
			exec("SET threads = 1")(t, r.handle)
			exec("SET zone = 'UTC'")(t, r.handle)
			tc.end(conn)
			sent := r.sent(func() { _ = r.handle.Discard(errors.New("no more")) })
			require.Equal(t, append([]string{"ClosePrepared"}, tc.want...), sent, name)
			_ = r.discarded()
		})
	}
}

// leavePolicy has a statement fail in a transaction between its steps, behind which DuckDB leaves
// its error policy.
func leavePolicy(t *testing.T, c *fakeConn, s *SessionHandle) {
	t.Helper()
	const steps = "ALTER TABLE t ADD b INT DEFAULT f()"
	begin(t, s)
	c.mu.Lock()
	if c.failOnce == nil {
		c.failOnce = map[string][]error{}
	}
	c.failOnce["tx1: "+steps] = []error{sqlError("f fails")}
	c.mu.Unlock()
	refused(steps)(t, s)
	must(t, s.Rollback(t.Context()))
}

var (
	policyLook  = settingQuery(sqlscan.TxPolicy()).sql
	policyReset = "RESET " + sqlscan.TxPolicy().Name
)

// A session keeps its connection only where the error policy is the default again, or the server has surely none.
func TestTheErrorPolicyIsTheServersOrTheConnectionGoes(t *testing.T) {
	no := sqlError("Catalog Error: no such setting")
	for name, tc := range map[string]struct {
		look  []error // what the looks at it fail with
		reset error
		told  bool // another session has been told it
		why   string
		want  []string
	}{
		"it is reset":                     {want: []string{policyLook, policyReset}},
		"it is told at the second look":   {look: []error{no}, want: []string{policyLook, policyLook, policyReset}},
		"a server without it":             {look: []error{no, no}, want: []string{policyLook, policyLook}},
		"a server that has told it":       {look: []error{no, no}, told: true, why: "no such setting", want: []string{policyLook, policyLook}},
		"no verdict":                      {look: []error{no, noVerdict()}, why: "too slow", want: []string{policyLook, policyLook}},
		"a failure of the moment":         {look: []error{limitError()}, why: "busy", want: []string{policyLook}},
		"a refusal, then one":             {look: []error{no, limitError()}, why: "busy", want: []string{policyLook, policyLook}},
		"it is not reset":                 {reset: sqlError("not so"), why: "not so", want: []string{policyLook, policyReset}},
		"a server that has and resets it": {told: true, want: []string{policyLook, policyReset}},
	} {
		for _, keeping := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &fakeConn{failOnce: map[string][]error{policyLook: tc.look}, fail: map[string]error{policyReset: tc.reset}})
				if tc.told {
					r.policy.answeredQueries.add(settingQuery(sqlscan.TxPolicy()).key)
				}
				end := r.handle.Close
				if keeping {
					r.policy.Kept = &Kept{}
					s, err := NewKeeping(t.Context(), r.conn, r.policy, func() {})
					must(t, err)
					r.handle, end = s, func() error { return s.CloseKeeping(t.Context()) }
				}
				leavePolicy(t, r.conn, r.handle)
				var err error
				sent := r.sent(func() { err = end() })
				require.Equal(t, tc.want, sent[:len(tc.want)], name)
				if keeping {
					require.Equal(t, tc.why == "", r.policy.Kept.of(r.conn) != nil, name)
				} else if tc.why == "" {
					r.reused()
				} else {
					require.ErrorContains(t, r.discarded(), tc.why, name)
				}
				if tc.why == "" {
					require.NoError(t, err, name)
				} else {
					require.ErrorContains(t, err, tc.why, name)
				}
			})
		}
	}
}

// A value of its own that neither a RESET nor a SET has brought back is told so, with what was refused.
func TestAValueOfItsOwnThatIsNotBroughtBackIsToldWithWhatWasRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		c.settings["zone"] = "o'clock" // which this server does not set
		c.fail = map[string]error{"RESET SESSION zone": sqlError("no such statement")}
		r := stateRig(t, c)
		exec("SET SESSION zone = 'Oslo'")(t, r.handle)
		err := r.handle.Close()
		require.ErrorContains(t, err, "the setting zone is not what it was")
		require.ErrorContains(t, err, "RESET SESSION zone")
		_ = r.discarded()
	})
}

// Nothing is put back twice where the session could not be made clean.
func TestWhatWasPutBackInVainIsNotTriedAgain(t *testing.T) {
	const attach = "ATTACH 'x'" // cannot be taken back
	for name, tc := range map[string]struct {
		statements []string
		want       []string // the look at the place is not of interest
	}{
		"a setting":             {[]string{attach, "SET threads = 1"}, []string{"SET threads = '3'", "SELECT current_setting('threads')"}},
		"a setting that is not": {[]string{"SET threads = 1", attach}, []string{"SELECT current_setting('threads')", "SET threads = '3'", "SELECT current_setting('threads')"}},
		"a secret":              {[]string{"SET password = 'x'"}, []string{"RESET password"}},
		"the error policy":      {[]string{attach, ""}, []string{policyLook, policyReset}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			r := stateRig(t, c)
			for _, sql := range tc.statements {
				if sql == "" {
					leavePolicy(t, c.fakeConn, r.handle)
					continue
				}
				exec(sql)(t, r.handle)
			}
			sent := r.sent(func() { require.Error(t, r.handle.Close(), name) })
			require.Equal(t, tc.want, slices.DeleteFunc(sent, func(sql string) bool { return sql == "ClosePrepared" }), name)
			_ = r.discarded()
		})
	}
}

// Whatever fails while a session is made clean costs its connection, and is told.
func TestEveryFailureOfTheCleaningIsToldAndCostsTheConnection(t *testing.T) {
	name := preparedNameQuery(sqlscan.Effect{Name: "q"}).sql
	inTx := func(t *testing.T, s *SessionHandle, sql string) {
		begin(t, s)
		exec(sql)(t, s)
		must(t, s.Commit(t.Context()))
	}
	for what, tc := range map[string]struct {
		fail map[string]error
		use  func(t *testing.T, s *SessionHandle)
		why  string
	}{
		"a secret that is not reset":   {map[string]error{"RESET password": sqlError("not so")}, exec("SET password = 'x'"), "RESET password: "},
		"a name that is not told":      {map[string]error{name: limitError()}, func(t *testing.T, s *SessionHandle) { inTx(t, s, "PREPARE q AS SELECT 1") }, "busy"},
		"types that are not told":      {map[string]error{pivotTypesQuery.sql: limitError()}, exec("PIVOT t ON a"), "busy"},
		"types of a broken connection": {map[string]error{pivotTypesQuery.sql: transportError()}, exec("PIVOT t ON a"), "connection reset"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{})
			tc.use(t, r.handle)
			r.conn.fail = tc.fail
			err := r.handle.Close()
			require.ErrorContains(t, err, tc.why, what)
			require.NotContains(t, err.Error(), "panic", what)
			require.ErrorContains(t, r.discarded(), tc.why, what)
		})
	}
}

func TestALastPartOfAName(t *testing.T) {
	for name, want := range map[string]string{"t": "t", "s.t": "t", "c.s.t": "t", `"a.b"`: `"a.b"`, `s."a.b"`: `"a.b"`, `"s.t".u`: "u", "s.": "", ".t": "t", "": ""} {
		require.Equal(t, want, lastPart(name), name)
	}
}

// What cannot be asked again inside of a transaction fails the call: the refusal may have aborted the transaction.
func TestAReadBeforehandThatIsRefusedInATransactionIsTheCallsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		r := stateRig(t, c)
		const look = "SELECT current_setting('threads')"
		r.policy.answeredQueries.add("threads")
		r.policy.answeredQueries.add(anySetting)
		c.failOnce = map[string][]error{"tx1: " + look: {sqlError("Catalog Error: not now")}}
		begin(t, r.handle)
		_, err := r.handle.Update(t.Context(), "SET threads = 1")
		require.ErrorContains(t, err, "not now")
		require.False(t, slices.ContainsFunc(c.Log(), func(sql string) bool { return strings.Contains(sql, "SET threads") }), "%q", c.Log())
		require.ErrorIs(t, r.handle.Commit(t.Context()), backend.ErrTxAborted)
		must(t, r.handle.Close())
		r.reused()
	})
}

// pivotConn has the types that DuckDB has made of the values of a PIVOT.
type pivotConn struct {
	*fakeConn
	types int
}

func (c *pivotConn) Query(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	if sql != pivotTypesQuery.sql {
		return c.fakeConn.Query(ctx, sql, call)
	}
	if err := c.statement(ctx, sql, call.Tx); err != nil {
		return nil, err
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}, {Name: "name", Type: arrow.BinaryTypes.String}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(int64(c.types))        //nolint:forcetypeassert // by its schema
	b.Field(1).(*array.StringBuilder).Append("__pivot_enum_\"1\"") //nolint:forcetypeassert // by its schema
	return &stateRow{schema: schema, batch: b.NewRecordBatch()}, nil
}

func (c *pivotConn) Update(ctx context.Context, sql string, call backend.Call) (int64, error) {
	if sql == `DROP TYPE temp.main."__pivot_enum_""1"""` {
		c.types--
	}
	return c.fakeConn.Update(ctx, sql, call)
}

// The types of a PIVOT are dropped one by one, as long as that is worth its while.
func TestTheTypesOfAPivotAreDroppedUpToABound(t *testing.T) {
	for types, lent := range map[int]bool{0: true, 3: true, maxPivotTypes - 1: true, 100: false} {
		synctest.Test(t, func(t *testing.T) {
			conn := &pivotConn{&fakeConn{}, types}
			r := newRig(t, conn.fakeConn)
			r.handle = New(conn, r.policy, r.returned)
			must(t, drained(r.handle.Query(t.Context(), "PIVOT t ON a USING sum(b)")))
			err := r.handle.Close()
			if lent {
				must(t, err)
				r.reused()
				require.Zero(t, conn.types)
				return
			}
			require.ErrorContains(t, err, "the types of PIVOT are more than 64")
			_ = r.discarded()
			require.Equal(t, types-maxPivotTypes, conn.types)
		})
	}
}
