package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

func TestEachFormatSaysTheSame(t *testing.T) {
	srv := serve(t, testserver.Options{})
	const sql = "SELECT 1 AS n, 'a,b' AS s, NULL AS x, 1.5 AS f"
	at := func(args ...string) result {
		r := flightpoolOf(t, "", nil, append(args, srv.URI(), "-e", sql)...)
		require.Zero(t, r.code, r.err)
		return r
	}
	require.Regexp(t, `(?s)^ n \| s   \| x    \| f\n---\+-----\+------\+-----\n 1 \| a,b \| NULL \| 1.5\n\(1 row, .*\)\n$`, at().out)
	require.Equal(t, "n,s,x,f\n1,\"a,b\",,1.5\n", at("--format", "csv").out)
	require.JSONEq(t, `{"n":1,"s":"a,b","x":null,"f":1.5}`, at("--format", "json").out)

	stream, err := ipc.NewReader(strings.NewReader(at("--format", "arrow").out))
	require.NoError(t, err)
	require.True(t, stream.Next())
	require.Equal(t, "a,b", stream.RecordBatch().Column(1).ValueStr(0))

	file := filepath.Join(t.TempDir(), "r.parquet")
	require.Empty(t, at("--format", "parquet", "-o", file).out)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	table, err := pqarrow.ReadTable(t.Context(), bytes.NewReader(text), parquet.NewReaderProperties(nil), pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	require.NoError(t, err)
	defer table.Release()
	require.Equal(t, int64(1), table.NumRows())
	require.Equal(t, "a,b", table.Column(1).Data().Chunk(0).(*array.String).Value(0))
}

func TestExitCodesSayWhatHappened(t *testing.T) {
	srv := serve(t, testserver.Options{Users: map[string]string{"app": "s3cret"}})
	at := strings.Replace(srv.URI(), "://", "://app:s3cret@", 1)
	missing := filepath.Join(t.TempDir(), "missing")
	for _, c := range []struct {
		name  string
		input string
		env   []string
		args  []string
		code  int
		says  string
	}{
		{name: "done", input: "SELECT 1;", args: []string{at}},
		{name: "the URL from the environment", input: "SELECT 1", env: []string{urlVariable + "=" + at}},
		{name: "a statement fails", args: []string{at, "-e", "SELECT * FROM missing; SELECT 'never'"}, code: exitFailed, says: "missing"},
		{name: "a transaction is not committed", args: []string{at, "-e", "CREATE TABLE lost (a BIGINT); BEGIN; INSERT INTO lost VALUES (1)"}, code: exitFailed, says: "it is not stored"},
		{name: "a comment is not closed", input: "SELECT 1;\n/* here\nSELECT 'never';\n", args: []string{at}, code: exitFailed, says: "comment that opens at byte 0 is never closed"},
		{name: "nor the second of two", args: []string{at, "-e", "SELECT 1; -- one\n/* /* here */ SELECT 'never';"}, code: exitFailed, says: "is never closed"},
		{name: "a load of such a comment", args: []string{"bench", at, "-d", "10ms", "-q", "SELECT 1; /* here"}, code: exitFailed, says: "is never closed"},
		{name: "lines that end as those of old Macs", input: "SELECT 1; -- one\rSELECT 'never';\r", args: []string{at}, code: exitFailed, says: "syntax error"}, // by this server, whose comments end at LF alone
		{name: "comments alone", input: "SELECT 1; /* here */ -- there", args: []string{at}},
		{name: "no URL", code: exitUsage, says: "name the server"},
		{name: "an unknown flag", args: []string{"--colour", at}, code: exitUsage, says: "--colour"},
		{name: "a number that is none", args: []string{"bench", "-c", "x", at}, code: exitUsage, says: `--concurrency: "x" is not a whole number`},
		{name: "a duration without its unit", args: []string{"bench", "--duration", "5", at}, code: exitUsage, says: `--duration: "5" is not a duration such as 10s`},
		{name: "a command misspelt", args: []string{"doctr", at}, code: exitUsage, says: "did you mean doctor?"},
		{name: "a command without its end", args: []string{"ben"}, code: exitUsage, says: "did you mean bench?"},
		{name: "two URLs", args: []string{at, at}, code: exitUsage, says: "2 arguments where one URL is taken; statements are given by -e"},
		{name: "two URLs of a command", args: []string{"bench", at, at}, code: exitUsage, says: "2 arguments where one URL is taken"},
		{name: "the version", args: []string{"--version"}},
		{name: "an unknown format", args: []string{at, "--format", "xml"}, code: exitUsage, says: "table, csv, json"},
		{name: "no such file", args: []string{at, "-f", missing}, code: exitUsage, says: "missing"},
		{name: "a URL that is none", args: []string{"localhost:1"}, code: exitUsage, says: "localhost:1"},
		{name: "a header without value", args: []string{at, "--header", "s3cret"}, code: exitUsage, says: "header 1 is not name=value"},
		{name: "a password as clients of MySQL take it", args: []string{at, "-ps3cret"}, code: exitUsage, says: "unknown flag: -p"},
		{name: "and with what is known", args: []string{"doctor", at, "-u", "app", "-Ps3cret"}, code: exitUsage, says: "unknown flag: -P"},
		{name: "a password without a flag", args: []string{at, "--=s3cret"}, code: exitUsage, says: "bad flag syntax"},
		{name: "a password as curl takes it", args: []string{at, "-u", "app:s3cret"}, code: exitUsage, says: passwordVariable},
		{name: "nobody there", args: []string{"grpc://127.0.0.1:1", "-e", "SELECT 1"}, code: exitConnect, says: "refused"},
		{name: "a wrong password", env: []string{passwordVariable + "=s3cret-wrong"}, args: []string{srv.URI(), "--user", "app", "-e", "SELECT 1"}, code: exitConnect, says: "password is wrong"},
		{name: "no password", args: []string{srv.URI(), "--user", "app"}, code: exitUsage, says: passwordVariable},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := flightpoolOf(t, c.input, c.env, c.args...)
			require.Equal(t, c.code, r.code, r.out+r.err)
			require.Contains(t, r.err, c.says)
			require.NotContains(t, r.out+r.err, "s3cret")
			require.NotContains(t, r.out, "never")
		})
	}
}

func TestCredentialsComeFromFilesAndTheEnvironment(t *testing.T) {
	srv := serve(t, testserver.Options{Users: map[string]string{"app": "s3cret"}, Tokens: []string{"t0ken"}})
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("t0ken\n"), 0o600))
	for _, c := range []struct {
		env, args []string
	}{
		{env: []string{passwordVariable + "=s3cret"}, args: []string{"--user", "app"}},
		{env: []string{tokenVariable + "=t0ken"}},
		{args: []string{"--token-file", file}},
	} {
		r := flightpoolOf(t, "", c.env, append(c.args, srv.URI(), "-e", "SELECT 1 AS x", "--format", "csv")...)
		require.Zero(t, r.code, r.err)
		require.Equal(t, "x\n1\n", r.out)
	}
}

// What \d lists is what \d takes, also where a name has dots.
func TestATableIsDescribedByTheNameThatIsListed(t *testing.T) {
	at := serve(t, testserver.Options{}).URI()
	require.Zero(t, flightpoolOf(t, `CREATE TABLE flights (a BIGINT); CREATE SCHEMA s; CREATE TABLE s.flights (b BIGINT)`, nil, at).code)
	described := func(name string) result {
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{at}, environment{strings.NewReader(`\d ` + name), &out, &errs, func(string) string { return "" }, make(chan os.Signal), nil})
		return result{out.String(), errs.String(), code}
	}
	listed := regexp.MustCompile(`(?m)^  (\S*flights) `).FindAllStringSubmatch(described("").out, -1)
	require.Len(t, listed, 2)
	for _, line := range listed {
		r := described(line[1])
		require.Zero(t, r.code, r.err)
		require.Equal(t, 1, strings.Count(r.out, "table "+line[1]+"\n"), r.out)
		require.Equal(t, 1, strings.Count(r.out, "table "), r.out)
	}
	for name, found := range map[string]int{"flights": 2, "FLIGHTS": 2, "main.flights": 1, "s.Flights": 1, `s."flights"`: 1, `"memory"."s"."flights"`: 1, "nowhere.flights": 0, "memory.flights": 0, "lights": 0} {
		r := described(name)
		require.Equal(t, found, strings.Count(r.out, "table "), "%s: %s", name, r.out)
		require.Equal(t, found == 0, strings.Contains(r.err, "no table"), r.err)
	}
}

func TestScriptsRunInOneSession(t *testing.T) {
	srv := serve(t, testserver.Options{})
	r := flightpoolOf(t, `-- a script; with a comment
CREATE TEMP TABLE t (i BIGINT, s VARCHAR);
BEGIN;
INSERT INTO t VALUES (1, 'a;b'), (2, 'it''s');
SAVEPOINT one;
INSERT INTO t VALUES (3, 'c');
ROLLBACK TO one;
COMMIT;
\format csv
SELECT *
  FROM t;
\d t
\begin
DELETE FROM t;
\rollback
SELECT count(*) FROM t`, nil, srv.URI())
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "OK, 2 rows affected")
	require.Contains(t, r.out, "i,s\n1,a;b\n2,it's\n")
	require.Regexp(t, `(?m)^local temporary .*t\n +i +int64\n +s +utf8$`, r.out)
	require.True(t, strings.HasSuffix(r.out, "count\n2\n"), r.out)
}

// A script that runs itself ends.
func TestScriptsThatRunOneAnotherEnd(t *testing.T) {
	srv := serve(t, testserver.Options{})
	dir := t.TempDir()
	name := filepath.Join(dir, "self.sql")
	require.NoError(t, os.WriteFile(name, []byte("\\i "+name+"\n"), 0o600))
	r := flightpoolOf(t, "", nil, srv.URI(), "-f", name)
	require.Equal(t, 1, r.code, r.err)
	require.Equal(t, "flightpool: "+name+": 50 scripts run one another by \\i: is it one that runs itself?\n", r.err)
	for i := range 50 {
		next := filepath.Join(dir, strconv.Itoa(i+1))
		require.NoError(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), []byte("SELECT 4"+strconv.Itoa(i)+";\n"+strings.Repeat("\\i "+next+"\n", min(1, 49-i))), 0o600))
	}
	r = flightpoolOf(t, "", nil, srv.URI(), "-f", filepath.Join(dir, "0"), "-f", filepath.Join(dir, "0"))
	require.Zero(t, r.code, r.err)
	require.Equal(t, 2, strings.Count(r.out, " 449\n"), "to the end, and once more")
}

func TestAFileIsThereWholeOrNotAtAll(t *testing.T) {
	srv := serve(t, testserver.Options{})
	dir := t.TempDir()
	file := filepath.Join(dir, "out.csv")
	run := func(sql string) result {
		return flightpoolOf(t, "", nil, srv.URI(), "--format", "csv", "-o", file, "-e", sql)
	}
	require.Zero(t, run("SELECT 1 AS a").code)
	require.Equal(t, exitFailed, run("SELECT 2 AS a; SELECT error('broken')").code)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "a\n1\n", string(text))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1)

	r := flightpoolOf(t, "", nil, srv.URI(), "--format", "arrow", "-o", file, "-e", "SELECT 1; SELECT 2")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "one result")
}

func TestRowsAreWrittenAsTheyCome(t *testing.T) {
	srv := serve(t, testserver.Options{})
	for _, format := range []string{"table", "csv", "json"} {
		cmd := process(t, nil, srv.URI(), "--format", format, "-e", "SELECT * FROM endless('1ms')")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = io.ReadFull(out, make([]byte, 500)) // of a result that never ends
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		require.Equal(t, exitInterrupted, cmd.ProcessState.ExitCode())
	}
	require.NoError(t, srv.Ledger().WaitIdle(t.Context()))
}

func TestAnInterruptionStopsTheStatementOnTheServer(t *testing.T) {
	srv := serve(t, testserver.Options{})
	cmd := process(t, nil, srv.URI(), "-e", "SELECT sleep('1h')")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	sleeps := begun(srv, "sleep")
	require.NoError(t, cmd.Start())
	<-sleeps
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	require.Equal(t, exitInterrupted, cmd.ProcessState.ExitCode())
	require.Contains(t, errs.String(), "stopped on the server")
	require.NoError(t, srv.Ledger().WaitIdle(t.Context()))
}

// What is stopped may have been done: RETURNING gives its rows once they are stored.
func TestAnInterruptionOfAChangeSaysThatItMayBeStored(t *testing.T) {
	endless, err := script.New().Open(t.Context())
	require.NoError(t, err)
	engine := script.New()
	for _, prefix := range []string{"INSERT INTO log", "WITH gone AS (DELETE FROM log", "-- how\nINSERT INTO log", "SELECT 'INSERT'", "/* INSERT */", "SHOW log"} {
		engine.On(prefix, func(ctx context.Context, _ string, _ arrow.RecordBatch) (array.RecordReader, error) {
			return endless.Query(ctx, "SELECT * FROM endless('1ms')", nil)
		})
	}
	srv := serve(t, testserver.Options{Engine: engine})
	for sql, maybe := range map[string]bool{
		"SELECT * FROM endless('1ms')":                                                     false,
		"/* INSERT */ SELECT * FROM endless('1ms') -- INTO":                                false,
		"INSERT INTO log VALUES (1) RETURNING a":                                           true,
		"-- how\nINSERT INTO log VALUES (1) RETURNING a":                                   true,
		"WITH gone AS (DELETE FROM log RETURNING *) SELECT * FROM gone":                    true,
		"BEGIN; INSERT INTO log VALUES (1) RETURNING a":                                    false, // is rolled back
		"SELECT 'INSERT' FROM t":                                                           true,  // the careful answer
		"\\route query\nSHOW log ->> CREATE TABLE made AS SELECT * FROM $1 ->> TABLE made": true,
	} {
		cmd := process(t, nil, srv.URI(), "--format", "csv", "-e", sql)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = io.ReadFull(out, make([]byte, 500))
		require.NoError(t, err, "%s: %s", sql, &errs)
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		require.Equal(t, exitInterrupted, cmd.ProcessState.ExitCode())
		if strings.Contains(errs.String(), "it may have carried the statement out") {
			continue // it ended before it was to be stopped
		}
		require.Contains(t, errs.String(), "stopped on the server", sql)
		require.Equal(t, maybe, strings.Contains(errs.String(), "what it had changed by then may be stored"), "%s: %s", sql, &errs)
	}
}

// The server carries out what is left to it, and nobody is told that nothing was done.
func TestAnInterruptionOfACommitSaysThatItMayBeStored(t *testing.T) {
	srv := serve(t, testserver.Options{})
	stored, answer := make(chan struct{}), make(chan struct{})
	srv.Faults().Set(testserver.Fault{On: testserver.OnEnd, After: true, Skip: 2, Times: 1, Do: testserver.Do(func() { // but for those by which the pool learns what ends mean
		close(stored)
		<-answer
	})})
	interrupts, ended := make(chan os.Signal), make(chan int)
	var out, errs bytes.Buffer
	go func() {
		ended <- run(t.Context(), []string{srv.URI(), "-e", "CREATE TABLE t (a BIGINT); BEGIN; INSERT INTO t VALUES (1); COMMIT; SELECT 'never'"},
			environment{strings.NewReader(""), &out, &errs, func(string) string { return "" }, interrupts, nil})
	}()
	<-stored
	interrupts <- os.Interrupt
	close(answer)
	require.Equal(t, exitInterrupted, <-ended)
	require.Regexp(t, "whether the transaction is stored is not known|had ended on the server", errs.String()) // the answer may be faster
	require.NotContains(t, out.String(), "never")
	require.Equal(t, "count\n1\n", flightpoolOf(t, "", nil, srv.URI(), "--format", "csv", "-e", "SELECT count(*) FROM t").out)
}

func TestASignalEndsTheWaitForInput(t *testing.T) {
	srv := serve(t, testserver.Options{})
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		cmd := process(t, nil, srv.URI(), "--format", "csv")
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = io.WriteString(in, "SELECT 1 AS a;\n")
		require.NoError(t, err)
		_, err = io.ReadFull(out, make([]byte, len("a\n1\n")))
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Signal(signal))
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		require.Equal(t, exitInterrupted, cmd.ProcessState.ExitCode(), signal)
	}
}

// What writes to a pipe that nobody reads does not heed a signal, but for the second.
func TestASecondSignalEndsWhatNobodyReads(t *testing.T) {
	srv := serve(t, testserver.Options{})
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		cmd := process(t, nil, srv.URI(), "--format", "csv")
		cmd.Stdin = strings.NewReader("SELECT '" + strings.Repeat("a", 1<<20) + "' AS a;")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = io.ReadFull(out, make([]byte, len("a\n")))
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		again := time.NewTicker(10 * time.Millisecond)
		late := time.After(20 * time.Second)
		for done := false; !done; {
			select {
			case <-ended:
				done = true
			case <-again.C:
				_ = cmd.Process.Signal(signal) // it may have ended
			case <-late:
				_ = cmd.Process.Kill()
				t.Fatalf("%v does not end it", signal)
			}
		}
		again.Stop()
	}
}

// A terminal that closes may tell so twice, and a parent passes on what its group was told too: that is one wish, behind which
// the transaction is rolled back all the same.
func TestASignalThatIsToldTwiceIsOne(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		srv := serve(t, testserver.Options{})
		srv.Faults().Set(testserver.Fault{On: testserver.OnEnd, Do: testserver.Delay(300 * time.Millisecond)})
		cmd := process(t, nil, srv.URI(), "-e", "CREATE TABLE t (a BIGINT); BEGIN; INSERT INTO t VALUES (1); SELECT 'now'; SELECT sleep('30s')")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for lines.Scan() && !strings.Contains(lines.Text(), "now") {
			continue
		}
		require.NoError(t, cmd.Process.Signal(signal))
		time.Sleep(50 * time.Millisecond) // the first is taken
		require.NoError(t, cmd.Process.Signal(signal))
		_, err = io.Copy(io.Discard, out)
		require.NoError(t, err)
		var failed *exec.ExitError
		require.ErrorAs(t, cmd.Wait(), &failed)
		require.True(t, failed.Exited(), "%v: %v", signal, failed)
	}
}

// A terminal that is closed ends what was started in it.
func TestAFileIsNotLeftInPartByAnEndOfTheTerminal(t *testing.T) {
	srv := serve(t, testserver.Options{})
	file := filepath.Join(t.TempDir(), "out.csv")
	started := begun(srv, "SELECT * FROM endless('1ms')")
	cmd := process(t, nil, srv.URI(), "--format", "csv", "-o", file, "-e", "SELECT * FROM endless('1ms')")
	require.NoError(t, cmd.Start())
	<-started
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	_ = cmd.Wait()
	require.Equal(t, exitInterrupted, cmd.ProcessState.ExitCode())
	require.NoError(t, srv.Ledger().WaitIdle(t.Context()))
	left, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Empty(t, left)
}

// A row group is written when all of its rows have come.
func TestAnInterruptionWhileTheLastRowsAreWrittenEndsTheRun(t *testing.T) {
	srv := serve(t, testserver.Options{})
	for _, format := range []string{"parquet", "csv", "table"} {
		interrupts := make(chan os.Signal, 1)
		out := writerFunc(func(b []byte) (int, error) {
			select {
			case interrupts <- os.Interrupt:
			default:
			}
			return len(b), nil
		})
		code := run(t.Context(), []string{srv.URI(), "--format", format, "-e", "SELECT 'last'; SELECT 'never'"},
			environment{strings.NewReader(""), out, io.Discard, func(string) string { return "" }, interrupts, nil})
		require.Equal(t, exitInterrupted, code)
		require.Empty(t, srv.Ledger().Executions("SELECT 'never'"))
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestAFileIsForWhomTheUserHasIt(t *testing.T) {
	srv := serve(t, testserver.Options{})
	dir := t.TempDir()
	written := func(name string) os.FileInfo {
		file := filepath.Join(dir, name)
		r := flightpoolOf(t, "", nil, srv.URI(), "-o", file, "-e", "SELECT 1")
		require.Zero(t, r.code, r.err)
		info, err := os.Lstat(file)
		require.NoError(t, err)
		return info
	}
	umask := syscall.Umask(0o077)
	defer syscall.Umask(umask)
	require.Equal(t, "-rw-------", written("new").Mode().String())
	syscall.Umask(0o022)
	require.Equal(t, "-rw-------", written("new").Mode().String(), "as the file before")
	require.Equal(t, "-rw-r--r--", written("newer").Mode().String())
	require.NoError(t, os.Symlink("new", filepath.Join(dir, "link")))
	require.Equal(t, os.ModeSymlink, written("link").Mode().Type())
}

func TestALineThatCannotBeWrittenFailsTheRun(t *testing.T) {
	srv := serve(t, testserver.Options{})
	for _, sql := range []string{"CREATE TEMP TABLE t (a BIGINT)", "BEGIN; COMMIT", "SELECT 1"} {
		r := flightpoolOf(t, "", nil, srv.URI(), "-o", "/dev/full", "-e", sql)
		require.Equal(t, exitFailed, r.code, sql)
		require.Contains(t, r.err, "no space left", sql)
	}
}

// begun is closed once a statement with that text begins on the server.
func begun(srv *testserver.Server, sql string) <-chan struct{} {
	begins := make(chan struct{})
	srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: sql, Times: 1, Do: testserver.Do(func() { close(begins) })})
	return begins
}

func TestManyRowsTakeLittleMemory(t *testing.T) {
	srv := serve(t, testserver.Options{})
	const limit = 32 // MB, less than the rows are in any of these formats
	for _, format := range []string{"csv", "arrow"} {
		r := flightpoolOf(t, "", []string{"GOMEMLIMIT=off", "GODEBUG=gctrace=1"}, srv.URI(), "--format", format, "-o", os.DevNull,
			"-e", "SELECT * FROM generate(5000000, 8192)")
		require.Zero(t, r.code, r.err)
		largest := 0
		for line := range strings.Lines(r.err) {
			var before, after, live int
			if _, heap, ok := strings.Cut(line, " ms cpu, "); ok {
				if _, err := fmt.Sscanf(heap, "%d->%d->%d MB", &before, &after, &live); err == nil {
					largest = max(largest, before)
				}
			}
		}
		require.Positive(t, largest, r.err)
		require.Less(t, largest, limit, "MB, %s", format)
	}
}

func TestJSONKeepsNamesApart(t *testing.T) {
	srv := serve(t, testserver.Options{})
	r := flightpoolOf(t, "", nil, srv.URI(), "--format", "json", "-e", "SELECT 1 AS a, 2 AS a")
	var row map[string]int
	require.NoError(t, json.Unmarshal([]byte(r.out), &row), r.out)
	require.Equal(t, map[string]int{"a": 1, "a#2": 2}, row)
}

func TestWithoutAResultThereIsNoArrowOrParquet(t *testing.T) {
	srv := serve(t, testserver.Options{})
	for _, format := range []string{"arrow", "parquet"} {
		file := filepath.Join(t.TempDir(), "out")
		for _, run := range []struct {
			args []string
			code int
		}{
			{args: []string{"-o", file, "-e", "CREATE TEMP TABLE t (a BIGINT)"}, code: exitFailed},
			{args: []string{"-e", "CREATE TEMP TABLE t (a BIGINT)"}, code: exitFailed},
			{args: []string{"-e", `\o ` + file, "-e", "CREATE TEMP TABLE t (a BIGINT)", "-e", `\o`}, code: exitFailed},
			{args: []string{"-e", `\o ` + file, "-e", "SELECT * FROM generate(0)", "-e", `\o`}},
			{args: []string{"-o", file, "-e", "SELECT * FROM generate(0)"}},
		} {
			r := flightpoolOf(t, "", nil, append([]string{srv.URI(), "--format", format}, run.args...)...)
			require.Equal(t, run.code, r.code, "%v: %s", run.args, r.err)
			if run.code == 0 {
				require.FileExists(t, file)
				require.NoError(t, os.Remove(file))
			} else {
				require.NoFileExists(t, file)
				require.Contains(t, r.err, "no statement has given a result")
			}
		}
	}
}

// A line in a file of Arrow or Parquet makes it one that nobody reads.
func TestNoLineStandsBesideArrowOrParquet(t *testing.T) {
	srv := serve(t, testserver.Options{})
	for _, format := range []string{"arrow", "parquet"} {
		file := filepath.Join(t.TempDir(), "out")
		const query = "SELECT 7 AS seven"
		run := func(args ...string) result { return flightpoolOf(t, "", nil, append([]string{srv.URI()}, args...)...) }
		require.Zero(t, run("--format", format, "-o", file, "-e", query).code)
		alone, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, args := range [][]string{
			{"--format", format, "-o", file, "-e", `\timing`, "-e", query, "-e", `\stats`, "-e", `\d`},
			{"-e", `\o ` + file, "-e", `\format ` + format, "-e", query, "-e", `\format table`, "-e", "BEGIN", "-e", "ROLLBACK", "-e", `\o`},
		} {
			require.NoError(t, os.Remove(file))
			r := run(args...)
			require.Zero(t, r.code, r.err)
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(alone), string(text), args)
			require.Regexp(t, "timing is on|OK", r.err)
		}
		require.NoError(t, os.Remove(file))
		r := run("-o", file, "-e", "BEGIN", "-e", "ROLLBACK", "-e", `\format `+format, "-e", query)
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "lines of text before it")
		require.NoFileExists(t, file)
	}
}

func TestCommentsAroundTransactionsAreNoPartOfThem(t *testing.T) {
	srv := serve(t, testserver.Options{})
	r := flightpoolOf(t, "\ufeff\\format csv\r\n"+`CREATE TABLE t (a BIGINT);
-- the first
BEGIN /* of; two */ TRANSACTION;
INSERT INTO t VALUES (1);
/* stored */ COMMIT -- now
;
BEGIN; -- the second
INSERT INTO t VALUES (2);
-- and undone
ABORT;
SELECT count(*) FROM t`, nil, srv.URI())
	require.Zero(t, r.code, r.err)
	require.Equal(t, "count\n1\n", r.out)
}

func TestTheListOfTablesHasNoColumns(t *testing.T) {
	srv := serve(t, testserver.Options{})
	r := flightpoolOf(t, "", nil, srv.URI(), "-e", "CREATE TABLE t (a BIGINT)", "-e", `\d`)
	require.Zero(t, r.code, r.err)
	require.Regexp(t, `(?m)^ +\S*t +table$`, r.out)
}

func TestACommitThatIsRefusedSaysWhatTheServerSays(t *testing.T) {
	srv := serve(t, testserver.Options{})
	refuse := testserver.Fault{On: testserver.OnEnd, Do: testserver.Fail(codes.Aborted, "another was faster")}
	srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "INSERT", Do: testserver.Do(func() { srv.Faults().Set(refuse) })})
	r := flightpoolOf(t, "CREATE TABLE t (a BIGINT); BEGIN; INSERT INTO t VALUES (1); COMMIT", nil, srv.URI())
	require.Equal(t, exitFailed, r.code)
	require.Equal(t, "flightpool: nothing of the transaction is stored: the server has refused the COMMIT: another was faster\n", r.err)
}

func TestAnInterruptionBetweenWhatIsWatchedEndsTheScript(t *testing.T) {
	srv := serve(t, testserver.Options{})
	cmd := process(t, nil, srv.URI(), "-e", `\timing`, "-e", "SELECT 'now'", "-e", `\watch 600`, "-e", "SELECT 'never'")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	said, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	times := bufio.NewScanner(said)
	for n := 0; n < 2; { // of the statement, and of the first that is watched
		require.True(t, times.Scan())
		if strings.HasPrefix(times.Text(), "time: ") {
			n++
		}
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, said)
	require.NoError(t, err)
	_ = cmd.Wait() // it fails with the code below
	require.NotContains(t, string(rest), "never")
	require.Equal(t, exitInterrupted, cmd.ProcessState.ExitCode())
}
