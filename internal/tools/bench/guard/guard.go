// Package guard compares ratios of the benchmarks with those that are committed.
package guard

import (
	_ "embed"
	"fmt"
	"os"
	"strings"
)

// room is how many times the committed ratio one may be: what scatters from run to run on a
// machine that is busy with others. What the guard is for is a work that has become a multiple
// slower; allocations are guarded exactly (calls/allocates_test.go).
const room = 1.6

// ratios has "WORK PEER RATIO" in each line.
//
//go:embed ratios.txt
var ratios string

// A Guard is told what was measured. Without Path it compares it, with Path it adds it there.
type Guard struct {
	Path   string
	slower int
}

// Check compares a ratio with the committed one. A work that has none is not guarded.
func (g *Guard) Check(work, peer string, ratio float64) {
	if g.Path != "" {
		f, err := os.OpenFile(g.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = fmt.Fprintf(f, "%s %s %.2f\n", work, peer, ratio)
			_ = f.Close()
		}
		if err != nil {
			panic(err)
		}
		return
	}
	for line := range strings.Lines(ratios) {
		var w, p string
		var committed float64
		if n, _ := fmt.Sscan(line, &w, &p, &committed); n == 3 && w == work && p == peer && ratio > committed*room {
			g.slower++
			fmt.Printf("SLOWER %s %s ratio=%.2f committed=%.2f\n", work, peer, ratio, committed)
		}
	}
}

// Exit ends the process, with an error if anything was slower.
func (g *Guard) Exit() {
	if g.slower > 0 {
		os.Exit(1)
	}
	os.Exit(0)
}
