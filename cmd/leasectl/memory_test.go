package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/lease/pglease"
)

// inMemory runs the command in this process, on a store in memory.
func inMemory(ctx context.Context, s store, input io.Reader, args ...string) result {
	var out, errs bytes.Buffer
	code := run(ctx, args, streams{input, &out, &errs}, inMemoryStore(s))
	return result{out.String(), errs.String(), code}
}

func inMemoryStore(s store) opener {
	return func(context.Context, target) (*source, error) {
		return &source{s, "DynamoDB table leases in eu-west-1", func() {}}, nil
	}
}

// A process as its records tell of it.
type process struct {
	id, host, service string
	pid               int
	age               time.Duration
	leases, want      int64
	behind            int64
}

// filled is a store with one budget, in its round 412.
func filled(t *testing.T, budget string, limit, level int64, processes ...process) *fleet.Memory {
	t.Helper()
	m := fleet.NewMemory()
	fill(t, m, budget, limit, level, processes...)
	return m
}

// fill writes the records of a budget as its processes would.
func fill(t *testing.T, m fleet.Store, budget string, limit, level int64, processes ...process) {
	t.Helper()
	const round = 412
	var used int64
	owners := map[string]fleet.Owner{}
	for _, p := range processes {
		used += p.leases
		owners[p.id] = fleet.Owner{Leases: p.leases, Seq: 1, Round: round - p.behind, Want: p.want}
		write(t, m, fleet.Change{
			Key: "member#" + budget + "#" + p.id, Set: map[string]int64{"pid": int64(p.pid)},
			Text: map[string]string{"host": p.host, "service": p.service, "started": time.Now().Add(-p.age).UTC().Format(time.RFC3339)},
		})
	}
	write(t, m, fleet.Change{Key: fleet.BudgetPrefix + budget, Set: map[string]int64{
		"limit": limit, "shards": 1, "lease": 60000, "grace": 20000, "round": round, "level": level, "levels": 1,
	}})
	write(t, m, fleet.Change{Key: "shard#" + budget + "#0", Absent: true, Set: map[string]int64{"used": used}, Put: owners})
}

func write(t *testing.T, s fleet.Store, c fleet.Change) {
	t.Helper()
	answer, err := s.Write(t.Context(), c)
	require.NoError(t, err)
	require.True(t, answer.Done)
}

func grant(t *testing.T, s fleet.Store, budget string, permits int64) {
	t.Helper()
	write(t, s, fleet.Change{Key: "rate#" + budget, Set: map[string]int64{"granted": permits * 1000, "earned": 0}})
}

// In virtual time: the ages are printed in seconds, and are the same in both prints.
func TestAThousandProcessesAreAligned(t *testing.T) {
	synctest.Test(t, aThousandProcessesAreAligned)
}

func aThousandProcessesAreAligned(t *testing.T) {
	var all []process
	for i := range 1000 {
		all = append(all, process{
			id: fmt.Sprintf("ID%08d", i), host: "web-" + strings.Repeat("9", i%7), service: "s" + strings.Repeat("é", i%11), pid: i * 37,
			age: time.Duration(i*i) * time.Second, leases: int64(i % 13), want: int64(i % 17), behind: int64(i % 3),
		})
	}
	m := filled(t, "big", 10000, 9, all...)
	r := inMemory(t.Context(), m, nil, "show", "--sample", "0")
	require.Zero(t, r.code, r.err)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")[3:]
	require.Len(t, lines, 1001)
	header := []rune(lines[0])
	leases := strings.Index(string(header), "LEASES") + len("LEASES")
	round := strings.Index(string(header), "ROUND")
	for _, line := range lines[1:] {
		runes := []rune(line)
		require.Equal(t, ' ', runes[leases], line)
		require.NotEqual(t, ' ', runes[leases-1], line)
		require.NotEqual(t, ' ', runes[round], line)
		require.Equal(t, ' ', runes[round-1], line)
	}
	again := inMemory(t.Context(), m, nil, "show", "--sample", "0")
	require.Equal(t, lines[1:], strings.Split(strings.TrimSpace(again.out), "\n")[4:], "the order is stable")
}

func TestWhatIsStoredCannotControlATerminal(t *testing.T) {
	m := filled(t, "evil\x1b[2J", 10, 0, process{id: "A\x1b[2J", host: "h\x1b]0;x\a", service: "a\nb\x9b", leases: 1})
	r := inMemory(t.Context(), m, nil, "show", "--sample", "0")
	require.Zero(t, r.code)
	for _, c := range r.out {
		require.True(t, c == '\n' || c >= ' ' && c != 0x9b, "%q", r.out)
	}
	r = inMemory(t.Context(), m, strings.NewReader("yes\n"), "free", "A\x1b[2J")
	require.Zero(t, r.code)
	require.NotContains(t, r.out+r.err, "\x1b")
}

func TestPermitsAreCountedOverTheSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := filled(t, "b", 100, 0, process{id: "A", leases: 1})
		grant(t, m, "b", 1000)
		grown := time.AfterFunc(time.Second, func() { grant(t, m, "b", 1150) })
		defer grown.Stop()
		r := inMemory(t.Context(), m, nil, "show", "--json", "--sample", "2s")
		require.Zero(t, r.code, r.err)
		var v view
		require.NoError(t, json.Unmarshal([]byte(r.out), &v))
		require.InDelta(t, 75, *v.Budgets[0].PermitsPerSecond, 0.01)
	})
}

// A store that can be switched off, and counts writes.
type faulty struct {
	*fleet.Memory
	mu     sync.Mutex
	down   error
	reads  int
	writes int
}

func (f *faulty) set(err error) { f.mu.Lock(); defer f.mu.Unlock(); f.down = err }

func (f *faulty) Read(ctx context.Context, keys ...string) (fleet.Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.down != nil {
		return fleet.Snapshot{}, f.down
	}
	return f.Memory.Read(ctx, keys...)
}

func (f *faulty) Write(ctx context.Context, c fleet.Change) (fleet.Answer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	return f.Memory.Write(ctx, c)
}

func TestWatchGoesOnThroughAnOutageAndEndsWhenInterrupted(t *testing.T) {
	for _, outage := range []error{
		context.DeadlineExceeded,
		errors.New("FATAL: the database system is starting up (SQLSTATE 57P03)"),
		errors.New("FATAL: sorry, too many clients already (SQLSTATE 53300)"),
		&fleet.ConfigError{Setting: "the pool's server", Err: pglease.ErrStandby},
	} {
		watchThrough(t, outage)
	}
}

func watchThrough(t *testing.T, outage error) {
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{Memory: filled(t, "b", 100, 0, process{id: "A", leases: 1})}
		grant(t, s.Memory, "b", 100)
		ctx, interrupt := context.WithCancel(t.Context())
		story := []*time.Timer{
			time.AfterFunc(3*time.Second, func() { grant(t, s.Memory, "b", 120) }),
			time.AfterFunc(5*time.Second, func() { s.set(outage) }),
			time.AfterFunc(7*time.Second, func() { s.set(nil) }),
			time.AfterFunc(9*time.Second, interrupt),
		}
		defer func() {
			for _, timer := range story {
				timer.Stop()
			}
		}()
		r := inMemory(ctx, s, nil, "show", "--json", "--watch", "2s")
		require.Zero(t, r.code, r.err)
		var rates []any
		for line := range strings.Lines(r.out) {
			var v view
			require.NoError(t, json.Unmarshal([]byte(line), &v))
			if rate := v.Budgets[0].PermitsPerSecond; rate == nil {
				rates = append(rates, nil)
			} else {
				rates = append(rates, *rate)
			}
		}
		require.Equal(t, []any{nil, 0.0, 10.0, 0.0}, rates, "at 0s, 2s, 4s and 8s")
		require.Equal(t, 1, strings.Count(r.err, "leasectl: "), r.err)
		require.Zero(t, s.writes)
	})
}

func TestWatchEndsWithWhatDoesNotPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{Memory: filled(t, "b", 100, 0)}
		timer := time.AfterFunc(3*time.Second, func() {
			s.set(&fleet.ConfigError{Setting: "Config.Table", Hint: "gone", Err: errors.New("no table")})
		})
		defer timer.Stop()
		r := inMemory(t.Context(), s, nil, "show", "--watch", "2s")
		require.Equal(t, exitFailure, r.code)
		require.Contains(t, r.err, "gone")
	})
}

func TestReadsAreRepeatedWhileThatMayHelp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{Memory: filled(t, "b", 100, 0), down: errors.New("throttled")}
		timer := time.AfterFunc(time.Second, func() { s.set(nil) })
		defer timer.Stop()
		got, err := retryingStore{s}.Read(t.Context(), fleet.BudgetPrefix+"b")
		require.NoError(t, err)
		require.Len(t, got.Records, 1)

		s.set(&fleet.ConfigError{Err: errors.New("no table")})
		s.reads = 0
		_, err = retryingStore{s}.Read(t.Context(), fleet.BudgetPrefix+"b")
		require.Error(t, err)
		require.Equal(t, 1, s.reads)

		s.set(errors.New("throttled"))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = retryingStore{s}.Read(ctx, fleet.BudgetPrefix+"b")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "throttled")
	})
}

// A silent store answers nothing, reads or writes, until the context ends.
type silent struct {
	*fleet.Memory
	reads bool
}

func (s silent) hang(ctx context.Context) error {
	<-ctx.Done()
	return &net.OpError{Op: "read", Err: context.Cause(ctx)}
}

func (s silent) Read(ctx context.Context, keys ...string) (fleet.Snapshot, error) {
	if s.reads {
		return fleet.Snapshot{}, s.hang(ctx)
	}
	return s.Memory.Read(ctx, keys...)
}

func (s silent) Write(ctx context.Context, _ fleet.Change) (fleet.Answer, error) {
	return fleet.Answer{}, s.hang(ctx)
}

// A fading store answers nothing after its first write.
type fading struct {
	*fleet.Memory
	wrote bool
}

func (s *fading) Write(ctx context.Context, c fleet.Change) (fleet.Answer, error) {
	s.wrote = true
	return s.Memory.Write(ctx, c)
}

func (s *fading) Read(ctx context.Context, keys ...string) (fleet.Snapshot, error) {
	if s.wrote {
		return fleet.Snapshot{}, silent{}.hang(ctx)
	}
	return s.Memory.Read(ctx, keys...)
}

// Leases that were freed are told of, though what follows is interrupted.
func TestAnInterruptionInTheMiddleOfAChangeIsNotBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		timer := time.AfterFunc(time.Second, interrupt)
		defer timer.Stop()
		r := inMemory(ctx, &fading{Memory: filled(t, "b", 100, 0, process{id: "A", leases: 4})}, nil, "free", "A", "--yes")
		require.Equal(t, exitUnknown, r.code, r.err)
		require.Contains(t, r.err, "4 of 4 leases were freed")
		require.Contains(t, r.err, "a change may have been made")
	})
}

// An interruption is a failure like another; where a change was under way its
// outcome is unknown, and that is told.
func TestAnInterruptionIsToldFromAChangeThatMayHaveBeenMade(t *testing.T) {
	for _, v := range []struct {
		reads bool
		code  int
		args  string
	}{
		{true, exitFailure, "show"}, {true, exitFailure, "limit 9"}, {true, exitFailure, "free A --yes"},
		{false, exitUnknown, "limit 9"}, {false, exitUnknown, "free A --yes"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			timer := time.AfterFunc(time.Second, interrupt)
			defer timer.Stop()
			r := inMemory(ctx, silent{filled(t, "b", 100, 0, process{id: "A", leases: 4}), v.reads}, nil, strings.Fields(v.args)...)
			require.Equal(t, v.code, r.code, "%s: %s", v.args, r.err)
			require.Contains(t, r.err, "leasectl: interrupted")
			require.Equal(t, v.code == exitUnknown, strings.Contains(r.err, "a change may have been made"), r.err)
		})
		synctest.Test(t, func(t *testing.T) { // nor does a look change anything
			r := inMemory(t.Context(), silent{filled(t, "b", 100, 0, process{id: "A", leases: 4}), v.reads}, nil, strings.Fields(v.args)...)
			require.Equal(t, exitUnknown, r.code, "%s: %s", v.args, r.err)
			require.Equal(t, !v.reads, strings.Contains(r.err, "a change may have been made"), r.err)
		})
	}
}

func TestConfirmationEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := filled(t, "b", 100, 0, process{id: "A", leases: 4})
		nobody, w := io.Pipe()
		defer w.Close() //nolint:errcheck // a pipe in memory
		ctx, interrupt := context.WithTimeout(t.Context(), time.Hour)
		defer interrupt()
		r := inMemory(ctx, m, nobody, "free", "A")
		require.NotZero(t, r.code)
		f, err := fleet.Inspect(t.Context(), m, "b")
		require.NoError(t, err)
		require.Equal(t, 4, f.Used)
	})
}

// The blocks of docs/leasectl.md that begin with "$ leasectl" are what these
// commands print; UPDATE=1 writes it there.
func TestTheDocumentShowsWhatIsPrinted(t *testing.T) {
	const document = "../../docs/leasectl.md"
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	parts := strings.Split(string(text), "```")
	shown := 0
	synctest.Test(t, func(t *testing.T) {
		m := filled(t, "abcdefghijklmnopqrstuvwxyz.eu-west-1", 100, 34,
			process{id: "4XJZQ2N7KA", host: "web-1", service: "orders", pid: 412, age: 51 * time.Hour, leases: 34, want: 40},
			process{id: "Q7RM3LBT5C", host: "web-2", service: "orders", pid: 398, age: 3*time.Hour + 12*time.Minute, leases: 34},
			process{id: "ZP2W8KD6VN", host: "batch-7", service: "nightly", pid: 77, age: 95 * time.Second, leases: 30, behind: 2},
		)
		grant(t, m, "abcdefghijklmnopqrstuvwxyz.eu-west-1", 5000)
		more := time.AfterFunc(time.Second/2, func() { grant(t, m, "abcdefghijklmnopqrstuvwxyz.eu-west-1", 5012) })
		defer more.Stop()
		for i := 1; i < len(parts); i += 2 {
			line, want, _ := strings.Cut(strings.TrimLeft(parts[i], "\n"), "\n")
			args, ok := strings.CutPrefix(line, "$ leasectl ")
			if !ok {
				continue
			}
			shown++
			r := inMemory(t.Context(), m, strings.NewReader("yes\n"), strings.Fields(args)...)
			if parts[i] = "\n" + line + "\n" + r.err + r.out; os.Getenv("UPDATE") == "" {
				require.Equal(t, strings.TrimSpace(want), strings.TrimSpace(r.err+r.out), args)
			}
		}
	})
	require.GreaterOrEqual(t, shown, 4)
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(document, []byte(strings.Join(parts, "```")), 0o600))
	}
}

func TestHelpHasExamplesAndExitCodes(t *testing.T) {
	for _, command := range []string{"", "show", "limit", "free"} {
		r := inMemory(t.Context(), fleet.NewMemory(), nil, append(strings.Fields(command), "--help")...)
		require.Zero(t, r.code)
		if command == "" {
			require.Contains(t, r.out, "Exit codes:")
			continue
		}
		require.Contains(t, r.out, "Examples:")
		require.Contains(t, r.out, "leasectl "+command)
	}
}

// A budget whose record was written by something else is told, and hides no
// other.
func TestABudgetOfSomethingElseHidesNoOther(t *testing.T) {
	for _, value := range []int64{-1, 0, 1 << 40, 1 << 62, -1 << 62} {
		m := filled(t, "good", 30, 0, process{id: "A", leases: 7})
		fill(t, m, "bad", 30, 0, process{id: "B", leases: 7})
		write(t, m, fleet.Change{Key: fleet.BudgetPrefix + "bad", Set: map[string]int64{"shards": value}})
		for _, args := range [][]string{{"show"}, {"show", "--json"}} {
			got := inMemory(t.Context(), m, nil, args...)
			require.Equal(t, exitFailure, got.code, "%d: %s", value, got.err)
			require.Contains(t, got.out, "good", value)
			require.Contains(t, got.err, "bad", value)
		}
		for _, args := range [][]string{{"show", "--budget", "bad"}, {"limit", "9", "--budget", "bad"}, {"free", "B", "--yes", "--budget", "bad"}} {
			got := inMemory(t.Context(), m, nil, args...)
			require.Equal(t, exitFailure, got.code, "%d: %v: %s", value, args, got.err)
			require.Contains(t, got.err, "written by something else", value)
		}
	}
}
