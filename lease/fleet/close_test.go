package fleet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
)

// Close is bounded by its context, whatever a function does that was
// registered.
func TestCloseEndsWithItsContextThoughAHolderIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		l, _ := join(t, w, 1, Config{Limit: 2})
		hold := make(chan struct{})
		l.OnRevoke(func(lease.Revocation) { <-hold })
		l.revoke(time.Second, errLapsed)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- l.Close(ctx) }()
		var err error
		ended := true
		select {
		case err = <-done:
		case <-time.After(time.Minute):
			ended = false
		}
		close(hold)
		if !ended {
			<-done
		}
		require.True(t, ended, "Close went on for a minute")
		require.NoError(t, err)
		require.Zero(t, w.used())
	})
}
