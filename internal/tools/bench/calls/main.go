// Command calls measures whole calls against other Flight SQL clients in one
// run, over loopback TCP against a server in a process of its own that
// answers at once:
//
//	go run ./calls [-rounds 7] [-work small_8]
//
// Every round runs all peers of a work one after the other, so that a busy
// machine is busy for all. A line gives the medians and the median of the
// rounds' ratios, by the clock and by this process's CPU time; below 1 the pool
// is faster. The works:
//
//	small_1, small_8, small_64   SELECT 1 and its one row, from so many goroutines, on at most 8 connections
//	stream                       6 million rows of one BIGINT in batches of 16384, one reader
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/flightpool/flightpool/testserver"
)

func main() {
	rounds := flag.Int("rounds", 7, "rounds of each work")
	only := flag.String("work", "", "the only work to run")
	serving := flag.Bool("serve", false, "be the server, until standard input ends")
	flag.Parse()
	if *serving {
		serve()
		return
	}
	uri, stop := child()
	defer stop()
	for _, w := range works {
		if *only == "" || *only == w.name {
			measure(w, uri, *rounds)
		}
	}
}

// serve prints where it listens.
func serve() {
	srv, err := testserver.Start(testserver.Options{})
	must(err)
	fmt.Println(srv.URI())
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // its end is the parent's
	must(srv.Close())
}

// child starts this program again as the server.
func child() (uri string, stop func()) {
	self, err := os.Executable()
	must(err)
	cmd := exec.Command(self, "-serve")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(err)
	out, err := cmd.StdoutPipe()
	must(err)
	must(cmd.Start())
	uri, err = bufio.NewReader(out).ReadString('\n')
	must(err)
	return strings.TrimSpace(uri), func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
}

// A result is one measurement.
type result struct {
	value  float64 // in the work's unit
	allocs float64 // of this process, per call
	cpu    float64 // of this process, in the work's unit
}

func measure(w work, uri string, rounds int) {
	results := make([][]result, len(peers))
	for round := range rounds + 1 {
		for i, p := range peers {
			r := w.run(p, uri)
			if round > 0 { // the first only warms up
				results[i] = append(results[i], r)
			}
		}
	}
	mine := results[0]
	for i, p := range peers {
		wall, cpu := make([]float64, rounds), make([]float64, rounds)
		for round, theirs := range results[i] {
			wall[round] = mine[round].value / theirs.value
			cpu[round] = mine[round].cpu / theirs.cpu
		}
		fmt.Printf("BENCH %s %s ratio=%.2f cpu_ratio=%.2f value=%.1f cpu=%.1f unit=%s allocs=%.0f\n",
			w.name, p.name, median(wall), median(cpu),
			median(each(results[i], func(r result) float64 { return r.value })),
			median(each(results[i], func(r result) float64 { return r.cpu })), w.unit,
			median(each(results[i], func(r result) float64 { return r.allocs })))
	}
}

// timed runs calls and tells what each unit of n took; ns is the unit.
func timed(calls, n int, ns float64, run func(ctx context.Context)) result {
	runtime.GC()
	objects, cpu, began := mallocs(), cpuTime(), time.Now()
	run(context.Background())
	took, used := time.Since(began), cpuTime()-cpu
	return result{
		value:  float64(took.Nanoseconds()) / ns / float64(n),
		cpu:    float64(used.Nanoseconds()) / ns / float64(n),
		allocs: float64(mallocs()-objects) / float64(calls),
	}
}

// cpuTime is what this process has used so far. Unlike a wall clock it does
// not count what others do on the same machine.
func cpuTime() time.Duration {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
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

func must(err error) {
	if err != nil {
		panic(err)
	}
}
