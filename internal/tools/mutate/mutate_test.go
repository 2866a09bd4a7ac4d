package mutate

import (
	"os"
	"regexp"
	"slices"
	"testing"

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
