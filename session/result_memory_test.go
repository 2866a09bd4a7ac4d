package session

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// However a result ends, and wherever its reader is then, no batch of it is kept.
func TestNoEndOfAResultKeepsABatch(t *testing.T) {
	type end func(r *rig, res *QueryResult, stop context.CancelFunc)
	during := func(do func()) { // while the reader is inside Next, which takes 10 ms
		go func() {
			time.Sleep(5 * ms)
			do()
		}()
	}
	ends := map[string]end{
		"read": func(_ *rig, res *QueryResult, _ context.CancelFunc) {
			for res.Next() {
			}
		},
		"let go":        func(*rig, *QueryResult, context.CancelFunc) {},
		"closed":        func(_ *rig, res *QueryResult, _ context.CancelFunc) { _ = res.Close() },
		"context":       func(_ *rig, _ *QueryResult, stop context.CancelFunc) { stop() },
		"handle closed": func(r *rig, _ *QueryResult, _ context.CancelFunc) { _ = r.handle.Close() },
		"context, in Next": func(_ *rig, res *QueryResult, stop context.CancelFunc) {
			during(stop)
			for res.Next() {
			}
		},
		"handle closed, in Next": func(r *rig, res *QueryResult, _ context.CancelFunc) {
			during(func() { _ = r.handle.Close() })
			for res.Next() {
			}
		},
		"read as a table": func(_ *rig, res *QueryResult, _ context.CancelFunc) {
			res.Retain()
			if table, err := res.ReadAll(context.Background()); err == nil {
				table.Release()
			}
		},
		"table, context": func(_ *rig, res *QueryResult, _ context.CancelFunc) {
			ctx, stop := context.WithTimeout(context.Background(), 5*ms)
			defer stop()
			res.Retain()
			if table, err := res.ReadAll(ctx); err == nil {
				table.Release()
			}
		},
		"iteration left": func(_ *rig, res *QueryResult, _ context.CancelFunc) {
			res.Retain()
			for range res.Batches() {
				break
			}
		},
	}
	for name, end := range ends {
		for _, opts := range []QueryOptions{{}, {NoCancel: true}} {
			for _, before := range []int{0, 1, 2} { // batches that were read
				for _, deaf := range []bool{false, true} { // a batch comes although its RPC has been ended
					synctest.Test(t, func(t *testing.T) {
						mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
						r := newRig(t, &fakeConn{pace: 10 * ms, mem: mem, deaf: deaf})
						ctx, stop := context.WithCancel(t.Context())
						defer stop()
						res, err := r.handle.QueryWithOptions(ctx, "SELECT 5", opts)
						must(t, err)
						for range before {
							require.True(t, res.Next())
						}
						end(r, res, stop)
						synctest.Wait()
						res.Release()
						_ = r.handle.Close()
						time.Sleep(time.Minute)
						require.Zero(t, mem.CurrentAlloc(), "%s after %d batches, %+v, deaf %v", name, before, opts, deaf)
						r.clean()
					})
				}
			}
		}
	}
}
