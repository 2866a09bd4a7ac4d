package mutate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// leftOutTests are not run against mutants: the provers and the stress tests
// run for as long as they are told, or run mutants themselves.
var leftOutTests = regexp.MustCompile(`^(TestProve(Reservoir|Sessions|Registry|Secrets|Differential|Mutation)$|TestStress|Benchmark)`)

const (
	// memoryLimit bounds the address space of a mutant that allocates for ever,
	// in KiB.
	memoryLimit = 8 << 20

	// idleLimit ends a mutant that waits for ever: it has used no processor
	// time for so many seconds. It is long because the machine may be busy.
	idleLimit = 6

	// firstRound is the processor time of the tests that are run first. Each
	// round after it has so much more that to have run them all before costs little.
	firstRound  = 100 * time.Millisecond
	roundGrowth = 5

	// maxSaid is how much is told of what a test says that fails without a mutant, in bytes.
	maxSaid = 4 << 10

	// wallLimit ends one that wakes up now and then, together with ten times
	// its processor time.
	wallLimit = time.Minute
)

// test is one test function and what it takes.
type test struct {
	name    string
	in      int // the index of its binary
	cpu     time.Duration
	reaches []byte // by point: 1 when it gets there
	failure string // what it said when it failed without a mutant
}

// Suite is the tests that may notice a package's mutants, each known by those that it reaches.
type Suite struct {
	mutants *Mutants
	tests   []test
	Broken  []string // tests that fail without a mutant: they are not used
}

// Measure runs each test once, without a mutant. The tests of a binary stand in the order
// of what they take, behind those of the binary before.
func (m *Mutants) Measure(ctx context.Context) (*Suite, error) {
	tests, err := m.list(ctx)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(tests))
	var free atomic.Int64
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for i := free.Add(1) - 1; i < int64(len(tests)); i = free.Add(1) - 1 {
				errs[i] = m.measure(ctx, &tests[i])
			}
		})
	}
	workers.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s := &Suite{mutants: m}
	for _, t := range tests {
		if t.reaches == nil {
			s.Broken = append(s.Broken, m.binaries[t.in].dir+": "+t.name+": "+t.failure)
			continue
		}
		s.tests = append(s.tests, t)
	}
	slices.SortStableFunc(s.tests, func(a, b test) int { return cmp.Or(cmp.Compare(a.in, b.in), cmp.Compare(a.cpu, b.cpu)) })
	return s, nil
}

// list names the tests of all binaries.
func (m *Mutants) list(ctx context.Context) (tests []test, err error) {
	for i, b := range m.binaries {
		list := exec.CommandContext(ctx, b.path, "-test.list", ".") //nolint:gosec // our own binary
		list.Dir = b.dir
		out, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("listing the tests of %s: %w", b.dir, err)
		}
		for name := range strings.FieldsSeq(string(out)) {
			if !leftOutTests.MatchString(name) {
				tests = append(tests, test{name: name, in: i})
			}
		}
	}
	return tests, nil
}

// measure runs one test. What it reaches is nil when it fails.
func (m *Mutants) measure(ctx context.Context, t *test) error {
	trace := filepath.Join(m.work, fmt.Sprintf("trace-%d-%s", t.in, t.name))
	if err := os.WriteFile(trace, make([]byte, len(m.Points)+1), 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(trace) }() // its folder is temporary
	said, err := os.Create(trace + ".out")
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(said.Close(), os.Remove(said.Name())) }() // as above
	r := m.run(ctx, []test{*t}, time.Minute, "MUTANT_TRACE="+trace, said)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if r.failed {
		text, err := os.ReadFile(said.Name())
		t.failure = string(text[:min(len(text), maxSaid)])
		return err
	}
	t.cpu = r.cpu
	t.reaches, err = os.ReadFile(trace)
	return err
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

func (v Verdict) String() string {
	return [...]string{"SURVIVED", "UNREACHED", "KILLED", "TIMED OUT"}[v]
}

// Try runs the tests that reach the mutant until one fails.
func (s *Suite) Try(ctx context.Context, p Point) (Verdict, error) {
	verdict := Unreached
	for _, tests := range s.rounds(p) {
		allowed := 2 * time.Second
		for _, t := range tests {
			allowed += 4 * t.cpu
		}
		r := s.mutants.run(ctx, tests, allowed, "MUTANT="+strconv.Itoa(p.ID), nil)
		switch {
		case ctx.Err() != nil:
			return Survived, context.Cause(ctx)
		case r.late:
			return TimedOut, nil
		case r.failed:
			return Killed, nil
		}
		verdict = Survived
	}
	return verdict, nil
}

// rounds are the tests that reach the mutant. Those of a round, which are of one binary, are
// run only when the ones before it, which took less, have passed.
func (s *Suite) rounds(p Point) (rounds [][]test) {
	bound, sum := time.Duration(firstRound), time.Duration(0)
	var round []test
	for _, t := range s.tests {
		if t.reaches[p.ID] != 1 {
			continue
		}
		sum += t.cpu
		switch next := len(round) > 0; {
		case next && t.in != round[0].in:
			rounds, round = append(rounds, round), nil
			bound, sum = firstRound, t.cpu
		case next && sum > bound:
			rounds, round = append(rounds, round), nil
			bound, sum = roundGrowth*bound, t.cpu
		}
		round = append(round, t)
	}
	if len(round) > 0 {
		rounds = append(rounds, round)
	}
	return rounds
}

type outcome struct {
	failed, late bool
	cpu          time.Duration
}

// ordinary is the environment without what makes random tests run for long: here they
// run as they do in an ordinary run.
func ordinary(env []string) []string {
	return slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "PROVE") || strings.HasPrefix(v, "STRESS=") })
}

// run runs tests of one binary in a process of their own with bounded processor time,
// memory and wall time. What they say goes to a file, which may be nil.
func (m *Mutants) run(ctx context.Context, tests []test, cpu time.Duration, env string, said *os.File) outcome {
	b, names := m.binaries[tests[0].in], make([]string, len(tests))
	for i, t := range tests {
		names[i] = regexp.QuoteMeta(t.name)
	}
	seconds := strconv.Itoa(int(cpu/time.Second) + 1)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ctx, end := context.WithTimeoutCause(ctx, wallLimit+10*cpu, errIdle)
	defer end()
	cmd := exec.CommandContext(ctx, "bash", "-c", `ulimit -t "$0" -v "$1" && exec "${@:2}"`, seconds, strconv.Itoa(memoryLimit), //nolint:gosec // our own binary
		b.path, "-test.failfast", "-test.timeout=0", "-test.run", "^("+strings.Join(names, "|")+")$")
	cmd.Dir = b.dir
	cmd.Env = append(ordinary(os.Environ()), env, "GOMAXPROCS=2")
	if said != nil { // no pipe, for which their own children would have to be waited for
		cmd.Stdout, cmd.Stderr = said, said
	}
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return outcome{failed: true}
	}
	go stopIdle(ctx, cmd.Process.Pid, stop)
	err := cmd.Wait()
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return outcome{
		failed: err != nil,
		late:   errors.Is(context.Cause(ctx), errIdle) || status.Signaled() && (status.Signal() == syscall.SIGXCPU || status.Signal() == syscall.SIGKILL),
		cpu:    cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
	}
}

var errIdle = errors.New("the tests wait for ever")

// stopIdle ends a process that uses no processor time, until ctx ends.
func stopIdle(ctx context.Context, pid int, stop func(error)) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last, idle := "", 0
	for idle < idleLimit {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		used := usedBy(pid)
		if used != last {
			last, idle = used, 0
		} else {
			idle++
		}
	}
	stop(errIdle)
}

// usedBy is the processor time of a process, in a form that can be compared. A
// process that waits for a processor only is not idle: then no two are the same.
func usedBy(pid int) string {
	notIdle := time.Now().String()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return notIdle // not known here, or ended
	}
	used := ""
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if err != nil || len(fields) < 13 || fields[0] == "R" {
			return notIdle
		}
		used += fields[11] + " " + fields[12] + " "
	}
	return used
}
