package pglease_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/lease/pglease"
)

// What a connection's life costs the server. Everything runs faster than by
// default, the lease and the lives alike, which changes nothing per life. With
// PGLEASE_FIGURES set it is the fleet of doc.go.
func TestWhatAConnectionsLifeCosts(t *testing.T) {
	processes, each, lives, lasts := 4, 20, time.Second, 3*time.Second
	cfg := fleet.Config{Lease: 3 * time.Second, Grace: time.Second, OpenTimeout: 500 * time.Millisecond, RequestTimeout: 250 * time.Millisecond, Logger: quiet}
	if os.Getenv("PGLEASE_FIGURES") != "" {
		processes, each, lives, lasts = 50, 200, 36*time.Second, 80*time.Second // a twentieth of 12 minutes and 60s
	}
	cfg.Table, cfg.Budget, cfg.Limit, cfg.Want = newTable(t), "b", processes*each, each
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	sql(t, "checkpoint")
	before := usage(t, cfg.Table)
	var callers, closers sync.WaitGroup
	var mu sync.Mutex
	ended := 0
	for range processes {
		pool := connect(t, server.DSN()+"&application_name="+cfg.Table)
		l, err := pglease.New(t.Context(), pool, cfg)
		require.NoError(t, err)
		for range each {
			callers.Go(func() {
				for left := rand.N(lives); ctx.Err() == nil; left = lives {
					release, err := l.Acquire(ctx)
					if err != nil {
						continue
					}
					over := time.NewTimer(left*9/10 + rand.N(left/5+1))
					select {
					case <-over.C:
						mu.Lock()
						ended++
						mu.Unlock()
					case <-ctx.Done():
						over.Stop()
					}
					release()
				}
			})
		}
		closers.Go(func() {
			<-ctx.Done()
			if err := l.Close(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
			pool.Close()
		})
	}
	callers.Wait()
	closers.Wait()
	for ask[int](t, "select count(*) from pg_stat_activity where application_name = '"+cfg.Table+"'") > 0 {
		require.NoError(t, t.Context().Err()) // a backend tells what it did when it ends
	}
	u := usage(t, cfg.Table)
	u.sub(before)
	per := func(n int64) float64 { return float64(n) / float64(ended) }
	t.Logf("PGLEASE cost processes=%d lives=%d transactions_per_life=%.2f rows_written_per_life=%.3f wal_bytes_per_life=%.0f hot=%.0f%% table_kb=%d",
		processes, ended, per(u.transactions), per(u.updates), per(u.wal), 100*float64(u.hot)/float64(max(u.updates, 1)), u.size/1024)
	require.GreaterOrEqual(t, u.hot*10, u.updates*9, "rows are replaced within their page")
	require.Less(t, u.size, int64(2<<20), "it does not grow")
}

type used struct{ transactions, updates, hot, wal, size int64 }

func usage(t *testing.T, table string) (u used) {
	t.Helper()
	u.transactions = ask[int64](t, "select xact_commit from pg_stat_database where datname = 'postgres'")
	u.updates = ask[int64](t, fmt.Sprintf("select n_tup_upd from pg_stat_user_tables where relid = '%s'::regclass", table))
	u.hot = ask[int64](t, fmt.Sprintf("select n_tup_hot_upd from pg_stat_user_tables where relid = '%s'::regclass", table))
	u.wal = ask[int64](t, "select (pg_current_wal_insert_lsn() - '0/0')::bigint")
	u.size = ask[int64](t, fmt.Sprintf("select pg_total_relation_size('%s')", table))
	return u
}

func (u *used) sub(v used) {
	u.transactions, u.updates, u.hot, u.wal = u.transactions-v.transactions, u.updates-v.updates, u.hot-v.hot, u.wal-v.wal
}
