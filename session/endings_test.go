package session

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const endingsFile = "testdata/endings.txt"

// A sessionEnd is how a use of a session on a server without a fault ends.
type sessionEnd struct {
	first, then int    // round trips: of the pool's first session that does so, and of a later one
	took        string // by all calls and the closing; the server answers at once
	seen        string // what the pool is told
	failed      string // the calls that fail
	discarded   string // why the connection is not used again
}

var nonce = regexp.MustCompile(`[A-Z2-7]{26}`)

func endingOf(t *testing.T, sc scene) sessionEnd {
	t.Helper()
	p, first := sc.perform(t)
	report(t, sc, p)
	sc.warm = true
	p, then := sc.perform(t)
	report(t, sc, p)
	e := sessionEnd{first: first, then: then, failed: strings.Join(p.failed, ", ")}
	if p.took > 0 {
		e.took = p.took.String()
	}
	for _, what := range slices.Sorted(maps.Keys(p.seen)) {
		e.seen += fmt.Sprintf(" %s: %d", what, p.seen[what])
	}
	if reason := p.returned[0]; reason != nil {
		e.discarded = nonce.ReplaceAllString(reason.Error(), "…")
	}
	return e
}

func (e sessionEnd) String() string {
	s := fmt.Sprintf("%d round trips, then %d", e.first, e.then)
	if e.took != "" {
		s += "; takes " + e.took
	}
	if e.seen != "" {
		s += ";" + e.seen
	}
	if e.failed != "" {
		s += "; fails: " + e.failed
	}
	if e.discarded != "" {
		s += "; discarded: " + e.discarded
	}
	return s
}

// What a session costs in round trips, which calls fail, and whether its
// connection is used again is the same from one version to the next, on each
// kind of server: nothing is asked in vain, nothing that was asked for is left
// out, and no connection is given up that is fine. The table is written anew by
// WRITE_ENDINGS=1 go test ./session -run Endings.
func TestTheEndingsOfAllProgramsAreThoseOfTheTable(t *testing.T) {
	var table []string
	note := func(sc scene, name string) {
		byEnding := map[string][]string{}
		for server := range servers {
			sc.server = server
			e := endingOf(t, sc).String()
			byEnding[e] = append(byEnding[e], server)
		}
		for e, names := range byEnding {
			slices.Sort(names)
			byEnding[e] = names
		}
		for _, e := range slices.SortedFunc(maps.Keys(byEnding), func(a, b string) int { return slices.Compare(byEnding[a], byEnding[b]) }) {
			table = append(table, fmt.Sprintf("%s | %s | %s", name, strings.Join(byEnding[e], " + "), e))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		note(scene{program: name}, name)
	}
	for _, call := range singleCalls {
		for _, reset := range []SessionReset{ResetAuto, ResetSQL("RESET ALL"), ResetDiscard} {
			name := fmt.Sprintf("%s by the pool, %s", call.name, resetNames[reset.mode])
			programs[name] = []step{call}
			note(scene{program: name, single: true, reset: reset}, name)
			delete(programs, name)
		}
	}
	if os.Getenv("WRITE_ENDINGS") != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(endingsFile, []byte(strings.Join(table, "\n")+"\n"), 0o600))
	}
	want, err := os.ReadFile(endingsFile)
	require.NoError(t, err)
	require.Equal(t, strings.Split(strings.TrimSpace(string(want)), "\n"), table)
}

var resetNames = map[resetMode]string{resetAuto: "ResetAuto", resetSQL: "ResetSQL", resetDiscard: "ResetDiscard"}
