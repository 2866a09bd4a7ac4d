package fleet

import "time"

// instant is a moment by both clocks of this process. The monotonic one may stand still
// while the machine is suspended; the wall clock may be set. What must not come too
// early, such as to take somebody for dead, goes by the clock that says less, and what
// must not come too late, such as the end of a validity, by the one that says more.
// Instants of two processes are never compared.
type instant struct{ mono, wall time.Duration }

// since is how long ago then is at least, and at most: by whichever clock says less,
// and more. A negative least says that a clock was set back.
func (i instant) since(then instant) (least, most time.Duration) {
	mono, wall := i.mono-then.mono, i.wall-then.wall
	return min(mono, wall), max(mono, wall)
}

func (i instant) add(d time.Duration) instant { return instant{i.mono + d, i.wall + d} }

// before reports whether both clocks say that i is before then.
func (i instant) before(then instant) bool { return i.mono < then.mono && i.wall < then.wall }

// until is how long it is to then by whichever clock says less.
func (i instant) until(then instant) time.Duration {
	return min(then.mono-i.mono, then.wall-i.wall)
}

// processClock is the real clock.
func processClock() func() instant {
	start := time.Now()
	return func() instant {
		now := time.Now()
		return instant{mono: now.Sub(start), wall: time.Duration(now.UnixNano())}
	}
}
