package flightpool

import (
	"context"
	"errors"
	"hash/crc32"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

const ms = time.Millisecond

// rig is a pool on an in-process server.
type rig struct {
	*testing.T
	srv  *testserver.Server
	pool *FlightSQLPool
}

// inBubble runs f in virtual time with a server of the profile and a pool on
// it. When f returns the pool is closed and nothing may be left of it: no
// goroutine on this side, no statement, stream, transaction or prepared
// handle on the server's.
func inBubble(t *testing.T, profile testserver.Profile, cfg Config, f func(r *rig)) {
	t.Helper()
	inBubbleOn(t, testserver.Options{Profile: profile}, cfg, f)
}

// inBubbleOn is inBubble on any server.
func inBubbleOn(t *testing.T, opts testserver.Options, cfg Config, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		opts.Listen = testserver.InMemory
		srv, err := testserver.Start(opts)
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		cfg.Dialer = srv.Dial
		pool, err := New(t.Context(), "grpc://server:1", cfg)
		require.NoError(t, err)
		r := &rig{t, srv, pool}
		defer r.closePool() // also when f fails: a bubble must not leave goroutines
		f(r)
	})
}

// bulkTable names a table for an INSERT with parameters: some servers store
// those of a bare name in a catalog of their own.
func (r *rig) bulkTable() string {
	if catalog := r.srv.Profile().AppendTo; catalog != "" {
		return catalog + ".t"
	}
	return "t"
}

func (r *rig) closePool() {
	r.Helper()
	ctx, stop := context.WithTimeout(context.WithoutCancel(r.Context()), 5*time.Minute)
	defer stop()
	err := r.pool.Close(ctx)
	if r.Failed() {
		r.srv.Faults().EvictSessions()
		return
	}
	if !errors.Is(err, ErrClosed) { // by the test already
		require.NoError(r, err)
	}
	s := r.pool.Stats()
	require.Zero(r, s.Total, "%+v", s)
	require.NoError(r, r.srv.Ledger().WaitIdle(ctx), "%s", r.srv.Ledger().Snapshot())
	require.NoError(r, r.srv.Ledger().Wait(ctx, func(s testserver.Snapshot) bool { return s.Conns == 0 }))
}

// exec runs a statement that has to work.
func (r *rig) exec(sql string) {
	r.Helper()
	_, err := r.pool.Update(r.Context(), sql)
	require.NoError(r, err, sql)
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (*QueryResult, error)
}

// value is the first value of the first row of a query.
func (r *rig) value(q querier, sql string) string {
	r.Helper()
	v, err := firstValue(r.Context(), q, sql)
	require.NoError(r, err, sql)
	return v
}

func firstValue(ctx context.Context, q querier, sql string) (string, error) {
	res, err := q.Query(ctx, sql)
	if err != nil {
		return "", err
	}
	defer res.Release()
	out := ""
	for res.Next() {
		if out == "" && res.RecordBatch().NumRows() > 0 {
			out = strings.Clone(res.RecordBatch().Column(0).ValueStr(0)) // its memory is used again
		}
	}
	return out, res.Err()
}

// drained reads a result to its end.
func drained(res *QueryResult, err error) error {
	if err != nil {
		return err
	}
	defer res.Release()
	for res.Next() {
		continue
	}
	return res.Err()
}

// session takes a handle.
func (r *rig) session() *SessionHandle {
	r.Helper()
	s, err := r.pool.AcquireSession(r.Context())
	require.NoError(r, err)
	return s
}

// cancelled runs a query that outlasts its deadline, which must end it.
func (r *rig) cancelled(q querier, sql string, after time.Duration) {
	r.Helper()
	ctx, stop := context.WithTimeout(r.Context(), after)
	defer stop()
	start := time.Now()
	_, err := firstValue(ctx, q, sql)
	require.ErrorIs(r, err, context.DeadlineExceeded)
	require.LessOrEqual(r, time.Since(start), after+50*ms, "the caller returns with its context")
}

// executions counts how often the server has run a statement.
func (r *rig) executions(sql string) int { return len(r.srv.Ledger().Executions(sql)) }

// ints is a batch of one BIGINT column.
func ints(name string, values ...int64) arrow.RecordBatch {
	b := array.NewInt64Builder(allocator)
	defer b.Release()
	b.AppendValues(values, nil)
	schema := arrow.NewSchema([]arrow.Field{{Name: name, Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
	return array.NewRecordBatch(schema, []arrow.Array{b.NewArray()}, int64(len(values)))
}

// sampled tells whether a case of a large test runs: every one under PROVE, else
// one in so many, always the same ones.
func sampled(name string, oneIn uint32) bool {
	return os.Getenv("PROVE") != "" || crc32.ChecksumIEEE([]byte(name))%oneIn == 0
}
