package localdeps

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"
	"time"
)

// childProcess is a process that ends when its standard input does, so that it never
// outlives this process.
type childProcess struct {
	cmd   *exec.Cmd
	input io.Closer
	log   *outputTail
	ended chan struct{}
	once  sync.Once
}

func startChild(cmd *exec.Cmd) (*childProcess, error) {
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	c := &childProcess{cmd: cmd, input: input, log: &outputTail{}, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = c.log, c.log
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.ended)
		_ = cmd.Wait() // how it ends does not matter, only that it did
	}()
	return c, nil
}

// close asks the process to end, and makes it after five seconds.
func (c *childProcess) close() {
	c.once.Do(func() {
		_ = c.input.Close() // the process may be gone already
		select {
		case <-c.ended:
		case <-time.After(5 * time.Second):
			_ = c.cmd.Process.Kill() // likewise
			<-c.ended
		}
	})
}

// waitReady repeats ready until it succeeds, the process ends or time is up.
func (c *childProcess) waitReady(limit time.Duration, ready func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(limit)
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-c.ended:
			return fmt.Errorf("it ended: %s", c.log)
		case <-deadline:
			return fmt.Errorf("not ready after %v: %w: %s", limit, err, c.log)
		}
	}
}

// outputTail keeps the end of what a process prints.
type outputTail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *outputTail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf.Len() > 1<<16 {
		l.buf.Reset()
	}
	return l.buf.Write(p)
}

func (l *outputTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// freePort is a loopback port that was free a moment ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port // a TCP listener has such an address
	return port, l.Close()
}
