package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// A screen is a terminal of tmux with the command in it. tmux tells of each output
// (control mode), so that nothing is polled.
type screen struct {
	t     *testing.T
	tmux  io.Writer
	lines chan string // what tmux says
	home  string
}

// open starts the command in a terminal of 100 by 30 characters. Its exit code is
// printed as EXIT and the number.
func open(t *testing.T, env []string, args ...string) *screen {
	t.Helper()
	_, err := exec.LookPath("tmux")
	require.NoError(t, err, "install tmux (make test-deps)")
	program, err := os.Executable()
	require.NoError(t, err)
	s := &screen{t: t, lines: make(chan string, 1000), home: t.TempDir()}
	vars := append([]string{asCommand + "=1", "HOME=" + s.home, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8"}, env...)
	words := append([]string{"env", "-i", "TERM=screen"}, append(vars, append([]string{program}, args...)...)...)
	for i := range words {
		words[i] = "'" + words[i] + "'"
	}
	// Not t.Context(), which ends before the clean-up: that would end the client alone.
	tmux := exec.CommandContext(context.WithoutCancel(t.Context()), "tmux", "-S", filepath.Join(t.TempDir(), "tmux"), "-f", os.DevNull, "-C",
		"new-session", "-x", "100", "-y", "30", "trap : INT; "+strings.Join(words, " ")+`; echo "EXIT $?"; cat`)
	tmux.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TERM=screen", "SHELL=/bin/sh"}
	in, err := tmux.StdinPipe()
	require.NoError(t, err)
	out, err := tmux.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, tmux.Start())
	s.tmux = in
	go func() {
		defer close(s.lines)
		for all := bufio.NewScanner(out); all.Scan(); {
			s.lines <- all.Text()
		}
	}()
	t.Cleanup(func() {
		_, _ = io.WriteString(in, "kill-server\n") // it may have ended
		_ = in.Close()
		for range s.lines { // the server ends when all is read
		}
		_ = tmux.Wait()
	})
	s.reply() // of new-session
	s.ask("refresh-client -C 100x30")
	s.ask("set-option -g destroy-unattached on") // so that nothing stays where the test is killed
	return s
}

// patience bounds what a test waits for.
const patience = 30 * time.Second

// next is what tmux says next.
func (s *screen) next() string {
	s.t.Helper()
	select {
	case line, ok := <-s.lines:
		require.True(s.t, ok, "tmux has ended")
		return line
	case <-time.After(patience):
		s.t.Fatal("tmux does not answer")
		return ""
	}
}

// reply reads to the end of the answer to a command.
func (s *screen) reply() (lines []string) {
	s.t.Helper()
	for !strings.HasPrefix(s.next(), "%begin ") { // notifications before it are passed over
	}
	for {
		line := s.next()
		if strings.HasPrefix(line, "%end ") {
			return lines
		}
		require.False(s.t, strings.HasPrefix(line, "%error "), lines)
		lines = append(lines, line)
	}
}

func (s *screen) ask(command string) []string {
	s.t.Helper()
	_, err := fmt.Fprintln(s.tmux, command)
	require.NoError(s.t, err)
	return s.reply()
}

// keys presses keys by tmux's names; types enters text.
func (s *screen) keys(names ...string) { s.ask("send-keys " + strings.Join(names, " ")) }
func (s *screen) types(text string) {
	s.ask(`send-keys -l "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`).Replace(text) + `"`)
}

func (s *screen) enter(text string) {
	s.types(text)
	s.keys("Enter")
}

// text is what the terminal has shown, with what has left it at the top.
func (s *screen) text() string {
	s.t.Helper()
	lines := s.ask("capture-pane -p -J -S -1000")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// wait waits until the terminal shows a text.
func (s *screen) wait(want string) string {
	s.t.Helper()
	return s.waitFor(want, func(text string) bool { return strings.Contains(text, want) })
}

func (s *screen) waitFor(what string, ok func(string) bool) string {
	s.t.Helper()
	deadline := time.After(patience)
	for {
		text := s.text()
		if ok(text) {
			return text
		}
		for shown := false; !shown; {
			select {
			case line, open := <-s.lines:
				require.True(s.t, open, "tmux has ended")
				shown = strings.HasPrefix(line, "%output ")
			case <-deadline:
				s.t.Fatalf("no %q in\n%s", what, text)
			}
		}
	}
}

// prompted waits for a prompt behind what has been there.
func (s *screen) prompted(prompt string) string {
	s.t.Helper()
	return s.waitFor(prompt, func(text string) bool { return strings.HasSuffix(text, prompt) })
}

func TestStatementsOfSeveralLinesAreTypedAndCompleted(t *testing.T) {
	srv := serve(t, testserver.Options{})
	s := open(t, nil, srv.URI())
	s.prompted("=>")
	s.enter("CREATE TABLE flights (origin VARCHAR, delay BIGINT);")
	s.wait("OK")
	s.enter("INSERT INTO flights VALUES ('BER', 12), ('MUC', 3);")
	s.wait("2 rows")
	s.types("sel")
	s.keys("Tab")
	s.prompted("select")
	s.types(" * from fli")
	s.keys("Tab")
	s.prompted("select * from flights")
	s.keys("Enter")
	s.prompted("..>")
	s.types("  where ori")
	s.keys("Tab")
	s.prompted("where ori") // no column of a table that this line does not name
	s.types("gin = 'BER';")
	s.keys("Enter")
	s.wait("(1 row,")
	require.Contains(t, s.prompted("=>"), " origin | delay\n--------+-------\n BER    |    12\n")

	s.types("select flights.")
	s.keys("Tab", "Tab")
	s.wait("delay origin")
	s.keys("C-u")
	s.enter(`\d flights`)
	s.wait("origin                   utf8")
	s.keys("C-d")
	s.wait("EXIT 0")
}

func TestATabThatIsPastedWithinATextIsStored(t *testing.T) {
	srv := serve(t, testserver.Options{})
	s := open(t, nil, srv.URI())
	s.prompted("=>")
	s.enter("CREATE TABLE flights (origin VARCHAR, delay BIGINT);")
	s.wait("OK")
	for _, line := range []string{"INSERT INTO flights VALUES ('orig\tx', 1),", "('a", "del\tb', 2);", `\format json`, "SELECT * FROM flights;"} {
		s.enter(line)
	}
	s.wait(`{"origin":"orig\tx",`)
	s.wait(`{"origin":"a\ndel\tb",`)
}

func TestCtrlCStopsTheStatementAndThenLeaves(t *testing.T) {
	srv := serve(t, testserver.Options{})
	s := open(t, nil, srv.URI())
	s.prompted("=>")
	s.enter("CREATE TEMP TABLE mine AS SELECT 42 AS answer;")
	s.wait("OK")
	s.enter("SELECT sleep('1h');")
	s.wait("(Ctrl-C stops it)")
	s.keys("C-c")
	s.wait("stopped on the server")
	s.prompted("=>")
	require.NoError(t, srv.Ledger().WaitIdle(t.Context()))
	s.enter("SELECT * FROM mine;")
	s.wait("     42")

	s.enter("SELECT")
	s.prompted("..>")
	s.keys("C-c")
	s.wait("Ctrl-C again")
	s.prompted("=>")
	s.keys("C-c")
	s.wait("EXIT 0")
}

// Whoever has forgotten the semicolon, or looks for a way out, may leave. Within a quote
// the same is a part of a text.
func TestTheShellMayBeLeftWithinAStatement(t *testing.T) {
	srv := serve(t, testserver.Options{})
	s := open(t, nil, srv.URI())
	s.prompted("=>")
	s.enter(`SELECT 'a`)
	s.prompted("..>")
	s.enter(`\q`)
	s.prompted("..>")
	s.enter(`b' AS s;`)
	s.wait(`a\n\q\nb`)
	s.prompted("=>")
	s.enter("exit")
	s.prompted("..>")
	s.enter(`\q`)
	s.wait("EXIT 0")
}

func TestAFileOfThePromptIsThereWholeOrNotAtAll(t *testing.T) {
	srv := serve(t, testserver.Options{})
	s := open(t, nil, srv.URI())
	file := filepath.Join(t.TempDir(), "out.csv")
	s.prompted("=>")
	s.enter(`\format csv`)
	s.enter(`\o ` + file)
	s.enter("SELECT * FROM endless('1ms');")
	s.wait("(Ctrl-C stops it)")
	s.keys("C-c")
	s.wait("stopped on the server")
	s.enter(`\o`)
	s.wait("the file is not written")
	left, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Empty(t, left)

	s.enter(`\o ` + file)
	s.enter("SELECT 7 AS seven;")
	s.enter("SELECT nothing;")
	s.wait("parser error")
	s.enter(`\q`)
	s.wait("EXIT 0")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "seven\n7\n", string(text))
}

// What the prompt says is no part of the results that -o has in a file.
func TestWhatThePromptSaysIsInNoFile(t *testing.T) {
	srv := serve(t, testserver.Options{})
	file := filepath.Join(t.TempDir(), "out.csv")
	s := open(t, nil, srv.URI(), "--format", "csv", "-o", file)
	s.wait("lists commands")
	s.prompted("=>")
	s.enter("SELECT 7 AS seven;")
	s.waitFor("a prompt behind it", func(text string) bool { return strings.HasSuffix(text, "=>") && strings.Contains(text, "seven;\n") })
	s.keys("C-d")
	s.wait("EXIT 0")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "seven\n7\n", string(text))
}

// The prompt is shown before Ctrl-C is a key: until then it is a signal.
func TestASignalAtThePromptIsCtrlC(t *testing.T) {
	srv := serve(t, testserver.Options{})
	s := open(t, nil, srv.URI())
	s.prompted("=>")
	pid, err := strconv.Atoi(strings.TrimSpace(s.ask("display-message -p '#{pane_pid}'")[0]))
	require.NoError(t, err)
	interrupt := func() { require.NoError(t, syscall.Kill(-pid, syscall.SIGINT)) } // its group; the shell around it traps it
	interrupt()
	s.wait("Ctrl-C again")
	s.prompted("=>")
	s.enter("SELECT 7 AS seven;")
	s.wait("     7")
	s.prompted("=>")
	interrupt()
	answer := "=> ^C\n(Ctrl-C again, Ctrl-D or \\q leaves)\n" + strings.TrimPrefix(srv.URI(), "grpc+tcp://")
	s.waitFor("a second answer", func(text string) bool { return strings.Count(text, answer) == 2 }) // two signals at once are one
	s.prompted("=>")
	interrupt()
	s.wait("EXIT 0")
}

// signals sends a signal to the command alone: the shell around it would obey it too.
func (s *screen) signals(signal syscall.Signal) {
	s.t.Helper()
	around := strings.TrimSpace(s.ask("display-message -p '#{pane_pid}'")[0])
	children, err := os.ReadFile("/proc/" + around + "/task/" + around + "/children")
	require.NoError(s.t, err)
	pid, err := strconv.Atoi(strings.Fields(string(children))[0])
	require.NoError(s.t, err)
	require.NoError(s.t, syscall.Kill(pid, signal))
}

func TestASignalEndsThePrompt(t *testing.T) {
	srv := serve(t, testserver.Options{Users: map[string]string{"app": "s3cret"}})
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		s := open(t, nil, srv.URI(), "--user", "app")
		s.wait("password of app:")
		s.signals(signal)
		s.wait("EXIT 130")

		s = open(t, []string{"FLIGHTPOOL_PASSWORD=s3cret"}, srv.URI(), "--user", "app")
		s.prompted("=>")
		s.enter("BEGIN;")
		s.prompted("*>")
		s.signals(signal)
		s.wait("EXIT 130")
	}
}

func TestNoFormatControlsTheTerminal(t *testing.T) {
	srv := serve(t, testserver.Options{})
	s := open(t, nil, srv.URI())
	s.prompted("=>")
	for _, format := range []string{"csv", "json"} {
		s.enter(`\format ` + format)
		s.enter("SELECT 'before\u009b2J\u202e' AS a;")
		s.wait(`before\u009b2J\u202e`)
		s.prompted("=>") // what was entered is in the history then, which is removed with the test
	}
}

func TestASessionThatIsLostIsReplaced(t *testing.T) {
	srv := serve(t, testserver.Options{Profile: testserver.SwanLake()})
	s := open(t, nil, srv.URI())
	s.prompted("=>")
	s.enter("SELECT sleep('1h');")
	s.wait("(Ctrl-C stops it)")
	s.keys("C-c")
	s.wait("did not confirm")
	s.enter("SELECT 7 AS seven;")
	s.wait("     7")
	s.enter(`\stats`)
	s.wait("0 confirmed, 1 not")
}

// Lines that are pasted are there already when the transaction that they were meant for fails.
func TestWhatIsPastedAsATransactionIsNotRunOutsideOfIt(t *testing.T) {
	for name, cut := range map[string]int{"at its BEGIN": 0, "within it": 2} {
		t.Run(name, func(t *testing.T) {
			srv := serve(t, testserver.Options{})
			s := open(t, nil, srv.URI())
			s.prompted("=>")
			s.enter("CREATE TABLE kept (a BIGINT);")
			s.enter("INSERT INTO kept VALUES (1), (2);")
			s.wait("2 rows affected")
			for i, line := range []string{"BEGIN;", "INSERT INTO kept VALUES (3);", "SELECT 1 AS one;", "DELETE FROM kept;", "SAVEPOINT a;", `\d kept`, "ROLLBACK;"} {
				if i == cut {
					if i > 0 {
						s.wait("1 row affected")
					}
					srv.Faults().KillConns()
				}
				s.enter(line)
			}
			s.prompted("=>")
			s.enter("SELECT * FROM kept;")
			require.Contains(t, s.wait("(2 rows"), "ERROR: not run, as it would be outside of the transaction")
			require.Contains(t, s.text(), "ROLLBACK first")
		})
	}
}

func TestATransactionThatCouldNotBeginIsNotCommitted(t *testing.T) {
	srv := serve(t, testserver.Options{Profile: testserver.Dremio()})
	s := open(t, nil, srv.URI())
	s.prompted("=>")
	s.enter("BEGIN;")
	s.prompted("!>")
	s.enter("CREATE TABLE made (a BIGINT);")
	s.wait("ERROR: not run")
	s.enter("COMMIT;")
	s.wait("ERROR: nothing was committed: ")
	s.prompted("=>")
	s.enter("SELECT * FROM made;")
	s.wait("name made does not exist")
}

func TestAFailureToPrintAbortsNoTransaction(t *testing.T) {
	srv := serve(t, testserver.Options{})
	s := open(t, nil, srv.URI())
	s.prompted("=>")
	s.enter("BEGIN;")
	s.prompted("*>")
	s.enter(`\format parquet`)
	s.enter("SELECT 1;")
	s.wait("not for a terminal")
	s.prompted("*>")
}

func TestThePromptTellsOfTheTransaction(t *testing.T) {
	srv := serve(t, testserver.Options{})
	s := open(t, nil, srv.URI())
	s.prompted("=>")
	s.enter(`\begin`)
	s.prompted("*>")
	s.enter(`\begin`)
	s.wait("ERROR: a transaction is open already\n")
	s.prompted("*>")
	s.enter("SELECT error('broken');")
	s.wait("ERROR: broken\n")
	s.prompted("!>")
	s.enter("SELECT 1;")
	s.wait("ERROR: the transaction is aborted, ROLLBACK ends it: a statement of it has failed: broken\n")
	s.enter("COMMIT;")
	s.wait("ERROR: nothing of the transaction is stored: a statement of it has failed: broken\n")
	s.prompted("=>")
	s.enter(`\begin`)
	s.prompted("*>")
	s.enter("SELECT sleep('1h');")
	s.wait("(Ctrl-C stops it)")
	s.keys("C-c")
	s.prompted("!>")
	s.enter("SELECT 1;")
	s.wait("a statement of it was interrupted\n")
	s.enter(`\rollback`)
	s.prompted("=>")
	s.enter("SELECT * FROM nothere;")
	s.wait("ERROR: catalog error: table with name nothere does not exist\n")
	s.enter(`\stats`)
	require.Contains(t, s.wait("statements stopped"), "connections: ")
	s.enter(`\timing`)
	s.wait("timing is on")
	s.enter("SELECT 1;")
	s.wait("time: ")
	s.enter(`\nonsense`)
	s.wait(`\? lists them`)
	s.enter(`\q`)
	s.wait("EXIT 0")
}

// Whoever leaves within a transaction hears that nothing of it is stored.
func TestLeavingWithinATransactionIsTold(t *testing.T) {
	srv := serve(t, testserver.Options{})
	for _, leave := range []string{`'\q' Enter`, "C-d"} {
		s := open(t, nil, srv.URI())
		s.prompted("=>")
		s.enter("BEGIN;")
		s.prompted("*>")
		s.keys(leave)
		require.Contains(t, s.wait("EXIT 1"), "flightpool: the statements end within a transaction: it is not stored\n")
	}
}

func TestLongResultsArePagedAndASmallerScreenIsUsed(t *testing.T) {
	srv := serve(t, testserver.Options{})
	s := open(t, []string{"PAGER=sed s/^/paged/"}, srv.URI())
	s.prompted("=>")
	s.enter("SELECT * FROM generate(10);")
	s.wait("(10 rows")
	require.NotContains(t, s.text(), "paged")
	s.enter("SELECT * FROM generate(40);")
	s.wait("paged(40 rows")

	s.ask("resize-window -x 40 -y 12")
	s.enter("SELECT * FROM generate(12);")
	s.wait("paged(12 rows")
	s.types("SELECT 'a text that is longer than the screen is wide' AS t;")
	s.keys("Enter")
	s.wait("(1 row,")
	require.Contains(t, s.prompted("=>"), "a text that is longer than the screen")
	s.enter(`\pager off`)
	s.enter("SELECT * FROM generate(30);")
	s.waitFor("(30 rows without a pager", func(text string) bool { return strings.Contains(text, "\n(30 rows") })
}

func TestWatchRepeatsUntilCtrlC(t *testing.T) {
	srv := serve(t, testserver.Options{})
	s := open(t, nil, srv.URI())
	s.prompted("=>")
	s.enter("SELECT 5 AS five;")
	s.wait("(1 row")
	s.enter(`\watch 0.01`)
	s.waitFor("three results", func(text string) bool { return strings.Count(text, "(1 row") > 3 })
	s.keys("C-c")
	s.prompted("=>")
	s.enter(`\watch 600`)
	s.waitFor("the pause", func(text string) bool {
		return strings.Contains(text, "600") && strings.HasSuffix(strings.TrimSpace(text), "s)")
	})
	s.keys("C-c")
	s.prompted("=>")
	s.enter(`\q`)
	s.wait("EXIT 0")
}

func TestAnInterruptionBetweenWhatAScriptWatchesEndsTheScript(t *testing.T) {
	srv := serve(t, testserver.Options{})
	script := filepath.Join(t.TempDir(), "watched.sql")
	require.NoError(t, os.WriteFile(script, []byte("SELECT 5 AS five;\n\\watch 600\nCREATE TABLE never (a BIGINT);\n"), 0o600))
	s := open(t, nil, srv.URI())
	s.prompted("=>")
	s.enter(`\i ` + script)
	s.waitFor("the pause", func(text string) bool { return strings.Count(text, "(1 row") == 2 })
	s.keys("C-c")
	s.prompted("=>")
	s.enter("SELECT * FROM never;")
	s.wait("name never does not exist")
}

func TestTheHistoryIsKeptWithoutSecrets(t *testing.T) {
	srv := serve(t, testserver.Options{Users: map[string]string{"app": "s3cret"}})
	s := open(t, nil, srv.URI(), "--user", "app")
	s.wait("password of app:")
	s.enter("s3cret")
	s.prompted("=>")
	s.enter("SELECT 1,")
	s.enter("2 AS two;")
	s.wait("(1 row")
	s.enter("ALTER USER app PASSWORD 'hunter2';")
	s.wait("ERROR")
	s.prompted("=>")
	s.keys("Up", "Up")
	s.prompted("SELECT 1, 2 AS two;")
	s.keys("C-u", "C-d")
	require.NotContains(t, s.wait("EXIT 0"), "s3cret")

	path := filepath.Join(s.home, ".config", "flightpool", "history")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "SELECT 1, 2 AS two;\n", string(text))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// Ctrl-C is the pager's, too: some end by it, and less does not.
func TestCtrlCStopsAStatementWhoseRowsArePaged(t *testing.T) {
	stays := filepath.Join(t.TempDir(), "pager")
	require.NoError(t, os.WriteFile(stays, []byte("#!/bin/sh\ntrap '' INT\ncat\n"), 0o700))
	for _, pager := range []string{stays, "cat"} {
		srv := serve(t, testserver.Options{})
		s := open(t, []string{"PAGER=" + pager}, srv.URI())
		s.prompted("=>")
		s.enter("SELECT * FROM endless('1ms');")
		s.waitFor("a page", func(text string) bool { return strings.Count(text, "\n") > 30 })
		s.keys("C-c")
		s.wait("ERROR: interrupted: the statement")
		require.NoError(t, srv.Ledger().WaitIdle(t.Context()))
		s.prompted("=>")
		s.enter("SELECT 7 AS seven;")
		s.wait("     7")
	}
}
