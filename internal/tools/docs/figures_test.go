package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// measured are the rows of the table of docs/performance.md by their first cell, each cell
// with its figures.
func measured(t *testing.T) map[string][][]float64 {
	t.Helper()
	text, err := os.ReadFile(root + "/docs/performance.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "| work | time | CPU |")
	require.True(t, found)
	rows := map[string][][]float64{}
	for _, line := range strings.Split(strings.SplitN(table, "\n\n", 2)[0], "\n")[2:] {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		require.Len(t, cells, 7, line)
		for _, cell := range cells[1:] {
			rows[cells[0]] = append(rows[cells[0]], figures(t, cell))
		}
	}
	return rows
}

var figure = regexp.MustCompile(`\d[\d,]*(?:\.\d+)?`)

func figures(t *testing.T, text string) (all []float64) {
	for _, f := range figure.FindAllString(text, -1) {
		n, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimRight(f, ","), ",", ""), 64)
		require.NoError(t, err)
		all = append(all, n)
	}
	return all
}

// What make test holds of the allocations of calls stands in docs/performance.md.
func TestTheAllocationsThatAreSaidAreThoseThatAreTested(t *testing.T) {
	code, err := os.ReadFile(root + "/internal/tools/bench/calls/allocates_test.go")
	require.NoError(t, err)
	tested := map[string][2]float64{}
	for _, m := range regexp.MustCompile(`"(\w+)":\s+\{([\d.]+), ([\d.]+)\}`).FindAllStringSubmatch(string(code), -1) {
		tested[m[1]] = [2]float64{figures(t, m[2])[0], figures(t, m[3])[0]}
	}
	rows := measured(t)
	for row, work := range map[string]string{
		"16k rows": "fetch_16k", "4 endpoints, 16k rows": "fetch_4_endpoints", "ingestion, batches of 16k rows": "ingest",
		"`SELECT 1`, one goroutine": "select1_1", "`SELECT 1`, 8 goroutines": "select1_8", "the same with a deadline": "select1_8_deadline",
		"a parameter, 8 goroutines": "params_8", "the same with `Config.StatementCache`": "params_8_kept", "prepared by the caller, 8 goroutines": "prepared_8",
	} {
		require.Contains(t, rows, row)
		require.Contains(t, tested, work)
		require.InDelta(t, tested[work][0], rows[row][4][0], tested[work][1], "allocations of %s", work)
	}
}

// The README sums the table up: each range there has the figures of its rows, and is no wider
// than they are.
func TestTheReadmeSumsUpWhatCallsCost(t *testing.T) {
	text, err := os.ReadFile(root + "/README.md")
	require.NoError(t, err)
	readme, rows := strings.Join(strings.Fields(string(text)), " "), measured(t)
	fetches := []string{"2 × int64, a batch of 2k rows", "16k rows", "64k rows", "256k rows", "40 columns of ten types, 16k rows", "4 endpoints, 16k rows"}
	selects := []string{"`SELECT 1`, one goroutine", "`SELECT 1`, 8 goroutines", "`SELECT 1`, 64 goroutines, 8 connections"}
	for _, s := range []struct {
		said string
		of   []string
		cell int // of those behind the first
	}{
		{"A fetch takes ([0-9.]+) to ([0-9.]+) of the bare client's CPU", fetches, 1},
		{"`SELECT 1` takes ([0-9.]+) to ([0-9.]+) of its time", selects, 0},
		{"recovery, and ([0-9.]+) to ([0-9.]+) of ADBC's", selects, 3},
	} {
		m := regexp.MustCompile(s.said).FindStringSubmatch(readme)
		require.NotNil(t, m, s.said)
		low, high := figures(t, m[1])[0], figures(t, m[2])[0]
		least, most := 100.0, 0.0
		for _, row := range s.of {
			require.Contains(t, rows, row)
			least, most = min(least, rows[row][s.cell][0]), max(most, rows[row][s.cell][0])
		}
		require.InDelta(t, least, low, 0.04, m[0])
		require.InDelta(t, most, high, 0.04, m[0])
	}
}

// Words of the code that users do not know: their pages speak of connections that are in use.
func TestThePagesForUsersUseTheirWords(t *testing.T) {
	ours := regexp.MustCompile(`(?i)\b(?:loans?|on loan|settles?|settled|epochs?)\b`)
	names, err := pages(os.DirFS(root))
	require.NoError(t, err)
	for _, page := range names {
		switch page {
		case "docs/DESIGN.md", "docs/HISTORY.md", "docs/registry.md", "docs/dsql.md", "docs/performance.md": // of the code, line by line
			continue
		}
		text, err := os.ReadFile(root + "/" + page)
		require.NoError(t, err)
		for _, word := range ours.FindAllString(links.ReplaceAllString(string(text), ""), -1) {
			t.Errorf("%s says %q", page, word)
		}
	}
}

var links = regexp.MustCompile(`\[[^\]]*\]\([^)]*\)|` + "`[^`]*`")

// Where a row of docs/settings.md is known from is there: a profile, or a column of docs/servers.md.
func TestWhatSettingsAreKnownFromIsThere(t *testing.T) {
	settings, err := os.ReadFile(root + "/docs/settings.md")
	require.NoError(t, err)
	servers, err := os.ReadFile(root + "/docs/servers.md")
	require.NoError(t, err)
	profiles, err := os.ReadFile(root + "/testserver/profiles.go")
	require.NoError(t, err)
	found := map[string]int{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]*) \|.*\| (\*\*m\*\*|p|°) \|$`).FindAllStringSubmatch(string(settings), -1) {
		found[row[2]]++
		name := strings.TrimSuffix(row[1], " 3") // InfluxDB's version
		switch {
		case row[2] == "p":
			require.Contains(t, string(profiles), "func "+name+"() Profile", "docs/settings.md says there is a profile")
		case row[2] == "**m**" && name != "SwanLake" && !strings.HasPrefix(name, "GizmoSQL"): // by hand
			require.Contains(t, string(servers), "| "+name+" |", "docs/settings.md says it was measured")
		case row[2] == "°":
			require.NotContains(t, string(profiles), "func "+name+"() Profile")
		}
	}
	require.Equal(t, map[string]int{"**m**": 10, "p": 4, "°": 9}, found)
}

// What the code has many of stands on the page that is about it.
func TestThePagesNameAllThatThereIs(t *testing.T) {
	for _, c := range []struct {
		code, of, page string
		least          int
	}{
		{"flightpool/auth.go", `(?m)^func ([A-Z]\w+)\(.*\) Auth \{`, "docs/tls.md", 5},
		{"cmd/flightpool/meta.go", "(?m)^\t\t\\{`(\\\\[^`]+)`", "docs/shell.md", 14},
		{"cmd/flightpool/command.go", `(?m)^  (\d+) +\S`, "docs/shell.md", 5},
		{"testserver/profiles.go", `(?m)^func ([A-Z]\w+)\(\) Profile \{ *$`, "docs/testing.md", 6},
	} {
		code, err := os.ReadFile(root + "/" + c.code)
		require.NoError(t, err)
		page, err := os.ReadFile(root + "/" + c.page)
		require.NoError(t, err)
		found := regexp.MustCompile(c.of).FindAllStringSubmatch(string(code), -1)
		require.GreaterOrEqual(t, len(found), c.least, c.code)
		for _, m := range found {
			require.Contains(t, string(page), m[1], "%s has it", c.code)
		}
	}
}
