// Command calls measures whole calls against other Flight SQL clients in one
// run, over loopback TCP:
//
//	go run ./calls [-rounds 7] [-work select1_8] [-peer arrow-go_client] [-quick] [-plot FILE]
//
// The server is a process of its own that sends again what it has encoded once
// (nullserver.go, over frameserver.go), so that it is not what is measured. Each run of a work by a
// peer is a process of its own too: its processor time and allocations are that
// peer's alone.
//
// Every round runs all peers of a work one after the other, so that a busy
// machine is busy for all. A line gives the medians and the median of the
// rounds' ratios, by the clock and by the process's CPU time; below 1 the pool
// is faster. The works:
//
//	select1_1, select1_8, select1_64  SELECT 1 and its one row, from so many goroutines, on at most 8 connections
//	select1_8_deadline                the same, each call with a deadline
//	params_8                          the same with a parameter, by a prepared statement for each call
//	params_8_kept                     the same, with Config.StatementCache
//	prepared_8                        the same by one that each goroutine has prepared before
//	fetch_2k, 16k, 64k, 256k          two BIGINT columns in batches of so many rows, one reader
//	fetch_wide                        40 columns of ten types in batches of 16k rows
//	fetch_4_endpoints                 fetch_16k's batches from four endpoints
//	structs                           8k rows of a BIGINT, a text, a DOUBLE and a TIMESTAMP into structs; by hand where
//	                                  a client knows none
//	sql_select1_8, sql_rows           select1_8, and the rows of structs, by database/sql over each one's driver
//	ingest                            fetch_16k's batches into a table
//
// Two peers of the fetches are limits, not clients: what the same bytes take by a bare TCP connection into
// one buffer, and by a gRPC stream whose messages nobody looks at (limits.go).
package main

import (
	"bufio"
	"cmp"
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

	"github.com/flightpool/flightpool/internal/tools/bench/guard"
)

func main() {
	rounds := flag.Int("rounds", 7, "rounds of each work")
	onlyWork := flag.String("work", "", "the only work to run")
	onlyPeer := flag.String("peer", "", "the only peer to compare with")
	serving := flag.Bool("serve", false, "be the server, until standard input ends")
	quick := flag.Bool("quick", false, "three rounds of all works against arrow-go's client; fail where a ratio of CPU time has grown")
	var g guard.Guard
	flag.StringVar(&g.Path, "write", "", "with -quick: add the ratios to this file")
	picture := flag.String("plot", "", "draw the times as a picture (SVG) into this file")
	uri := flag.String("uri", "", "be the client: run the work by the peer once, against this server")
	flag.Parse()
	switch {
	case *serving:
		serve()
		return
	case *uri != "":
		runOnce(*onlyWork, *onlyPeer, *uri)
		return
	}
	known("work", *onlyWork, each(works, func(w work) string { return w.name }))
	known("peer", *onlyPeer, each(peers, func(p peer) string { return p.name }))
	server, stop := startServer()
	defer stop()
	check := func(string, string, float64) {}
	if *quick {
		*rounds, *onlyPeer, check = 3, peers[1].name, g.Check
	}
	var measured []plotted
	for _, w := range works {
		if *onlyWork == "" || *onlyWork == w.name {
			measured = append(measured, measure(w, *onlyPeer, server, *rounds, check))
		}
	}
	writePlot(*picture, measured)
	if *quick {
		stop()
		g.Exit()
	}
}

// known ends the program where name, if any, is none of names.
func known(what, name string, names []string) {
	if name != "" && !slices.Contains(names, name) {
		fmt.Fprintf(os.Stderr, "calls: there is no %s %q; there are %s\n", what, name, strings.Join(names, ", "))
		os.Exit(2)
	}
}

// startServer starts this program again as the server.
func startServer() (uri string, stop func()) {
	cmd := self("-serve")
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

func self(args ...string) *exec.Cmd {
	path, err := os.Executable()
	must(err)
	cmd := exec.Command(path, args...)
	cmd.Stderr = os.Stderr
	return cmd
}

// A result is one measurement.
type result struct {
	value  float64 // in the work's unit
	cpu    float64 // of the process, in the work's unit
	allocs float64 // objects of the process, per call or batch
	kb     float64 // the same in KB
}

// runOnce is the client's process: it prints its result.
func runOnce(workName, peerName, uri string) {
	w := works[slices.IndexFunc(works, func(w work) bool { return w.name == workName })]
	p := peers[slices.IndexFunc(peers, func(p peer) bool { return p.name == peerName })]
	r := w.run(p, uri)
	fmt.Println(r.value, r.cpu, r.allocs, r.kb)
}

// child runs a work by a peer in a process of its own.
func child(w work, p peer, uri string) result {
	cmd := self("-work", w.name, "-peer", p.name, "-uri", uri)
	cmd.Env = append(os.Environ(), p.env...)
	out, err := cmd.Output()
	must(err)
	var r result
	_, err = fmt.Sscan(string(out), &r.value, &r.cpu, &r.allocs, &r.kb)
	must(err)
	return r
}

func measure(w work, onlyPeer, uri string, rounds int, check func(work, peer string, ratio float64)) plotted {
	var against []peer // ours first
	for i, p := range peers {
		if i == 0 || (onlyPeer == "" || onlyPeer == p.name) && p.kind&cmp.Or(w.against, flightClients) != 0 {
			against = append(against, p)
		}
	}
	results := make([][]result, len(against))
	for round := range rounds + 1 {
		for i, p := range against {
			if r := child(w, p, uri); round > 0 { // the first only warms up
				results[i] = append(results[i], r)
			}
		}
	}
	for i, p := range against {
		wall, cpu := make([]float64, rounds), make([]float64, rounds)
		for round, theirs := range results[i] {
			wall[round] = results[0][round].value / theirs.value
			cpu[round] = results[0][round].cpu / theirs.cpu
		}
		mid := func(of int, f func(result) float64) float64 { return median(each(results[of], f)) }
		value := func(r result) float64 { return r.value }
		allocs := func(r result) float64 { return r.allocs }
		kb := func(r result) float64 { return r.kb }
		fmt.Printf("BENCH %s %s ratio=%.2f cpu_ratio=%.2f ours=%.1f peer=%.1f unit=%s allocs=%.0f peer_allocs=%.0f kb=%.1f peer_kb=%.1f\n",
			w.name, p.name, median(wall), median(cpu), mid(0, value), mid(i, value), w.unit,
			mid(0, allocs), mid(i, allocs), mid(0, kb), mid(i, kb))
		if i > 0 {
			check(w.name, p.name, median(cpu))
		}
	}
	return partsOf(w, against, results)
}

// partsOf is what each peer took in parts of what arrow-go's client did, if that ran.
func partsOf(w work, against []peer, results [][]result) plotted {
	parts := map[string]float64{}
	bare := slices.IndexFunc(against, func(p peer) bool { return p.name == peers[1].name })
	for i, p := range against {
		if bare < 0 {
			break
		}
		ratios := make([]float64, len(results[i]))
		for round := range ratios {
			ratios[round] = results[i][round].value / results[bare][round].value
		}
		parts[p.name] = median(ratios)
	}
	return plotted{w.name, parts}
}

// timed runs what makes so many calls, or gets so many batches, and tells what
// each of n units took; ns is the unit.
func timed(calls, n int, ns float64, run func(ctx context.Context)) result {
	runtime.GC()
	objects, bytes := allocated()
	cpu, began := cpuTime(), time.Now()
	run(context.Background())
	took, used := time.Since(began), cpuTime()-cpu
	objectsNow, bytesNow := allocated()
	return result{
		value:  float64(took.Nanoseconds()) / ns / float64(n),
		cpu:    float64(used.Nanoseconds()) / ns / float64(n),
		allocs: float64(objectsNow-objects) / float64(calls),
		kb:     float64(bytesNow-bytes) / float64(calls) / 1000,
	}
}

// cpuTime is what this process has used so far. Unlike a wall clock it does
// not count what others do on the same machine.
func cpuTime() time.Duration {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func allocated() (objects, bytes uint64) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs, m.TotalAlloc
}

func each[T, V any](rs []T, f func(T) V) []V {
	values := make([]V, len(rs))
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
