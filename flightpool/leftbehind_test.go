package flightpool

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// A server that ties the session to a token keeps it when its connection breaks: with the statement that it runs, and with its
// transaction, in which GizmoSQL holds what it has changed against all others.
func TestAConnectionThatBreaksLeavesNoSession(t *testing.T) {
	inBubble(t, testserver.GizmoSQL(), Config{MaxSize: 1, Auth: BasicAuth("me", "x")}, func(r *rig) {
		r.exec("CREATE TABLE t (x BIGINT)")
		r.exec("INSERT INTO t VALUES (1)")
		err := r.pool.InTx(r.Context(), TxOptions{Attempts: 1}, func(ctx context.Context, tx *Tx) error {
			if _, err := tx.Update(ctx, "UPDATE t SET x = 2"); err != nil {
				return err
			}
			time.AfterFunc(time.Second, func() { r.srv.Faults().KillConns() })
			return readAll(tx.Query(ctx, "SELECT sleep('1h')"))
		})
		require.Error(r, err)
		time.Sleep(time.Second)
		synctest.Wait()
		now := r.srv.Ledger().Snapshot()
		require.Zero(r, now.Running, "%v", now)
		require.Zero(r, now.Transactions, "%v", now)
		require.LessOrEqual(r, now.Sessions, 1, "%v", now)
		require.LessOrEqual(r, now.Conns, 1, "what has asked for that is closed: %v", now)
		require.Equal(r, 1, now.Cancels, "GizmoSQL ends a session without the statement that it runs")
		r.exec("UPDATE t SET x = 3")
		require.Equal(r, "1", r.value(r.pool, "SELECT count(*) FROM t WHERE x = 3"))
	})
}

// breakInTx has something strike a transaction that has changed a row, and runs a statement that outlasts it.
func (r *rig) breakInTx(limit time.Duration, strike func()) {
	r.Helper()
	r.exec("CREATE TABLE t (x BIGINT)")
	r.exec("INSERT INTO t VALUES (1)")
	ctx, stop := context.WithTimeout(r.Context(), limit)
	defer stop()
	require.Error(r, r.pool.InTx(ctx, TxOptions{Attempts: 1}, func(ctx context.Context, tx *Tx) error {
		if _, err := tx.Update(ctx, "UPDATE t SET x = 2"); err != nil {
			return err
		}
		time.AfterFunc(time.Second, strike)
		return readAll(tx.Query(ctx, "SELECT sleep('1h')"))
	}))
}

// noSession requires that the server has nothing but what idle connections need.
func (r *rig) noSession(idle int) {
	r.Helper()
	synctest.Wait()
	now := r.srv.Ledger().Snapshot()
	require.Zero(r, now.Running, "%v", now)
	require.Zero(r, now.Transactions, "%v", now)
	require.LessOrEqual(r, now.Sessions, idle, "%v", now)
}

// A program that ends with the error of a connection that has broken closes its pool at once.
func TestAPoolThatIsClosedBehindABreakLeavesNoSession(t *testing.T) {
	inBubble(t, testserver.GizmoSQL(), Config{MaxSize: 1, Auth: BasicAuth("me", "x")}, func(r *rig) {
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnCancel, Do: testserver.Delay(100 * time.Millisecond)})
		r.breakInTx(time.Hour, func() { r.srv.Faults().KillConns() })
		require.NoError(r, r.pool.Close(r.Context()))
		r.noSession(0)
	})
}

// What has broken a connection, such as a proxy that is started again, refuses the next ones for a while.
func TestASessionIsLeftOnceTheServerCanBeReached(t *testing.T) {
	inBubble(t, testserver.GizmoSQL(), Config{MaxSize: 1, Auth: BasicAuth("me", "x")}, func(r *rig) {
		r.breakInTx(time.Hour, func() {
			away := r.srv.Faults().Set(testserver.Fault{On: testserver.OnConnect, Do: testserver.Kill()})
			time.AfterFunc(10*time.Second, away.Clear)
			r.srv.Faults().KillConns()
		})
		time.Sleep(30 * time.Second)
		r.noSession(1)
	})
}

// A pool whose server is gone is not held up by what it has left there.
func TestAPoolIsClosedAtOnceWhereItsServerIsGone(t *testing.T) {
	inBubble(t, testserver.GizmoSQL(), Config{MaxSize: 1, Auth: BasicAuth("me", "x")}, func(r *rig) {
		r.breakInTx(time.Hour, func() {
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnConnect, Do: testserver.Kill()})
			r.srv.Faults().KillConns()
		})
		time.Sleep(8 * time.Second)
		begun := time.Now()
		require.NoError(r, r.pool.Close(r.Context()))
		require.Less(r, time.Since(begun), time.Second)
		r.srv.Faults().KillSessions()
	})
}

// A link that is dead in silence, as behind a NAT that has forgotten it, is no break that a socket tells.
func TestASessionBehindALinkThatIsSilentIsLeft(t *testing.T) {
	inBubble(t, testserver.GizmoSQL(), Config{MaxSize: 1, Auth: BasicAuth("me", "x")}, func(r *rig) {
		r.breakInTx(10*time.Second, func() { r.srv.Faults().FreezeConns() })
		time.Sleep(time.Minute)
		r.noSession(1)
		r.srv.Faults().ThawConns()
	})
}

// What Close cuts does not run on: GizmoSQL ends a session without the statement that it runs.
func TestWhatCloseCutsDoesNotRunOn(t *testing.T) {
	inBubble(t, testserver.GizmoSQL(), Config{MaxSize: 1, Auth: BasicAuth("me", "x")}, func(r *rig) {
		read := make(chan error, 1)
		go func() { read <- readAll(r.pool.Query(r.Context(), "SELECT sleep('1h')")) }()
		time.Sleep(time.Second)
		ctx, stop := context.WithTimeout(r.Context(), time.Second)
		defer stop()
		require.Error(r, r.pool.Close(ctx))
		require.Error(r, <-read)
		r.noSession(0)
		require.Equal(r, 1, r.srv.Ledger().Snapshot().Cancels)
	})
}

// A link that swallows what is sent, as a firewall may, holds up the dial by which a session is left until Close ends it. A Dialer that
// heeds that is not blamed.
func TestADialThatCloseEndsIsNoFaultOfTheDialer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Profile: testserver.GizmoSQL(), Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		var swallows atomic.Bool
		pool, err := New(t.Context(), "grpc://server:1", Config{MinIdle: -1, MaxSize: 1, DialTimeout: 20 * time.Second, Auth: BasicAuth("me", "x"), Dialer: func(ctx context.Context, addr string) (net.Conn, error) {
			if swallows.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return srv.Dial(ctx, addr)
		}})
		require.NoError(t, err)
		require.NoError(t, readAll(pool.Query(t.Context(), "SELECT 1")))
		swallows.Store(true)
		srv.Faults().KillConns()
		begun := time.Now()
		require.NoError(t, pool.Close(t.Context()))
		require.Equal(t, 5*time.Second, time.Since(begun))
		srv.Faults().KillSessions()
	})
}

// A pool that is closed while it waits to try again to leave a session tries that once more: its server may be there again.
func TestAPoolThatIsClosedBetweenTwoAttemptsLeavesNoSession(t *testing.T) {
	inBubble(t, testserver.GizmoSQL(), Config{MaxSize: 1, Auth: BasicAuth("me", "x")}, func(r *rig) {
		r.breakInTx(time.Hour, func() {
			away := r.srv.Faults().Set(testserver.Fault{On: testserver.OnConnect, Do: testserver.Kill()})
			time.AfterFunc(10*time.Second, away.Clear)
			r.srv.Faults().KillConns()
		})
		time.Sleep(10 * time.Second)
		begun := time.Now()
		require.NoError(r, r.pool.Close(r.Context()))
		require.Less(r, time.Since(begun), time.Second)
		r.noSession(0)
	})
}
