package flightpool

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/testserver"
)

// What goes on behind the caller has the headers that it was called with: the race detector sees who reads
// the caller's, and what a load that does not return shares with the end of its call.
func TestTheHeadersOfACallAreItsCallersToChangeOnceItHasReturned(t *testing.T) {
	for name, call := range map[string]func(r *rig, ctx context.Context, headers metadata.MD) error{
		"a statement of its own": func(r *rig, _ context.Context, headers metadata.MD) error {
			r.srv.Faults().Set(testserver.Fault{On: "ClosePreparedStatement", Times: 1, Do: testserver.Delay(time.Second)})
			return drained(r.pool.QueryWithOptions(r.Context(), "SELECT ?", QueryOptions{Headers: headers, Args: []any{1}}))
		},
		"a statement that is prepared": func(r *rig, _ context.Context, headers metadata.MD) error {
			s := r.session()
			defer func() { go func() { _ = s.Close() }() }()
			_, err := s.PrepareQueryWithOptions(r.Context(), "SELECT 1", QueryOptions{Headers: headers})
			return err
		},
		"a load whose caller leaves": func(r *rig, ctx context.Context, headers metadata.MD) error {
			type row struct{ A int64 }
			rows := func(yield func(row) bool) {
				time.Sleep(2 * time.Second)
				yield(row{1})
			}
			_, err := IngestRows(ctx, r.pool, "t", rows, IngestOptions{Headers: headers})
			require.ErrorIs(r, err, context.DeadlineExceeded)
			_, err = IngestRows(r.Context(), r.pool, "t", slices.Values([]row{{1}}), IngestOptions{Headers: headers})
			return err
		},
	} {
		inBubble(t, testserver.Strict(), Config{}, func(r *rig) {
			ctx, stop := context.WithTimeout(r.Context(), time.Second)
			defer stop()
			headers := metadata.Pairs("x-request", "1")
			require.NoError(r, call(r, ctx, headers), name)
			headers.Set("x-request", "2")
			headers.Set("x-other", "2")
			time.Sleep(time.Minute)
		})
	}
}
