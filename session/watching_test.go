package session

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// watchingConn is a Conn that watches over its transactions. It may be led to another session right before one begins.
type watchingConn struct {
	ledConn
	redial func()
	asked  int // whether its server minds the ids of transactions
}

func (c *watchingConn) BeginProven(ctx context.Context, prove func(context.Context) error) (backend.TxID, error) {
	if c.redial != nil {
		c.redial()
	}
	return c.ledConn.BeginProven(ctx, prove)
}

func (c *watchingConn) RejectsUnknownTx(ctx context.Context) (bool, error) {
	c.asked++
	return c.ledConn.RejectsUnknownTx(ctx)
}

// keptRig is a handle on a connection whose session was prepared for its borrowers. asked counts how often it was asked for
// its proof.
func keptRig(t *testing.T, conn backend.Conn, f *fakeConn) (r *rig, asked func() int) {
	t.Helper()
	r = newRig(t, f)
	r.policy.Kept = &Kept{}
	s, err := NewKeeping(t.Context(), conn, r.policy, func() {})
	must(t, err)
	set(t)(s)
	must(t, s.CloseKeeping(t.Context()))
	r.handle = New(conn, r.policy, r.returned)
	nonce := r.policy.Kept.of(conn).nonce
	return r, func() (n int) {
		for _, call := range f.Log() {
			if strings.Contains(call, nonce) {
				n++
			}
		}
		return n
	}
}

// A session that was prepared for its borrowers is shown to be that one before each change. Within a transaction its id, or
// the connection that watches over it, shows that, but on a server which takes any id.
func TestWithinATransactionAPreparedSessionIsProvenWhereNothingElseIs(t *testing.T) {
	for _, watches := range []bool{false, true} {
		for _, forgives := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeConn{forgives: forgives}
				conn := backend.Conn(f)
				if watches {
					conn = &watchingConn{ledConn: ledConn{f}}
				}
				r, asked := keptRig(t, conn, f)
				change := func() int {
					before := asked()
					_, err := r.handle.Update(t.Context(), "INSERT 1")
					must(t, err)
					return asked() - before
				}
				must(t, r.handle.BeginTransaction(t.Context()))
				require.Equal(t, !watches && forgives, change() > 0, "watches %t, forgives %t: %q", watches, forgives, f.Log())
				must(t, r.handle.Commit(t.Context()))
				require.Positive(t, change(), "outside of the transaction: watches %t, forgives %t", watches, forgives)
				must(t, r.handle.Close())
				r.reused()
			})
		}
	}
}

// A connection that dials again by itself shows its session right before a transaction begins in it: none begins in another
// than the one that was prepared, and the whole of it may be made again.
func TestATransactionBeginsInTheSessionThatWasPrepared(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			conn := &watchingConn{ledConn: ledConn{&fakeConn{forgives: true}}}
			r, asked := keptRig(t, conn, conn.fakeConn)
			before, atRedial := len(conn.Log()), 0
			conn.redial = func() {
				if atRedial = asked(); replaced {
					conn.reused = "SELECT 'somebody else'"
				}
			}
			err := r.handle.BeginTransaction(t.Context())
			if !replaced {
				must(t, err)
				require.Greater(t, asked(), atRedial, "it is asked behind the dialling")
				must(t, r.handle.Commit(t.Context()))
				require.Contains(t, conn.Log()[before:], "Begin")
				must(t, r.handle.Close())
				r.reused()
				return
			}
			require.ErrorIs(t, err, backend.ErrSessionReplaced)
			require.True(t, backend.SafeToRetry(err), "%v", err)
			require.NotContains(t, conn.Log()[before:], "Begin")
			_ = r.handle.Close()
			require.ErrorIs(t, r.discarded(), backend.ErrSessionReplaced)
		})
	}
}

// What its server makes of unknown transactions is asked once for a handle on such a connection, and its word on a change
// may come after any pause: no other session can give it.
func TestAWatchedTransactionMayPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &watchingConn{ledConn: ledConn{&fakeConn{forgives: true}}}
		r := newRig(t, conn.fakeConn)
		r.handle = New(conn, r.policy, r.returned)
		for range 3 {
			must(t, begunAndChanged(t.Context(), r.handle))
			time.Sleep(maxUnprovenPause)
			must(t, r.handle.Rollback(t.Context()))
		}
		require.Equal(t, 1, conn.asked)
		require.Zero(t, proofs(conn.fakeConn))
		must(t, r.handle.Close())
		r.reused()
	})
}
