package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/effect"
)

func TestWhatAnAnswerMeans(t *testing.T) {
	page := status.Error(codes.PermissionDenied, "unexpected HTTP status code received from server: 403 (Forbidden)")
	for name, tc := range map[string]struct {
		err  error
		want effect.Meaning
		down bool
	}{
		"none":              {nil, effect.Done, false},
		"not sent":          {&backend.Error{Fault: backend.FaultTransport, Unsent: true}, effect.Refused, false},
		"misuse":            {&backend.Error{Fault: backend.FaultUsage, Err: status.Error(codes.Internal, "")}, effect.Refused, true},
		"not permitted":     {&backend.Error{Fault: backend.FaultAuth, Err: status.Error(codes.Internal, "")}, effect.Refused, false},
		"a page, forbidden": {&backend.Error{Fault: backend.FaultAuth, Err: page}, effect.NotKnown, false},
		"a page, no call":   {&backend.Error{Fault: backend.FaultUnsupported, Err: page}, effect.NotKnown, false},
		"no such call":      {&backend.Error{Fault: backend.FaultUnsupported, Err: status.Error(codes.Unimplemented, "")}, effect.Refused, true},
		"the connection":    {&backend.Error{Fault: backend.FaultTransport, Err: status.Error(codes.NotFound, "")}, effect.NotKnown, false},
		"a refusal":         {&backend.Error{Fault: backend.FaultStatement, Err: status.Error(codes.NotFound, "")}, effect.Refused, false},
		"nobody's":          {&backend.Error{Fault: backend.FaultStatement, Err: status.Error(codes.Internal, "")}, effect.NotKnown, false},
	} {
		require.Equal(t, tc.want, meaningOf(effect.Statement, tc.err), name)
		require.Equal(t, tc.down, turnedDown(tc.err), name)
	}
}

// failing is an execution that fails in err, and records what it was told of its call.
type failing struct {
	*fakePrepared
	err     error
	several *bool
}

func (p failing) Update(_ context.Context, _ arrow.RecordBatch, call backend.Call) (int64, error) {
	*p.several = call.ChangesSeveral
	return 0, p.err
}

func (p failing) Query(_ context.Context, _ arrow.RecordBatch, call backend.Call) (backend.Stream, error) {
	*p.several = call.ChangesSeveral
	return nil, p.err
}

func TestAFailureSaysWhetherSomeOfItMayBeStored(t *testing.T) {
	refused := func(fault backend.Fault, stage backend.Stage, unsent bool) *backend.Error {
		return &backend.Error{Fault: fault, Stage: stage, Unsent: unsent, Err: status.Error(codes.InvalidArgument, "no")}
	}
	statement := refused(backend.FaultStatement, backend.StageExecute, false)
	auth := refused(backend.FaultAuth, backend.StageExecute, false)
	two, one := int64Batch(1, 2), int64Batch(1)
	for name, tc := range map[string]struct {
		sql     string
		rows    arrow.RecordBatch
		inTx    bool
		err     *backend.Error
		partial bool
		several bool
		check   bool // it is the statement before ours that fails
	}{
		"one row":                        {sql: "INSERT 1", rows: one, err: statement},
		"two rows":                       {sql: "INSERT 1", rows: two, err: statement, partial: true, several: true},
		"two rows in a transaction":      {sql: "INSERT 1", rows: two, inTx: true, err: statement, several: true},
		"a read with two rows":           {sql: "SELECT 1", rows: two, err: statement},
		"two rows, not permitted":        {sql: "INSERT 1", rows: two, err: auth, partial: true, several: true},
		"one row, not permitted":         {sql: "INSERT 1", rows: one, err: auth},
		"two rows, nothing sent":         {sql: "INSERT 1", rows: two, err: refused(backend.FaultLimit, backend.StageExecute, true), several: true},
		"two rows, the first may be in":  {sql: "INSERT 1", rows: two, err: refused(backend.FaultAuth, backend.StageExecute, true), partial: true, several: true},
		"two rows, in preparing":         {sql: "INSERT 1", rows: two, err: refused(backend.FaultAuth, backend.StagePrepare, false), several: true},
		"two rows, no such call":         {sql: "INSERT 1", rows: two, err: refused(backend.FaultUnsupported, backend.StageExecute, false), partial: true, several: true},
		"two rows, too large":            {sql: "INSERT 1", rows: two, err: refused(backend.FaultLimit, backend.StageExecute, false), partial: true, several: true},
		"two rows, misuse":               {sql: "INSERT 1", rows: two, err: refused(backend.FaultUsage, backend.StageExecute, false), several: true},
		"two rows, a look before denied": {sql: "INSERT INTO t VALUES (?)", rows: two, err: auth, check: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{})
			several := false
			if tc.check {
				r.conn.fail = map[string]error{searchPathQuery.sql: tc.err, namespaceQuery.sql: tc.err}
			} else {
				r.conn.prepared = func(p *fakePrepared) backend.Prepared { return failing{p, tc.err, &several} }
			}
			if tc.inTx {
				must(t, r.handle.BeginTransaction(t.Context()))
			}
			var err error
			if tc.sql == "SELECT 1" {
				_, err = r.handle.Query(t.Context(), tc.sql, tc.rows)
			} else {
				_, err = r.handle.UpdateWithRecordBatch(t.Context(), tc.sql, tc.rows)
			}
			var e *backend.Error
			require.ErrorAs(t, err, &e, name)
			require.Equal(t, tc.err.Fault, e.Fault, "%s: %v", name, err)
			require.Equal(t, tc.partial, e.Partial, name)
			require.Equal(t, tc.several, several, name)
			_ = r.handle.Close()
		})
	}
	for name, tc := range map[string]struct {
		run     func(ctx context.Context, h *SessionHandle) error
		partial bool
	}{
		"a script": {func(ctx context.Context, h *SessionHandle) error {
			_, err := h.Update(ctx, "INSERT 1; INSERT bad")
			return err
		}, true},
		"one statement": {func(ctx context.Context, h *SessionHandle) error { _, err := h.Update(ctx, "INSERT bad"); return err }, false},
		"a script of reads": {func(ctx context.Context, h *SessionHandle) error {
			return drained(h.Query(ctx, "SELECT 1; SELECT bad"))
		}, false},
		"no statement": {func(ctx context.Context, h *SessionHandle) error { return h.SetOption(ctx, "a", "1") }, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{fail: map[string]error{"SetOptions": auth}})
			for _, sql := range []string{"INSERT 1; INSERT bad", "INSERT bad", "SELECT 1; SELECT bad"} {
				r.conn.fail[sql] = statement
			}
			var e *backend.Error
			require.ErrorAs(t, tc.run(t.Context(), r.handle), &e, name)
			require.Equal(t, tc.partial, e.Partial, "%s: %v", name, e)
			_ = r.handle.Close()
		})
	}
}

// A server that is asked for the rows of a change may have made it whatever it says of the rows. What it says in preparing, or
// by a word of a refusal, is about the change.
func TestAFailureOfTheRowsOfAChangeSaysWhetherItMayBeStored(t *testing.T) {
	const rowless, returning = "INSERT 1", "INSERT 1 RETURNING 1"
	for name, tc := range map[string]struct {
		sql     string
		stage   backend.Stage
		code    codes.Code
		words   string
		partial bool
	}{
		"has no rows, says the execution":    {rowless, backend.StageExecute, codes.InvalidArgument, "no rows", true},
		"has no rows, says the preparing":    {rowless, backend.StagePrepare, codes.InvalidArgument, "no rows", false},
		"has no rows, says the fetch":        {rowless, backend.StageFetch, codes.FailedPrecondition, "no rows", true},
		"is refused by its execution":        {rowless, backend.StageExecute, codes.AlreadyExists, "no", false},
		"has rows, and a wrong text":         {returning, backend.StageExecute, codes.InvalidArgument, "no", false},
		"is refused as its rows are fetched": {returning, backend.StageFetch, codes.AlreadyExists, "no", false},
		"a conflict, in its own words":       {returning, backend.StageFetch, codes.Internal, "write-write conflict", false},
		"a constraint":                       {returning, backend.StageFetch, codes.Internal, "Constraint Error: no", false},
		"a wrong text, in its own words":     {returning, backend.StageFetch, codes.Internal, "Parser Error: no", false},
		"no words":                           {returning, backend.StageFetch, codes.Internal, "", true},
		"a result that is not known":         {returning, backend.StageFetch, codes.NotFound, "no", true},
	} {
		synctest.Test(t, func(t *testing.T) {
			failure := &backend.Error{Stage: tc.stage, Fault: backend.FaultStatement, Err: status.Error(tc.code, tc.words)}
			where := tc.sql
			if tc.stage == backend.StageFetch {
				where = "stream"
			}
			r := newRig(t, &fakeConn{fail: map[string]error{where: failure}})
			err := drained(r.handle.QueryWithOptions(t.Context(), tc.sql, QueryOptions{Route: RouteQuery}))
			var e *backend.Error
			require.ErrorAs(t, err, &e, name)
			require.Equal(t, tc.stage, e.Stage, name)
			require.Equal(t, tc.partial, e.Partial, "%s: %v", name, err)
			_ = r.handle.Close()
		})
	}
}

// A credential that was refused before anything was sent leaves a call as safe to repeat as before, unless a part of it may be done.
func TestARefusedCredentialIsUnsentWhereNothingCanBeHalfDone(t *testing.T) {
	auth := func(stage backend.Stage) error {
		return &backend.Error{Stage: stage, Fault: backend.FaultAuth, Unsent: true, Err: status.Error(codes.Unauthenticated, "no")}
	}
	for name, tc := range map[string]struct {
		fail   map[string]error
		run    func(ctx context.Context, r *rig) error
		unsent bool
	}{
		"an option":      {map[string]error{"SetOptions": auth(backend.StageExecute)}, func(ctx context.Context, r *rig) error { return r.handle.SetOption(ctx, "a", "1") }, true},
		"a probe's rows": {map[string]error{"stream": auth(backend.StageFetch)}, func(ctx context.Context, r *rig) error { return r.stateless().Ping(ctx) }, true},
		"a read's rows":  {map[string]error{"stream": auth(backend.StageFetch)}, func(ctx context.Context, r *rig) error { return drained(r.handle.Query(ctx, "SELECT 1")) }, true},
		"a change's rows": {map[string]error{"stream": auth(backend.StageFetch)}, func(ctx context.Context, r *rig) error {
			return drained(r.handle.QueryWithOptions(ctx, "INSERT 1 RETURNING 1", QueryOptions{Route: RouteQuery}))
		}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{fail: tc.fail})
			var e *backend.Error
			require.ErrorAs(t, tc.run(t.Context(), r), &e, name)
			require.Equal(t, backend.FaultAuth, e.Fault, "%s: %v", name, e)
			require.Equal(t, tc.unsent, e.Unsent, name)
			_ = r.handle.Close()
		})
	}
}

// A server that has the call and no rows to give for it has executed a read all the same, which leaves its transaction as it was.
func TestATransactionGoesOnBehindAReadWhoseRowsTheServerDoesNotGive(t *testing.T) {
	unsupported := &backend.Error{Stage: backend.StageFetch, Fault: backend.FaultUnsupported, Err: status.Error(codes.Unimplemented, "no rows of this type")}
	for sql, goesOn := range map[string]bool{"SELECT 1": true, "INSERT 1 RETURNING 1": false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{fail: map[string]error{"stream": unsupported}})
			must(t, r.handle.BeginTransaction(t.Context()))
			require.Error(t, drained(r.handle.Query(t.Context(), sql)))
			require.Equal(t, !goesOn, errors.Is(r.handle.Commit(t.Context()), backend.ErrTxAborted), sql)
			must(t, r.handle.Close())
		})
	}
}

// What a server has refused for its text has left no table. What it has turned away in another way may have, as a proxy that says so
// may stand before what was done.
func TestWhatIsTurnedAwayForNoFaultOfItsTextIsTakenBack(t *testing.T) {
	for fault, left := range map[backend.Fault]bool{backend.FaultStatement: false, backend.FaultUnsupported: true} {
		synctest.Test(t, func(t *testing.T) {
			const create = "CREATE TEMP TABLE x (a INT)"
			c := newStateConn()
			c.fail = map[string]error{create: &backend.Error{Stage: backend.StageExecute, Fault: fault, Err: status.Error(codes.Unimplemented, "no")}}
			r := stateRig(t, c)
			_, err := r.handle.Update(t.Context(), create)
			require.Equal(t, fault, backend.FaultIn(err), "%v", err)
			log := r.sent(func() { _ = r.handle.Close() })
			require.Equal(t, left, slices.ContainsFunc(log, func(sql string) bool { return strings.Contains(sql, "DROP TABLE IF EXISTS") }), "%q", log)
		})
	}
}

// counting is an execution that fails, by a handle of eight bytes.
type counting struct{ failing }

func (counting) FirstHandle() string { return "\x00\x00\x00\x00\x00\x00\x00\x07" }

// SwanLake loads what it has of an INSERT once more behind a conflict, or a failure of the storage. It does nothing of that before it
// has the rows.
func TestALoadThatIsTriedAgainMayBeStored(t *testing.T) {
	for name, tc := range map[string]struct {
		stage   backend.Stage
		state   string
		code    codes.Code
		partial bool
	}{
		"a conflict":                  {backend.StageExecute, "40001", codes.Aborted, true},
		"a conflict in the preparing": {backend.StagePrepare, "40001", codes.Aborted, false},
		"no words":                    {backend.StageExecute, "", codes.Internal, true},
		"no words in the preparing":   {backend.StagePrepare, "", codes.Internal, false},
		"a refusal":                   {backend.StageExecute, "", codes.InvalidArgument, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{})
			failure, several := &backend.Error{Stage: tc.stage, Fault: backend.FaultStatement, SQLState: tc.state, Err: status.Error(tc.code, "")}, false
			r.conn.prepared = func(p *fakePrepared) backend.Prepared { return counting{failing{p, failure, &several}} }
			_, err := r.handle.Update(t.Context(), "INSERT INTO t VALUES (?)", 7)
			var e *backend.Error
			require.ErrorAs(t, err, &e, name)
			require.Equal(t, tc.partial, e.Partial, "%s: %v", name, err)
			_ = r.handle.Close()
		})
	}
}

// refusingIngestion takes all rows and refuses them.
type refusingIngestion struct {
	*fakeConn
	err   error
	split bool
}

func (c *refusingIngestion) Ingest(_ context.Context, rows array.RecordReader, _ backend.IngestOptions, call backend.Call) (int64, error) {
	for rows.Next() {
		if c.split {
			call.Op.MarkSplit()
		}
	}
	return 0, c.err
}

// TestAnIngestionThatIsRefusedSaysWhetherSomeOfItMayBeStored: the server may have taken the rows
// before, or dropped the table for them.
func TestAnIngestionThatIsRefusedSaysWhetherSomeOfItMayBeStored(t *testing.T) {
	unsupported := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultUnsupported, Err: status.Error(codes.Unimplemented, "no")}
	statement := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.InvalidArgument, "no")}
	for name, tc := range map[string]struct {
		batches int
		split   bool
		mode    backend.IngestMode
		err     error
		partial bool
	}{
		"no batch":          {0, false, backend.IngestAppend, unsupported, false},
		"one batch":         {1, false, backend.IngestAppend, unsupported, false},
		"two batches":       {2, false, backend.IngestAppend, unsupported, true},
		"in parts":          {1, true, backend.IngestAppend, unsupported, true},
		"a new table":       {1, false, backend.IngestReplace, unsupported, true},
		"refused for a row": {1, false, backend.IngestAppend, statement, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			ingest := func(r *rig) error {
				r.handle.conn = &refusingIngestion{r.conn, tc.err, tc.split}
				batches := make([]arrow.RecordBatch, tc.batches)
				for i := range batches {
					batches[i] = int64Batch(1)
				}
				rows, err := array.NewRecordReader(fakeSchema, batches)
				must(t, err)
				_, err = r.handle.Ingest(t.Context(), "t", rows, backend.IngestOptions{Mode: tc.mode})
				return err
			}
			r := newRig(t, &fakeConn{})
			var e *backend.Error
			require.ErrorAs(t, ingest(r), &e, name)
			require.Equal(t, tc.partial, e.Partial, "%s: %v", name, e)
			_ = r.handle.Close()

			r = newRig(t, &fakeConn{})
			must(t, r.handle.BeginTransaction(t.Context()))
			require.Error(t, ingest(r), name)
			require.Equal(t, tc.partial, errors.Is(r.handle.Commit(t.Context()), backend.ErrTxAborted), "what may be half done is not committed: %s", name)
			_, err := r.handle.Ingest(t.Context(), "t", nil, backend.IngestOptions{})
			require.Error(t, err, name)
			_ = r.handle.Close()
		})
	}
}

func TestAnIngestionInATransactionThatIsAbortedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		must(t, r.handle.BeginTransaction(t.Context()))
		_, err := r.handle.Update(t.Context(), "INSERT bad")
		require.Error(t, err)
		rows, err := array.NewRecordReader(fakeSchema, nil)
		must(t, err)
		sent := len(r.conn.Log())
		_, err = r.handle.Ingest(t.Context(), "t", rows, backend.IngestOptions{})
		require.ErrorIs(t, err, backend.ErrTxAborted)
		require.Len(t, r.conn.Log(), sent)
		must(t, r.handle.Close())
	})
}

// lazyRows fail when their schema is asked for, as those do that are read to know it.
type lazyRows struct {
	array.RecordReader
	err error
}

func (r *lazyRows) Schema() *arrow.Schema {
	r.err = errors.New("no first row")
	return fakeSchema
}

func (r *lazyRows) Err() error { return r.err }

func TestRowsThatFailAtOnceAreNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		empty, err := array.NewRecordReader(fakeSchema, nil)
		must(t, err)
		_, err = r.handle.Ingest(t.Context(), "t", &lazyRows{RecordReader: empty}, backend.IngestOptions{})
		require.ErrorContains(t, err, "no first row")
		require.Equal(t, backend.FaultUsage, backend.FaultIn(err))
		require.Empty(t, r.conn.Log())
		must(t, r.handle.Close())
	})
}

// TestAFailureOfTheConnectionGoesBeforeOneOfTheRows, which is told beside it.
func TestAFailureOfTheConnectionGoesBeforeOneOfTheRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("the rows")
		r := newRig(t, &fakeConn{})
		r.handle.conn = &readingConn{r.conn, func(error) error { return transportError() }}
		rows := array.ReaderFromIter(fakeSchema, func(yield func(arrow.RecordBatch, error) bool) {
			_ = yield(batchWithoutRows(fakeSchema), nil) && yield(nil, failed)
		})
		_, err := r.handle.Ingest(t.Context(), "t", rows, backend.IngestOptions{})
		require.ErrorIs(t, err, failed)
		require.ErrorIs(t, err, backend.ErrSessionLost)
		require.ErrorContains(t, err, "connection reset")
		_ = r.handle.Close()
	})
}
