package lease

import "context"

// Admit joins two budgets into the permission for one open: first a lease,
// then a permit, since waiting for a permit with a lease in hand costs the
// fleet no rate, while a permit that waits for a lease is spent. When the
// permit fails, or the lease was lost meanwhile, the lease is released before
// Admit's function returns. Either budget may be nil.
//
// The release function must be called after the connection's Close has
// returned, or when the open failed. It is never nil without an error, does
// not block, and does nothing the second time.
func Admit(leases Leases, limiter Limiter) func(ctx context.Context) (release func(), err error) {
	return func(ctx context.Context) (func(), error) {
		release := func() {}
		if leases != nil {
			var err error
			if release, err = leases.Acquire(ctx); err != nil {
				return nil, err
			}
		}
		if limiter == nil {
			return release, nil
		}
		granted := false
		defer func() {
			if !granted { // an error, or a panic in the limiter
				release()
			}
		}()
		if err := limiter.Wait(ctx); err != nil {
			return nil, err
		}
		if l, ok := leases.(Revoker); ok {
			if err := l.Valid(); err != nil {
				return nil, err
			}
		}
		granted = true
		return release, nil
	}
}
