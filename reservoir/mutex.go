//go:build !invariants

package reservoir

import "sync"

// mutex is the reservoir's lock; with the build tag invariants, tests can look into it.
type mutex = sync.Mutex
