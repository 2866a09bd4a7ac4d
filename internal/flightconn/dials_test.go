package flightconn

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhatComesOfADialTooLateIsClosed(t *testing.T) {
	d := &dialTracker{}
	ctx, stop := context.WithCancel(t.Context())
	mine, its := net.Pipe()
	_, err := d.dial(ctx, func() (net.Conn, error) { stop(); return mine, nil })
	require.ErrorIs(t, err, context.Canceled)
	_, err = its.Read(make([]byte, 1))
	require.Error(t, err, "it is closed")
	require.Zero(t, d.close(1))
	_, err = d.dial(t.Context(), nil)
	require.ErrorIs(t, err, errClosed)
}

func TestDialsUnderWayAreWaitedForAndThenCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialTracker{}
		goOn := make(chan struct{})
		var dialling sync.WaitGroup
		for range 2 {
			dialling.Go(func() { _, _ = d.dial(t.Context(), func() (net.Conn, error) { <-goOn; return nil, errClosed }) })
		}
		synctest.Wait()
		began := time.Now()
		require.Equal(t, 2, d.close(time.Second), "how many are left")
		require.Equal(t, time.Second, time.Since(began))
		var left []int
		var closing sync.WaitGroup
		var mu sync.Mutex
		for range 2 { // both wait for the same
			closing.Go(func() {
				n := d.close(time.Hour)
				mu.Lock()
				defer mu.Unlock()
				left = append(left, n)
			})
		}
		synctest.Wait()
		goOn <- struct{}{}
		synctest.Wait()
		require.Empty(t, left, "one is left")
		goOn <- struct{}{}
		closing.Wait()
		dialling.Wait()
		require.Equal(t, []int{0, 0}, left)
		require.Equal(t, time.Second, time.Since(began), "no longer than the dials")
		require.Zero(t, d.close(0))
	})
}

// A Dialer that does not heed its context is named where the endpoint closes.
func TestAnEndpointTellsOfDialsThatDoNotReturn(t *testing.T) {
	for limit, waits := range map[time.Duration]time.Duration{0: DefaultCloseTimeout, -1: DefaultCloseTimeout, time.Second: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			goOn := make(chan struct{})
			e, err := NewEndpoint(Config{Address: here, CloseTimeout: limit, Dialer: func(context.Context, string) (net.Conn, error) {
				<-goOn
				return nil, errClosed
			}})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = e.Open(ctx)
			require.Error(t, err)
			began := time.Now()
			require.ErrorContains(t, e.Close(), "1 dials have not returned")
			require.Equal(t, waits, time.Since(began))
			close(goOn)
			synctest.Wait()
			require.NoError(t, e.Close())
		})
	}
}
