//go:build race

package reservoir

const underRace = 1
