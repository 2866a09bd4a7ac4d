package flightpool

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

// follow runs a query and returns what it told of its progress.
func (r *rig) follow(sql string) []string {
	r.Helper()
	var heard []string
	res, err := r.pool.QueryWithOptions(r.Context(), sql, QueryOptions{Progress: func(fraction float64, known bool) {
		heard = append(heard, fmt.Sprint(fraction, known))
	}})
	require.NoError(r, err)
	defer res.Release()
	require.True(r, res.Next())
	require.Equal(r, "1", res.RecordBatch().Column(0).ValueStr(0))
	return heard
}

func TestAQueryTellsHowFarItIs(t *testing.T) {
	profile := testserver.Strict()
	profile.Polls, profile.PollEvery = 3, time.Second
	inBubble(t, profile, Config{}, func(r *rig) {
		start := time.Now()
		require.Equal(r, []string{"0.25 true", "0.5 true", "0.75 true", "1 true"}, r.follow("SELECT 1 AS polled"))
		require.Equal(r, 3*time.Second, time.Since(start))
		require.Equal(r, 1, r.executions("SELECT 1 AS polled"))
		require.Equal(r, "1", r.value(r.pool, "SELECT 1"), "without Progress nothing is polled")
		require.Equal(r, 3*time.Second, time.Since(start))
	})
	profile.NoProgress = true
	inBubble(t, profile, Config{}, func(r *rig) {
		require.Equal(r, []string{"0 false", "0 false", "0 false", "1 true"}, r.follow("SELECT 1 AS polled"))
	})
}

func TestServersWithoutPollsAreAskedOnceForThePool(t *testing.T) {
	profile := testserver.Strict()
	profile.Refuse = map[string]codes.Code{"PollFlightInfo": codes.Unimplemented}
	inBubble(t, profile, Config{MaxSize: 3}, func(r *rig) {
		before := r.srv.Ledger().Snapshot().Refused
		require.Empty(r, r.follow("SELECT 1"))
		require.Equal(r, before+1, r.srv.Ledger().Snapshot().Refused)
		r.pool.Reset()
		require.Empty(r, r.follow("SELECT 1"))
		require.Equal(r, before+1, r.srv.Ledger().Snapshot().Refused, "no connection asks again")
	})
}

func TestAQueryIsCancelledWhileItIsPolled(t *testing.T) {
	profile := testserver.Strict()
	profile.Polls, profile.PollEvery = 1, time.Hour
	inBubble(t, profile, Config{}, func(r *rig) {
		ctx, stop := context.WithTimeout(r.Context(), time.Second)
		defer stop()
		start := time.Now()
		_, err := r.pool.QueryWithOptions(ctx, "SELECT 1", QueryOptions{Progress: func(float64, bool) { r.Error("nothing was answered") }})
		require.ErrorIs(r, err, context.DeadlineExceeded)
		require.LessOrEqual(r, time.Since(start), time.Second+50*ms)
		require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
	})
}
