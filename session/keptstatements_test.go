package session

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/backend"
)

// named is a prepared statement that tells its handle, as those of Flight SQL do.
type named struct {
	*fakePrepared
	handle string
}

func (n named) Handle() string { return n.handle }

// keepingRig keeps up to size statements for its connection.
func keepingRig(t *testing.T, size int) *rig {
	r := newRig(t, &fakeConn{})
	r.policy.Statements = NewStatements(size)
	r.conn.prepared = func(p *fakePrepared) backend.Prepared { return named{p, strconv.Itoa(p.no)} }
	return r
}

// sent are the calls that reached the server in run, and what it left to be done behind it.
func (r *rig) sent(run func()) []string {
	synctest.Wait()
	before := len(r.conn.Log())
	run()
	synctest.Wait()
	return r.conn.Log()[before:]
}

// read runs a read of a single call with parameters to its end.
func (r *rig) read(sql string, args ...any) error {
	return drained(r.stateless().Query(r.t.Context(), sql, args...))
}

func TestAStatementIsKeptUntilAnotherWasUsedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keepingRig(t, 2)
		run := func(sql string, want ...string) {
			t.Helper()
			require.Equal(t, want, r.sent(func() { must(t, r.read(sql, 7)) }), sql)
		}
		run("SELECT 1", "Prepare", "SELECT 1")
		run("SELECT 1", "SELECT 1")
		run("SELECT 2", "Prepare", "SELECT 2")
		run("SELECT 1", "SELECT 1")
		run("SELECT 3", "Prepare", "SELECT 3", "ClosePrepared") // of SELECT 2
		run("SELECT 1", "SELECT 1")
		run("SELECT 3", "SELECT 3")
		run("SELECT 2", "Prepare", "SELECT 2", "ClosePrepared") // of SELECT 1
		run("SELECT 3", "SELECT 3")
		_, handles, _, _ := r.conn.left()
		require.Equal(t, 2, handles)
		r.policy.Statements.Forget(r.conn)
		run("SELECT 3", "Prepare", "SELECT 3")
		(*Statements)(nil).Forget(r.conn) // a pool that keeps none
	})
}

func TestAKeptStatementIsForParametersOfItsTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keepingRig(t, 2)
		must(t, r.read("SELECT 1", 7))
		require.Equal(t, []string{"ClosePrepared", "Prepare", "SELECT 1"}, r.sent(func() { must(t, r.read("SELECT 1", "seven")) }))
		require.Equal(t, []string{"SELECT 1"}, r.sent(func() { must(t, r.read("SELECT 1", "eight")) }))
	})
}

// TestAStatementThatTheServerHasForgottenIsPreparedAgain within the call, which nobody notices.
func TestAStatementThatTheServerHasForgottenIsPreparedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keepingRig(t, 2)
		must(t, r.read("SELECT 1", 7))
		r.conn.mu.Lock()
		clear(r.conn.handles)
		r.conn.mu.Unlock()
		require.Equal(t, []string{"Prepare", "SELECT 1"}, r.sent(func() { must(t, r.read("SELECT 1", 7)) }))
		require.Equal(t, []string{"SELECT 1"}, r.sent(func() { must(t, r.read("SELECT 1", 7)) }))
	})
}

// TestWhatIsNotKept: calls that do not end well, changes, and those that must not be repeated,
// bind no row, have headers, or are of a session.
func TestWhatIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		empty := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "p", Type: arrow.PrimitiveTypes.Int64}}, nil), []arrow.Array{array.MakeArrayOfNull(memory.DefaultAllocator, arrow.PrimitiveTypes.Int64, 0)}, 0)
		noColumns := array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 1)
		for name, run := range map[string]func(ctx context.Context, r *rig) error{
			"refused": func(_ context.Context, r *rig) error { return r.read("SELECT bad", 7) },
			"released": func(ctx context.Context, r *rig) error {
				res, err := r.stateless().Query(ctx, "SELECT 1000000", 7)
				if err == nil {
					res.Release()
				}
				return err
			},
			"a change": func(ctx context.Context, r *rig) error {
				_, err := r.stateless().Update(ctx, "INSERT 1", 7)
				return err
			},
			"once": func(ctx context.Context, r *rig) error {
				return drained(r.stateless().QueryWithOptions(ctx, "SELECT 1", QueryOptions{Args: []any{7}, Retry: RetryNever}))
			},
			"headers": func(ctx context.Context, r *rig) error {
				return drained(r.stateless().QueryWithOptions(ctx, "SELECT 1", QueryOptions{Args: []any{7}, Headers: metadata.Pairs("a", "b")}))
			},
			"no row": func(ctx context.Context, r *rig) error { return drained(r.stateless().Query(ctx, "SELECT 1", empty)) },
			"no column": func(ctx context.Context, r *rig) error {
				return drained(r.stateless().Query(ctx, "SELECT 1", noColumns))
			},
			"no parameter": func(ctx context.Context, r *rig) error { return drained(r.stateless().Query(ctx, "SELECT 1")) },
			"a session's":  func(ctx context.Context, r *rig) error { return drained(r.handle.Query(ctx, "SELECT 1", 7)) },
		} {
			r := keepingRig(t, 2)
			err := run(t.Context(), r)
			require.Equal(t, name == "refused", err != nil, "%s: %v", name, err)
			must(t, r.handle.Close())
			synctest.Wait()
			_, handles, _, _ := r.conn.left()
			require.Zero(t, handles, name)
		}
	})
}

func drained(res *QueryResult, err error) error {
	if err != nil {
		return err
	}
	defer res.Release()
	for res.Next() {
	}
	return res.Err()
}

// TestAHandleThatIsGivenAgainEndsTheConnection: the server has replaced the session, in which
// what is kept means something else. One without a handle is not kept.
func TestAHandleThatIsGivenAgainEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keepingRig(t, 2)
		r.conn.prepared = func(p *fakePrepared) backend.Prepared { return named{p, "1"} }
		must(t, r.read("SELECT 1", 7))
		must(t, r.read("SELECT 2", 7))
		synctest.Wait()
		require.ErrorIs(t, slices.MaxFunc(r.returns, func(a, b error) int {
			if a == nil {
				return -1
			}
			return 1
		}), errHandleAgain)

		for _, nameless := range []func(p *fakePrepared) backend.Prepared{
			func(p *fakePrepared) backend.Prepared { return named{p, ""} },
			func(p *fakePrepared) backend.Prepared { return p },
		} {
			r := keepingRig(t, 2)
			r.conn.prepared = nameless
			must(t, r.read("SELECT 1", 7))
			require.Equal(t, []string{"Prepare", "SELECT 1", "ClosePrepared"}, r.sent(func() { must(t, r.read("SELECT 1", 7)) }))
		}
	})
}

// TestASessionThatChangesSomethingCloses what is kept, which may mean something else by it.
func TestASessionThatChangesSomethingClosesWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keepingRig(t, 2)
		must(t, r.read("SELECT 1", 7))
		must(t, r.read("SELECT 2", 7))
		_, err := r.handle.Update(t.Context(), "SET threads = 1")
		must(t, err)
		must(t, r.handle.Close())
		synctest.Wait()
		_, handles, _, _ := r.conn.left()
		require.Zero(t, handles)
		require.Equal(t, []string{"Prepare", "SELECT 1"}, r.sent(func() { must(t, r.read("SELECT 1", 7)) }))
	})
}
