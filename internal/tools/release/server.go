package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// server is the Flight SQL server that the programs of the documents talk to.
type server struct {
	url string
	cmd *exec.Cmd
	end context.CancelFunc
}

// startServer starts duckserver, which says where it listens, on a free port of this machine.
func startServer(ctx context.Context, path string) (*server, error) {
	ctx, end := context.WithCancel(ctx)
	s := &server{cmd: exec.CommandContext(ctx, path), end: end}
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(os.Interrupt) }
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		end()
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		end()
		return nil, err
	}
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) < 2 {
		s.stop()
		return nil, fmt.Errorf("duckserver said %q and no address: %w", line, err)
	}
	s.url = words[1]
	go func() { _, _ = io.Copy(io.Discard, lines) }() // what it says at its end
	return s, nil
}

func (s *server) stop() {
	s.end()
	_ = s.cmd.Wait() // it was told to end
}
