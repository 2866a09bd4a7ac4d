package prover

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// broken are changes of the pool that break its promises, each with the server
// on which that shows, and behind a slash the backend, if it is that of one.
var broken = []struct {
	name, profile, file string
	edits               []string // in turn what is there, once, and what takes its place
}{
	{"a failure does not abort the transaction", "failures-do-not-abort", "session/tx.go", []string{
		"\t\ts.mu.tx.markAborted(e)\n", "\t\t_ = e\n",
	}},
	{"a commit is confirmed and not sent", "strict", "session/tx.go", []string{
		"func(ctx context.Context) error { return s.commit(ctx, tx) }", "func(context.Context) error { return nil }",
	}},
	{"settings are not put back", "strict", "session/undo.go", []string{
		"return s.restoreSetting(ctx, e, d)", "return nil",
	}},
	{"a transaction is left open at Close", "swanlake", "session/cleanup.go", []string{"if tx.openOnServer() {", "if false {"}},
	{"a connection is used again while its statement is cancelled", "swanlake", "session/finish.go", []string{
		"\t\ts.startCancel(c, tx)\n", "\t\ts.startCancel(c, tx)\n\t\ts.becomeIdle(nil)\n",
	}},
	{"every probe is believed", "side-by-side", "session/concurrency.go", []string{
		"return !ok || l.StatementOrder().IsSerial()", "return !ok || l != nil",
	}},
	{"a result that is cut off ends well", "strict", "internal/flightconn/stream.go", []string{
		"err = s.call.wrapError(backend.StageFetch, err)", "err = io.EOF",
	}},
	{"a change is repeated", "strict", "flightpool/query.go", []string{
		"return e.Read || e.Unsent || opts.Retry == RetryAlways", "return true",
	}},
	{"the session's proof is not compared", "swanlake", "session/proof.go", []string{
		"case p.state == proofHeld && (n != accessRead && !p.trusted || idle >= maxProofAge):", "case false:",
	}},
	{"a prepared session is not proven", "strict", "session/keep.go", []string{
		"if err := k.compare(ctx, tx); err != nil {\n\t\t\treturn err\n\t\t}", "_ = tx",
	}},
	{"a prepared session is not proven beside an update", "strict/new", "internal/adbcconn/generic_proofs.go", []string{
		"return call.Prove != nil && c.isFlightSQL", "return false && call.Prove != nil",
	}},
	{"the proof beside an update is not closed behind it", "swanlake/new", "internal/adbcconn/generic_proofs.go", []string{
		"return c.closeProof(last, errSessionReplaced)", "if c.firstProof == nil {\n\t\treturn nil\n\t}\n\treturn c.closeProof(last, errSessionReplaced)",
	}},
	{"what a borrower drops of a prepared session stays dropped", "dremio", "session/cleanup.go", []string{
		"d.changedObjects && s.tempsAtStart() != noTemps", "false",
	}},
	{"users do not know what others have set of the whole server", "strict", "session/changedsettings.go", []string{
		"ok && p.Target != \"\" {", "ok && p.Target == \"\" {",
	}},
	{"a value of the session's own stays", "strict", "session/setting.go", []string{
		"\tfor _, sql := range way.statements {\n", "\tfor _, sql := range way.statements {\n\t\tif sql == way.resetsOwn {\n\t\t\tcontinue\n\t\t}\n",
	}},
	{"what may change something is sent again for a refused stream", "strict", "internal/flightconn/sends.go", []string{
		"return !r.mayChange", "return true",
	}},
	{"parameters are executed twice for a refused stream", "swanlake", "internal/flightconn/call.go", []string{
		"return r.mayChange || r.bound", "return r.mayChange",
	}},
	{"a timeout does not bound the wait for the call before", "strict", "session/turn.go", []string{
		"timeout > 0 && late == nil {", "timeout > 0 && late != nil {",
	}},
	{"the statements of ResetSQL are not run", "strict", "session/cleanup.go", []string{
		"range s.policy.OnReturn.Statements() {", "range s.policy.OnReturn.Statements()[:0] {",
	}},
	{"a call's headers do not go with it", "strict", "session/call.go", []string{
		"c.backendCall.Headers = opts.Headers.Copy()", "_ = opts.Headers.Copy()",
	}},
	{"each call takes the youngest token", "gizmosql", "internal/flightconn/channel.go", []string{
		"opts ...grpc.CallOption) error {\n\tctx, rpc", "opts ...grpc.CallOption) error {\n\tch.takeYoungest(ctx)\n\tctx, rpc",
		"func (id *identity) credential()", "func (ch *channel) takeYoungest(ctx context.Context) {\n" +
			"\tif ch.owner != nil && ch.owner.cfg().Authorization != nil {\n" +
			"\t\tif c, err := ch.owner.cfg().Authorization(ctx, \"\"); err == nil {\n\t\t\tch.id.setCredential(c)\n\t\t}\n\t}\n" +
			"}\n\nfunc (id *identity) credential()",
	}},
}

// changed is the text of a file with the edits of a broken pool in it.
func changed(t *testing.T, file string, edits []string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", file))
	require.NoError(t, err)
	for i := 0; i < len(edits); i += 2 {
		require.Equal(t, 1, bytes.Count(text, []byte(edits[i])), "%s has %q", file, edits[i])
		text = bytes.Replace(text, []byte(edits[i]), []byte(edits[i+1]), 1)
	}
	return text
}

// TestTheProverSeesBrokenPools builds each of the broken pools and expects the
// prover to find them out, if PROVE is set: that takes minutes. Otherwise it
// sees to it that they can be built.
func TestTheProverSeesBrokenPools(t *testing.T) {
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			text := changed(t, b.file, b.edits)
			if os.Getenv("PROVE") == "" {
				return
			}
			dir := t.TempDir()
			path, err := filepath.Abs(filepath.Join("..", "..", "..", b.file))
			require.NoError(t, err)
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: filepath.Join(dir, "changed.go")}})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "changed.go"), text, 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
			build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", filepath.Join(dir, "prover.test"), ".") //nolint:gosec // our own text
			out, err := build.CombinedOutput()
			require.NoError(t, err, "%s", out)

			profile, on, _ := strings.Cut(b.profile, "/")
			run := exec.CommandContext(t.Context(), filepath.Join(dir, "prover.test"), "-test.run=^TestProveSessions$") //nolint:gosec // just built
			run.Env = append(os.Environ(), "PROVE="+strconv.Itoa(enough)+"x", "PROVE_PROFILE="+profile, "PROVE_BACKEND="+on, firstVar+"=1", "GOMAXPROCS=1")
			run.Env = append(run.Env, workerVar+"=0/1")
			out, err = run.CombinedOutput()
			require.Error(t, err, "%d programs on %s have not shown it", enough, b.profile)
			require.Contains(t, string(out), "violations=1", "%s", out)
			lines := strings.SplitN(string(out[bytes.Index(out, []byte("seed ")):]), "\n", 2)
			t.Log(lines[0])
		})
	}
}

// enough programs must show a broken promise.
const enough = 3000
