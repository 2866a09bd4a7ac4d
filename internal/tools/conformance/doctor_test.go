//go:build duckdb_arrow

package conformance

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheDoctorSaysTheTruth compares what flightpool doctor says of real databases
// with what is known of them.
func TestTheDoctorSaysTheTruth(t *testing.T) {
	program := filepath.Join(t.TempDir(), "flightpool")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../../../cmd/flightpool", "-race", "-o", program, ".") // as make test has compiled its packages
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	duck, _ := startDuckDB(t)
	lite, _ := startSQLite(t)
	for _, c := range []struct {
		name, addr string
		want       map[string]string
	}{
		{"DuckDB", duck, map[string]string{
			"TLS": "no", "authentication": "no", "sessions": "by connection", "parameters": "yes", "transactions": "honest",
			"cancel": "yes", "ingestion": "yes", "largest request": "4 MiB",
		}},
		// One database connection serves all clients; a statement ends with its RPC, and nothing shows it.
		{"SQLite", lite, map[string]string{
			"TLS": "no", "authentication": "no", "sessions": "one for all", "parameters": "yes", "transactions": "honest", "cancel": "unconfirmed", "ingestion": "no", "largest request": "4 MiB",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), program, "doctor", "--json", "grpc://"+c.addr).Output()
			require.NoError(t, err, "%s", out)
			var report struct {
				Findings []struct{ Subject, Verdict, Detail string }
			}
			require.NoError(t, json.Unmarshal(out, &report))
			got := map[string]string{}
			for _, f := range report.Findings {
				t.Log(f.Subject, f.Verdict, f.Detail)
				got[f.Subject] = f.Verdict
			}
			for subject, want := range c.want {
				require.Equal(t, want, got[subject], "%s: %s", subject, out)
			}
		})
	}
}
