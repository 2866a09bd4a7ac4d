package flightconn

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

func isUnique(text string) bool { return strings.HasSuffix(text, " */") }

// Neither is a statement executed by the text alone.
func TestAServerThatRefusesTheCommentHasNoStatements(t *testing.T) {
	textBubble(t, func(b *bubble, server *textStatements) {
		server.refuse = func(text string) error {
			if isUnique(text) {
				return status.Error(codes.InvalidArgument, "[42X01] no comments here")
			}
			return nil
		}
		c := b.open()
		for range 2 {
			_, err := c.Prepare(b.Context(), "select 1", backend.Call{})
			e := failure(b, err)
			require.Equal(b, backend.StagePrepare, e.Stage)
			require.Equal(b, backend.FaultStatement, e.Fault)
			require.Equal(b, "42X01", e.SQLState)
			require.Equal(b, codes.InvalidArgument, status.Code(err))
			require.ErrorContains(b, err, "equal texts are one statement")
		}
		require.Equal(b, []string{"select 1"}, server.prepared)
		require.Empty(b, server.stillOpen())
	})
}

func TestAServerThatDropsTheCommentHasNoStatements(t *testing.T) {
	textBubble(t, func(b *bubble, server *textStatements) {
		server.handle = func(text string) string { return strings.Split(text, "\n/*")[0] }
		c := b.open()
		for range 2 {
			_, err := c.Prepare(b.Context(), "select 1", backend.Call{})
			e := failure(b, err)
			require.Equal(b, backend.StagePrepare, e.Stage)
			require.Equal(b, backend.FaultStatement, e.Fault)
			require.ErrorIs(b, err, errEqualTexts)
		}
		require.Empty(b, server.stillOpen())
	})
}

// What is no word on the statement is told as it is.
func TestAFailureToPrepareAUniqueTextIsTold(t *testing.T) {
	for code, fault := range map[codes.Code]backend.Fault{
		codes.Unavailable: backend.FaultTransport, codes.ResourceExhausted: backend.FaultLimit, codes.Unauthenticated: backend.FaultAuth,
	} {
		for _, first := range []bool{true, false} {
			textBubble(t, func(b *bubble, server *textStatements) {
				c := b.open()
				if !first {
					b.prepareText("select 1")
				}
				server.refuse = func(text string) error {
					if isUnique(text) {
						return status.Error(code, "why")
					}
					return nil
				}
				_, err := c.Prepare(b.Context(), "select 2", backend.Call{})
				e := failure(b, err)
				require.Equal(b, backend.StagePrepare, e.Stage)
				require.Equal(b, fault, e.Fault)
				require.Equal(b, code == codes.Unauthenticated && !first, e.Unsent)
				require.NotContains(b, err.Error(), "comment")
			})
		}
	}
}

// The comment counts, too: what is above the limit with it is not sent.
func TestTheCommentCountsForTheRequestLimit(t *testing.T) {
	const fits = 4<<10 - 3 - 33 // bytes of text: a field of that length has a head of 3, the comment 33
	s := newTextStatements()
	inBubble(t, &s.fake, func(b *bubble) {
		c := b.open()
		for i, prepared := range []int{1, 1} { // the first by its text, to find out
			_, err := c.Prepare(b.Context(), "select "+strings.Repeat("x", fits-6), backend.Call{})
			e := failure(b, err)
			require.Equal(b, backend.StageArgument, e.Stage)
			require.Equal(b, backend.FaultUsage, e.Fault)
			require.Equal(b, i > 0, e.Unsent)
			require.ErrorContains(b, err, "above the limit of 4096")
			require.Len(b, s.prepared, prepared)
			require.Empty(b, s.stillOpen())
		}
		_, err := c.Prepare(b.Context(), "select "+strings.Repeat("x", fits-7), backend.Call{})
		require.NoError(b, err)
	}, func(cfg *Config) { cfg.RequestLimit = 4 << 10 })
}

// A caller may leave while the statement that has shown it is being closed: that goes on.
func TestWhatShowedThatTextsAreHandlesIsClosedBehindACallerWhoLeaves(t *testing.T) {
	textBubble(t, func(b *bubble, server *textStatements) {
		server.closing = func() error { time.Sleep(2 * time.Second); return nil }
		c := b.open()
		begun, answered := c.RoundTrips()
		start := time.Now()
		ctx, stop := context.WithTimeout(b.Context(), time.Second)
		defer stop()
		_, err := c.Prepare(ctx, "select 1", backend.Call{})
		e := failure(b, err)
		require.Equal(b, time.Second, time.Since(start))
		require.Equal(b, backend.StagePrepare, e.Stage)
		require.Equal(b, backend.FaultContext, e.Fault)
		require.ErrorIs(b, err, context.DeadlineExceeded)
		require.False(b, e.Unsent)
		nowBegun, nowAnswered := c.RoundTrips()
		require.Equal(b, []int64{begun + 1, answered + 1}, []int64{nowBegun, nowAnswered})
		require.Equal(b, []string{"select 1"}, server.stillOpen())
		require.Empty(b, server.executed)

		time.Sleep(time.Second)
		synctest.Wait()
		require.Empty(b, server.stillOpen())
		_, err = c.Prepare(b.Context(), "select 1", backend.Call{})
		require.NoError(b, err)
		requireUnique(b, "select 1", server.prepared[1:])
	})
}

// That it is not closed costs nobody more than the time for it.
func TestWhatShowedThatTextsAreHandlesMayStayOpen(t *testing.T) {
	for what, c := range map[string]struct {
		closing func() error
		takes   time.Duration
	}{
		"refused":      {func() error { return status.Error(codes.NotFound, "no such statement") }, 0},
		"not answered": {func() error { time.Sleep(time.Minute); return nil }, DefaultCloseTimeout},
	} {
		t.Run(what, func(t *testing.T) {
			textBubble(t, func(b *bubble, server *textStatements) {
				server.closing = c.closing
				conn := b.open()
				start := time.Now()
				_, err := conn.Prepare(b.Context(), "select 1", backend.Call{})
				require.NoError(b, err)
				require.Equal(b, c.takes, time.Since(start))
				requireUnique(b, "select 1", server.prepared[1:])
			})
		})
	}
}

// The end of the connection ends the closing, and the endpoint's Close waits for it.
func TestAConnectionMayEndWhileTheFirstStatementIsClosed(t *testing.T) {
	textBubble(t, func(b *bubble, server *textStatements) {
		var closed atomic.Bool
		server.closing = func() error { closed.Store(true); time.Sleep(time.Hour); return errors.New("late") }
		c := b.open()
		failed := make(chan error, 1)
		go func() {
			_, err := c.Prepare(b.Context(), "select 1", backend.Call{})
			failed <- err
		}()
		synctest.Wait()
		require.True(b, closed.Load())
		require.NoError(b, c.Close())
		require.ErrorIs(b, <-failed, backend.ErrSessionLost)
		start := time.Now()
		require.NoError(b, b.endpoint.Close())
		require.Zero(b, time.Since(start))
	})
}

// Another pool, or a process, that finds out by an equal text ends no rows of ours.
func TestNobodysFirstStatementCutsTheRowsOfAnother(t *testing.T) {
	onlyBubble(t, func(b *bubble) {
		params := oneText(7)
		defer params.Release()
		s, err := b.prepareText("select ?").Query(b.Context(), params, backend.Call{})
		require.NoError(b, err)

		other, err := NewEndpoint(Config{Address: here, Dialer: b.net.dial})
		require.NoError(b, err)
		c, err := other.Open(b.Context())
		require.NoError(b, err)
		_, err = c.Prepare(b.Context(), "select ?", backend.Call{})
		require.NoError(b, err)
		requireAllOrError(b, s)
		require.NoError(b, c.Close())
		require.NoError(b, other.Close())
	})
}
