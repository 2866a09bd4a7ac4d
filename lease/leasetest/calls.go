package leasetest

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
)

const limit = 3

// errWithdrawn is the cause of a context's end, which its owner has given.
var errWithdrawn = errors.New("withdrawn")

func acquire(t *testing.T, l lease.Leases) func() {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	release, err := l.Acquire(ctx)
	require.NoError(t, err)
	return release
}

// requireWithdrawn is of a call that its context has ended, by a deadline.
func requireWithdrawn(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, lease.ErrLimit)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, errWithdrawn)
}

func refused(t *testing.T, l lease.Leases) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), brief, errWithdrawn)
	defer cancel()
	_, err := l.Acquire(ctx)
	requireWithdrawn(t, err)
	var told *lease.Error
	require.ErrorAs(t, err, &told)
	require.Equal(t, limit, told.Limit)
}

func done(t *testing.T, l lease.Leases) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, l.Close(ctx))
}

// acquireAll takes all that there is.
func acquireAll(t *testing.T, l lease.Leases) (releases []func()) {
	for range limit {
		releases = append(releases, acquire(t, l))
	}
	return releases
}
