// Package invariant states what must always be true, and looks when asked to.
//
// Under the race detector, or with the build tag "invariants", Enabled is true
// and Check panics when its condition does not hold. In every other build
// Enabled is a false constant, and code inside "if invariant.Enabled" is not
// compiled at all: put the arithmetic of a check in there.
package invariant
