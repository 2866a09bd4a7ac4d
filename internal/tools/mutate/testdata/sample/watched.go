//go:build invariants

package sample

// Watched is there for tests.
func Watched(n int) int { return n + 1 }
