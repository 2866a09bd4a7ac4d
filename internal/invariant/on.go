//go:build invariants

package invariant

import "fmt"

// Enabled says whether Check looks.
const Enabled = true

// Check panics with the message when holds is false.
func Check(holds bool, format string, args ...any) {
	if !holds {
		panic("invariant broken: " + fmt.Sprintf(format, args...))
	}
}
