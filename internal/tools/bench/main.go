// Command bench measures the reservoir against other pools in one run:
//
//	go run . [-rounds 9] [-work starved] [-quick]
//
// Every round runs all peers of a work one after the other, so that a busy
// machine is busy for all. A line gives the medians and the median of the
// rounds' ratios; below 1 the reservoir is faster. A peer called two_locks is no pool, but
// what locking a mutex twice takes. The works:
//
//	acquire_release  one goroutine, a connection is idle
//	acquire_release_full  the same with MinIdle at MaxSize
//	parallel         32 goroutines, 256 connections
//	starved          128 goroutines, 4 connections, returned at once
//	handoff          the same, but each borrower lets others run: all of them wait
//	handoff_busy     16 goroutines, one connection, which is used for 50us; who has returned it computes
//	                 for 20us: how long it is without its next borrower
//	spike            50 callers at once, 5 idle connections, 150ms to open, 2ms of use
//	expiry           connections that live 200ms and take 20ms to open: what a borrower waits
//	leave_cancel     100,000 callers wait for one connection, all on one context, which is cancelled
//	leave_deadline   the same, each with a context of its own; the deadlines are over at one moment
//
// The last two measure processor time, from the end of the contexts until all
// calls have returned, in a process of its own for each peer and round: the runtime
// gives a new goroutine a stack as large as those of before were. Their WAIT lines give how long others who needed the pool's
// lock waited at most meanwhile, and in parentheses those who only yielded the
// processor: when so many timers fire at once, the runtime lets nobody else run.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"

	"github.com/flightpool/flightpool/internal/tools/bench/guard"
)

func main() {
	rounds := flag.Int("rounds", 9, "rounds of each work")
	only := flag.String("work", "", "the only work to run")
	once := flag.String("once", "", "measure the -work once, at this `peer`, and print nothing but numbers: what the last two works are run as")
	quick := flag.Bool("quick", false, "three rounds of short works; fail where a ratio has grown")
	var g guard.Guard
	flag.StringVar(&g.Path, "write", "", "with -quick: add the ratios to this file")
	flag.Parse()
	if *quick {
		*rounds = 3
	}
	if !slices.ContainsFunc(works, func(w work) bool { return *only == "" || *only == w.name }) {
		fmt.Fprintf(os.Stderr, "bench: there is no work %q; go doc . lists them\n", *only)
		os.Exit(2)
	}
	for _, w := range works {
		switch {
		case *once != "":
			if w.name == *only {
				w.printOnce(*once)
			}
		case *only != "" && *only != w.name:
		case !*quick:
			measure(w, *rounds, func(string, string, float64) {})
		case !w.waits && !w.ages: // which take long
			w.n /= 2
			measure(w, *rounds, g.Check)
		}
	}
	if *quick {
		g.Exit()
	}
}

func measure(w work, rounds int, check func(work, peer string, ratio float64)) {
	peers := slices.DeleteFunc(slices.Clone(peers), func(p peer) bool { return w.ages && !p.ages || p.limit && !w.locks })
	mine := make([]result, 0, rounds)
	theirs := make([][]result, len(peers))
	for round := range rounds + 1 {
		m := w.measure(ours)
		if round > 0 { // the first only warms up
			mine = append(mine, m)
		}
		for i, p := range peers {
			t := w.measure(p)
			if round > 0 {
				theirs[i] = append(theirs[i], t)
			}
		}
	}
	value := func(r result) float64 { return r.value }
	for i, p := range peers {
		ratios := make([]float64, rounds)
		for round := range ratios {
			ratios[round] = mine[round].value / theirs[i][round].value
		}
		fmt.Printf("BENCH %s %s ratio=%.3f ours=%.1f peer=%.1f unit=%s\n",
			w.name, p.name, median(ratios), median(each(mine, value)), median(each(theirs[i], value)), w.unit)
		check(w.name, p.name, median(ratios))
	}
	if w.waits {
		printWaits(w, mine, peers, theirs)
		return
	}
	fmt.Printf("ALLOCS %s %.4f per operation\n", w.name, median(each(mine, func(r result) float64 { return r.allocs })))
	fmt.Printf("OPENS %s %.0f\n", w.name, median(each(mine, func(r result) float64 { return float64(r.opens) })))
}

// printWaits prints the longest waits for the lock, and in parentheses those of
// who only yields the processor.
func printWaits(w work, mine []result, peers []peer, theirs [][]result) {
	longest := func(rs []result) string {
		wait, yield := 0.0, 0.0
		for _, r := range rs {
			wait, yield = max(wait, r.wait), max(yield, r.yield)
		}
		return fmt.Sprintf("%.1f(%.1f)", wait, yield)
	}
	fmt.Printf("WAIT %s ours=%s", w.name, longest(mine))
	for i, p := range peers {
		fmt.Printf(" %s=%s", p.name, longest(theirs[i]))
	}
	fmt.Println(" unit=ms")
}

func each(rs []result, f func(result) float64) []float64 {
	values := make([]float64, len(rs))
	for i, r := range rs {
		values[i] = f(r)
	}
	return values
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
