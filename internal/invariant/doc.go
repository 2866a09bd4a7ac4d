// Package invariant states what must always be true, and looks when asked to.
//
// With the build tag "invariants", which the project's own tests have (make
// test), Enabled is true and Check panics when its condition does not hold. In
// every other build, also of users under the race detector,
// Enabled is a false constant, and code inside "if invariant.Enabled" is not
// compiled at all: put the arithmetic of a check in there.
package invariant
