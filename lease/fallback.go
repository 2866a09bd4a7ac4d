package lease

import (
	"math"
	"strconv"
)

// Fallback is what a fleet's budget grants while its keeper cannot be
// reached. Its zero value is Pessimistic.
type Fallback struct {
	most int // INVARIANT: >= 0; math.MaxInt means without bound
}

// Pessimistic grants nothing: the limit holds whatever happens, and no
// connection is opened until the keeper answers again.
func Pessimistic() Fallback { return Fallback{} }

// Share lets this process have n connections (for a Limiter: n opens per
// second), counting those it already has. One that has more keeps them, one for
// one. The limit holds while what each process has, or its share if that is
// more, adds up to no more. n <= 0 is Pessimistic.
func Share(n int) Fallback { return Fallback{most: max(n, 0)} }

// Optimistic grants everything and leaves the limit to the server.
func Optimistic() Fallback { return Fallback{most: math.MaxInt} }

// Allows is how many connections, or opens per second, the fallback lets one
// process have: 0 for Pessimistic, math.MaxInt for Optimistic.
func (f Fallback) Allows() int { return f.most }

func (f Fallback) String() string {
	switch f.most {
	case 0:
		return "Pessimistic"
	case math.MaxInt:
		return "Optimistic"
	default:
		return "Share(" + strconv.Itoa(f.most) + ")"
	}
}
