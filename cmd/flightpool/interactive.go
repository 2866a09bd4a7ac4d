package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/peterh/liner"
)

// leaveWithin is how soon a second Ctrl-C at the prompt leaves.
const leaveWithin = 2 * time.Second

// interactive reads statements from a terminal until the user leaves.
func (s *shell) interactive(ctx context.Context) error {
	names := &catalog{pool: s.pool}
	wanted, leave := context.WithCancel(ctx)
	defer leave() // the pool waits for calls under way when it is closed
	names.refresh(wanted)
	s.onChange = func() { names.refresh(wanted) }
	line := liner.NewLiner()
	defer func() { _ = line.Close() }() // the terminal is gone if that fails
	line.SetCtrlCAborts(true)
	line.SetMultiLineMode(true)
	line.SetTabCompletionStyle(liner.TabPrints)
	line.SetWordCompleter(names.complete)
	h := s.openHistory(line)

	fmt.Fprintf(s.app.out, "%s. \\? lists commands, \\q leaves.\n", s.server) // not where -o has results go
	asked := asker{line: line, interrupts: s.interrupts}
	var pending splitter
	var interrupted time.Time
	for {
		names.goOn(&pending)
		text, err := asked.ask(ctx, s.prompt(&pending))
		switch {
		case ctx.Err() != nil:
			return interruption(ctx)
		case errors.Is(err, liner.ErrPromptAborted):
			if pending.rest() == "" && time.Since(interrupted) < leaveWithin {
				return nil
			}
			pending, interrupted = splitter{}, time.Now()
			h.forget()
			fmt.Fprintln(s.err, "(Ctrl-C again, Ctrl-D or \\q leaves)")
			continue
		case errors.Is(err, io.EOF):
			fmt.Fprintln(s.app.out)
			return nil
		case err != nil:
			return err
		}
		h.add(text)
		interrupted = time.Time{}
		if pending.mode == 0 && strings.TrimSpace(text) == `\q` { // also of a statement that lacks its semicolon
			return nil
		}
		err = s.line(ctx, &pending, text+"\n")
		if pending.blank() {
			h.store()
		}
		switch {
		case errors.Is(err, errQuit):
			return nil
		case ctx.Err() != nil:
			return interruption(ctx)
		case err != nil:
			s.tellError(err)
		}
	}
}

// An asker is line.Prompt, which shows the prompt before it takes Ctrl-C as a key: one
// that is pressed in between is a signal. It is answered as the key is, and the prompt,
// which does not hear of it, goes on.
type asker struct {
	line       *liner.State
	interrupts <-chan os.Signal
	given      chan answer // nil: no prompt is open
}

type answer struct {
	text string
	err  error
}

func (a *asker) ask(ctx context.Context, prompt string) (string, error) {
	if a.given == nil {
		given := make(chan answer, 1)
		a.given = given
		go func() {
			text, err := a.line.Prompt(prompt)
			given <- answer{text, err}
		}()
	} else {
		fmt.Print(prompt)
	}
	select {
	case got := <-a.given:
		a.given = nil
		return got.text, got.err
	case <-a.interrupts:
		fmt.Println("^C") // as liner does
		return "", liner.ErrPromptAborted
	case <-ctx.Done():
		fmt.Println()
		return "", context.Cause(ctx)
	}
}

func (s *shell) tellError(err error) {
	fmt.Fprintln(s.err, "ERROR: "+message(err))
}

// prompt names the server and tells of the transaction; within a statement it is dots.
func (s *shell) prompt(pending *splitter) string {
	if !pending.blank() {
		return strings.Repeat(".", len(s.server)+1) + "> "
	}
	return s.server + string(s.tx) + "> "
}

// A history keeps statements for later runs, a line each, for their user alone.
type history struct {
	line    *liner.State
	path    string // empty: for this run only
	pending []string
}

// maxHistory is how many lines are kept.
const maxHistory = 1000

// secret finds statements that may hold one; they are not kept.
var secret = regexp.MustCompile(`(?i)pass(w|phrase)|\bpwd\b|secret|identified\s+by|token|credential|bearer|authorization|connection_?string|` +
	`(access|account|api|auth|encryption|parquet|private|shared)[_\s-]?key|://[^\s'"]*:[^\s'"]*@|[?&]sig(nature)?=`) // the last two: in a URL

func (s *shell) openHistory(line *liner.State) *history {
	h := &history{line: line}
	dir, err := os.UserConfigDir()
	if err != nil {
		return h
	}
	h.path = filepath.Join(dir, "flightpool", "history")
	text, err := os.ReadFile(h.path)
	if err == nil {
		_, err = line.ReadHistory(bytes.NewReader(text))
	} else if errors.Is(err, os.ErrNotExist) {
		err = os.MkdirAll(filepath.Dir(h.path), 0o700)
	}
	if err != nil {
		fmt.Fprintln(s.err, "no history: "+err.Error())
		h.path = ""
	}
	return h
}

func (h *history) add(line string) {
	if strings.TrimSpace(line) != "" {
		h.pending = append(h.pending, line)
	}
}

func (h *history) forget() { h.pending = nil }

// store keeps what was entered: a statement as one line, unless it has comments
// or texts that lines are part of.
func (h *history) store() {
	lines := h.pending
	h.pending = nil
	whole := strings.Join(lines, " ")
	if len(lines) == 0 || strings.HasPrefix(whole, " ") {
		return
	}
	if !strings.Contains(whole, "--") && !strings.ContainsAny(whole, "'\"$") {
		lines = []string{whole}
	}
	for _, line := range lines {
		h.line.AppendHistory(line)
	}
	if h.path == "" || secret.MatchString(whole) {
		return
	}
	if err := h.write(lines); err != nil {
		h.path = "" // a history is no reason to disturb the user
	}
}

// write appends lines to the file, and shortens it now and then.
func (h *history) write(lines []string) error {
	text, err := os.ReadFile(h.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	all := strings.SplitAfter(string(text)+strings.Join(lines, "\n")+"\n", "\n")
	all = all[max(0, len(all)-maxHistory-1):]
	return replaceFile(h.path, []byte(strings.Join(all, "")))
}

// replaceFile gives a file, which only its user may read, a new content.
func replaceFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".history.*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
