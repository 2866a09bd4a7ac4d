package flightpool

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/session"
	"github.com/flightpool/flightpool/testserver"
)

// A spanRecorder is every kind of tracer, and holds that each start has its one end.
type spanRecorder struct {
	mu    sync.Mutex
	open  map[*recordedSpan]bool
	ended []*recordedSpan
}

type recordedSpan struct {
	parent       *recordedSpan
	kind, op     string
	sql, summary string
	outcome      Outcome
	err          error
	safe         bool // of a cancel
}

type recordedKey struct{ of *spanRecorder }

func (r *spanRecorder) start(ctx context.Context, kind, op string) (context.Context, *recordedSpan) {
	s := &recordedSpan{kind: kind, op: op}
	s.parent, _ = ctx.Value(recordedKey{r}).(*recordedSpan)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = map[*recordedSpan]bool{}
	}
	r.open[s] = true
	ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", kind+" "+op)
	return context.WithValue(ctx, recordedKey{r}, s), s
}

func (r *spanRecorder) end(ctx context.Context, kind, op string) *recordedSpan {
	s, _ := ctx.Value(recordedKey{r}).(*recordedSpan)
	r.mu.Lock()
	defer r.mu.Unlock()
	if s == nil || !r.open[s] || s.kind != kind || s.op != op {
		panic(fmt.Sprintf("the end of %s %s comes to %+v", kind, op, s))
	}
	delete(r.open, s)
	r.ended = append(r.ended, s)
	return s
}

func (r *spanRecorder) TraceQueryStart(ctx context.Context, d QueryStartData) context.Context {
	ctx, s := r.start(ctx, "query", d.Op)
	s.sql, s.summary = d.SQL, d.Summary()
	return ctx
}

func (r *spanRecorder) TraceQueryEnd(ctx context.Context, d QueryEndData) {
	s := r.end(ctx, "query", d.Op)
	s.outcome, s.err = d.Outcome, d.Err
}

func (r *spanRecorder) TraceIngestStart(ctx context.Context, d IngestStartData) context.Context {
	ctx, s := r.start(ctx, "ingest", "Ingest")
	s.sql = d.Table
	return ctx
}

func (r *spanRecorder) TraceIngestEnd(ctx context.Context, d IngestEndData) {
	s := r.end(ctx, "ingest", "Ingest")
	s.outcome, s.err = d.Outcome, d.Err
}

func (r *spanRecorder) TraceBatchStart(ctx context.Context, d BatchStartData) context.Context {
	ctx, _ = r.start(ctx, "batch", strconv.Itoa(d.Len))
	return ctx
}

func (r *spanRecorder) TraceBatchEnd(ctx context.Context, d BatchEndData) {
	r.end(ctx, "batch", strconv.Itoa(d.Len)).err = d.Err
}

func (r *spanRecorder) TraceCancelStart(ctx context.Context, d CancelStartData) context.Context {
	ctx, _ = r.start(ctx, "cancel", d.Op)
	return ctx
}

func (r *spanRecorder) TraceCancelEnd(ctx context.Context, d CancelEndData) {
	r.end(ctx, "cancel", d.Op).safe = d.Report.Safe()
}

func (r *spanRecorder) TraceConnectStart(ctx context.Context, _ ConnectStartData) context.Context {
	ctx, _ = r.start(ctx, "connect", "")
	return ctx
}

func (r *spanRecorder) TraceConnectEnd(ctx context.Context, d ConnectEndData) {
	r.end(ctx, "connect", "").err = d.Err
}

func (r *spanRecorder) TraceAcquireStart(ctx context.Context, d AcquireStartData) context.Context {
	ctx, _ = r.start(ctx, "acquire", d.Op)
	return ctx
}

func (r *spanRecorder) TraceAcquireEnd(ctx context.Context, d AcquireEndData) {
	r.end(ctx, "acquire", d.Op).err = d.Err
}

func (r *spanRecorder) TraceRelease(ctx context.Context, d ReleaseData) {
	s := &recordedSpan{kind: "release", err: d.Discard}
	s.parent, _ = ctx.Value(recordedKey{r}).(*recordedSpan)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, s)
}

// take gives the spans that have ended since the last take, of these kinds.
func (r *spanRecorder) take(t testing.TB, kinds string) (of []*recordedSpan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.open {
		require.Fail(t, "open", "%+v", s)
	}
	for _, s := range r.ended {
		if strings.Contains(kinds, s.kind) {
			of = append(of, s)
		}
	}
	r.ended = nil
	return of
}

func (r *spanRecorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open, r.ended = nil, nil
}

func TestEveryCallIsSeenOnceWithItsOutcome(t *testing.T) {
	type call struct {
		ops string // what is seen, in turn
		do  func(r *rig) error
	}
	onSession := func(do func(r *rig, s *SessionHandle) error) func(*rig) error {
		return func(r *rig) error {
			s := r.session()
			defer func() { require.NoError(r, s.Close()) }()
			return do(r, s)
		}
	}
	inTx := func(do func(r *rig, tx *Tx) error) func(*rig) error {
		return func(r *rig) error {
			tx, err := r.pool.BeginTx(r.Context(), TxOptions{})
			require.NoError(r, err)
			defer func() { require.NoError(r, tx.Rollback(r.Context())) }()
			return do(r, tx)
		}
	}
	table := "t"
	for name, c := range map[string]call{
		"Query":                 {"Query", func(r *rig) error { return drained(r.pool.Query(r.Context(), "SELECT 1")) }},
		"Query, refused":        {"Query", func(r *rig) error { return drained(r.pool.Query(r.Context(), "SELECT error('no')")) }},
		"Query of a change":     {"Query", func(r *rig) error { return drained(r.pool.Query(r.Context(), "INSERT INTO t VALUES (1)")) }},
		"Query with parameters": {"Query", func(r *rig) error { return drained(r.pool.Query(r.Context(), "SELECT ?", 7)) }},
		"Query without text":    {"Query", func(r *rig) error { return drained(r.pool.Query(r.Context(), "")) }},
		"QueryRow":              {"Query", func(r *rig) error { var n int64; return r.pool.QueryRow(r.Context(), "SELECT 1").Scan(&n) }},
		"Execute":               {"Execute", func(r *rig) error { return drained(r.pool.Execute(r.Context(), "SELECT 1")) }},
		"Update":                {"Update", func(r *rig) error { _, err := r.pool.Update(r.Context(), "INSERT INTO t VALUES (1)"); return err }},
		"Update, refused":       {"Update", func(r *rig) error { _, err := r.pool.Update(r.Context(), "UPDATE t SET a = error('no')"); return err }},
		"Update of a batch": {"Update", func(r *rig) error {
			_, err := r.pool.UpdateWithRecordBatch(r.Context(), "INSERT INTO t VALUES (?)", ints("a", 1, 2))
			return err
		}},
		"QueryWithParams": {"Query", func(r *rig) error { return drained(r.pool.QueryWithParams(r.Context(), "SELECT ?", ints("a", 1))) }},
		"Ingest": {"Ingest", func(r *rig) error {
			_, err := r.pool.Ingest(r.Context(), "t", r.rows(2), IngestOptions{})
			return err
		}},
		"Ping":           {"Ping", func(r *rig) error { return r.pool.Ping(r.Context()) }},
		"Catalogs":       {"Catalogs", func(r *rig) error { return drained(r.pool.Catalogs(r.Context())) }},
		"Schemas":        {"Schemas", func(r *rig) error { return drained(r.pool.Schemas(r.Context(), nil, nil)) }},
		"Tables":         {"Tables", func(r *rig) error { return drained(r.pool.Tables(r.Context(), TableFilter{})) }},
		"TableTypes":     {"TableTypes", func(r *rig) error { return drained(r.pool.TableTypes(r.Context())) }},
		"PrimaryKeys":    {"PrimaryKeys", func(r *rig) error { return drained(r.pool.PrimaryKeys(r.Context(), TableRef{Table: table})) }},
		"ImportedKeys":   {"ImportedKeys", func(r *rig) error { return drained(r.pool.ImportedKeys(r.Context(), TableRef{Table: table})) }},
		"ExportedKeys":   {"ExportedKeys", func(r *rig) error { return drained(r.pool.ExportedKeys(r.Context(), TableRef{Table: table})) }},
		"SQLInfo":        {"SQLInfo", func(r *rig) error { return drained(r.pool.SQLInfo(r.Context())) }},
		"AcquireSession": {"", func(r *rig) error { return r.session().Close() }},
		"a pool that is exhausted": {"Query", func(r *rig) error {
			s := r.session()
			defer func() { _ = s.Close() }()
			ctx, stop := context.WithTimeout(r.Context(), time.Second)
			defer stop()
			return drained(r.pool.Query(ctx, "SELECT 1"))
		}},

		"SendBatch": {"SendBatch SendBatch", func(r *rig) error {
			var b Batch
			b.Queue("SELECT 1")
			b.Queue("INSERT INTO t VALUES (1)")
			return r.pool.SendBatch(r.Context(), &b)
		}},
		"session Query":  {"Query", onSession(func(r *rig, s *SessionHandle) error { return drained(s.Query(r.Context(), "SELECT 1")) })},
		"session Update": {"Update", onSession(func(r *rig, s *SessionHandle) error { _, err := s.Update(r.Context(), "SET a = 1"); return err })},
		"session Ping":   {"Ping", onSession(func(r *rig, s *SessionHandle) error { return s.Ping(r.Context()) })},
		"session Ingest": {"Ingest", onSession(func(r *rig, s *SessionHandle) error {
			_, err := s.Ingest(r.Context(), "t", r.rows(2), IngestOptions{})
			return err
		})},
		"session Metadata": {"Tables", onSession(func(r *rig, s *SessionHandle) error {
			return drained(s.Metadata(r.Context(), backend.MetadataRequest{Kind: backend.MetadataTables}))
		})},
		"SetOption": {"SetOption", onSession(func(r *rig, s *SessionHandle) error { return s.SetOption(r.Context(), "a", "b") })},
		"Options":   {"Options", onSession(func(r *rig, s *SessionHandle) error { _, err := s.Options(r.Context()); return err })},
		"PrepareQuery": {"PrepareQuery PreparedQuery.Query PreparedQuery.Update PreparedQuery.Close", onSession(func(r *rig, s *SessionHandle) error {
			q, err := s.PrepareQuery(r.Context(), "SELECT ?")
			require.NoError(r, err)
			require.NoError(r, drained(q.Query(r.Context(), 7)))
			_, _ = q.Update(r.Context(), 7)
			require.NoError(r, q.Close(r.Context()))
			return q.Close(r.Context()) // does nothing
		})},
		"a busy session": {"Update Query", onSession(func(r *rig, s *SessionHandle) error {
			res, err := s.Query(r.Context(), "SELECT * FROM generate(1000000)")
			require.NoError(r, err)
			defer res.Release()
			_, err = s.Update(r.Context(), "SET a = 1")
			require.ErrorIs(r, err, ErrBusy)
			return nil
		})},
		"a closed session": {"Query", func(r *rig) error {
			s := r.session()
			require.NoError(r, s.Close())
			require.NoError(r, s.RollbackOpen(r.Context()), "nothing to do")
			return drained(s.Query(r.Context(), "SELECT 1"))
		}},
		"a transaction of a session": {"BeginTransaction Savepoint RollbackTo ReleaseSavepoint Commit", onSession(func(r *rig, s *SessionHandle) error {
			require.NoError(r, s.BeginTransaction(r.Context()))
			require.NoError(r, s.Savepoint(r.Context(), "p"))
			require.NoError(r, s.RollbackTo(r.Context(), "p"))
			require.NoError(r, s.ReleaseSavepoint(r.Context(), "p"))
			return s.Commit(r.Context())
		})},
		"Rollback without one": {"Rollback", onSession(func(r *rig, s *SessionHandle) error { return s.Rollback(r.Context()) })},
		"Commit without one":   {"Commit", onSession(func(r *rig, s *SessionHandle) error { return s.Commit(r.Context()) })},
		"WithTransaction": {"BeginTransaction Update Rollback", onSession(func(r *rig, s *SessionHandle) error {
			_ = s.WithTransaction(r.Context(), func(ctx context.Context, s *SessionHandle) error {
				_, _ = s.Update(ctx, "INSERT INTO t VALUES (1)")
				return errAway
			})
			return nil
		})},
		"Tx": {"BeginTransaction Query Commit", inTx(func(r *rig, tx *Tx) error {
			require.NoError(r, drained(tx.Query(r.Context(), "SELECT 1")))
			return tx.Commit(r.Context())
		})},
		"Tx, rolled back": {"BeginTransaction Rollback", inTx(func(*rig, *Tx) error { return nil })},
		"Commit after a failure": {"BeginTransaction Query Commit", inTx(func(r *rig, tx *Tx) error {
			require.Error(r, drained(tx.Query(r.Context(), "SELECT error('no')")))
			err := tx.Commit(r.Context())
			require.ErrorIs(r, err, ErrTxAborted)
			return err
		})},
		"Commit that is left": {"BeginTransaction Commit", inTx(func(r *rig, tx *Tx) error {
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnEnd, Times: 1, Do: testserver.Delay(time.Minute)})
			ctx, stop := context.WithTimeout(r.Context(), time.Second)
			defer stop()
			err := tx.Commit(ctx)
			require.ErrorIs(r, err, ErrCommitUnknown)
			return err
		})},
		"InTx": {"BeginTransaction Update Commit", func(r *rig) error {
			return r.pool.InTx(r.Context(), TxOptions{}, func(ctx context.Context, tx *Tx) error {
				_, err := tx.Update(ctx, "INSERT INTO t VALUES (1)")
				return err
			})
		}},
		"a result that is released early": {"Query", func(r *rig) error {
			res, err := r.pool.Query(r.Context(), "SELECT * FROM generate(10000000)")
			if err == nil {
				res.Release()
			}
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			seen := &spanRecorder{}
			inBubble(t, testserver.Strict(), Config{MaxSize: 1, MinIdle: -1, AcquireTimeout: time.Minute, Tracer: seen}, func(r *rig) {
				r.exec("CREATE TABLE t (a BIGINT)")
				synctest.Wait()
				seen.take(t, "")
				err := c.do(r)
				time.Sleep(2 * time.Minute) // until what goes on behind it is over
				synctest.Wait()
				spans := seen.take(t, "query ingest acquire release")
				var ops []string
				var last *recordedSpan
				acquired, released := 0, 0
				for _, s := range spans {
					switch s.kind {
					case "acquire":
						acquired++
					case "release":
						released++
						acquired--
					default:
						ops = append(ops, s.op)
						last = s
					}
				}
				require.Equal(t, c.ops, strings.Join(ops, " "))
				if last != nil && name != "a busy session" && name != "WithTransaction" {
					require.Equal(t, err, last.err, "as the caller was told")
				}
				if name != "a pool that is exhausted" {
					require.NotZero(t, released)
					require.Zero(t, acquired)
				}
			})
		})
	}
}

func TestATracerSeesWhatACallHasCost(t *testing.T) {
	seen := &spanRecorder{}
	var sent []string
	watch := grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		md, _ := metadata.FromOutgoingContext(ctx)
		sent = append(sent, strings.Join(md.Get("traceparent"), ", "))
		return invoke(ctx, method, req, reply, cc, opts...)
	})
	inBubble(t, testserver.Strict(), Config{MaxSize: 1, Tracer: Tracers{seen, quietTracer{}}, DialOptions: []grpc.DialOption{watch}}, func(r *rig) {
		connect := seen.take(t, "connect")
		require.Len(t, connect, 1)
		require.NoError(t, connect[0].err)
		require.Contains(t, sent, "connect ", "the RPCs of an open have the values of its start")
		sent = nil

		s := r.session()
		time.AfterFunc(3*time.Second, func() { _ = s.Close() })
		require.Equal(t, "7", r.value(r.pool, "SELECT 7 AS secret"))
		synctest.Wait() // the connection is handed over before its release is told
		spans := seen.take(t, "query acquire release")
		require.Len(t, spans, 5, "with those of the session")
		query := spans[slices.IndexFunc(spans, func(s *recordedSpan) bool { return s.kind == "query" })]
		require.True(t, slices.ContainsFunc(spans, func(s *recordedSpan) bool { return s.kind == "release" && s.parent == query }), "the release is the call's")
		waits := 0
		for _, s := range spans {
			if s.kind == "acquire" && s.parent == query {
				waits++
			}
		}
		require.Equal(t, 1, waits, "the wait is the call's")
		require.Equal(t, "SELECT 7 AS secret", query.sql)
		require.Equal(t, "SELECT", query.summary)
		require.Equal(t, 3*time.Second, query.outcome.Wait)
		require.GreaterOrEqual(t, query.outcome.FirstBatch, query.outcome.Wait)
		require.GreaterOrEqual(t, query.outcome.Took, query.outcome.FirstBatch)
		require.EqualValues(t, 1, query.outcome.Batches)
		require.EqualValues(t, 1, query.outcome.Rows)
		require.NotZero(t, query.outcome.Bytes)
		require.EqualValues(t, -1, query.outcome.RowsAffected)
		require.Contains(t, sent, "query Query", "the RPCs of a call have the values of its start")

		r.exec("CREATE TABLE t (a BIGINT)")
		_, err := r.pool.UpdateWithRecordBatch(r.Context(), "INSERT INTO t VALUES (?)", ints("a", 1, 2, 3))
		require.NoError(t, err)
		synctest.Wait()
		spans = seen.take(t, "query")
		require.EqualValues(t, 3, spans[len(spans)-1].outcome.RowsAffected)

		// The second INSERT learns, before its caller, that the server's INSERTs move no session.
		_, err = r.pool.UpdateWithRecordBatch(r.Context(), "INSERT INTO t VALUES (?)", ints("a", 1))
		require.NoError(t, err)
		synctest.Wait()

		r.srv.Faults().Set(testserver.Fault{On: "ClosePreparedStatement", Times: 1, Do: testserver.Delay(time.Second)})
		_, err = r.pool.UpdateWithRecordBatch(r.Context(), "INSERT INTO t VALUES (?)", ints("a", 1))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		spans = seen.take(t, "query")
		require.Zero(t, spans[len(spans)-1].outcome.Took, "what is done behind the caller is no part of it")

		r.srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, Times: 1, Do: testserver.Kill()})
		require.Equal(t, "1", r.value(r.pool, "SELECT 1"))
		spans = seen.take(t, "query acquire")
		require.Len(t, spans, 3, "one call, two attempts")
		require.Equal(t, 1, spans[2].outcome.Retries)
		require.NoError(t, spans[2].err)

		sent = nil
		r.cancelled(r.pool, "SELECT sleep('1h')", time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		spans = seen.take(t, "query cancel")
		require.Len(t, spans, 2)
		require.ErrorIs(t, spans[0].err, context.DeadlineExceeded)
		require.Equal(t, spans[0], spans[1].parent, "the cancel is the call's")
		require.True(t, spans[1].safe)
		require.Contains(t, sent, "query Query, cancel Query", "so are its RPCs")
	})
}

func TestOpensHaveTheValuesOfNewsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		seen := &spanRecorder{}
		ctx, of := seen.start(t.Context(), "test", "")
		pool, err := New(ctx, "grpc://server:1", Config{Dialer: srv.Dial, Tracer: seen, MaxSize: 1})
		require.NoError(t, err)
		require.Equal(t, "server:1", pool.Target())
		require.Equal(t, 1, pool.Stats().MinIdle)
		pool.Reset()
		require.NoError(t, pool.WaitReady(t.Context(), 1))
		require.NoError(t, pool.Close(t.Context()))
		seen.end(ctx, "test", "")
		opens := seen.take(t, "connect")
		require.Len(t, opens, 2)
		for _, s := range opens {
			require.Equal(t, of, s.parent)
		}
	})
}

// A quietTracer returns contexts that must not count.
type quietTracer struct{}

func (quietTracer) TraceQueryStart(context.Context, QueryStartData) context.Context { return nil }
func (quietTracer) TraceQueryEnd(context.Context, QueryEndData)                     {}
func (quietTracer) TraceAcquireStart(ctx context.Context, _ AcquireStartData) context.Context {
	ended, stop := context.WithCancel(ctx)
	stop()
	return ended
}
func (quietTracer) TraceAcquireEnd(context.Context, AcquireEndData) {}
func (quietTracer) TraceConnectStart(ctx context.Context, _ ConnectStartData) context.Context {
	ended, stop := context.WithTimeout(ctx, 0)
	stop()
	return ended
}
func (quietTracer) TraceConnectEnd(context.Context, ConnectEndData) {}

// With STRESS set there are 10,000.
func TestStressCallsThatAreCancelledLeaveNoSpanOpen(t *testing.T) {
	seen := &spanRecorder{}
	inBubble(t, testserver.Strict(), Config{MaxSize: 8, Tracer: seen, Cancel: CancelPolicy{Grace: 50 * ms}}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		var all sync.WaitGroup
		calls := 100
		if os.Getenv("STRESS") != "" {
			calls = 10_000
		}
		for i := range calls {
			rng := rand.New(rand.NewPCG(uint64(i), 7)) //nolint:gosec // no secret
			all.Go(func() {
				time.Sleep(time.Duration(rng.IntN(60_000)) * ms)
				ctx, stop := context.WithTimeout(r.Context(), time.Duration(rng.IntN(3000))*ms)
				defer stop()
				opts := QueryOptions{NoCancel: i%5 == 0}
				switch i % 4 {
				case 0:
					if res, err := r.pool.QueryWithOptions(ctx, "SELECT * FROM generate(1000000)", opts); err == nil {
						res.Next()
						<-ctx.Done()
						res.Release()
					}
				case 1:
					_, _ = r.pool.UpdateWithOptions(ctx, "UPDATE t SET a = sleep('2s')", opts)
				case 2:
					_ = r.pool.InTx(ctx, TxOptions{}, func(ctx context.Context, tx *Tx) error {
						_, err := firstValue(ctx, tx, "SELECT sleep('1s')")
						return err
					})
				default:
					_, _ = r.pool.Ingest(ctx, "t", r.rows(2), IngestOptions{})
				}
			})
		}
		all.Wait()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		spans := seen.take(t, "query ingest cancel")
		require.Greater(t, len(spans), calls)
		cancels := 0
		for _, s := range spans {
			if s.kind == "cancel" {
				cancels++
			}
		}
		require.NotZero(t, cancels)
		require.Zero(t, r.pool.Stats().HookFailures, "%v", r.pool.Stats().LastHookError)
	})
}

// A badTracer does what a test says, once it is armed: in every method, or when it is
// called for the n-th time.
type badTracer struct {
	mu   sync.Mutex
	bad  func()
	n    int // 0: every time
	seen int // calls since it was armed
	done int // how often it was bad
}

func (b *badTracer) arm(bad func(), n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bad, b.n, b.seen = bad, n, 0
}

func (b *badTracer) do(ctx context.Context) context.Context {
	b.mu.Lock()
	bad := b.bad
	if bad != nil {
		if b.seen++; b.n != 0 && b.seen != b.n {
			bad = nil
		} else {
			b.done++
		}
	}
	b.mu.Unlock()
	if bad != nil {
		bad()
	}
	return ctx
}

func (b *badTracer) TraceQueryStart(ctx context.Context, _ QueryStartData) context.Context {
	return b.do(ctx)
}
func (b *badTracer) TraceQueryEnd(ctx context.Context, _ QueryEndData) { b.do(ctx) }
func (b *badTracer) TraceIngestStart(ctx context.Context, _ IngestStartData) context.Context {
	return b.do(ctx)
}
func (b *badTracer) TraceIngestEnd(ctx context.Context, _ IngestEndData) { b.do(ctx) }

// badParts has the other methods.
type badParts struct{ *badTracer }

func (b badParts) TraceAcquireStart(ctx context.Context, _ AcquireStartData) context.Context {
	return b.do(ctx)
}
func (b badParts) TraceAcquireEnd(ctx context.Context, _ AcquireEndData) { b.do(ctx) }
func (b badParts) TraceRelease(ctx context.Context, _ ReleaseData)       { b.do(ctx) }

// badBehind has those that are called where no caller waits.
type badBehind struct{ bad *badTracer }

func (b badBehind) TraceConnectStart(ctx context.Context, _ ConnectStartData) context.Context {
	return b.bad.do(ctx)
}
func (b badBehind) TraceConnectEnd(ctx context.Context, _ ConnectEndData) { b.bad.do(ctx) }
func (b badBehind) TraceCancelStart(ctx context.Context, _ CancelStartData) context.Context {
	return b.bad.do(ctx)
}
func (b badBehind) TraceCancelEnd(ctx context.Context, _ CancelEndData) { b.bad.do(ctx) }

func TestABadTracerKeepsNoConnection(t *testing.T) {
	for name, bad := range badCallbacks {
		for where, tracer := range map[string]func(*badTracer) any{
			"calls":  func(b *badTracer) any { return b },
			"loans":  func(b *badTracer) any { return badParts{b} },
			"behind": func(b *badTracer) any { return badBehind{b} },
		} {
			t.Run(name+"/"+where, func(t *testing.T) {
				b, first, last := &badTracer{}, &spanRecorder{}, &spanRecorder{}
				inBubble(t, testserver.Strict(), Config{MaxSize: 1, Tracer: Tracers{first, tracer(b), last}}, func(r *rig) {
					r.exec("CREATE TABLE t (a BIGINT)")
					calls := []func(){
						func() { _, _ = firstValue(r.Context(), r.pool, "SELECT 1") },
						func() { _, _ = r.pool.Update(r.Context(), "INSERT INTO t VALUES (?)", 1) },
						func() { _, _ = r.pool.Ingest(r.Context(), "t", r.rows(2), IngestOptions{}) },
						func() {
							ctx, stop := context.WithTimeout(r.Context(), time.Second)
							defer stop()
							_, _ = firstValue(ctx, r.pool, "SELECT sleep('1h')")
						},
						func() {
							_ = r.pool.InTx(r.Context(), TxOptions{}, func(ctx context.Context, tx *Tx) error {
								_, err := tx.Update(ctx, "INSERT INTO t VALUES (1)")
								return err
							})
						},
						func() { r.pool.Reset() },
					}
					for n := range 8 { // 0: always
						for _, call := range calls {
							b.arm(bad, n)
							over := make(chan struct{})
							go func() { defer close(over); call() }()
							<-over
							time.Sleep(time.Minute)
							require.Zero(r, r.pool.Stats().OnLoan, "bad the %d. time", n)
							last.take(r, "")
							if name == "Goexit" && where != "behind" {
								first.forget() // it may have ended the goroutine at a start
							}
							first.take(r, "")
						}
					}
					b.arm(nil, 0)
					require.Greater(r, b.done, 5)
					require.EqualValues(r, b.done, r.pool.Stats().HookFailures)
					require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
				})
			})
		}
	}
}

// What blocks in the caller's goroutine is the caller's; all else waits for
// tracerWait at most.
func TestATracerThatBlocksHoldsUpNobodyElse(t *testing.T) {
	for where, tracer := range map[string]func(*badTracer) any{
		"calls":  func(b *badTracer) any { return b },
		"behind": func(b *badTracer) any { return badBehind{b} },
	} {
		t.Run(where, func(t *testing.T) {
			b, seen := &badTracer{}, &spanRecorder{}
			inBubble(t, testserver.Strict(), Config{MaxSize: 1, Tracer: Tracers{tracer(b), seen}}, func(r *rig) {
				require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
				free := make(chan struct{})
				defer func() {
					close(free)
					time.Sleep(time.Second)
					seen.take(r, "") // ends come after their starts, also of what was late
				}()
				b.arm(func() { <-free }, 0)
				go func() { // it is held in its tracer, or cancelled behind one
					ctx, stop := context.WithTimeout(r.Context(), time.Second)
					defer stop()
					_, _ = firstValue(ctx, r.pool, "SELECT sleep('1h')")
				}()
				time.Sleep(time.Minute)
				b.mu.Lock()
				require.NotZero(r, b.seen)
				b.mu.Unlock()
				require.Zero(r, r.pool.Stats().OnLoan)
				if where == "behind" {
					r.pool.Reset() // and so are opens
					require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
				}
			})
		})
	}
}

// Without a tracer, the parts of a call that are there for one allocate nothing.
func TestNoTracerCostsNoAllocation(t *testing.T) {
	p := &FlightSQLPool{policy: &session.Policy{}}
	give := func(error) {}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		ctx, trace := session.StartTrace(t.Context(), p.policy.Tracer, "Query", "", "SELECT 1")
		ctx, acquired := p.tracing.startAcquire(ctx, "Query", "")
		acquired(1, nil)
		p.tracing.onRelease(ctx, "", 1, give)(nil)
		trace.Waited(trace.Now())
		trace.Retried()
		trace.End(nil)
	}))
}

func TestATracerHasToImplementSomething(t *testing.T) {
	for _, tracer := range []any{7, "x", Tracers{&spanRecorder{}, nil}} {
		_, err := New(t.Context(), "grpc://server:1", Config{Tracer: tracer})
		require.ErrorContains(t, err, "Tracer: ")
	}
}

var _ session.Tracer = (*spanRecorder)(nil)

// overContext is that of a request, whose values must not be asked for any more.
type overContext struct{ context.Context }

func (overContext) Value(any) any { panic("the request is over") }

// A cancel runs behind its caller. A pool whose tracers are told of no cancels asks its context nothing.
func TestACancelOfWhichNoTracerIsToldAsksItsCallersContextNothing(t *testing.T) {
	tr := &tracing{failed: func(err error) { t.Error(err) }}
	require.NoError(t, tr.add(&LogTracer{}))
	ctx := tr.TraceCancelStart(overContext{t.Context()}, CancelStartData{})
	require.NotPanics(t, func() { tr.TraceCancelEnd(ctx, CancelEndData{}) })
}
