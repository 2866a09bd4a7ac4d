package session

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// readingConn reads the rows of an ingestion as a backend does, and says of their
// failure what its answer makes of it.
type readingConn struct {
	*fakeConn
	answer func(error) error
}

func (c *readingConn) Ingest(_ context.Context, rows array.RecordReader, _ backend.IngestOptions, _ backend.Call) (int64, error) {
	n := int64(0)
	for rows.Next() {
		n += rows.RecordBatch().NumRows()
	}
	return n, c.answer(rows.Err())
}

// Drivers send nothing of a stream without a batch, not even the schema.
func TestAnIngestionWithoutRowsHasABatch(t *testing.T) {
	none := int64Batch().NewSlice(0, 0)
	for name, batches := range map[string][]arrow.RecordBatch{"no batch": nil, "one": {none}, "rows": {none, int64Batch(1, 2), none}} {
		rows, err := array.NewRecordReader(none.Schema(), batches)
		must(t, err)
		seen := &callerRows{RecordReader: rows, call: &call{}}
		n := 0
		for seen.Next() {
			require.True(t, seen.RecordBatch().Schema().Equal(none.Schema()), name)
			require.Equal(t, seen.RecordBatch(), seen.Record())
			n++
		}
		require.NoError(t, seen.Err())
		require.Equal(t, max(1, len(batches)), n, name)
		require.False(t, seen.Next(), name)
	}
	failed := errors.New("failed")
	seen := &callerRows{RecordReader: array.ReaderFromIter(none.Schema(), func(yield func(arrow.RecordBatch, error) bool) { yield(nil, failed) }), call: &call{}}
	require.False(t, seen.Next())
	require.ErrorIs(t, seen.Err(), errRows)
}

// TestAFailingReaderOfRowsIsNotTheServer: rows may be the result of another server,
// whose failure must abort the transaction and keep the session, whatever backends make
// of it.
func TestAFailingReaderOfRowsIsNotTheServer(t *testing.T) {
	other := func(e backend.Error) error {
		e.Op, e.Target, e.Err = "Query", "other:1", status.Error(codes.Unavailable, "transport: of the other")
		return &e
	}
	failures := map[string]error{
		"plain": errors.New("plain"), "status": status.Error(codes.Unavailable, "transport: of another"), "end": io.ErrUnexpectedEOF,
		"unsent":      other(backend.Error{Fault: backend.FaultTransport, Unsent: true, Read: true}),
		"usage":       other(backend.Error{Fault: backend.FaultUsage}),
		"unsupported": other(backend.Error{Fault: backend.FaultUnsupported}),
		"session":     other(backend.Error{Fault: backend.FaultSession}),
		"auth":        other(backend.Error{Fault: backend.FaultAuth}),
	}
	answers := map[string]func(error) error{
		"as it is": func(err error) error { return err },
		"by its status": func(err error) error {
			return &backend.Error{Fault: backend.FaultOf(status.Code(err), err.Error()), Err: err}
		},
		"none": func(error) error { return nil },
	}
	for failure, failed := range failures {
		for kind, answer := range answers {
			t.Run(failure+", "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, &fakeConn{})
					r.handle.conn = &readingConn{r.conn, answer}
					must(t, r.handle.BeginTransaction(t.Context()))
					batch := int64Batch(1, 2)
					defer batch.Release()
					rows := array.ReaderFromIter(batch.Schema(), func(yield func(arrow.RecordBatch, error) bool) {
						batch.Retain()
						_ = yield(batch, nil) && yield(nil, failed)
					})
					defer rows.Release()
					_, err := r.handle.Ingest(t.Context(), "t", rows, backend.IngestOptions{})
					require.ErrorIs(t, err, failed)
					require.False(t, backend.SafeToRetry(err), "%v", err)
					var e *backend.Error
					require.ErrorAs(t, err, &e)
					require.Equal(t, "fake:1", e.Target)
					require.Equal(t, backend.FaultUnknown, e.Fault, "%v", err)
					require.ErrorIs(t, r.handle.Commit(t.Context()), backend.ErrTxAborted, "a statement of it has failed")
					must(t, r.handle.Close())
					r.reused()
				})
			})
		}
	}
}

// refusingRows refuses an ingestion, and has the temporary tables of its session told.
type refusingRows struct{ *stateConn }

func (refusingRows) Ingest(context.Context, array.RecordReader, backend.IngestOptions, backend.Call) (int64, error) {
	return 0, sqlError("a row is wrong")
}

// GizmoSQL collects the rows for a table that is there in a temporary table, which it keeps where they fail.
func TestWhatAFailedIngestionLeavesIsNotLent(t *testing.T) {
	for name, tc := range map[string]struct {
		temps int
		fails error // of the look at them
		left  string
	}{
		"its rows":             {temps: 1, left: "1 temporary objects are left"},
		"nothing":              {},
		"no catalogue to look": {fails: sqlError("no such function")},
		"no answer":            {fails: transportError(), left: "connection reset"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			c.temps = tc.temps
			if tc.fails != nil {
				c.fail = map[string]error{tempsQuery.sql: tc.fails}
			}
			r := stateRig(t, c)
			r.handle.conn = refusingRows{c}
			rows, err := array.NewRecordReader(int64Batch().Schema(), nil)
			must(t, err)
			_, err = r.handle.Ingest(t.Context(), "t", rows, backend.IngestOptions{})
			require.ErrorContains(t, err, "a row is wrong", name)
			err = r.handle.Close()
			if tc.left == "" {
				must(t, err)
				r.reused()
				return
			}
			require.ErrorContains(t, err, tc.left, name)
			require.ErrorContains(t, r.discarded(), tc.left, name)
		})
	}
}

// blockingRows count what is done to them while Next is under way.
type blockingRows struct {
	array.RecordReader
	mu       sync.Mutex
	refs     int
	reading  bool
	misused  bool
	released bool
	pause    time.Duration
}

func (r *blockingRows) Next() bool {
	r.set(func() { r.reading = true })
	time.Sleep(r.pause)
	r.set(func() { r.reading = false })
	return false
}

func (r *blockingRows) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *blockingRows) Schema() *arrow.Schema { return arrow.NewSchema(nil, nil) }

func (r *blockingRows) Err() error { return nil }
func (r *blockingRows) Retain()    { r.set(func() { r.refs++ }) }
func (r *blockingRows) Release() {
	r.set(func() {
		r.refs--
		r.released = r.refs == 0
		r.misused = r.misused || r.reading && r.released
	})
}

// The rows may be the result of another pool, which is one goroutine's at a time: its
// last reference is not given up while a read of it is under way.
func TestRowsAreLetGoOnceTheirReaderHasReturned(t *testing.T) {
	for _, pause := range []time.Duration{0, time.Second, time.Minute} {
		for _, left := range []time.Duration{time.Millisecond, time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &fakeConn{})
				rows := &blockingRows{refs: 1, pause: pause}
				ctx, stop := context.WithTimeout(t.Context(), left)
				defer stop()
				_, err := r.handle.Ingest(ctx, "t", rows, backend.IngestOptions{})
				require.Equal(t, left < pause, err != nil, "%v", err)
				rows.Release() // the caller's own
				_ = r.handle.Close()
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				rows.set(func() {
					require.True(t, rows.released, "%v", pause)
					require.False(t, rows.misused, "%v", pause)
				})
			})
		}
	}
	synctest.Test(t, func(t *testing.T) { // nothing of it was sent
		lost := &backend.Error{Stage: backend.StageProbe, Fault: backend.FaultTransport, Err: errors.New("lost")}
		r := newRig(t, &fakeConn{fail: map[string]error{"Prepare": lost}, forgives: true})
		rows := &blockingRows{refs: 1}
		_, err := r.handle.Ingest(t.Context(), "t", rows, backend.IngestOptions{Temporary: true})
		require.Error(t, err)
		rows.Release()
		require.True(t, rows.released)
		_ = r.handle.Close()
	})
}

// What an ingestion leaves in its session is what the statement would leave.
func TestAnIngestionLeavesWhatItsTableIs(t *testing.T) {
	temp := func(table string) []sqlscan.Effect {
		return []sqlscan.Effect{{Kind: sqlscan.EffectTempTable, Name: table}}
	}
	for _, c := range []struct {
		opts    backend.IngestOptions
		effects []sqlscan.Effect
		verb    string
	}{
		{backend.IngestOptions{}, nil, "INSERT"},
		{backend.IngestOptions{Mode: backend.IngestCreate, Schema: "temporal", Catalog: "x"}, nil, "INSERT"},
		{backend.IngestOptions{Mode: backend.IngestReplace}, nil, "CREATE"},
		{backend.IngestOptions{Temporary: true}, temp(`"a""b"`), "CREATE"},
		{backend.IngestOptions{Schema: "pg_temp"}, temp(`"pg_temp"."a""b"`), "CREATE"},
		{backend.IngestOptions{Catalog: "TEMP", Schema: "main", Mode: backend.IngestCreate}, temp(`"TEMP"."main"."a""b"`), "CREATE"},
		{backend.IngestOptions{Catalog: "temp", Mode: backend.IngestAppend}, nil, "INSERT"},
	} {
		c.opts.Table = `a"b`
		script := ingestScript(c.opts)
		require.Equal(t, c.effects, script.Effects(), "%+v", c.opts)
		require.Equal(t, c.verb, script.Statements[0].Verb, "%+v", c.opts)
	}
}

// optionsConn notes the options of an ingestion.
type optionsConn struct {
	*fakeConn
	options chan map[string]string
}

func (c *optionsConn) Ingest(_ context.Context, _ array.RecordReader, opts backend.IngestOptions, _ backend.Call) (int64, error) {
	time.Sleep(2 * time.Second)
	c.options <- opts.Options
	return 0, nil
}

func TestTheOptionsOfAnIngestionAreItsCallersToChangeOnceItHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &optionsConn{&fakeConn{}, make(chan map[string]string, 1)}
		r := newRig(t, c.fakeConn)
		r.handle = New(c, r.policy, r.returned)
		rows, err := array.NewRecordReader(int64Batch(1).Schema(), []arrow.RecordBatch{int64Batch(1)})
		must(t, err)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		options := map[string]string{"sort": "a"}
		_, err = r.handle.Ingest(ctx, "t", rows, backend.IngestOptions{Options: options})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		options["sort"] = "b"
		require.Equal(t, map[string]string{"sort": "a"}, <-c.options)
		_ = r.handle.Close()
	})
}

// A result that was released or closed has no rows to give: an ingestion that took it for an empty one
// would leave a table without any, in the place of the one that it replaces.
func TestRowsThatWereClosedAreNotNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, end := range map[string]func(*QueryResult){
			"released": (*QueryResult).Release,
			"closed":   func(res *QueryResult) { must(t, res.Close()) },
			"read":     func(res *QueryResult) { _, _ = res.ReadAll(t.Context()) },
		} {
			from, to := newRig(t, &fakeConn{}), newRig(t, &fakeConn{})
			res, err := from.handle.Query(t.Context(), "SELECT 3")
			must(t, err)
			end(res)
			require.NoError(t, res.Close(), name)
			require.NoError(t, res.Err(), name)
			_, err = to.handle.Ingest(t.Context(), "t", res, backend.IngestOptions{Mode: backend.IngestReplace})
			require.ErrorIs(t, err, backend.ErrHandleClosed, name)
			require.ErrorIs(t, res.Err(), backend.ErrHandleClosed, name)
			_ = from.handle.Close()
			_ = to.handle.Close()
		}
	})
}

// Nor are they all, where somebody closes the result while it is read.
func TestRowsThatAreClosedMeanwhileAreNotAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := newRig(t, &fakeConn{pace: time.Second}), newRig(t, &fakeConn{})
		res, err := from.handle.Query(t.Context(), "SELECT 3")
		must(t, err)
		time.AfterFunc(1500*ms, func() { _ = res.Close() })
		_, err = to.handle.Ingest(t.Context(), "t", res, backend.IngestOptions{})
		require.ErrorIs(t, err, backend.ErrHandleClosed)
		_ = from.handle.Close()
		_ = to.handle.Close()
	})
}

// countingIngests counts the ingestions that its backend is given.
type countingIngests struct {
	*fakeConn
	n int
}

func (c *countingIngests) Ingest(context.Context, array.RecordReader, backend.IngestOptions, backend.Call) (int64, error) {
	c.n++
	return 0, nil
}

// Drivers send the schema of rows that fail at once, and servers then make the table, or drop the one that it replaces.
func TestNothingIsSentOfRowsThatFailBeforeTheirFirstBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		conn := &countingIngests{fakeConn: r.conn}
		r.handle.conn = conn
		must(t, r.handle.BeginTransaction(t.Context()))
		failed := errors.New("the file is not there")
		rows := array.ReaderFromIter(int64Batch().Schema(), func(yield func(arrow.RecordBatch, error) bool) { yield(nil, failed) })
		defer rows.Release()
		_, err := r.handle.Ingest(t.Context(), "t", rows, backend.IngestOptions{Mode: backend.IngestReplace})
		require.ErrorIs(t, err, failed)
		require.Zero(t, conn.n)
		var e *backend.Error
		require.ErrorAs(t, err, &e)
		require.True(t, e.Unsent)
		must(t, r.handle.Commit(t.Context()))
		must(t, r.handle.Close())
		r.reused()
	})
}

// A reader may know of its failure before it is asked for a batch. It is not asked for one, of a file for example that is not there.
func TestRowsThatHaveFailedAreNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		conn := &countingIngests{fakeConn: r.conn}
		r.handle.conn = conn
		failed := errors.New("the file is not there")
		rows := &failedRows{RecordReader: tenRows(t), err: failed}
		_, err := r.handle.Ingest(t.Context(), "t", rows, backend.IngestOptions{})
		require.ErrorIs(t, err, failed)
		require.Zero(t, conn.n)
		require.Zero(t, rows.asked)
		must(t, r.handle.Close())
		r.reused()
	})
}

// failedRows are rows that have failed, and give a batch all the same.
type failedRows struct {
	array.RecordReader
	err   error
	asked int
}

func (r *failedRows) Next() bool { r.asked++; return r.RecordReader.Next() }
func (r *failedRows) Err() error { return r.err }

// mixedRows have batches of several schemas.
type mixedRows struct {
	array.RecordReader
	batches []arrow.RecordBatch
	at      int
	first   time.Duration // what the first takes
}

func (r *mixedRows) Next() bool {
	if r.at++; r.at == 1 {
		time.Sleep(r.first)
	}
	return r.at <= len(r.batches)
}

func (r *mixedRows) RecordBatch() arrow.RecordBatch { return r.batches[r.at-1] }
func (r *mixedRows) Err() error                     { return nil }

// A batch of another schema is the failure of the rows: of nothing that was sent where it is the first.
func TestABatchOfAnotherSchemaFailsTheRows(t *testing.T) {
	good, other := int64Batch(1, 2), array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 1)
	for name, tc := range map[string]struct {
		batches []arrow.RecordBatch
		sent    bool
	}{"the first": {[]arrow.RecordBatch{other, good}, false}, "the second": {[]arrow.RecordBatch{good, other, good}, true}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{})
			answered := false
			r.handle.conn = &readingConn{r.conn, func(err error) error { answered = true; return err }}
			must(t, r.handle.BeginTransaction(t.Context()))
			_, err := r.handle.Ingest(t.Context(), "t", &mixedRows{RecordReader: tenRows(t), batches: tc.batches}, backend.IngestOptions{})
			require.ErrorIs(t, err, errRows, name)
			require.ErrorContains(t, err, "a batch has the schema", name)
			require.Equal(t, tc.sent, answered, name)
			var e *backend.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, !tc.sent, e.Unsent, name)
			require.Equal(t, tc.sent, errors.Is(r.handle.Commit(t.Context()), backend.ErrTxAborted), name)
			must(t, r.handle.Close())
		})
	}
}

// Rows that take as long for their first batch as a server may keep an idle session are sent to the session that was proven
// before only where it is proven again.
func TestRowsWhoseFirstBatchTakesLongAreProvenAgain(t *testing.T) {
	for takes, again := range map[time.Duration]bool{longFirstBatch - 1: false, longFirstBatch: true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{forgives: true})
			must(t, r.handle.BeginTransaction(t.Context()))
			before := proofs(r.conn)
			rows := &mixedRows{RecordReader: tenRows(t), batches: []arrow.RecordBatch{int64Batch(1)}, first: takes}
			_, err := r.handle.Ingest(t.Context(), "t", rows, backend.IngestOptions{})
			must(t, err)
			want := 1
			if again {
				want = 2
			}
			require.Equal(t, want, proofs(r.conn)-before, "%s: %q", takes, r.conn.Log())
			must(t, r.handle.Commit(t.Context()))
			must(t, r.handle.Close())
		})
	}
}
