//go:build !race && !invariants

package flightconn

// poisonFreed says whether bodies are overwritten when they are freed.
const poisonFreed = false
