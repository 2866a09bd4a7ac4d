package mutate

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// target is a package, the score that it must have, and the packages that call it whose
// tests are asked too, where those of its own notice nothing: what needs a server to be seen.
type target struct {
	pkg     string
	score   float64
	callers []string
}

// proven are the packages of make prove.
var proven = []target{
	{"cancel", 0.90, nil},
	{"lease", 0.90, nil},
	{"internal/sqlscan", 0.90, nil},
	{"session", 0.90, []string{"flightpool"}},
	{"reservoir", 0.90, nil},
	{"internal/flightconn", 0, nil},
	{"internal/grpcconn", 0, nil},
}

// tally is what became of a package's mutants.
type tally struct {
	mu        sync.Mutex
	tested    map[Verdict]int
	explained int
	files     map[string]*tally
}

func newTally() *tally { return &tally{tested: map[Verdict]int{}, files: map[string]*tally{}} }

// score leaves out the mutants that are explained: no test could kill them.
func (c *tally) score() float64 {
	return float64(c.tested[Killed]+c.tested[TimedOut]) / float64(max(1, c.total()-c.explained))
}

// margin is how far the score of all mutants may be from that of the sample, in
// 19 of 20 samples.
func (c *tally) margin(mutants int) float64 {
	n, p := float64(max(1, c.total())), c.score()
	left := 1 - n/float64(max(1, mutants))
	return 1.96 * math.Sqrt(left*p*(1-p)/n)
}

// TestProveMutation changes the packages one place at a time. PROVE says for
// how long (without it: the smallest package only, whole), PROVE_SEED in which
// order, PROVE_SAMPLE how many of each package (without it: as many as the time
// allows), PROVE_MUTATE which packages, by commas, and PROVE_FILES of which of
// their files, such as undo.go,tx.go (without it: all).
func TestProveMutation(t *testing.T) {
	packages := proven[:1]
	var limit time.Duration
	if text := os.Getenv("PROVE"); text != "" {
		var err error
		limit, err = time.ParseDuration(text)
		require.NoError(t, err, "PROVE is a duration, for example 10m")
		packages = proven
	}
	if only := os.Getenv("PROVE_MUTATE"); only != "" {
		names := strings.Split(only, ",")
		packages = slices.DeleteFunc(slices.Clone(proven), func(p target) bool { return !slices.Contains(names, p.pkg) })
		require.Len(t, packages, len(names), "PROVE_MUTATE is a list of packages among %v", proven)
	}
	seed, _ := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64)
	if limit > 0 { // a short run is for the first packages, which are the smallest
		packages = packages[:min(len(packages), max(1, int(limit/leastShare)))]
	}
	end := time.Now().Add(limit)
	all := newTally()
	names, mutants := []string{}, 0
	for i, p := range packages {
		// What is left of the time is shared by the packages that are left.
		ctx := t.Context()
		if limit > 0 {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, time.Until(end)/time.Duration(len(packages)-i))
			defer stop()
		}
		c, n := prove(ctx, t, p, seed)
		if p.score > 0 {
			all.join(c)
			names, mutants = append(names, p.pkg), mutants+n
		}
	}
	fmt.Printf("PROVE mutation score=%.3f±%.3f tested=%d mutants=%d packages=%s seed=%d\n", all.score(), all.margin(mutants), all.total(), mutants, strings.Join(names, ","), seed)
}

// leastShare is what a package must have: its tests are built and each is
// measured before the first mutant is tried.
const leastShare = 30 * time.Second

// join adds the figures of another package.
func (c *tally) join(o *tally) {
	for v, n := range o.tested {
		c.tested[v] += n
	}
	c.explained += o.explained
}

// total is how many mutants were tried.
func (c *tally) total() (n int) {
	for _, k := range c.tested {
		n += k
	}
	return n
}

// prove returns what became of a package's mutants, and how many there are.
func prove(ctx context.Context, t *testing.T, target target, seed uint64) (*tally, int) {
	pkg, callers := target.pkg, []string{}
	for _, c := range target.callers {
		callers = append(callers, folder(c))
	}
	m, err := Build(folder(pkg), t.TempDir(), "duckdb_arrow,invariants", callers...)
	require.NoError(t, err)
	s, err := m.Measure(t.Context()) // at least this is done, however short the time
	require.NoError(t, err)
	require.Empty(t, s.Broken, "these tests fail without a mutant of %s", pkg)
	for _, key := range unmatched(pkg, m.Points) {
		t.Errorf("explained.txt names what is no mutant of %s: %s", pkg, key)
	}
	points := pointsOf(t, m, os.Getenv("PROVE_FILES"))
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	mutants := len(points)
	if size, _ := strconv.Atoi(os.Getenv("PROVE_SAMPLE")); size > 0 {
		points = points[:min(size, mutants)]
	}
	c := tryAll(ctx, t, s, pkg, points)
	n := c.total()
	for _, file := range slices.Sorted(maps.Keys(c.files)) {
		f := c.files[file]
		t.Logf("%s: score %.3f of %d", file, f.score(), f.total())
	}
	fmt.Printf("PROVE mutation %s score=%.3f±%.3f mutants=%d tested=%d killed=%d timed_out=%d survived=%d unreached=%d explained=%d seed=%d\n",
		pkg, c.score(), c.margin(mutants), mutants, n, c.tested[Killed], c.tested[TimedOut], c.tested[Survived], c.tested[Unreached], c.explained, seed)
	if n >= 50 && c.score() < target.score {
		t.Errorf("%s: score %.3f, at least %.2f is wanted: kill the survivors above or explain them in explained.txt", pkg, c.score(), target.score)
	}
	return c, mutants
}

// folder is where a package of the module stands, seen from here.
func folder(pkg string) string { return filepath.Join("..", "..", "..", pkg) }

// pointsOf are the mutants of the files, which are named by commas; of all
// without a name.
func pointsOf(t *testing.T, m *Mutants, files string) []Point {
	if files == "" {
		return slices.Clone(m.Points)
	}
	names := strings.Split(files, ",")
	points := slices.DeleteFunc(slices.Clone(m.Points), func(p Point) bool { return !slices.Contains(names, p.File) })
	require.NotEmpty(t, points, "PROVE_FILES=%s names no file with mutants", files)
	return points
}

// tryAll tries the points, two at a time for each processor, until ctx
// ends.
func tryAll(ctx context.Context, t *testing.T, s *Suite, pkg string, points []Point) *tally {
	c := newTally()
	work := make(chan Point)
	var workers sync.WaitGroup
	for range 2 * runtime.NumCPU() { // many mutants only wait
		workers.Go(func() {
			for p := range work {
				v, err := s.Try(ctx, p)
				if ctx.Err() != nil {
					continue // it was cut off
				}
				if err != nil {
					t.Error(err)
				}
				if c.add(v, p, pkg) {
					t.Logf("%s:%d %s %s", p.File, p.Line, v, p.Key(pkg))
				}
			}
		})
	}
	for _, p := range points {
		if ctx.Err() != nil {
			break
		}
		work <- p
	}
	close(work)
	workers.Wait()
	return c
}

// add counts what became of a mutant. It reports whether that wants a test or an
// explanation.
func (c *tally) add(v Verdict, p Point, pkg string) (alive bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files[p.File] == nil {
		c.files[p.File] = newTally()
	}
	for _, c := range []*tally{c, c.files[p.File]} {
		c.tested[v]++
		switch {
		case v == Killed || v == TimedOut:
		case explained[p.Key(pkg)] != "":
			c.explained++
		default:
			alive = true
		}
	}
	return alive
}
