// Package backoff is for pauses between attempts.
package backoff

import (
	"context"
	"time"
)

// Doubled is first doubled as often as times says, but at most longest.
func Doubled(first, longest time.Duration, times int) time.Duration {
	if times > 62 || first > longest>>times {
		return longest
	}
	return first << times
}

// Sleep waits for d, or until ctx ends. It returns the error of a ctx that has ended.
func Sleep(ctx context.Context, d time.Duration) error {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}
