package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// errQuit says that the user leaves.
var errQuit = errors.New("quit")

// text runs all statements and commands of a text to its end, or to the first that fails.
func (s *shell) text(ctx context.Context, in io.Reader) error {
	lines := bufio.NewReader(in)
	var pending splitter
	for first := true; ; {
		line, err := s.readLine(ctx, lines)
		if first {
			line, first = strings.TrimPrefix(line, "\ufeff"), false // the mark of some editors
		}
		if failed := s.line(ctx, &pending, line); failed != nil {
			return failed
		}
		switch {
		case errors.Is(err, io.EOF):
			if rest := pending.rest(); rest != "" {
				return s.statement(ctx, rest)
			}
			return nil
		case err != nil:
			return err
		}
	}
}

// readLine reads a line. An interruption ends the wait for one.
func (s *shell) readLine(ctx context.Context, lines *bufio.Reader) (string, error) {
	ctx, stop := s.interruptible(ctx)
	defer stop()
	given := make(chan answer, 1)
	go func() {
		text, err := lines.ReadString('\n')
		given <- answer{text, err}
	}()
	select {
	case got := <-given:
		return got.text, got.err
	case <-ctx.Done():
		return "", interruption(ctx)
	}
}

// line runs what a line ends: a command of the shell, or statements.
func (s *shell) line(ctx context.Context, pending *splitter, line string) error {
	if pending.blank() && strings.HasPrefix(line, `\`) {
		return s.command(ctx, strings.TrimSpace(line))
	}
	for _, sql := range pending.feed(line) {
		if err := s.statement(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// scripts runs what the command line says, in its order: -e before -f, or
// else standard input.
func (s *shell) scripts(ctx context.Context, statements, files []string) error {
	for _, text := range statements {
		if err := s.text(ctx, strings.NewReader(text)); err != nil {
			return err
		}
	}
	for _, name := range files {
		if err := s.script(ctx, name); err != nil {
			return err
		}
	}
	if len(statements)+len(files) == 0 {
		return s.text(ctx, s.in)
	}
	return nil
}

// maxScripts is how many scripts may be under way that run one another.
const maxScripts = 50

var errTooManyScripts = fmt.Errorf(`%d scripts run one another by \i: is it one that runs itself?`, maxScripts)

// script runs a file; - is standard input.
func (s *shell) script(ctx context.Context, name string) error {
	if s.running == maxScripts {
		return errTooManyScripts
	}
	s.running++
	defer func() { s.running-- }()
	if name == "-" {
		return s.text(ctx, s.in)
	}
	f, err := os.Open(name)
	if err != nil {
		return unreadable(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return usageError("%s is a folder, not a file of statements", name)
	}
	switch err := s.text(ctx, f); {
	case err == nil:
		return nil
	case errors.Is(err, errTooManyScripts) && s.running > 1: // the name is told once, of the first
		return err
	default:
		return fmt.Errorf("%s: %w", name, err)
	}
}
