package main

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// asCommand makes this program be the command that it tests.
const asCommand = "FLIGHTPOOL_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	if signal.Ignored(syscall.SIGHUP) { // with nohup: then the command would not heed it either, and what has a handler here has none in it
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	os.Exit(m.Run())
}

// serve starts a server for a test.
func serve(t *testing.T, opts testserver.Options) *testserver.Server {
	t.Helper()
	srv, err := testserver.Start(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	return srv
}

// A result is what a run printed, and its exit code.
type result struct {
	out, err string
	code     int
}

// process is the command in a process of its own, with nothing of this process's
// environment but what is named.
func process(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append([]string{asCommand + "=1", "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, env...)
	return cmd
}

// flightpoolOf runs the command with input to its end.
func flightpoolOf(t *testing.T, input string, env []string, args ...string) result {
	t.Helper()
	cmd := process(t, env, args...)
	cmd.Stdin = strings.NewReader(input)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}
