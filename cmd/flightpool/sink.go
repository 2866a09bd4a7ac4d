package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/flightpool/flightpool/cmd/flightpool/internal/output"
	"github.com/flightpool/flightpool/flightpool/export"
)

// A sink is where results go: standard output, through a pager perhaps, or a file.
type sink struct {
	w        io.Writer
	terminal *terminal // nil where results do not go to one
	pager    *pager    // of the result that is printed
	file     *os.File
	path     string // of the file when it is whole; empty where the file itself is written
	results  int
	whole    int // of the results, those that are written to their end
	format   output.Format
	lines    bool  // there are some beside the results
	failed   error // of such a line

	interrupted bool // Ctrl-C has ended the pager of the last result
}

func (a *app) standardSink(t *terminal) *sink { return &sink{w: a.out, terminal: t} }

// fileSink writes to a file that has its name once it is whole; to a device or pipe at
// once. Who may read the file, umask says, or the file in whose place it comes.
func fileSink(path string) (*sink, error) {
	old, err := os.Stat(path)
	if err == nil && !old.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		return &sink{w: f, file: f}, err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	name := fmt.Sprintf(".%s.%d", filepath.Base(path), rand.Uint64())
	f, created := os.OpenFile(filepath.Join(filepath.Dir(path), name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if created != nil {
		return nil, created
	}
	s := &sink{w: f, file: f, path: path}
	if err == nil {
		if err := f.Chmod(old.Mode().Perm()); err != nil {
			return nil, errors.Join(err, s.close(false))
		}
	}
	return s, nil
}

// Write is io.Writer's.
func (s *sink) Write(p []byte) (int, error) { return s.writer().Write(p) }

func (s *sink) writer() io.Writer {
	if s.pager != nil {
		return s.pager
	}
	return s.w
}

// begin prepares for another result.
func (s *sink) begin(f output.Format, p *progress) (io.Writer, error) {
	switch {
	case output.Binary(f) && s.terminal != nil:
		return nil, errors.New(string(f) + ` is not for a terminal: name a file by -o FILE or \o FILE`)
	case s.results > 0 && (output.Binary(f) || output.Binary(s.format)):
		return nil, errors.New("a file has one result as " + string(s.format) + ": this is the second")
	case s.lines && output.Binary(f):
		return nil, errors.New("a file has nothing but its result as " + string(f) + ": there are lines of text before it")
	case s.results > 0 && f == output.CSV:
		if _, err := io.WriteString(s.w, "\n"); err != nil {
			return nil, err
		}
	}
	s.results++
	s.format = f
	if s.terminal == nil {
		return s.w, nil
	}
	s.pager = s.terminal.page(s.w, p)
	return output.Visible(s.pager), nil
}

// tell prints a line where results go, but beside those as Arrow or Parquet, of which it would make what nobody reads. That it could
// not is told at the end.
func (s *shell) tell(format string, args ...any) {
	if output.Binary(s.format) || s.out.results > 0 && output.Binary(s.out.format) {
		fmt.Fprintf(s.err, format+"\n", args...)
		return
	}
	s.out.lines = true
	if _, err := fmt.Fprintf(s.out, format+"\n", args...); err != nil && !errors.Is(err, errPagerLeft) {
		s.out.failed = err
	}
}

// end ends a result that is written to its end.
func (s *sink) end(w export.Writer) error {
	err := w.Close()
	if err == nil {
		s.whole++
	}
	return err
}

// endResult waits until a result that is paged has been read.
func (s *sink) endResult() error {
	if s.pager == nil {
		return nil
	}
	p := s.pager
	s.pager = nil
	err := p.close()
	s.interrupted = p.interrupted
	return err
}

var errNoResult = errors.New("no statement has given a result, without which there is no Arrow or Parquet")

var errNotWhole = errors.New("the file is not written: it has a result that was not read to its end")

// close ends a file. Only a whole one gets its name: without a result in it that has
// failed, after which the prompt goes on.
func (s *sink) close(whole bool) error {
	err := errors.Join(s.endResult(), s.failed)
	if s.file == nil {
		return err
	}
	if s.path == "" {
		return errors.Join(err, s.file.Close())
	}
	err = errors.Join(err, s.file.Close())
	if whole && s.whole < s.results {
		err = errors.Join(err, errNotWhole)
	}
	if whole && err == nil {
		return os.Rename(s.file.Name(), s.path)
	}
	return errors.Join(err, os.Remove(s.file.Name()))
}

// A reportWriter is where doctor and bench print. Its first error stays, and ends the run
// as a failed one.
type reportWriter struct {
	w   io.Writer
	err error
}

func (a *app) reportWriter() *reportWriter {
	if a.newTerminal(false) != nil {
		return &reportWriter{w: output.Visible(a.out)}
	}
	return &reportWriter{w: a.out}
}

// Write is io.Writer's.
func (r *reportWriter) Write(p []byte) (int, error) {
	n, err := r.w.Write(p)
	if r.err == nil {
		r.err = err
	}
	return n, err
}
