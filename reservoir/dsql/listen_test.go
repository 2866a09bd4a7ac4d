package dsql

import (
	"context"
	"io"
	"log/slog"
	"math"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/lease"
)

// badLeases are a program's own, whose registrations do not begin or end as they should. They note which were to end.
type badLeases struct {
	lease.Leases
	begin, end func()
	ended      []string
}

func (b *badLeases) Valid() error { return nil }

func (b *badLeases) OnRevoke(func(lease.Revocation)) func() {
	b.begin()
	return func() { b.ended = append(b.ended, "revoke"); b.end() }
}

// piped is a cluster over these leases, whose connections are ends of pipes. others are the other ends. closed
// counts the budgets that were closed.
func piped(t *testing.T, leases lease.Leases, size int) (c *Cluster, others chan net.Conn, closed *int, err error) {
	cfg, err := Config{Host: someHost, MaxSize: size, CheckInterval: -1, Logger: slog.New(slog.DiscardHandler)}.resolve(environ(nil))
	require.NoError(t, err)
	others, closed = make(chan net.Conn, 100), new(int)
	own := &budgets{leases: leases, limiter: lease.NewLimiter("x", 100, 100), closers: []func(context.Context) error{
		func(context.Context) error { *closed++; return nil },
	}}
	c, err = newCluster(t.Context(), cfg, own, func(context.Context) (*physical, error) {
		p := &physical{}
		local, other := net.Pipe()
		p.setSocket(local)
		p.owner.Store(ownedByCloser) // so that nothing is closed but its end of the pipe
		others <- other
		return p, nil
	})
	return c, others, closed, err
}

func TestACloseEndsWhateverTheLeasesDo(t *testing.T) {
	hangs := make(chan struct{})
	for name, bad := range map[string]func(){
		"panic": func() { panic("the program's") }, "end its goroutine": runtime.Goexit, "hang": func() { <-hangs },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hangs = make(chan struct{})
				leases := &badLeases{Leases: lease.NewLeases("x", 3), begin: func() {}, end: bad}
				c, _, closed, err := piped(t, leases, 3)
				require.NoError(t, err)
				require.NoError(t, c.WaitReady(t.Context(), 3))
				began := time.Now()
				closing := callback.Go(func() (struct{}, error) { return struct{}{}, c.Close(t.Context()) })
				ended := callback.EndsWithin(closing.Done, time.Hour)
				took := time.Since(began)
				close(hangs)
				<-closing.Done
				require.True(t, ended)
				require.LessOrEqual(t, took, c.cfg.CloseTimeout)
				require.True(t, closing.Returned)
				require.ErrorContains(t, closing.Err, "Leases")
				require.Equal(t, 1, *closed, "what is its own is closed all the same")
				synctest.Wait()
				require.Equal(t, []string{"revoke"}, leases.ended)
			})
		})
	}
}

func TestLeasesThatFailAtTheStartLeaveNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &badLeases{Leases: lease.NewLeases("x", 3), begin: func() { panic("the program's") }}
		var others chan net.Conn
		made := callback.Go(func() (closed *int, err error) {
			_, others, closed, err = piped(t, leases, 3)
			return closed, err
		})
		<-made.Done
		require.True(t, made.Returned)
		require.ErrorContains(t, made.Err, "the program's")
		require.Equal(t, 1, *made.Value)
		synctest.Wait()
		require.Zero(t, leases.Stats().InUse)
		for range len(others) {
			_, err := (<-others).Read(make([]byte, 1))
			require.Error(t, err)
		}
	})
}

// Others may have the lease from the deadline on: it must not count here for as long as a borrower keeps what is left.
func TestARevokedLeaseComesBackAtItsDeadlineWhateverItsBorrowerDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &revoking{Leases: lease.NewLeases("x", 1)}
		c, others, _, err := piped(t, leases, 1)
		require.NoError(t, err)
		held, err := c.res.Acquire(t.Context())
		require.NoError(t, err)
		other, deadline := <-others, time.Now().Add(20*time.Second)
		leases.tell(lease.Revocation{Deadline: deadline, Cause: errGone})
		_, err = other.Read(make([]byte, 1))
		require.Error(t, err)
		require.Equal(t, deadline, time.Now())
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		next, err := c.res.Acquire(ctx)
		if err != nil {
			_ = held.Release()
		}
		require.NoError(t, err)
		require.Equal(t, deadline, time.Now())
		require.NoError(t, next.Release())
		require.Error(t, held.Release(), "it was taken back")
		require.NoError(t, c.Close(t.Context()))
	})
}

// A connection that no list has yet, since it was opened while the leases were revoked, is closed by the deadline, too.
func TestAConnectionOfTheMomentOfItsRevocationIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &revoking{Leases: lease.NewLeases("x", 1)}
		c, others, _, err := piped(t, leases, 1)
		require.NoError(t, err)
		held, err := c.res.Acquire(t.Context())
		require.NoError(t, err)
		c.mu.Lock()
		clear(c.openConns)
		c.mu.Unlock()
		deadline := time.Now().Add(20 * time.Second)
		leases.tell(lease.Revocation{Deadline: deadline, Cause: errGone})
		other := <-others
		require.NoError(t, other.SetReadDeadline(deadline.Add(time.Second)))
		_, err = other.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		_ = held.Release()
		require.NoError(t, c.Close(t.Context()))
	})
}

// fullLeases are full, and tell who waits.
type fullLeases struct {
	lease.Leases
	holder atomic.Pointer[lease.Holder]
}

func (l *fullLeases) Acquire(ctx context.Context) (func(), error) {
	l.holder.Store(lease.HolderOf(ctx))
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestAClusterSaysHowManyPermissionsItWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &fullLeases{Leases: lease.NewLeases("x", 3)}
		c, _, _, err := piped(t, leases, 3)
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 3, leases.holder.Load().Wanted(9))
		require.NoError(t, c.Close(t.Context()))
	})
}

// A pool above that has given up all that there was has others at the deadline.
func TestAPoolThatGivesUpAllIsNotAskedAgainAtTheDeadline(t *testing.T) {
	for name, answer := range map[string]struct{ closing, asked int }{"all, for good": {math.MaxInt, 1}, "what it promises": {3, 2}} {
		synctest.Test(t, func(t *testing.T) {
			leases := &revoking{Leases: lease.NewLeases("x", 1)}
			c, _, _, err := piped(t, leases, 1)
			require.NoError(t, err)
			var asked atomic.Int64
			defer c.OnReclaim(func(int) int { asked.Add(1); return answer.closing })()
			leases.tell(lease.Revocation{Deadline: time.Now().Add(20 * time.Second), Cause: errGone})
			time.Sleep(time.Minute)
			synctest.Wait()
			require.EqualValues(t, answer.asked, asked.Load(), name)
			require.NoError(t, c.Close(t.Context()))
		})
	}
}
