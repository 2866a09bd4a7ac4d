//go:build invariants && linux && race

package reservoir

const underRace = 1
