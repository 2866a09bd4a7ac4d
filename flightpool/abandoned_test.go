package flightpool

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

// A server that binds sessions to something else than the transport keeps those of opens that
// take too long, or that nobody needs any more, unless it is told.
func TestAnOpenThatIsGivenUpLeavesNoSession(t *testing.T) {
	for _, tc := range []struct {
		profile testserver.Profile
		cfg     Config
		end     string
	}{
		{testserver.GizmoSQL(), Config{Auth: BasicAuth("ann", "secret")}, "DialTimeout"},
		{testserver.GizmoSQL(), Config{Auth: BasicAuth("ann", "secret")}, "Close"},
		{testserver.GizmoSQL(), Config{Auth: BasicAuth("ann", "secret")}, "refusal"},
		{testserver.Profile{Name: "by header", SessionKey: testserver.ByHeader, KeyName: "x-session", SessionTTL: time.Hour}, Config{SessionHeader: "x-session"}, "DialTimeout"},
		{testserver.Dremio(), Config{Auth: BasicAuth("ann", "secret")}, "refusal"},
	} {
		t.Run(fmt.Sprint(tc.profile.Name, tc.end), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, err := testserver.Start(testserver.Options{Profile: tc.profile, Listen: testserver.InMemory})
				require.NoError(t, err)
				defer func() { require.NoError(t, srv.Close()) }()
				do := testserver.Delay(7 * time.Second)
				if tc.end == "refusal" {
					do = testserver.Fail(codes.PermissionDenied, "not you")
				}
				srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, After: true, Do: do})
				tc.cfg.MinIdle, tc.cfg.Dialer = -1, srv.Dial
				p, err := New(t.Context(), "grpc://server:1", tc.cfg)
				require.NoError(t, err)
				patience := 6 * time.Second
				if tc.end == "Close" {
					patience = time.Second // the open goes on
				}
				for range 3 {
					ctx, stop := context.WithTimeout(t.Context(), patience)
					_, err = p.Query(ctx, "SELECT 1")
					stop()
					require.Error(t, err)
				}
				if tc.end == "Close" {
					require.NoError(t, p.Close(t.Context()))
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				now := srv.Ledger().Snapshot()
				require.Positive(t, now.SessionsOpened)
				require.LessOrEqual(t, now.Sessions, now.Conns, "%v", now)
				if tc.end != "Close" {
					srv.Faults().Clear()
					began := time.Now()
					require.NoError(t, p.Close(t.Context()))
					require.LessOrEqual(t, time.Since(began), 5*time.Second)
				}
				synctest.Wait()
				now = srv.Ledger().Snapshot()
				require.Zero(t, now.Sessions, "%v", now)
				require.Zero(t, now.Conns, "%v", now)
			})
		})
	}
}

// The connection of an open that has failed counts until it is closed: there are never more than MaxSize, nor
// than the fleet allows, and callers are told of the failure at once.
func TestAnOpenThatIsGivenUpCountsUntilItsConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Profile: testserver.GizmoSQL(), Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, After: true, Do: testserver.Delay(time.Hour)})
		srv.Faults().Set(testserver.Fault{On: testserver.OnCloseSession, Do: testserver.Delay(3 * time.Second)})
		p, err := New(t.Context(), "grpc://server:1", Config{Auth: BasicAuth("ann", "secret"), MinIdle: -1, MaxSize: 1, DialTimeout: time.Second, Dialer: srv.Dial})
		require.NoError(t, err)
		began := time.Now()
		_, err = p.Query(t.Context(), "SELECT 1")
		require.Error(t, err)
		require.Equal(t, time.Second, time.Since(began), "nobody waits for the closing")
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		go func() { _, _ = p.Query(ctx, "SELECT 1") }()
		for range 200 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			require.LessOrEqual(t, srv.Ledger().Snapshot().Conns, 1)
		}
		srv.Faults().Clear()
		require.NoError(t, p.Close(t.Context()))
		synctest.Wait()
		require.Zero(t, srv.Ledger().Snapshot().Conns)
	})
}
