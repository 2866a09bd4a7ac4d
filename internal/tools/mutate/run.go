package mutate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// leftOutTests are not run against mutants: they run for as long as they are
// told, or run mutants themselves.
var leftOutTests = regexp.MustCompile(`^(TestStress|TestProve|Benchmark)`)

const (
	// memoryLimit bounds the address space of a mutant that allocates for ever,
	// in KiB.
	memoryLimit = 8 << 20

	// wallLimit and as many times the processor time bound a mutant that waits
	// for ever. They are long because the machine may be busy; a mutant that
	// spins ends by its processor time.
	wallLimit = 15 * time.Second
	wallTimes = 5
)

// test is one test function of the package and what it takes.
type test struct {
	name    string
	cpu     time.Duration
	reaches []byte // by point: 1 when it gets there
}

// Suite is the tests of a package, each known by the mutants that it reaches.
type Suite struct {
	mutants *Mutants
	tests   []test
	Broken  []string // tests that fail without a mutant: they are not used
}

// Measure runs each test once, without a mutant.
func (m *Mutants) Measure(ctx context.Context) (*Suite, error) {
	list := exec.CommandContext(ctx, m.binary(), "-test.list", ".")
	list.Dir = m.dir
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the tests of %s: %w", m.dir, err)
	}
	s := &Suite{mutants: m}
	for name := range strings.FieldsSeq(string(out)) {
		if leftOutTests.MatchString(name) {
			continue
		}
		t := test{name: name}
		trace := filepath.Join(m.work, "trace")
		if err := os.WriteFile(trace, make([]byte, len(m.Points)+1), 0o600); err != nil {
			return nil, err
		}
		r := m.run(ctx, []test{t}, time.Minute, "MUTANT_TRACE="+trace)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if r.failed {
			s.Broken = append(s.Broken, name)
			continue
		}
		if t.reaches, err = os.ReadFile(trace); err != nil {
			return nil, err
		}
		t.cpu = r.cpu
		s.tests = append(s.tests, t)
	}
	return s, nil
}

// Verdict is what the tests said of a mutant.
type Verdict int

// The verdicts.
const (
	Survived  Verdict = iota // the tests that reach it passed
	Unreached                // no test reaches it
	Killed                   // a test failed
	TimedOut                 // a test took too much time, which counts as killed
)

// Try runs the tests that reach the mutant until one fails.
func (s *Suite) Try(ctx context.Context, p Point) (Verdict, error) {
	var reach []test
	allowed := 2 * time.Second
	for _, t := range s.tests {
		if t.reaches[p.ID] == 1 {
			reach = append(reach, t)
			allowed += 4 * t.cpu
		}
	}
	if len(reach) == 0 {
		return Unreached, nil
	}
	r := s.mutants.run(ctx, reach, allowed, "MUTANT="+strconv.Itoa(p.ID))
	switch {
	case ctx.Err() != nil:
		return Survived, context.Cause(ctx)
	case r.late:
		return TimedOut, nil
	case r.failed:
		return Killed, nil
	default:
		return Survived, nil
	}
}

type outcome struct {
	failed, late bool
	cpu          time.Duration
}

// run runs tests in a process of their own with bounded processor time, memory
// and wall time.
func (m *Mutants) run(ctx context.Context, tests []test, cpu time.Duration, env string) outcome {
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = regexp.QuoteMeta(t.name)
	}
	ctx, stop := context.WithTimeout(ctx, wallLimit+wallTimes*cpu)
	defer stop()
	seconds := strconv.Itoa(int(cpu/time.Second) + 1)
	cmd := exec.CommandContext(ctx, "bash", "-c", `ulimit -t "$0" -v "$1" && exec "${@:2}"`, seconds, strconv.Itoa(memoryLimit), //nolint:gosec // our own binary
		m.binary(), "-test.failfast", "-test.timeout=0", "-test.run", "^("+strings.Join(names, "|")+")$")
	cmd.Dir = m.dir
	cmd.Env = append(os.Environ(), env, "GOMAXPROCS=2")
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	o := outcome{failed: err != nil}
	if cmd.ProcessState != nil {
		o.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		o.late = errors.Is(ctx.Err(), context.DeadlineExceeded) || ok && status.Signaled() && (status.Signal() == syscall.SIGXCPU || status.Signal() == syscall.SIGKILL)
	}
	return o
}
