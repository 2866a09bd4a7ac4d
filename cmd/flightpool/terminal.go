package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/term"
)

// A terminal is where a user looks. A nil one shows no progress and pages nothing.
type terminal struct {
	out    *os.File
	status io.Writer // for progress
	pager  []string  // command; empty: none
}

// newTerminal gives the terminal to which out goes, or nil.
func (a *app) newTerminal(paged bool) *terminal {
	out, ok := a.out.(*os.File)
	if !ok || !term.IsTerminal(int(out.Fd())) {
		return nil
	}
	t := &terminal{out: out, status: a.err}
	if paged {
		t.pager = strings.Fields(a.getenv("PAGER"))
		if path, err := exec.LookPath("less"); len(t.pager) == 0 && err == nil {
			t.pager = []string{path, "-SFRX"}
		}
	}
	return t
}

func (t *terminal) size() (width, height int) {
	width, height, err := term.GetSize(int(t.out.Fd()))
	if err != nil {
		return 80, 24
	}
	return width, height
}

// A progress shows how far a statement is, from its first second on, until rows
// are printed. All its methods may be called on one that shows nothing.
type progress struct {
	out      io.Writer
	began    time.Time
	rows     atomic.Int64
	fraction atomic.Int64 // in thousandths; -1: not known

	mu      sync.Mutex
	timer   *time.Timer
	ended   bool
	visible bool
}

func (t *terminal) progress(began time.Time) *progress {
	p := &progress{began: began, ended: true}
	p.fraction.Store(-1)
	if t != nil {
		p.out, p.ended = t.status, false
		p.mu.Lock()
		defer p.mu.Unlock()
		p.timer = time.AfterFunc(time.Second, p.show)
	}
	return p
}

// report is what the pool calls with the server's word; nil where nobody looks.
func (p *progress) report() func(fraction float64, known bool) {
	if p.out == nil {
		return nil
	}
	return func(fraction float64, known bool) {
		if known {
			p.fraction.Store(int64(fraction * 1000))
		}
	}
}

func (p *progress) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	text := time.Since(p.began).Round(100 * time.Millisecond).String()
	if f := p.fraction.Load(); f >= 0 {
		text += fmt.Sprintf(", %.1f %%", float64(f)/10)
	}
	if rows := p.rows.Load(); rows > 0 {
		text += ", " + count(rows, "row")
	}
	fmt.Fprintf(p.out, "\r\x1b[K%s (Ctrl-C stops it)", text)
	p.visible = true
	p.timer.Reset(200 * time.Millisecond)
}

// stop takes the line away. It may be called again.
func (p *progress) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.visible {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	p.ended, p.visible = true, false
}

var errPagerLeft = errors.New("the pager was left")

// A pager keeps what is printed until it is more than the screen takes, and
// gives it to the user's pager then.
type pager struct {
	t        *terminal
	out      io.Writer
	progress *progress
	held     bytes.Buffer
	lines    int
	cmd      *exec.Cmd
	in       io.WriteCloser

	interrupted bool // Ctrl-C has ended it; valid after close
}

func (t *terminal) page(out io.Writer, p *progress) *pager {
	return &pager{t: t, out: out, progress: p}
}

// Write is io.Writer's.
func (p *pager) Write(text []byte) (int, error) {
	if len(p.t.pager) == 0 {
		p.progress.stop()
		return p.out.Write(text)
	}
	if p.cmd != nil {
		return p.pass(text)
	}
	p.held.Write(text)
	p.lines += bytes.Count(text, []byte("\n"))
	if _, height := p.t.size(); p.lines < height-1 {
		return len(text), nil
	}
	return len(text), p.start()
}

func (p *pager) pass(text []byte) (int, error) {
	if n, err := p.in.Write(text); err != nil {
		return n, errPagerLeft
	}
	return len(text), nil
}

func (p *pager) start() error {
	p.progress.stop()
	p.cmd = exec.Command(p.t.pager[0], p.t.pager[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = p.t.out, p.t.out
	in, err := p.cmd.StdinPipe()
	if err == nil {
		p.in = in
		err = p.cmd.Start()
	}
	if err != nil {
		p.cmd, p.t.pager = nil, nil // without a pager from now on
		_, err = p.out.Write(p.held.Bytes())
		return err
	}
	_, err = p.pass(p.held.Bytes())
	return err
}

// close prints what is held, or waits until the user has left the pager.
func (p *pager) close() error {
	if p.cmd == nil {
		p.progress.stop()
		_, err := p.out.Write(p.held.Bytes())
		return err
	}
	_ = p.in.Close() // the pager may have been left
	_ = p.cmd.Wait() // how it ends is no error
	how, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	p.interrupted = ok && how.Signaled() && how.Signal() == syscall.SIGINT || p.cmd.ProcessState.ExitCode() == exitInterrupted
	return nil
}
