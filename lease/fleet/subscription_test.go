package fleet

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
)

// A function that panics or ends its goroutine ends neither the process nor its
// registration: a later revocation reaches it.
func TestAHolderThatPanicsHearsOfTheNextRevocation(t *testing.T) {
	for name, fail := range map[string]func(){
		"panic":  func() { panic(errors.New("of the holder")) },
		"Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log logbook
				l, _ := join(t, newWorld(), 1, Config{Limit: 2, Logger: log.logger()})
				defer l.stopGoroutines()
				heard := 0
				l.OnRevoke(func(lease.Revocation) { heard++; fail() })
				for range 2 {
					l.revoke(time.Second, errLapsed)
					synctest.Wait()
				}
				require.Equal(t, 2, heard)
				require.Contains(t, log.String(), "a function of OnRevoke failed")
			})
		})
	}
}

// A holder that panics has answered: it gives nothing up.
func TestAHolderThatPanicsClosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := join(t, newWorld(), 1, Config{Limit: 2})
		defer l.stopGoroutines()
		var asked atomic.Int64
		bad := lease.NewHolder(func(int) int { asked.Add(1); panic("of the holder") })
		for range 2 {
			_, err := l.Acquire(lease.WithHolder(t.Context(), bad))
			require.NoError(t, err)
		}
		go func() { _, _ = l.Acquire(lease.WithHolder(t.Context(), lease.NewHolder(nil))) }()
		time.Sleep(20 * time.Second)
		require.Greater(t, asked.Load(), int64(1))
		l.mu.Lock()
		defer l.mu.Unlock()
		require.Equal(t, 2, l.holders.Kept())
	})
}

// Of what waits behind a call that is under way nothing is delivered once stop has
// returned.
func TestAFunctionIsNotCalledBehindStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := join(t, newWorld(), 1, Config{Limit: 2})
		defer l.stopGoroutines()
		for range 50 {
			hold, heard := make(chan struct{}), 0
			stop := l.OnRevoke(func(lease.Revocation) { heard++; <-hold })
			l.revoke(time.Second, errLapsed)
			synctest.Wait()
			l.revoke(time.Second, errLapsed)
			stop()
			close(hold)
			synctest.Wait()
			require.Equal(t, 1, heard)
		}
	})
}
