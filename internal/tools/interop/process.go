package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// How long a server may take to answer after its start, and to end.
const (
	startTime = 60 * time.Second
	stopTime  = 10 * time.Second
)

// command is a child that ends with ctx, by a signal to its own process.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopTime
	return cmd
}

// A server is a child process that listens at an address.
type server struct {
	addr string
	cmd  *exec.Cmd
	said bytes.Buffer // read after its end only
	end  chan error
}

func (s *server) uri() string { return "grpc://" + s.addr }

// start starts a server and returns once it takes connections.
func start(ctx context.Context, addr, name string, args ...string) (*server, error) {
	return startIn(ctx, "", addr, name, args...)
}

// startIn starts a server in the folder dir. It runs until stop or kill, also
// when ctx ends, which bounds the start alone.
func startIn(ctx context.Context, dir, addr, name string, args ...string) (*server, error) {
	return startWith(ctx, nil, dir, addr, name, args...)
}

// startWith starts a server in the folder dir with the environment env, nil
// for ours. Its input stays open, as at a terminal.
func startWith(ctx context.Context, env []string, dir, addr, name string, args ...string) (*server, error) {
	s := &server{addr: addr, cmd: command(context.WithoutCancel(ctx), name, args...), end: make(chan error, 1)}
	s.cmd.Dir, s.cmd.Env = dir, env
	if _, err := s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	s.cmd.Stdout, s.cmd.Stderr = &s.said, &s.said
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		s.end <- s.cmd.Wait()
		close(s.end) // kill and stop may both be called
	}()
	deadline := time.After(startTime)
	for {
		if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			return s, c.Close()
		}
		select {
		case err := <-s.end:
			return nil, fmt.Errorf("%s ended at its start: %w\n%s", filepath.Base(name), err, s.said.String())
		case <-deadline:
			s.kill()
			return nil, fmt.Errorf("%s does not listen at %s\n%s", filepath.Base(name), addr, s.said.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stop ends the server politely, if it lets us.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(os.Interrupt)
	select {
	case <-s.end:
	case <-time.After(stopTime):
		s.kill()
	}
}

// kill ends the server as a crash would, and waits for its end.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.end
}

// cpu is the processor time that the server has used.
func (s *server) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, after, ok := strings.Cut(string(stat), ") ") // the name may hold anything else
	fields := strings.Fields(after)
	if !ok || len(fields) < 13 {
		return 0, errors.New("/proc/pid/stat has no times")
	}
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	const tick = time.Second / 100 // Linux fixes it for /proc
	return time.Duration(user+system) * tick, errors.Join(err1, err2)
}

// load is what a server used of a second.
type load struct {
	used time.Duration
	err  error
}

// watch measures, in the background, the second that begins after delay.
func (s *server) watch(delay time.Duration) <-chan load {
	seen := make(chan load, 1)
	go func() {
		time.Sleep(delay)
		before, err1 := s.cpu()
		time.Sleep(time.Second)
		after, err2 := s.cpu()
		seen <- load{after - before, errors.Join(err1, err2)}
	}()
	return seen
}

// freeAddr is an address on this machine that nobody listens at just now.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func startDuck(ctx context.Context, cfg config) (*server, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	return start(ctx, addr, cfg.duckserver, "-addr", addr, "-data", cfg.data)
}

func startSail(ctx context.Context, cfg config, addr string) (*server, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	return start(ctx, addr, filepath.Join(cfg.venv, "bin", "sail"), "flight", "server", "--ip", host, "--port", port)
}
