package prover

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestProveSessions runs random programs, one for each seed. With PROVE it does
// so in a process for each processor: a bubble's goroutines wake each other all
// the time, which costs a third more across processors.
func TestProveSessions(t *testing.T) {
	first, err := strconv.ParseUint(envOr("PROVE_SEED", "1"), 10, 64)
	require.NoError(t, err)
	much, err := amountOf(envOr("PROVE", "60x"))
	require.NoError(t, err)
	if name := os.Getenv("PROVE_PROFILE"); name != "" {
		_, err := profileOf(name)
		require.NoError(t, err, "PROVE_PROFILE")
	}
	share, ofShares := uint64(0), uint64(1)
	if text := os.Getenv(workerVar); text != "" {
		_, err := fmt.Sscanf(text, "%d/%d", &share, &ofShares)
		require.NoError(t, err)
	} else if os.Getenv("PROVE") != "" {
		ofShares = uint64(runtime.GOMAXPROCS(0))
	}
	var done, broken uint64
	if ofShares > 1 && os.Getenv(workerVar) == "" {
		done, broken = runWorkers(t, first, ofShares, much)
	} else {
		done, broken = work(t, first, share, ofShares, much)
	}
	if os.Getenv(workerVar) == "" {
		fmt.Printf("PROVE sessions programs=%d violations=%d seed=%d profile=%s\n", done, broken, first, envOr("PROVE_PROFILE", "all"))
	} else {
		fmt.Printf(workerLine, done, broken)
	}
}

// workerVar says "1/2" to the second worker of two: every second seed is its.
//
// firstVar ends a run with the first program that breaks a promise.
const (
	firstVar   = "PROVE_FIRST"
	workerVar  = "PROVE_WORKER"
	workerLine = "worker programs=%d violations=%d\n"
)

// inOneProcess is how many programs a process runs, which are a minute's or two's. A bubble that
// ends while gRPC's client within an abandoned call of ADBC's driver has timers set is never freed,
// one in a hundred: an hour of them took 9 GB.
const inOneProcess = 20_000

// runWorkers runs this test in processes of one processor each, n at a time.
func runWorkers(t *testing.T, first, n uint64, much amount) (done, broken uint64) {
	var mu sync.Mutex
	var all sync.WaitGroup
	began := time.Now()
	for i := range n {
		all.Go(func() {
			for from := uint64(0); ; from += inOneProcess * n {
				left, ok := much.without(from, time.Since(began))
				if !ok {
					return
				}
				programs, violations, err := runWorker(t, first+from, fmt.Sprintf("%d/%d", i, n), left)
				mu.Lock()
				done, broken = done+programs, broken+violations
				if err != nil {
					t.Errorf("worker %d of %d: %v", i, n, err)
				}
				mu.Unlock()
				if programs < inOneProcess { // all of them, or until the first violation
					return
				}
			}
		})
	}
	all.Wait()
	return done, broken
}

// runWorker runs this test in a process, from a seed on.
func runWorker(t *testing.T, first uint64, share, much string) (programs, violations uint64, err error) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProveSessions$", "-test.timeout=0", "-test.v="+strconv.FormatBool(testing.Verbose())) //nolint:gosec // this binary
	cmd.Env = append(os.Environ(), workerVar+"="+share, "PROVE="+much, fmt.Sprintf("PROVE_SEED=%d", first), "GOMAXPROCS=1", "GOGC=800", "GOMEMLIMIT=3GiB")
	out, err := cmd.CombinedOutput()
	at := bytes.LastIndex(out, []byte("worker programs="))
	if at >= 0 {
		_, _ = fmt.Sscanf(string(out[at:]), workerLine, &programs, &violations)
	}
	if err != nil || at < 0 {
		err = fmt.Errorf("%w\n%s", cmp.Or(err, errors.New("it has not told what it has done")), out)
	}
	return programs, violations, err
}

// work runs every step-th program from first+offset on. The first program that
// breaks a promise of a kind is printed as short as it can be.
func work(t *testing.T, first, offset, step uint64, much amount) (done, broken uint64) {
	began := time.Now()
	kinds := map[string]uint64{} // the first seed of each
	for n := offset; !much.reached(n, time.Since(began)) && (step == 1 || done < inOneProcess); n += step {
		seed := first + n
		p := generate(seed)
		found := execute(t, p)
		done++
		if len(found) == 0 {
			continue
		}
		broken++
		if os.Getenv(firstVar) != "" {
			t.Errorf("seed %d: %s, after %d programs", seed, found[0], done)
			break
		}
		for _, v := range found {
			name := v.kind + " on " + p.profile
			if _, known := kinds[name]; !known {
				kinds[name] = seed
				t.Errorf("seed %d: %s\n%s", seed, v, minimise(t, p, v.kind))
			}
		}
	}
	if broken > 0 {
		t.Errorf("%d programs break promises; the first of each kind: %v", broken, kinds)
	}
	return done, broken
}

// amount is how much to run: for a time, or so many programs.
type amount struct {
	programs uint64 // 0: as many as there is time for
	limit    time.Duration
}

// amountOf reads 10m, or 500x for 500 programs.
func amountOf(text string) (a amount, err error) {
	if count, ok := strings.CutSuffix(text, "x"); ok {
		a.programs, err = strconv.ParseUint(count, 10, 64)
	} else {
		a.limit, err = time.ParseDuration(text)
	}
	if err != nil || a.programs == 0 && a.limit <= 0 {
		return a, fmt.Errorf("PROVE is %q, want a time such as 10m or a number of programs such as 500x", text)
	}
	return a, nil
}

// without is what is left when so many programs have had their turn, as amountOf reads it.
func (a amount) without(programs uint64, took time.Duration) (left string, ok bool) {
	if a.reached(programs, took) {
		return "", false
	}
	if a.programs > 0 {
		return fmt.Sprintf("%dx", a.programs-programs), true
	}
	return (a.limit - took).String(), true
}

func (a amount) reached(n uint64, took time.Duration) bool {
	if a.programs > 0 {
		return n >= a.programs
	}
	return took >= a.limit
}

func envOr(name, byDefault string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return byDefault
}
