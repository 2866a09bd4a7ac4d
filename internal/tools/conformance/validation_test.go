//go:build duckdb_arrow

package conformance

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/validation"
	"github.com/stretchr/testify/require"
	"github.com/stretchr/testify/suite"
)

// TestADBCsValidationSuite runs ADBC's own suite over adbcpool.Database, with
// each backend, and over ADBC's Flight SQL driver beside it. What fails is known
// by name, with the reason, and nothing that the driver passes fails with ours.
func TestADBCsValidationSuite(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/adbc.md")
	require.NoError(t, err)
	for _, server := range []string{"DuckDB", "SQLite"} {
		passed := map[string]int{}
		for _, client := range validationClients {
			t.Run(server+"/"+client, func(t *testing.T) {
				v := verdicts{}
				v.runAll(&quirks{server: server, client: client})
				failed := v.with("fail")
				passed[client] = len(v.with("pass"))
				fmt.Printf("VALIDATION server=%s client=%s passed=%d failed=%d skipped=%d\n",
					server, strings.ReplaceAll(client, " ", "-"), passed[client], len(failed), len(v.with("skip")))
				require.Len(t, v, 26, "the suite has changed")
				require.Len(t, v.with("skip"), validationSkips[server])
				require.Equal(t, knownFailures(server, client), failed)
				if client != ownDriver {
					require.GreaterOrEqual(t, passed[client], passed[ownDriver])
				}
			})
		}
		for name := range validationFailures[server] {
			require.Contains(t, string(doc), name, "docs/adbc.md lists what a server cannot do")
		}
	}
}

// validationSkips is how many tests the suite itself skips, by what the quirks say
// of the server.
var validationSkips = map[string]int{"DuckDB": 0, "SQLite": 5}

// ownDriver is first, to be compared with.
const ownDriver = "ADBC's driver"

var validationClients = []string{ownDriver, "native", "open", "new"}

func knownFailures(server, client string) []string {
	names := []string{}
	for name, of := range validationFailures[server] {
		if of == nil || slices.Contains(of, client) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// verdicts are "pass", "fail" or "skip" by the name of a test.
type verdicts map[string]string

func (v verdicts) with(verdict string) []string {
	names := []string{}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if v[name] == verdict {
			names = append(names, name)
		}
	}
	return names
}

// runAll runs the suite's tests apart from the test that calls it, which does
// not fail with them.
func (v verdicts) runAll(q *quirks) {
	all := func(string, string) (bool, error) { return true, nil }
	testing.RunTests(all, []testing.InternalTest{{Name: "validation", F: func(t *testing.T) {
		suite.Run(t, &databaseTests{validation.DatabaseTests{Quirks: q}, v})
		suite.Run(t, &connectionTests{validation.ConnectionTests{Quirks: q}, v})
		suite.Run(t, &statementTests{validation.StatementTests{Quirks: q}, v})
	}}})
}

func (v verdicts) note(t *testing.T, name string) {
	switch {
	case t.Failed():
		v[name] = "fail"
	case t.Skipped(): //nolint:forbidigo // what ADBC's own suite skips
		v[name] = "skip"
	default:
		v[name] = "pass"
	}
}

// Each suite notes how its tests ended, their clean-up included.
type (
	databaseTests struct {
		validation.DatabaseTests
		v verdicts
	}
	connectionTests struct {
		validation.ConnectionTests
		v verdicts
	}
	statementTests struct {
		validation.StatementTests
		v verdicts
	}
)

func (s *databaseTests) BeforeTest(_, name string) {
	t := s.T()
	t.Cleanup(func() { s.v.note(t, name) })
}
func (s *connectionTests) BeforeTest(_, name string) {
	t := s.T()
	t.Cleanup(func() { s.v.note(t, name) })
}
func (s *statementTests) BeforeTest(_, name string) {
	t := s.T()
	t.Cleanup(func() { s.v.note(t, name) })
}

var _ adbc.Driver = (*quirks)(nil)
