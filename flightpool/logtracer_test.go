package flightpool

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

// A logBuffer is what was logged, a line each.
type logBuffer struct {
	mu    sync.Mutex
	lines []string
}

func (b *logBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, strings.TrimSpace(string(line)))
	return len(line), nil
}

func (b *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "bytes" {
			return slog.Attr{}
		}
		return a
	}}))
}

// take gives what was logged since the last take.
func (b *logBuffer) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() { b.lines = nil }()
	return b.lines
}

func TestTheLogTracerLogsWhatIsSlowOrFails(t *testing.T) {
	slow := func(r *rig) {
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, Times: 1, Do: testserver.Delay(2 * time.Second)})
		require.Equal(r, "marker", r.value(r.pool, "SELECT 'marker'"))
	}
	fails := func(r *rig) {
		_, err := firstValue(r.Context(), r.pool, "SELECT error('marker')")
		require.ErrorContains(r, err, "marker")
	}
	failing := func(r *rig, do testserver.Effect) {
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, Times: 1, Do: do})
		_, err := r.pool.Update(r.Context(), "INSERT INTO t VALUES (1)")
		require.Error(r, err)
	}
	for name, c := range map[string]struct {
		tracer LogTracer
		do     func(r *rig)
		want   string // the lines, of which " target=…" is left out
	}{
		"slow": {LogTracer{}, slow,
			`level=WARN msg="flightpool: slow call" op=Query statement=SELECT took=2s first_batch=2s rows=1`},
		"with its text": {LogTracer{Texts: true}, slow,
			`level=WARN msg="flightpool: slow call" op=Query statement="SELECT 'marker'" took=2s first_batch=2s rows=1`},
		"not that slow":  {LogTracer{SlowerThan: 2 * time.Second}, slow, ""},
		"slow, not told": {LogTracer{SlowerThan: -1, Failures: true}, slow, ""},
		"slow by its wait": {LogTracer{}, func(r *rig) {
			s := r.session()
			time.AfterFunc(3*time.Second, func() { _ = s.Close() })
			r.exec("INSERT INTO t VALUES (1), (2)")
		}, `level=WARN msg="flightpool: slow call" op=Update statement="INSERT t" took=3s wait=3s rows_affected=2`},
		"slow ingestion": {LogTracer{}, func(r *rig) {
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnDoPut, Times: 1, Do: testserver.Delay(4 * time.Second)})
			_, err := r.pool.Ingest(r.Context(), "t", r.rows(2), IngestOptions{})
			require.NoError(r, err)
		}, `level=WARN msg="flightpool: slow call" op=Ingest table=t took=4s rows_affected=2`},
		"failures are not told": {LogTracer{}, func(r *rig) { failing(r, testserver.Fail(codes.Internal, "no")) }, ""},
		"the statement's": {LogTracer{Failures: true}, fails,
			`level=INFO msg="flightpool: the call failed" op=Query statement=SELECT took=0s fault=statement safe_to_retry=true stage=fetch`},
		"the server's": {LogTracer{Failures: true}, func(r *rig) { failing(r, testserver.Kill()) },
			`level=ERROR msg="flightpool: the call failed" op=Update statement="INSERT t" took=0s fault=transport safe_to_retry=false stage=execute`},
		"with texts": {LogTracer{Failures: true, Texts: true}, fails,
			`level=INFO msg="flightpool: the call failed" op=Query statement="SELECT error('marker')" took=0s fault=statement safe_to_retry=true stage=fetch error="Query : fetch: InvalidArgument: marker"`},
		"nothing came free": {LogTracer{Failures: true}, func(r *rig) {
			s := r.session()
			defer func() { _ = s.Close() }()
			ctx, stop := context.WithTimeout(r.Context(), time.Second)
			defer stop()
			_, err := r.pool.Update(ctx, "INSERT INTO t VALUES (1)")
			require.ErrorIs(r, err, ErrExhausted)
		}, `level=ERROR msg="flightpool: the call failed" op=Update statement="INSERT t" took=1s wait=1s fault=context safe_to_retry=true stage=acquire`},
		"a deadline": {LogTracer{Failures: true}, func(r *rig) {
			r.cancelled(r.pool, "SELECT sleep('1h')", 2*time.Second)
		}, `level=INFO msg="flightpool: the call failed" op=Query statement=SELECT took=2s fault=context safe_to_retry=true stage=fetch`},
	} {
		t.Run(name, func(t *testing.T) {
			var logged logBuffer
			c.tracer.Logger = logged.logger()
			inBubble(t, testserver.Strict(), Config{MaxSize: 1, AcquireTimeout: time.Minute, Tracer: &c.tracer}, func(r *rig) {
				r.exec("CREATE TABLE t (a BIGINT)")
				logged.take()
				c.do(r)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				lines := logged.take()
				for i, line := range lines {
					lines[i] = strings.ReplaceAll(strings.ReplaceAll(line, " target="+r.pool.target, ""), r.pool.target+": ", ": ")
				}
				require.Equal(t, c.want, strings.Join(lines, "\n"))
			})
		})
	}
}
