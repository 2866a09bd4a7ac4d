package flightotel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/flightotel"
	"github.com/flightpool/flightpool/testserver"
)

const secret = "Zq7secret"

func rows(t testing.TB) array.RecordReader {
	t.Helper()
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues([]int64{1, 2}, nil)
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil)
	rdr, err := array.NewRecordReader(schema, []arrow.RecordBatch{array.NewRecordBatch(schema, []arrow.Array{b.NewArray()}, 2)})
	require.NoError(t, err)
	return rdr
}

func TestOneQueryIsOneTrace(t *testing.T) {
	watched(t, flightpool.Config{MaxSize: 1}, func(r *rig) {
		t := r.T
		open := r.ended()
		require.Equal(t, []string{"flightpool.connect"}, paths(open))
		require.Equal(t, []string{"flightpool.connect"}, r.told(open, "GetFlightInfo"), "of the probe")
		clear(r.rpcs)

		ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x-kept", "1")
		ctx, app := r.provider.Tracer("app").Start(ctx, "app")
		require.NoError(t, drained(r.pool.Query(ctx, "SELECT * FROM generate(2)")))
		r.cut(ctx, "SELECT sleep('1h')")
		_, err := r.pool.Update(ctx, "CREATE TABLE t (a BIGINT)")
		require.NoError(t, err)
		_, err = r.pool.Ingest(ctx, "t", rows(t), flightpool.IngestOptions{})
		require.NoError(t, err)
		require.NoError(t, r.pool.InTx(ctx, flightpool.TxOptions{}, func(ctx context.Context, tx *flightpool.Tx) error {
			_, err := tx.Update(ctx, "INSERT INTO t VALUES (?)", 1)
			return err
		}))
		var b flightpool.Batch
		b.Queue("DROP TABLE t")
		require.NoError(t, r.pool.SendBatch(ctx, &b))
		app.End()
		spans := r.ended()
		require.Equal(t, []string{
			"app", "app > BeginTransaction server:1", "app > CREATE t", "app > CREATE t > flightpool.acquire", "app > Commit server:1",
			"app > INSERT t", "app > Ingest t", "app > Ingest t > flightpool.acquire",
			"app > SELECT", "app > SELECT > flightpool.acquire", "app > SELECT > flightpool.cancel",
			"app > SELECT generate", "app > SELECT generate > flightpool.acquire", "app > flightpool.acquire", "app > flightpool.acquire",
			"app > flightpool.batch", "app > flightpool.batch > DROP t",
		}, paths(spans))
		require.Equal(t, []string{"", "app > SELECT", "app > SELECT > flightpool.cancel", "app > SELECT generate"}, r.told(spans, "GetFlightInfo"))
		require.Equal(t, []string{"", "app > SELECT", "app > SELECT > flightpool.cancel", "app > SELECT generate"}, r.told(spans, "DoGet"))
		require.Equal(t, []string{"app > CREATE t", "app > INSERT t", "app > Ingest t", "app > flightpool.batch > DROP t"}, r.told(spans, "DoPut"))
		require.Equal(t, []string{"", "app > BeginTransaction server:1", "app > Commit server:1", "app > INSERT t", "app > SELECT > flightpool.cancel"}, r.told(spans, "DoAction"))
		for _, s := range spans {
			require.Equal(t, app.SpanContext().TraceID(), s.SpanContext.TraceID())
			require.Equal(t, s.Name != "app" && s.Name != "flightpool.acquire" && s.Name != "flightpool.batch", s.SpanKind == trace.SpanKindClient, s.Name)
			require.Equal(t, s.Name == "SELECT", s.Status.Code == codes.Error, s.Name)
			got := map[attribute.Key]string{}
			for _, a := range s.Attributes {
				got[a.Key] = a.Value.String()
			}
			if s.Name != "app" {
				require.Equal(t, []string{"other_sql", "server", "1"}, []string{got["db.system.name"], got["server.address"], got["server.port"]})
			}
			switch s.Name {
			case "SELECT generate":
				require.Equal(t, []string{"SELECT generate", "Query", "2"}, []string{got["db.query.summary"], got["db.operation.name"], got["db.response.returned_rows"]})
				require.Equal(t, "flightpool.release", s.Events[0].Name)
			case "SELECT":
				require.Equal(t, "context", got["error.type"])
			case "flightpool.cancel":
				require.Equal(t, "true", got["flightpool.cancel.safe"])
			case "Ingest t":
				require.Equal(t, []string{"t", "2"}, []string{got["db.collection.name"], got["flightpool.rows_affected"]})
			}
		}
	})
}

func TestWhereThereIsNoParent(t *testing.T) {
	watched(t, flightpool.Config{MaxSize: 1}, func(r *rig) {
		t := r.T
		r.ended()
		require.NoError(t, drained(r.pool.Query(t.Context(), "SELECT 1")))
		s, err := r.pool.AcquireSession(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.Equal(t, []string{"SELECT", "SELECT > flightpool.acquire"}, paths(r.ended()), "a wait alone is no trace")

		ctx, app := r.provider.Tracer("app").Start(t.Context(), "app")
		again, err := flightpool.New(ctx, "grpc://server:1", flightpool.Config{MaxSize: 2, Dialer: r.srv.Dial, Auth: flightpool.BearerAuth("token-" + secret), Tracer: r.tracer()})
		require.NoError(t, err)
		app.End()
		again.Reset()
		require.NoError(t, again.WaitReady(t.Context(), 1))
		require.Equal(t, []string{"app", "app > flightpool.connect", "flightpool.connect"}, paths(r.ended()), "what is opened when New is long over is a trace of its own")
		require.NoError(t, again.Close(t.Context()))
	})
}

func TestTwoTracersEndTheirOwnSpans(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	other := flightotel.NewTracer(
		flightotel.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))), flightotel.WithAttributes(attribute.String("db.system.name", "duckdb")))
	watched(t, flightpool.Config{MaxSize: 1, Tracer: other}, func(r *rig) {
		t := r.T
		require.NoError(t, drained(r.pool.Query(t.Context(), "SELECT 1")))
		r.cut(t.Context(), "SELECT sleep('1h')")
		ours := r.ended()
		require.Len(t, exporter.GetSpans(), len(ours))
		for _, s := range exporter.GetSpans() {
			attrs := attribute.NewSet(s.Attributes...)
			system, _ := attrs.Value("db.system.name")
			require.Equal(t, "duckdb", system.AsString())
		}
	})
}

// The pool tells of an end on the context around it where the start has panicked or took
// too long.
func TestAnEndWithoutItsStartEndsNothing(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	tracer := flightotel.NewTracer(flightotel.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))))
	for _, ctx := range []context.Context{t.Context(), tracer.TraceQueryStart(t.Context(), flightpool.QueryStartData{Op: "Query"})} {
		tracer.TraceAcquireEnd(ctx, flightpool.AcquireEndData{})
		tracer.TraceConnectEnd(ctx, flightpool.ConnectEndData{})
		tracer.TraceCancelEnd(ctx, flightpool.CancelEndData{})
		tracer.TraceRelease(ctx, flightpool.ReleaseData{})
	}
	tracer.TraceQueryEnd(t.Context(), flightpool.QueryEndData{})
	require.Empty(t, exporter.GetSpans())
}

// A registry tells of rows of database/sql, which come without batches.
func TestRowsOfDatabaseSQLAreTold(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	tracer := flightotel.NewTracer(flightotel.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))))
	ctx := tracer.TraceQueryStart(t.Context(), flightpool.QueryStartData{Op: "Query", SQL: "SELECT 1"})
	tracer.TraceQueryEnd(ctx, flightpool.QueryEndData{Outcome: flightpool.Outcome{Rows: 2, FirstBatch: time.Second, RowsAffected: -1}})
	attrs := attribute.NewSet(exporter.GetSpans()[0].Attributes...)
	rows, _ := attrs.Value("db.response.returned_rows")
	require.EqualValues(t, 2, rows.AsInt64())
	require.False(t, attrs.HasValue("flightpool.response.bytes"), "nobody has counted them")
}

// A rude error panics when it is looked into.
type rude struct{}

func (rude) Error() string { panic("rude") }
func (rude) Is(error) bool { panic("rude") }
func (rude) As(any) bool   { panic("rude") }

func TestAnErrorThatPanicsLeavesNoSpanOpen(t *testing.T) {
	for _, texts := range []bool{false, true} {
		exporter := tracetest.NewInMemoryExporter()
		tracer := flightotel.NewTracer(flightotel.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))), flightotel.WithStatementText(texts))
		ctx, app := sdktrace.NewTracerProvider().Tracer("app").Start(t.Context(), "app")
		for _, end := range []func(){
			func() {
				tracer.TraceQueryEnd(tracer.TraceQueryStart(ctx, flightpool.QueryStartData{Op: "Query"}), flightpool.QueryEndData{Outcome: flightpool.Outcome{Err: rude{}}})
			},
			func() {
				tracer.TraceIngestEnd(tracer.TraceIngestStart(ctx, flightpool.IngestStartData{}), flightpool.IngestEndData{Outcome: flightpool.Outcome{Err: rude{}}})
			},
			func() {
				tracer.TraceAcquireEnd(tracer.TraceAcquireStart(ctx, flightpool.AcquireStartData{}), flightpool.AcquireEndData{Err: rude{}})
			},
			func() {
				tracer.TraceConnectEnd(tracer.TraceConnectStart(ctx, flightpool.ConnectStartData{}), flightpool.ConnectEndData{Err: rude{}})
			},
			func() {
				tracer.TraceBatchEnd(tracer.TraceBatchStart(ctx, flightpool.BatchStartData{}), flightpool.BatchEndData{Err: rude{}})
			},
		} {
			require.Panics(t, end) // which the pool contains
			require.Len(t, exporter.GetSpans(), 1)
			exporter.Reset()
		}
		app.End()
	}
}

// With STRESS set there are 10,000.
func TestStressCallsThatAreCancelledLeaveNoSpanOpen(t *testing.T) {
	calls := 1000
	if os.Getenv("STRESS") != "" {
		calls = 10_000
	}
	watched(t, flightpool.Config{MaxSize: 8, Cancel: flightpool.CancelPolicy{Grace: 50 * time.Millisecond}}, func(r *rig) {
		t := r.T
		_, err := r.pool.Update(t.Context(), "CREATE TABLE t (a BIGINT)")
		require.NoError(t, err)
		var all sync.WaitGroup
		for i := range calls {
			rng := rand.New(rand.NewPCG(uint64(i), 7))
			all.Go(func() {
				time.Sleep(time.Duration(rng.IntN(600)) * time.Second)
				ctx, app := r.provider.Tracer("app").Start(t.Context(), "app")
				defer app.End()
				ctx, stop := context.WithTimeout(ctx, time.Duration(rng.IntN(3000))*time.Millisecond)
				defer stop()
				switch i % 4 {
				case 0:
					if res, err := r.pool.QueryWithOptions(ctx, "SELECT * FROM generate(100000)", flightpool.QueryOptions{NoCancel: i%8 == 0}); err == nil {
						res.Next()
						<-ctx.Done()
						res.Release()
					}
				case 1:
					_, _ = r.pool.Update(ctx, "UPDATE t SET a = sleep('3s')")
				case 2:
					_ = r.pool.InTx(ctx, flightpool.TxOptions{}, func(ctx context.Context, tx *flightpool.Tx) error {
						return drained(tx.Query(ctx, "SELECT sleep('3s')"))
					})
				default:
					r.srv.Faults().Set(testserver.Fault{On: testserver.OnDoPut, Times: 1, Do: testserver.Delay(time.Second)})
					_, _ = r.pool.Ingest(ctx, "t", rows(t), flightpool.IngestOptions{})
				}
			})
		}
		all.Wait()
		count := map[string]int{}
		spans := r.ended()
		for _, s := range spans {
			count[s.Name]++
			require.False(t, s.Name != "app" && s.Name != "flightpool.connect" && strings.HasPrefix(path(spans, s), s.Name) && s.Name != "CREATE t", "without its parent: %s", s.Name)
		}
		require.Equal(t, calls, count["app"])
		require.Greater(t, count["flightpool.cancel"], calls/4)
		t.Log(count)
	})
}

// everything is all that was exported, as text.
func (r *rig) everything() string {
	var out strings.Builder
	for _, s := range r.ended() {
		fmt.Fprintf(&out, "%+v\n", s)
		for _, a := range s.Attributes {
			fmt.Fprintln(&out, a.Key, a.Value.String())
		}
		for _, e := range s.Events {
			fmt.Fprintln(&out, e.Name)
			for _, a := range e.Attributes {
				fmt.Fprintln(&out, a.Key, a.Value.String())
			}
		}
	}
	text, err := json.Marshal(r.collect())
	require.NoError(r, err)
	return out.String() + string(text)
}

func TestNoSecretIsExported(t *testing.T) {
	for _, texts := range []bool{false, true} {
		cfg := flightpool.Config{MaxSize: 1, Headers: metadata.MD{"x-api-key": {"key-" + secret}}}
		watched(t, cfg, func(r *rig) {
			t := r.T
			registration, err := flightotel.Register(r.meters.Meter("test"), r.pool)
			require.NoError(t, err)
			defer func() { require.NoError(t, registration.Unregister()) }()
			ctx := t.Context()
			opts := flightpool.QueryOptions{Headers: metadata.MD{"x-call-key": {"call-" + secret}}, Args: []any{"arg-" + secret}}
			require.NoError(t, drained(r.pool.QueryWithOptions(ctx, "SELECT ?", opts)))
			require.NoError(t, drained(r.pool.Query(ctx, "SELECT 'text-"+secret+"'")))
			require.Error(t, drained(r.pool.Query(ctx, "SELECT error('[12345] text-"+secret+"')")))
			r.cut(ctx, "SELECT sleep('1h'), 'text-"+secret+"'")
			_, err = r.pool.Update(ctx, "SET password = 'text-"+secret+"'")
			require.NoError(t, err)
			_, err = flightpool.New(ctx, "grpc://server:1", flightpool.Config{Dialer: r.srv.Dial, Auth: flightpool.BasicAuth("me", "password-"+secret), Tracer: r.tracer()})
			require.Error(t, err)
			_, err = flightpool.New(ctx, "grpc://me:password-"+secret+"@server:1", flightpool.Config{Dialer: r.srv.Dial, Tracer: r.tracer()})
			require.Error(t, err)
			all := r.everything()
			require.Equal(t, texts, strings.Contains(all, "text-"+secret))
			require.Equal(t, texts, strings.Contains(all, "12345"))
			if !texts {
				require.NotContains(t, all, secret)
			}
			for _, what := range []string{"key-", "call-", "arg-", "password-", "token-"} {
				require.NotContains(t, all, what+secret)
			}
		}, flightotel.WithStatementText(texts))
	}
}

// One text that is not UTF-8 makes an exporter refuse all spans of a batch, and all points
// until the process ends.
func TestWhateverACallerSaysIsUTF8AndShort(t *testing.T) {
	for _, texts := range []bool{false, true} {
		watched(t, flightpool.Config{MaxSize: 1}, func(r *rig) {
			ctx := r.Context()
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, Times: 1, Do: testserver.Fail(grpccodes.Internal, "caf\xe9")})
			_ = drained(r.pool.Query(ctx, "SELECT 1")) // how they end is the server's
			_ = drained(r.pool.Query(ctx, "SELECT * FROM caf\xe9"))
			_, _ = r.pool.Ingest(ctx, "caf\xe9", rows(t), flightpool.IngestOptions{})
			_, _ = r.pool.Ingest(ctx, strings.Repeat("é", 1<<20), rows(t), flightpool.IngestOptions{})
			var all []attribute.KeyValue
			for _, s := range r.ended() {
				all = append(all, attribute.String(s.Name, s.Status.Description))
				all = append(all, s.Attributes...)
			}
			operations := r.collect()["db.client.operation.duration"].Data.(metricdata.Histogram[float64]) //nolint:forcetypeassert // else the test fails
			require.NotEmpty(r, operations.DataPoints)
			for _, p := range operations.DataPoints {
				all = append(all, p.Attributes.ToSlice()...)
			}
			for _, a := range all {
				text := string(a.Key) + a.Value.AsString()
				require.True(r, utf8.ValidString(text), "%q", text)
				require.True(r, texts || len(text) < 1000, "%d", len(text))
			}
		}, flightotel.WithStatementText(texts))
	}
}
