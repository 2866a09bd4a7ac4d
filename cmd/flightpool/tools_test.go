package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/cmd/flightpool/internal/doctor"
	"github.com/flightpool/flightpool/cmd/flightpool/internal/load"
	"github.com/flightpool/flightpool/testserver"
)

func TestDoctorPrintsTextJSONAndGo(t *testing.T) {
	srv := serve(t, testserver.Options{Profile: testserver.ClickHouse(), Users: map[string]string{"app": "s3cret"}})
	at := strings.Replace(srv.URI(), "://", "://app:s3cret@", 1)
	run := func(args ...string) string {
		r := flightpoolOf(t, "", nil, append([]string{"doctor", at}, args...)...)
		require.Zero(t, r.code, r.err)
		require.NotContains(t, r.out+r.err, "s3cret")
		return r.out
	}
	text := run()
	require.Regexp(t, `(?m)^sessions +by header +x-clickhouse-session-id`, text)
	require.Regexp(t, `(?m)^Config +SessionHeader +"x-clickhouse-session-id": `, text)

	var report doctor.Report
	require.NoError(t, json.Unmarshal([]byte(run("--json", "--readonly")), &report))
	require.Equal(t, "unknown", report.Verdict("sessions"))

	source := run("--go", "--readonly")
	require.Contains(t, source, `Auth: flightpool.BasicAuth("app", os.Getenv("FLIGHTPOOL_PASSWORD"))`)

	r := flightpoolOf(t, "", nil, "doctor", "grpc://127.0.0.1:1")
	require.Equal(t, exitConnect, r.code, r.err)
	r = flightpoolOf(t, "", nil, "doctor", at, "--json", "--go")
	require.Equal(t, exitUsage, r.code, r.err)
}

// What the command line says beside the URL is in the Go of doctor too, but for secrets.
func TestTheGoOfDoctorHasWhatItTookToBeLetIn(t *testing.T) {
	ca := newAuthority(t)
	cert, _, _ := ca.issue(t, "server")
	_, mine, key := ca.issue(t, "client")
	srv := serve(t, testserver.Options{
		Users: map[string]string{"app": "s3cret"},
		TLS:   &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool},
	})
	const password = "FLIGHTPOOL_PASSWORD"
	basic := `Auth:    flightpool.BasicAuth("app", os.Getenv("FLIGHTPOOL_PASSWORD"))`
	for name, c := range map[string]struct {
		at   string
		args []string
		says []string
	}{
		"user":            {"grpc+tls://", []string{"--user", "app"}, []string{basic}},
		"user of the URL": {"grpc+tls://app:s3cret@", nil, []string{basic}},
		"headers": {"grpc+tls://app:s3cret@", []string{"--header", "x-tenant=s3cret", "--header", "X-Tenant=t-s3cret", "--header", "a.b=c"}, []string{
			`"x-tenant": {os.Getenv("HEADER_X_TENANT"), os.Getenv("HEADER_X_TENANT_AGAIN")}`, `metadata.MD{"a.b": {os.Getenv("HEADER_A_B")}, `,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"doctor", c.at + srv.Addr(), "--go", "--readonly", "--tls-ca", ca.file, "--tls-cert", mine, "--tls-key", key}, c.args...)
			r := flightpoolOf(t, "", []string{password + "=s3cret"}, args...)
			require.Zero(t, r.code, r.err)
			require.NotContains(t, r.out+r.err, "s3cret")
			for _, want := range append(c.says, fmt.Sprintf("os.ReadFile(%q)", ca.file), fmt.Sprintf("tls.LoadX509KeyPair(%q, %q)", mine, key), "TLS: ", "&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{mine}}") {
				require.Contains(t, strings.ReplaceAll(r.out, "Auth: f", "Auth:    f"), want)
			}
			_, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc f() error {\n"+r.out+"\nreturn nil\n}", 0)
			require.NoError(t, err, r.out)
		})
	}
}

// A URL may name the user and leave the password to the environment.
func TestThePasswordOfAUserInTheURLMayBeThatOfTheEnvironment(t *testing.T) {
	srv := serve(t, testserver.Options{Users: map[string]string{"app": "s3cret"}})
	at := "grpc://app@" + srv.Addr()
	r := flightpoolOf(t, "", []string{"FLIGHTPOOL_PASSWORD=s3cret"}, "-e", "SELECT 1", at)
	require.Zero(t, r.code, r.err)
	r = flightpoolOf(t, "", []string{"FLIGHTPOOL_PASSWORD=s3cret", "FLIGHTPOOL_TOKEN=of-another"}, "-e", "SELECT 1", at)
	require.Zero(t, r.code, r.err)
	r = flightpoolOf(t, "", []string{"FLIGHTPOOL_PASSWORD=of-another"}, "-e", "SELECT 1", "grpc://app:s3cret@"+srv.Addr())
	require.Zero(t, r.code, r.err)
	r = flightpoolOf(t, "", nil, "-e", "SELECT 1", at)
	require.Equal(t, exitConnect, r.code, r.err)
}

// A URL with a user is one that names a user.
func TestABasicHeaderIsSentForTheUserOfTheURL(t *testing.T) {
	srv := serve(t, testserver.Options{Profile: testserver.Profile{Handshake: testserver.NoToken}})
	at := "grpc://app:s3cret@" + srv.Addr()
	none := srv.Faults().Set(testserver.Fault{On: testserver.OnHandshake, Do: testserver.Fail(codes.Internal, "there are none")})
	r := flightpoolOf(t, "", nil, "doctor", at, "--basic-header", "--readonly")
	require.Zero(t, r.code, r.err)
	require.Regexp(t, `(?m)^authentication .*by an authorization header`, r.out)
	r = flightpoolOf(t, "", nil, "doctor", at, "--basic-header", "--readonly", "--go")
	require.Contains(t, r.out, `flightpool.BasicHeader("app", os.Getenv("FLIGHTPOOL_PASSWORD"))`)
	none.Clear()

	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("s3cret-token"), 0o600))
	r = flightpoolOf(t, "", nil, "doctor", at, "--token-file", file, "--readonly", "--go")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, `flightpool.BearerAuth(os.Getenv("FLIGHTPOOL_TOKEN"))`, "the token is what was sent")
	r = flightpoolOf(t, "", nil, "doctor", "grpc://"+srv.Addr()+"/?token=s3cret-token", "--readonly", "--go")
	require.Contains(t, r.out, `flightpool.BearerAuth(os.Getenv("FLIGHTPOOL_TOKEN"))`)
	require.NotContains(t, r.out+r.err, "s3cret-token")

	r = flightpoolOf(t, "", nil, "-e", "SELECT 1", "grpc://"+srv.Addr(), "--basic-header")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "--basic-header: name the user, by --user or in the URL")
	r = flightpoolOf(t, "", nil, "-e", "SELECT 1", at, "--basic-header", "--token-file", file)
	require.Equal(t, exitUsage, r.code)
}

func TestAReportThatCannotBeWrittenFailsTheRun(t *testing.T) {
	srv := serve(t, testserver.Options{})
	for _, args := range [][]string{{"doctor"}, {"doctor", "--json"}, {"doctor", "--go"}, {"bench", "-d", "10ms"}, {"bench", "-d", "10ms", "--json"}} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		cmd := process(t, nil, append(args, srv.URI())...)
		cmd.Stdout = full
		require.Error(t, cmd.Run(), args)
		require.NoError(t, full.Close())
		require.Equal(t, exitFailed, cmd.ProcessState.ExitCode(), args)
	}
}

func TestBenchPrintsTextAndJSON(t *testing.T) {
	srv := serve(t, testserver.Options{})
	const sql = "SELECT * FROM generate(7, 3)"
	r := flightpoolOf(t, "", nil, "bench", srv.URI(), "-c", "2", "-d", "100ms", "-q", sql)
	require.Zero(t, r.code, r.err)
	ran := len(srv.Ledger().Executions(sql))
	require.Regexp(t, fmt.Sprintf(`^%d calls? in \d+\.\d s: \d+ per second, %d rows?\n  mean `, ran, 7*ran), r.out)
	require.Contains(t, r.out, "  99.9 % ")
	require.Contains(t, r.out, "pool: 2 connections, 0 opened")

	r = flightpoolOf(t, "", nil, "bench", srv.URI(), "-c", "1", "-d", "1ms", "--json")
	require.Contains(t, r.out, `"errors":[]`)

	file := filepath.Join(t.TempDir(), "q.sql")
	require.NoError(t, os.WriteFile(file, []byte("SELECT 1; SELECT error('broken');"), 0o600))
	r = flightpoolOf(t, "", nil, "bench", srv.URI(), "-c", "2", "-d", "100ms", "-f", file, "--json")
	require.Equal(t, exitFailed, r.code, r.err)
	var report load.Report
	require.NoError(t, json.Unmarshal([]byte(r.out), &report))
	require.Positive(t, report.Failures)
	require.Equal(t, "statement, InvalidArgument", report.Errors[0].Kind)

	r = flightpoolOf(t, "", nil, "bench", srv.URI(), "-c", "1", "-d", "100ms", "-q", "SELECT error('broken')")
	require.Equal(t, exitFailed, r.code, r.err)
	require.Regexp(t, `^0 calls in \d+\.\d s: 0 per second, 0 rows\npool: `, r.out, "no times of nothing")

	for _, wrong := range [][]string{{"-c", "0"}, {"-d", "0s"}, {"-q", ";"}, {"-f", file + "x"}} {
		r = flightpoolOf(t, "", nil, append([]string{"bench", srv.URI()}, wrong...)...)
		require.Equal(t, exitUsage, r.code, r.err)
	}
}

func TestAnInterruptionEndsABenchWithItsFigures(t *testing.T) {
	srv := serve(t, testserver.Options{})
	cmd := process(t, nil, "bench", srv.URI(), "-c", "1", "-d", "1h", "-q", "SELECT 4711")
	begins := begun(srv, "4711")
	var out strings.Builder
	cmd.Stdout = &out
	require.NoError(t, cmd.Start())
	<-begins
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	require.Equal(t, exitInterrupted, cmd.ProcessState.ExitCode())
	require.Contains(t, out.String(), " per second")
}

// Whoever waits for an answer, or for a connection, goes with 130 by any of the signals,
// and the server keeps nothing of it.
func TestASignalEndsBenchDoctorAndTheOpening(t *testing.T) {
	for _, c := range []struct {
		name string
		on   testserver.Point
		args []string
	}{
		{"bench", testserver.OnStatement, []string{"bench", "-c", "2", "-d", "1h"}},
		{"doctor", testserver.OnStatement, []string{"doctor"}},
		{"doctor, as it connects", testserver.OnHandshake, []string{"doctor", "--json"}},
		{"bench, as it connects", testserver.OnHandshake, []string{"bench"}},
		{"shell, as it connects", testserver.OnHandshake, []string{"-e", "SELECT 1"}},
	} {
		for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
			t.Run(fmt.Sprintf("%s, %v", c.name, signal), func(t *testing.T) {
				srv := serve(t, testserver.Options{Users: map[string]string{"app": "s3cret"}})
				waits := make(chan struct{})
				skip := 0
				if c.on == testserver.OnStatement {
					skip = 3 // what a new connection is shown to work with
				}
				srv.Faults().Set(testserver.Fault{On: c.on, Skip: skip, Times: 1, Do: testserver.Effects(testserver.Do(func() { close(waits) }), testserver.Hang())})
				cmd := process(t, []string{passwordVariable + "=s3cret"}, append(c.args, "--user", "app", "--connect-timeout", "1m", srv.URI())...)
				var out, errs strings.Builder
				cmd.Stdout, cmd.Stderr = &out, &errs
				require.NoError(t, cmd.Start())
				<-waits
				require.NoError(t, cmd.Process.Signal(signal))
				_ = cmd.Wait()
				require.Equal(t, exitInterrupted, cmd.ProcessState.ExitCode(), out.String()+errs.String())
				require.NoError(t, srv.Ledger().WaitIdle(t.Context()))
			})
		}
	}
}
