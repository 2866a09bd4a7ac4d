package prover

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
