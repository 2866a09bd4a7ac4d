package flightpool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

func TestATokenIsFetchedOnceKeptUntilItsExpiryAndReplacedWhenRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetched := 0
		tokens := newTokenCache(t.Context(), func(context.Context) (string, time.Time, error) {
			fetched++
			time.Sleep(time.Second) // a slow identity provider
			return fmt.Sprint("t", fetched), time.Now().Add(time.Minute), nil
		})
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				h, err := tokens.header(t.Context(), "")
				require.NoError(t, err)
				require.Equal(t, "Bearer t1", h)
			})
		}
		all.Wait()
		require.Equal(t, 1, fetched)
		time.Sleep(50 * time.Second) // within 10 s of the expiry
		h, err := tokens.header(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, "Bearer t2", h)
		h, err = tokens.header(t.Context(), "Bearer t1")
		require.NoError(t, err)
		require.Equal(t, "Bearer t2", h, "an older one was refused: no reason to fetch")
		h, err = tokens.header(t.Context(), "Bearer t2")
		require.NoError(t, err)
		require.Equal(t, "Bearer t3", h)
	})
}

func TestATokenSourceThatFailsFailsTheOpenWithItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory, Tokens: []string{"good"}})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		broken := errors.New("identity provider is down")
		for _, tc := range []struct {
			source TokenSource
			want   string
		}{
			{func(context.Context) (string, time.Time, error) { return "", time.Time{}, broken }, "identity provider is down"},
			{func(context.Context) (string, time.Time, error) { return "", time.Time{}, nil }, "its token is empty"},
			{func(context.Context) (string, time.Time, error) { return "good\n", time.Time{}, nil }, "its token contains a space, a line break"}, // as files end
			{func(ctx context.Context) (string, time.Time, error) { <-ctx.Done(); return "", time.Time{}, ctx.Err() }, "token"},
		} {
			start := time.Now()
			_, err = New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, Auth: TokenAuth(tc.source)})
			require.ErrorContains(t, err, tc.want)
			require.LessOrEqual(t, time.Since(start), 6*time.Second)
		}
		require.Zero(t, srv.Ledger().Snapshot().Sessions)
	})
}

func TestWrongCredentialsFailAtOnceWithTheServersWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory, Users: map[string]string{"me": "right"}})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		start := time.Now()
		_, err = New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, Auth: BasicAuth("me", "wrong")})
		require.Less(t, time.Since(start), time.Second)
		require.Equal(t, FaultAuth, faultIn(err))
		require.ErrorContains(t, err, "Unauthenticated")
		_, err = New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, Auth: BearerAuth("nonsense")})
		require.Equal(t, FaultAuth, faultIn(err))
		p, err := New(t.Context(), "grpc://me:right@server:1", Config{Dialer: srv.Dial})
		require.NoError(t, err)
		v, err := firstValue(t.Context(), p, "SELECT 1")
		require.NoError(t, err)
		require.Equal(t, "1", v)
		require.NoError(t, p.Close(t.Context()))
	})
}

// What a source gives that has ended already, or is so by this machine's clock, is told as any open that fails.
func TestATokenThatHasEndedIsLogged(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		var log bytes.Buffer
		ended := func(context.Context) (string, time.Time, error) { return "t", time.Now().Add(-time.Hour), nil }
		p, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, MinIdle: -1, Auth: TokenAuth(ended), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		require.Error(t, p.Ping(t.Context()))
		require.EqualValues(t, 1, p.Stats().OpenFailures)
		require.NoError(t, p.Close(t.Context()))
		require.Contains(t, log.String(), "a connection could not be opened")
	})
}

func TestAnExpiredTokenIsRefreshedAndReadsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory, Users: map[string]string{"me": "right"}})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		p, err := New(t.Context(), "grpc://me:right@server:1", Config{Dialer: srv.Dial, MaxSize: 3, MinIdle: 3})
		require.NoError(t, err)
		require.NoError(t, p.WaitReady(t.Context(), 3))
		require.Positive(t, srv.Ledger().Snapshot().Handshakes)
		srv.Faults().ExpireTokens()
		for range 5 {
			v, err := firstValue(t.Context(), p, "SELECT 1")
			require.NoError(t, err, "a read is repeated on a connection that has just answered")
			require.Equal(t, "1", v)
		}
		require.NoError(t, p.Close(t.Context()))
	})
}

// A server takes user and password apart at the first colon.
func TestAUserWithAColonIsRefused(t *testing.T) {
	for name, auth := range map[string]Auth{"BasicAuth": BasicAuth("a:b", "s3cret"), "BasicHeader": BasicHeader("a:b", "s3cret")} {
		_, err := New(t.Context(), "grpc://127.0.0.1:1", Config{MinIdle: -1, Auth: auth})
		require.ErrorContains(t, err, "the user of "+name+" must not contain a colon")
		require.NotContains(t, err.Error(), "s3cret")
	}
}

// What gRPC would not send is refused, and not shown.
func TestHeadersThatCannotBeSentAreRefused(t *testing.T) {
	for _, c := range []string{"\n", "\r", "\t", "\x00", "\x7f", "é", "\xff", " "} {
		for name, auth := range map[string]Auth{"BearerAuth": BearerAuth("s3cret" + c), "HeaderAuth": HeaderAuth("s3cret" + c), "DSN": {}} {
			target := "grpc://127.0.0.1:1"
			if name == "DSN" {
				target += "?token=s3cret" + url.QueryEscape(c)
			}
			p, err := New(t.Context(), target, Config{MinIdle: -1, Auth: auth})
			if name == "HeaderAuth" && c == " " { // two words are fine
				require.NoError(t, err)
				require.NoError(t, p.Close(t.Context()))
				continue
			}
			require.Error(t, err, "%s %q", name, c)
			require.NotContains(t, err.Error(), "s3cret")
		}
	}
}
