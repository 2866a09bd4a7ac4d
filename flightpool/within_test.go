package flightpool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/testserver"
)

// However fn leaves a transaction, and whatever it leaves under way, no later
// statement of the handle runs in it: an INSERT that answers nil is stored.
func TestNoLaterStatementRunsInTheTransactionOfWithTransaction(t *testing.T) {
	mine := errors.New("mine")
	leave := map[string]func() error{
		"nil":   func() error { return nil },
		"error": func() error { return mine },
		"panic": func() error { panic("x") },
	}
	start := map[string]func(ctx context.Context, h *SessionHandle, wg *sync.WaitGroup) *QueryResult{
		"an unread result": func(ctx context.Context, h *SessionHandle, _ *sync.WaitGroup) *QueryResult {
			res, err := h.Query(ctx, "SELECT * FROM generate(200000)")
			require.NoError(t, err)
			return res
		},
		"a result that is not to be cancelled": func(ctx context.Context, h *SessionHandle, _ *sync.WaitGroup) *QueryResult {
			res, err := h.QueryWithOptions(ctx, "SELECT * FROM generate(100000)", QueryOptions{NoCancel: true})
			require.NoError(t, err)
			return res
		},
		"a result that is read": func(ctx context.Context, h *SessionHandle, wg *sync.WaitGroup) *QueryResult {
			res, err := h.Query(ctx, "SELECT * FROM generate(200000)")
			require.NoError(t, err)
			wg.Go(func() {
				for res.Next() {
					time.Sleep(time.Second)
				}
			})
			synctest.Wait()
			return nil
		},
		"a statement": func(ctx context.Context, h *SessionHandle, wg *sync.WaitGroup) *QueryResult {
			wg.Go(func() {
				res, err := h.Query(ctx, "SELECT sleep('1s')")
				if err == nil {
					res.Release()
				}
			})
			synctest.Wait()
			return nil
		},
	}
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake()} {
		for how, leave := range leave {
			for what, start := range start {
				t.Run(fmt.Sprintf("%s/%s/%s", profile.Name, what, how), func(t *testing.T) {
					inBubble(t, profile, Config{MaxSize: 2}, func(r *rig) {
						var wg sync.WaitGroup
						defer wg.Wait()
						r.exec("CREATE TABLE " + r.bulkTable() + " (a BIGINT)")
						h, err := r.pool.AcquireSession(r.Context())
						require.NoError(r, err)
						var open *QueryResult
						func() {
							defer func() { _ = recover() }()
							err = h.WithTransaction(r.Context(), func(ctx context.Context, h *SessionHandle) error {
								_, err := h.Update(ctx, "INSERT INTO "+r.bulkTable()+" VALUES (1)")
								require.NoError(r, err)
								open = start(ctx, h, &wg)
								return leave()
							})
							require.NotEqual(r, "panic", how)
							if how == "nil" {
								require.ErrorIs(r, err, backend.ErrBusy)
							}
						}()
						_, later := h.Update(r.Context(), "INSERT INTO "+r.bulkTable()+" VALUES (2)")
						if open != nil {
							open.Release()
						}
						_ = h.Close()
						if errors.Is(later, backend.ErrSessionLost) {
							return // a cancel that nothing confirms costs the session
						}
						require.NoError(r, later)
						require.Equal(r, "1", r.value(r.pool, "SELECT count(*) FROM "+r.bulkTable()), "it was said to be stored, and the other not")
					})
				})
			}
		}
	}
}

// A check when a connection comes back is not its caller's to wait for.
func TestACheckOnReleaseDoesNotOutlastItsCaller(t *testing.T) {
	cfg := Config{MaxSize: 2, HealthCheck: HealthCheck{ValidateOnRelease: true, SQL: "SELECT 5", Kind: Query}}
	inBubble(t, testserver.Strict(), cfg, func(r *rig) {
		for name, call := range map[string]func(context.Context) error{
			"Query":  func(ctx context.Context) error { _, err := firstValue(ctx, r.pool, "SELECT 1"); return err },
			"Update": func(ctx context.Context) error { _, err := r.pool.Update(ctx, "SELECT 1"); return err },
		} {
			require.NoError(r, call(r.Context()))
			require.Zero(r, r.pool.Stats().InUse, "the caller has waited for the check, so that the next finds the connection")
			frozen := r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "SELECT 5", Do: testserver.Freeze()})
			ctx, stop := context.WithTimeout(r.Context(), 100*ms)
			start := time.Now()
			_ = call(ctx)
			require.LessOrEqual(r, time.Since(start), 150*ms, name)
			stop()
			frozen.Clear()
			time.Sleep(time.Minute)
			r.srv.Faults().ThawConns() // lets the server notice
			require.Zero(r, r.pool.Stats().InUse)
		}
	})
}

func TestNewDoesNotWaitForACheckOnRelease(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "SELECT 5", Skip: 1, Do: testserver.Freeze()})
		ctx, stop := context.WithTimeout(t.Context(), 100*ms)
		defer stop()
		start := time.Now()
		p, err := New(ctx, "grpc://server:1", Config{Dialer: srv.Dial, MaxSize: 1, HealthCheck: HealthCheck{ValidateOnRelease: true, SQL: "SELECT 5", Kind: Query}})
		require.NoError(t, err)
		require.Equal(t, 100*ms, time.Since(start))
		srv.Faults().Clear()
		require.NoError(t, p.Close(context.WithoutCancel(ctx)))
		srv.Faults().ThawConns() // lets the server notice
	})
}
