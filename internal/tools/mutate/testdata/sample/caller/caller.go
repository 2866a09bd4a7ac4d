// Package caller uses the package with the mutants.
package caller

import "github.com/flightpool/flightpool/internal/tools/mutate/testdata/sample"

// Next is the number behind n.
func Next(n int) int { return sample.Unused(n) }
