package flightpool

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/testserver"
)

// header is get for tests that look at the header alone.
func (t *tokenCache) header(ctx context.Context, rejected string) (string, error) {
	c, err := t.get(ctx, rejected)
	return c.Header, err
}

func TestAFetchOutlivesTheCallerWhoNeededItFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		tokens := newTokenCache(t.Context(), func(ctx context.Context) (string, time.Time, error) {
			calls++
			select {
			case <-time.After(3 * time.Second):
				return "t", time.Time{}, nil
			case <-ctx.Done():
				return "", time.Time{}, ctx.Err()
			}
		})
		hurried, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := tokens.header(hurried, "")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		start := time.Now()
		h, err := tokens.header(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, "Bearer t", h)
		require.Equal(t, 2*time.Second, time.Since(start))
		require.Equal(t, 1, calls)
		require.NoError(t, tokens.close(time.Second))
	})
}

func TestAFailedFetchIsSharedByThoseWhoWaitedAndTriedAgainLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		calls := 0
		tokens := newTokenCache(t.Context(), func(context.Context) (string, time.Time, error) {
			calls++
			time.Sleep(time.Second)
			return "", time.Time{}, down
		})
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				_, err := tokens.header(t.Context(), "")
				require.ErrorIs(t, err, down)
			})
		}
		all.Wait()
		require.Equal(t, 1, calls)
		_, err := tokens.header(t.Context(), "")
		require.ErrorIs(t, err, down)
		require.Equal(t, 2, calls)
	})
}

func TestClosingEndsAFetchAndAnEndlessOneEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		endless := func(ctx context.Context) (string, time.Time, error) {
			<-ctx.Done()
			return "", time.Time{}, ctx.Err()
		}
		tokens := newTokenCache(t.Context(), endless)
		start := time.Now()
		_, err := tokens.header(t.Context(), "")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, fetchLimit, time.Since(start))

		go func() {
			time.Sleep(time.Second)
			_ = tokens.close(time.Second)
		}()
		_, err = tokens.header(t.Context(), "")
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, fetchLimit+time.Second, time.Since(start))
		_, err = tokens.header(t.Context(), "")
		require.ErrorIs(t, err, ErrClosed)
	})
}

func TestAShortLivedTokenIsUsedForHalfItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		tokens := newTokenCache(t.Context(), func(context.Context) (string, time.Time, error) {
			calls++
			return "t", time.Now().Add(4 * time.Second), nil
		})
		defer func() { require.NoError(t, tokens.close(time.Second)) }()
		for _, want := range []int{1, 1, 2, 2, 3} { // at 0, 1, 2, 3 and 4 s
			_, err := tokens.header(t.Context(), "")
			require.NoError(t, err)
			require.Equal(t, want, calls)
			time.Sleep(time.Second)
		}
	})
}

// Token endpoints need not tell when a token expires (RFC 6749, 5.1).
func TestATokenMayNameItsEndItself(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		var calls atomic.Int32
		p, err := New(t.Context(), "grpc://server:1", Config{MaxSize: 1, Dialer: srv.Dial, Auth: TokenAuth(func(context.Context) (string, time.Time, error) {
			calls.Add(1)
			claims := fmt.Appendf(nil, `{"exp":%d}`, time.Now().Add(5*time.Minute).Unix())
			return "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".sig", time.Time{}, nil
		})})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.WithoutCancel(t.Context()))) }()
		require.Equal(t, time.Now().Add(5*time.Minute-expiryMargin), p.Connections()[0].Expires)
		time.Sleep(20 * time.Minute)
		require.GreaterOrEqual(t, calls.Load(), int32(4))
	})
}

// TestAFetchFromBeforeARefusalIsNoAnswerToIt has a source that gives the token which it knows, and
// hears of its end while it is being asked.
func TestAFetchFromBeforeARefusalIsNoAnswerToIt(t *testing.T) {
	for name, given := range map[string][]string{"another is there then": {"t1", "t1", "t2"}, "the source has no other": {"t1", "t1", "t1", "t2"}} {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int32
			tokens := newTokenCache(t.Context(), func(context.Context) (string, time.Time, error) {
				token := given[calls.Add(1)-1]
				time.Sleep(500 * time.Millisecond)
				return token, time.Now().Add(10 * time.Minute), nil
			})
			h, err := tokens.header(t.Context(), "")
			require.NoError(t, err)
			require.Equal(t, "Bearer t1", h)
			time.Sleep(6 * time.Minute)
			go func() { _, _ = tokens.header(t.Context(), "") }() // renews it
			synctest.Wait()
			require.EqualValues(t, 2, calls.Load())
			h, err = tokens.header(t.Context(), "Bearer t1")
			require.NoError(t, err)
			require.Equal(t, "Bearer "+given[2], h, name)
			require.EqualValues(t, 3, calls.Load(), "it is asked once more, and no oftener")
			require.NoError(t, tokens.close(time.Second))
		})
	}
}

func TestATokenMayEndBeyondAnyCalendar(t *testing.T) {
	for _, end := range []time.Time{time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), time.Unix(1<<62, 0)} {
		for _, lifetime := range []time.Duration{0, -1} {
			withServer(t, testserver.Options{Tokens: []string{"t"}}, func(t *testing.T, srv *testserver.Server) {
				calls := 0
				p, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, MaxLifetime: lifetime, Auth: TokenAuth(func(context.Context) (string, time.Time, error) {
					calls++
					return "t", end, nil
				})})
				require.NoError(t, err, end)
				time.Sleep(5 * time.Minute)
				require.NoError(t, p.Ping(t.Context()))
				require.Equal(t, 1, calls)
				require.LessOrEqual(t, p.Stats().Opens, uint64(2), "the second is idle beside the ping")
				require.NoError(t, p.Close(t.Context()))
			})
		}
	}
}

func TestATokenThatHasNearlyEndedOpensNothing(t *testing.T) {
	for _, life := range []time.Duration{-time.Hour, 0, 1, time.Millisecond} {
		withServer(t, testserver.Options{Tokens: []string{"t"}}, func(t *testing.T, srv *testserver.Server) {
			calls := 0
			p, err := New(t.Context(), "grpc://server:1", Config{MinIdle: -1, Dialer: srv.Dial, Auth: TokenAuth(func(context.Context) (string, time.Time, error) {
				calls++
				return "t", time.Now().Add(life), nil
			})})
			require.NoError(t, err)
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			defer stop()
			_, err = p.Query(ctx, "SELECT 1")
			require.ErrorContains(t, err, "ExpiresAt: a new connection ends in")
			require.Less(t, calls, 100, "a pause is between them")
			require.NoError(t, p.Close(t.Context()))
		})
	}
}

// A source that does not answer within DialTimeout says nothing of the server, as one that fails.
func TestASlowTokenSourceMakesNoServerUnhealthy(t *testing.T) {
	for name, source := range map[string]TokenSource{
		"slow":  func(ctx context.Context) (string, time.Time, error) { <-ctx.Done(); return "", time.Time{}, ctx.Err() },
		"fails": func(context.Context) (string, time.Time, error) { return "", time.Time{}, errAway },
	} {
		withServer(t, testserver.Options{Tokens: []string{"good"}}, func(t *testing.T, srv *testserver.Server) {
			p, err := New(t.Context(), "grpc://server:1", Config{MinIdle: -1, Dialer: srv.Dial, Auth: TokenAuth(source)})
			require.NoError(t, err)
			began := time.Now()
			ctx, stop := context.WithTimeout(t.Context(), 25*time.Second)
			defer stop()
			_, err = p.Query(ctx, "SELECT 1")
			require.ErrorIs(t, err, ErrExhausted, name)
			require.NotErrorIs(t, err, ErrUnhealthy, name)
			require.Equal(t, 25*time.Second, time.Since(began), "it waits as OpenRetry says, %s", name)
			s := p.Stats()
			require.GreaterOrEqual(t, s.OpenFailures, uint64(3), name)
			require.NoError(t, s.UnhealthyReason, name)
			var failed *Error
			require.ErrorAs(t, s.LastOpenError, &failed, name)
			require.Equal(t, []any{FaultAuth, backend.StageAuth}, []any{failed.Fault, failed.Stage}, "%s: %v", name, failed)
			require.NoError(t, p.Close(t.Context()))
		})
	}
}

// stubborn is a Layer whose Close ends when a test says so.
type stubborn struct{ ended chan struct{} }

func (stubborn) Wrap(_ context.Context, c backend.Conn) (backend.Conn, error) { return c, nil }
func (s stubborn) Close() error                                               { <-s.ended; return nil }

func TestCloseEndsThoughATokenSourceOrALayerDoesNot(t *testing.T) {
	for name, want := range map[string]string{
		"source": "a TokenSource has not returned within 2s", "layer": "the Layer has not closed within CloseTimeout 2s",
	} {
		t.Run(name, func(t *testing.T) {
			withServer(t, testserver.Options{Tokens: []string{"good"}}, func(t *testing.T, srv *testserver.Server) {
				ended, fetched := make(chan struct{}), 0
				source := func(context.Context) (string, time.Time, error) {
					if fetched++; fetched > 1 && name == "source" {
						<-ended
					}
					return "good", time.Now().Add(20 * time.Second), nil
				}
				cfg := Config{Auth: TokenAuth(source), Dialer: srv.Dial, CloseTimeout: 2 * time.Second, MaxSize: 2}
				if name == "layer" {
					cfg.Layer = stubborn{ended}
				}
				p, err := New(t.Context(), "grpc://server:1", cfg)
				require.NoError(t, err)
				time.Sleep(16 * time.Second) // another token is asked for
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				released := time.AfterFunc(time.Hour, func() { close(ended) })
				err = p.Close(ctx)
				require.LessOrEqual(t, time.Since(began), 3*time.Second)
				require.ErrorContains(t, err, want)
				if released.Stop() {
					close(ended)
				}
			})
		})
	}
}
