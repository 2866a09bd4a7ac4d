package mutate

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheFateOfEveryMutantOfTheSample(t *testing.T) {
	m, err := Build("testdata/sample", t.TempDir(), "invariants")
	require.NoError(t, err)
	s, err := m.Measure(t.Context())
	require.NoError(t, err)
	require.Empty(t, s.Broken)
	fates := map[Verdict][]string{}
	for _, p := range m.Points {
		v, err := s.Try(t.Context(), p)
		require.NoError(t, err)
		fates[v] = append(fates[v], p.Func+": "+p.What)
	}
	for _, f := range fates {
		slices.Sort(f)
	}
	require.Equal(t, map[Verdict][]string{
		Killed: {
			"Clamp: < becomes <=: v < 0",
			"Clamp: left out: v = limit",
			"Clamp: negated: v < 0",
			"Clamp: negated: v > limit",
			"Clamp: nil in the place of: errNegative",
			"Drain: > becomes >=: n > 0",
			"Drain: negated: n > 0",
			"Last: < becomes <=: i < len(list)",
			"Last: left out: break",
			"Last: left out: last = list[i]",
			"Last: negated: i < len(list)",
			"Last: negated: last == 0",
		},
		Survived: {"Clamp: > becomes >=: v > limit"},
		// The operand that is left decides as both did, whenever it is asked.
		Unreached: {"Both: dropped: a", "Both: dropped: b", "Unused: + becomes -: n + 1"},
		TimedOut:  {"Drain: left out: n--"},
	}, fates)
}

func TestWhatThePackagesOwnTestsDoNotReachItsCallersMayNotice(t *testing.T) {
	m, err := Build("testdata/sample", t.TempDir(), "invariants", "testdata/sample/caller")
	require.NoError(t, err)
	s, err := m.Measure(t.Context())
	require.NoError(t, err)
	require.Empty(t, s.Broken)
	unused := m.Points[slices.IndexFunc(m.Points, func(p Point) bool { return p.Func == "Unused" })]
	verdict, err := s.Try(t.Context(), unused)
	require.NoError(t, err)
	require.Equal(t, Killed, verdict)
}

func TestWhatFailsWithoutAMutantSaysWhy(t *testing.T) {
	t.Setenv("SAMPLE_FAILS", "1")
	m, err := Build("testdata/sample", t.TempDir(), "invariants")
	require.NoError(t, err)
	s, err := m.Measure(t.Context())
	require.NoError(t, err)
	require.Len(t, s.Broken, 1)
	require.Regexp(t, "(?s)sample: TestClamp: .*it is to fail", s.Broken[0])
}

func TestOnlyTheProversAndStressTestsAreLeftOut(t *testing.T) {
	script, err := os.ReadFile("../../../.ci/prove")
	require.NoError(t, err)
	provers := regexp.MustCompile(`(?m)^  "([A-Z]\w+) `).FindAllSubmatch(script, -1)
	require.NotEmpty(t, provers)
	leftOut := []string{"TestStress", "TestStressOfCutResults", "BenchmarkAcquire"}
	for _, p := range provers {
		leftOut = append(leftOut, "TestProve"+string(p[1]))
	}
	for _, name := range leftOut {
		require.True(t, leftOutTests.MatchString(name), name)
	}
	for _, name := range []string{"TestProveChecksABorrowedConnection", "TestProveSurvivesACheckThatEndsItsGoroutine", "TestProveSessionsOfX", "TestProven"} {
		require.False(t, leftOutTests.MatchString(name), name)
	}
}

func TestExplainedIsReadByParagraphs(t *testing.T) {
	got := parseExplained("# a\n# b\nx | y\nz\n\n# c\nw\n")
	require.Equal(t, map[string]string{"x | y": "a b", "z": "a b", "w": "c"}, got)
}

// A line that has gone takes its explanation with it. That the change is one of
// the mutants is checked when the package is proven.
func TestEveryExplanationIsOfALineThatIsThere(t *testing.T) {
	lines := map[string]map[string]bool{} // by package
	for key := range explained {
		parts := strings.Split(key, " | ")
		require.GreaterOrEqual(t, len(parts), 4, key)
		pkg, text := parts[0], strings.Join(parts[2:len(parts)-1], " | ")
		if lines[pkg] == nil {
			lines[pkg] = linesOf(t, filepath.Join("..", "..", "..", pkg))
		}
		require.True(t, lines[pkg][text], "explained.txt: no such line: %s", key)
		require.True(t, lines[pkg]["func "+parts[1]], "explained.txt: no such function: %s", key)
		require.NotEmpty(t, explained[key], "explained.txt: no reason: %s", key)
	}
}

// declaration is the first line of a function: its receiver's type and its name.
var declaration = regexp.MustCompile(`^func (?:\((?:\w+ )?\*?(\w+)(?:\[[^]]*\])?\) )?(\w+)`)

// linesOf are the lines of a package, and its functions by their names.
func linesOf(t *testing.T, dir string) map[string]bool {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	lines := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			lines[strings.TrimSpace(line)] = true
			if f := declaration.FindStringSubmatch(line); f != nil {
				lines["func "+strings.TrimPrefix(f[1]+"."+f[2], ".")] = true
			}
		}
	}
	return lines
}

func TestAnExplanationOfNoMutantIsNamed(t *testing.T) {
	const gone = "cancel | Chain.Run | defer stop() | left out: defer stop()"
	require.Contains(t, explained, gone)
	require.Contains(t, unmatched("cancel", nil), gone)
	require.NotContains(t, unmatched("cancel", []Point{{Func: "Chain.Run", Text: "defer stop()", What: "left out: defer stop()"}}), gone)
	require.Empty(t, unmatched("canc", nil), "another package")
}

func TestDearTestsRunOnlyAfterTheCheapOnes(t *testing.T) {
	reaching, other := []byte{0, 1}, []byte{0, 0}
	s := &Suite{tests: []test{
		{name: "a", in: 0, cpu: time.Millisecond, reaches: reaching}, {name: "b", in: 0, cpu: 90 * time.Millisecond, reaches: reaching}, {name: "c", in: 0, cpu: 90 * time.Millisecond, reaches: other},
		{name: "d", in: 0, cpu: 95 * time.Millisecond, reaches: reaching}, {name: "e", in: 0, cpu: time.Second, reaches: reaching}, {name: "f", in: 1, cpu: time.Millisecond, reaches: reaching}, {name: "g", in: 1, cpu: time.Second, reaches: reaching},
	}}
	var names []string
	for _, round := range s.rounds(Point{ID: 1}) {
		name := ""
		for _, t := range round {
			name += t.name
		}
		names = append(names, name)
	}
	require.Equal(t, []string{"ab", "d", "e", "f", "g"}, names)
	require.Empty(t, s.rounds(Point{ID: 0}))
}

func TestTheMarginOfASampleIsThatOfItsSize(t *testing.T) {
	c := newTally()
	c.tested[Killed], c.tested[Survived] = 90, 10
	require.InDelta(t, 0.9, c.score(), 1e-9)
	require.InDelta(t, 1.96*0.03, c.margin(1<<40), 1e-4)
	require.Zero(t, c.margin(100), "all were tried")
}
