package prover

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// programs are run without PROVE.
const programs = 60

// TestProveSessions runs random programs, one for each seed.
func TestProveSessions(t *testing.T) {
	first, err := strconv.ParseUint(envOr("PROVE_SEED", "1"), 10, 64)
	require.NoError(t, err)
	limit, err := time.ParseDuration(envOr("PROVE", "0s"))
	require.NoError(t, err)
	began := time.Now()
	var next, broken atomic.Uint64
	more := func() (seed uint64, ok bool) {
		n := next.Add(1) - 1
		if limit == 0 {
			return first + n, n < programs
		}
		return first + n, time.Since(began) < limit
	}
	var mu sync.Mutex
	kinds := map[string]uint64{} // the first seed of each
	t.Run("workers", func(t *testing.T) {
		for i := range 2 {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				for seed, ok := more(); ok; seed, ok = more() {
					found := execute(t, generate(seed))
					if len(found) == 0 {
						continue
					}
					broken.Add(1)
					mu.Lock()
					for _, v := range found {
						name := v.kind + " on " + generate(seed).profile
						if _, known := kinds[name]; !known {
							kinds[name] = seed
							t.Errorf("seed %d: %s\n%s", seed, v, minimise(t, generate(seed), v.kind))
						}
					}
					mu.Unlock()
				}
			})
		}
	})
	fmt.Printf("PROVE sessions programs=%d violations=%d seed=%d\n", next.Load()-2, broken.Load(), first)
	if broken.Load() > 0 {
		t.Errorf("%d programs break promises; the first of each kind: %v", broken.Load(), kinds)
	}
}

// minimise leaves out steps while the program still breaks a promise of the kind.
func minimise(t *testing.T, p program, kind string) program {
	breaks := func(p program) bool {
		for range 3 { // goroutines are not scheduled alike
			if slices.ContainsFunc(execute(t, p), func(v violation) bool { return v.kind == kind }) {
				return true
			}
		}
		return false
	}
	for size := max(1, len(p.steps)/2); size > 0; size /= 2 {
		for at := 0; at+size <= len(p.steps); {
			smaller := p
			smaller.steps = slices.Delete(slices.Clone(p.steps), at, at+size)
			if breaks(smaller) {
				p = smaller
			} else {
				at += size
			}
		}
	}
	for i := range p.steps {
		plain := p
		plain.steps = slices.Clone(p.steps)
		plain.steps[i].within = 0
		if p.steps[i].within > 0 && breaks(plain) {
			p = plain
		}
	}
	return p
}

func envOr(name, byDefault string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return byDefault
}

// TestProgramsThatHaveBrokenPromises runs those of testdata.
func TestProgramsThatHaveBrokenPromises(t *testing.T) {
	files, err := filepath.Glob("testdata/*.prog")
	require.NoError(t, err)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			p, err := parse(string(text))
			require.NoError(t, err)
			require.Empty(t, execute(t, p), "%s", p)
		})
	}
}

func TestAProgramIsItsText(t *testing.T) {
	for seed := range uint64(200) {
		p := generate(seed)
		again, err := parse(p.String())
		require.NoError(t, err)
		require.Equal(t, p.String(), again.String())
	}
}
