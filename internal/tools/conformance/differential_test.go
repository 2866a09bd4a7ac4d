//go:build duckdb_arrow

package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shortProof is how many programs run without PROVE.
const shortProof = 20

// TestProveDifferential runs random programs through the pool, one that keeps statements, arrow-go's client
// and ADBC's driver, each on a DuckDB of its own, and compares every result, and
// the databases afterwards. PROVE says for how long, PROVE_SEED which program is
// the first.
func TestProveDifferential(t *testing.T) {
	enough := func(n int, _ time.Duration) bool { return n >= shortProof }
	if text := os.Getenv("PROVE"); text != "" {
		limit, err := time.ParseDuration(text)
		require.NoError(t, err, "PROVE is a duration, for example 10m")
		enough = func(_ int, took time.Duration) bool { return took >= limit }
	}
	first, _ := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64)
	d := &differential{t: t, next: first, first: first, start: time.Now(), enough: enough}
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		ps := startPeers(t)
		workers.Go(func() { d.work(ps) })
	}
	workers.Wait()
	fmt.Printf("PROVE differential programs=%d differences=%d steps=%d seed=%d\n", d.next-first, d.differing, d.steps, first)
}

// differential is the state that the workers share.
type differential struct {
	t      *testing.T
	enough func(n int, took time.Duration) bool
	first  uint64
	start  time.Time

	mu               sync.Mutex
	next             uint64
	steps, differing int
}

// work runs programs until there are enough. One that differs is made smaller
// and reported, the first ten of them.
func (d *differential) work(ps peers) {
	for {
		seed, ok := d.take()
		if !ok {
			return
		}
		p := generate(seed)
		diffs, err := ps.differences(d.t.Context(), p)
		if err != nil {
			d.t.Errorf("seed %d: %v\n%s", seed, err, p)
			return
		}
		if d.count(len(p), len(diffs) > 0) {
			small := ps.minimise(d.t.Context(), p)
			diffs, err = ps.differences(d.t.Context(), small)
			d.t.Errorf("seed %d, made smaller:\n%s\n%s\n%v", seed, small, strings.Join(diffs, "\n"), err)
		}
	}
}

func (d *differential) take() (seed uint64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.enough(int(d.next-d.first), time.Since(d.start)) {
		return 0, false
	}
	d.next++
	return d.next - 1, true
}

// count reports whether the program is one of the first that differ.
func (d *differential) count(steps int, differs bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.steps += steps
	if differs {
		d.differing++
	}
	return differs && d.differing <= 10
}

// TestScriptsOfDifferences runs the programs in testdata, which differed once.
func TestScriptsOfDifferences(t *testing.T) {
	files, err := filepath.Glob("testdata/differential/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	ps := startPeers(t)
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			p, err := parse(string(text))
			require.NoError(t, err)
			diffs, err := ps.differences(t.Context(), p)
			require.NoError(t, err)
			require.Empty(t, diffs)
		})
	}
}

func TestAProgramIsReadAsItIsWritten(t *testing.T) {
	for seed := range uint64(300) {
		text := generate(seed).String()
		p, err := parse(text)
		require.NoError(t, err)
		require.Equal(t, text, p.String())
		for _, s := range p {
			_, err := s.with.batch()
			require.NoError(t, err, s.String())
		}
	}
}
