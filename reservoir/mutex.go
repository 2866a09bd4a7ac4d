//go:build !invariants

package reservoir

import "sync"

// The reservoir's lock; with the build tag invariants, tests can look into it.
type mutex = sync.Mutex
