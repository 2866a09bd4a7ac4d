package session

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/rowscan"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
)

func TestKindsStagesAndOptionsNameThemselves(t *testing.T) {
	require.Equal(t, []string{"Catalogs", "TypeInfo", "Metadata(9)"}, []string{backend.MetadataCatalogs.String(), backend.MetadataTypeInfo.String(), backend.MetadataKind(9).String()})
	require.Equal(t, []string{"", "close", "unknown", "unknown"}, []string{backend.StageNone.String(), backend.StageClose.String(), (backend.StageClose + 1).String(), backend.Stage(200).String()})
	secret := metadata.Pairs("b-token", "s3cret", "a-token", "s3cret")
	opts := QueryOptions{Timeout: time.Second, Headers: secret, Params: int64Batch(1), Args: []any{"s3cret"}}
	const want = "flightpool.QueryOptions{Timeout: 1s, Retry: 0, Route: 0, Params: true, Args: 1, Headers: [a-token b-token], NoCancel: false}"
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		require.Equal(t, want, fmt.Sprintf(verb, opts), verb)
		for _, v := range []any{backend.Call{Headers: secret}, backend.IngestOptions{Headers: secret, Table: "t"}} {
			text := fmt.Sprintf(verb, v)
			require.Contains(t, text, "a-token", verb)
			require.NotContains(t, text, "s3cret", verb)
		}
	}
	require.Contains(t, fmt.Sprint(QueryOptions{}), "Params: false")
}

func TestErrorsOfCallsSayThingsOnce(t *testing.T) {
	e := &backend.Error{Op: "Query", Stage: backend.StageExecute, Err: context.DeadlineExceeded, Ctx: context.DeadlineExceeded}
	require.Equal(t, "Query: execute: context deadline exceeded", e.Error())
	require.Equal(t, backend.FaultContext, backend.FaultIn(context.DeadlineExceeded))
	require.Equal(t, backend.FaultUnknown, backend.FaultIn(errors.New("x")))
	require.False(t, backend.SafeToRetry(&backend.Error{Fault: backend.FaultUsage, Unsent: true}), "it fails again")
	require.False(t, backend.SafeToRetry(&backend.Error{Unsent: true, Err: fmt.Errorf("x: %w", backend.ErrCommitUnknown)}))
	require.False(t, backend.SafeToRetry(errors.Join(errors.New("a"), errors.New("b"))), "nobody knows")
	require.False(t, backend.SafeToRetry(fmt.Errorf("%w, %w", errors.New("a"), errors.New("b"))))
}

// What goes on behind a caller runs where the owner waits for it, once.
func TestWorkBehindTheCallerRunsWhereItsOwnerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		began, ended := 0, 0
		r.policy.Go = func(f func()) {
			began++
			go func() {
				f()
				ended++
			}()
		}
		res, err := r.stateless().Query(t.Context(), "SELECT 3")
		must(t, err)
		res.Release()
		synctest.Wait()
		require.Equal(t, []int{1, 1}, []int{began, ended})
		r.reused()
	})
}

// Each event is told once, with what it came to.
func TestTheObserverHearsOfEachResetAndRollback(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			r := stateRig(t, c)
			var resets []error
			rolled := 0
			r.policy.Observe.Reset = func(took time.Duration, err error) {
				require.Equal(t, time.Second, took)
				resets = append(resets, err)
			}
			r.policy.Observe.RolledBack = func() { rolled++ }
			must(t, r.handle.BeginTransaction(t.Context()))
			must(t, r.handle.Rollback(t.Context()))
			_, err := r.handle.Update(t.Context(), "CREATE TEMP TABLE a (i INT)")
			must(t, err)
			const drop = "DROP TABLE IF EXISTS temp.main.a"
			c.work = map[string]time.Duration{drop: time.Second}
			if fails {
				c.fail = map[string]error{drop: sqlError("no")}
			}
			err = r.handle.Close()
			require.Equal(t, fails, err != nil)
			require.Len(t, resets, 1)
			require.ErrorIs(t, err, resets[0])
			require.Zero(t, rolled, "it was the caller's own")
			if fails {
				require.ErrorContains(t, err, "session could not be made clean: "+drop)
			}
		})
	}
}

// countingStream tells how many rows were affected.
type countingStream struct{ backend.Stream }

func (countingStream) RowsAffected() (int64, bool) { return 7, true }

type countingConn struct{ *fakeConn }

func (c countingConn) Query(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	s, err := c.fakeConn.Query(ctx, sql, call)
	return countingStream{s}, err
}

func (c countingConn) Update(ctx context.Context, sql string, call backend.Call) (int64, error) {
	_, err := c.fakeConn.Update(ctx, sql, call)
	if sql == "DELETE 0" {
		return 0, err
	}
	return -1, err
}

func TestRowsAffectedIsWhatTheServerTellsOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := countingConn{&fakeConn{}}
		r := newRig(t, conn.fakeConn)
		r.handle = New(conn, r.policy, r.returned)
		for sql, want := range map[string][]any{"SELECT 0": {int64(7), true}, "SELECT 1": {int64(7), true}, "DELETE 0": {int64(0), true}, "DELETE 1": {int64(-1), false}} {
			res, err := r.handle.Query(t.Context(), sql)
			must(t, err)
			for res.Next() {
			}
			n, ok := res.RowsAffected()
			require.Equal(t, want, []any{n, ok}, sql)
			require.False(t, res.Next())
			must(t, res.Err())
			table, err := res.ReadAll(t.Context())
			must(t, err)
			table.Release()
			require.NoError(t, res.Close())
		}
		must(t, r.handle.Close())
		r.clean()
	})
}

// However a result is read, its failure is the last pair, and the result is let
// go.
func TestAFailureIsTheLastThingThatAReaderGets(t *testing.T) {
	type row struct {
		N int64 `arrow:"n"`
	}
	failure := sqlError("in the middle")
	for name, read := range map[string]func(res *QueryResult) (good int, last error){
		"batches": func(res *QueryResult) (good int, last error) {
			for b, err := range res.Batches() {
				if last = err; b != nil {
					good++
				}
			}
			return good, last
		},
		"rows": func(res *QueryResult) (good int, last error) {
			for _, err := range rowscan.Rows[row](res) {
				if last = err; err == nil {
					good++
				}
			}
			return good, last
		},
		"maps": func(res *QueryResult) (good int, last error) {
			for m, err := range rowscan.Maps(res) {
				if last = err; m != nil {
					good++
				}
			}
			return good, last
		},
		"a table": func(res *QueryResult) (int, error) {
			_, err := res.ReadAll(context.Background())
			return 3, err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			for _, fails := range []bool{false, true} {
				r := newRig(t, &fakeConn{})
				if fails {
					r.conn.fail = map[string]error{"stream": failure}
				}
				res, err := r.handle.Query(t.Context(), "SELECT 4")
				must(t, err)
				good, last := read(res)
				if fails {
					require.Equal(t, 3, good, name)
					require.ErrorContains(t, last, "in the middle", name)
					require.ErrorContains(t, res.Err(), "in the middle", name)
					_, last = read(res)
					require.ErrorContains(t, last, "in the middle", "%s: asked again", name)
				} else {
					require.NoError(t, last, name)
					_, last = read(res)
					require.ErrorIs(t, last, backend.ErrHandleClosed, name)
					require.ErrorContains(t, last, "Result:")
				}
				must(t, r.handle.Close())
				r.reused()
				r.clean()
			}
		})
	}
}

// A loop that is left is not gone on with.
func TestEveryLoopOverAResultCanBeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, leave := range []func(res *QueryResult){
			func(res *QueryResult) {
				for range res.Batches() {
					break
				}
			},
			func(res *QueryResult) {
				for range rowscan.Rows[int64](res) {
					break
				}
			},
			func(res *QueryResult) {
				for range rowscan.Maps(res) {
					break
				}
			},
			func(res *QueryResult) {
				for range rowscan.Rows[chan int](res) {
					break
				}
			},
		} {
			r := newRig(t, &fakeConn{})
			res, err := r.handle.Query(t.Context(), "SELECT 4")
			must(t, err)
			leave(res)
			must(t, r.handle.Ping(t.Context()))
			must(t, r.handle.Close())
			r.clean()
		}
	})
}
