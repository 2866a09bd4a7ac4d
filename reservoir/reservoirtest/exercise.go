package reservoirtest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/flightpool/flightpool/reservoir"
)

// Target is a kind of connection. C is compared to tell connections apart.
type Target[C comparable] struct {
	// Open, Close and Check are those of reservoir.Config. Check must fail on
	// a connection that Break has broken.
	Open  func(ctx context.Context) (C, error)
	Close func(C) error
	Check func(ctx context.Context, c C) error

	// Break makes a connection useless from outside, as a server that ends the
	// session or a network that is cut does. Close will still be called.
	Break func(C)

	// Live counts the connections that the server has now. The target counts
	// from zero: nothing else is connected.
	Live func() int

	// Patience bounds the wait for something that must happen. Default 10s.
	Patience time.Duration
}

// Exercise runs the suite. It uses at most five connections at a time, and
// real time: call it outside of testing/synctest bubbles or inside.
func Exercise[C comparable](t *testing.T, target Target[C]) {
	t.Helper()
	if target.Patience == 0 {
		target.Patience = 10 * time.Second
	}
	for _, c := range []struct {
		name string
		run  func(*suite[C])
	}{
		{"a connection is reused", (*suite[C]).reuse},
		{"the server never has more than MaxSize", (*suite[C]).bound},
		{"a broken connection is replaced before it is lent", (*suite[C]).replaceBroken},
		{"a discarded connection is gone from the server", (*suite[C]).discard},
		{"a caller who gives up leaves a usable connection behind", (*suite[C]).giveUp},
		{"Reset replaces every connection", (*suite[C]).reset},
		{"Resize is followed by the server", (*suite[C]).resize},
		{"Close under load leaves nothing behind", (*suite[C]).closeUnderLoad},
		{"Close takes connections back by force", (*suite[C]).closeByForce},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), target.Patience)
			defer cancel()
			s := &suite[C]{T: t, target: target, patience: ctx.Done()}
			s.live(0, "before the case")
			c.run(s)
			s.live(0, "after the case")
		})
	}
}

// A suite is one case at work.
type suite[C comparable] struct {
	*testing.T
	target   Target[C]
	patience <-chan struct{} // closed when the case takes too long
}

func (s *suite[C]) reservoir(set func(*reservoir.Config[C])) *reservoir.Reservoir[C] {
	s.Helper()
	cfg := reservoir.Config[C]{Open: s.target.Open, Close: s.target.Close, Check: s.target.Check, MaxSize: 4, AcquireTimeout: s.target.Patience}
	if set != nil {
		set(&cfg)
	}
	r, err := reservoir.New(cfg)
	s.must(err, "New")
	return r
}

func (s *suite[C]) must(err error, what string) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

func (s *suite[C]) acquire(r *reservoir.Reservoir[C]) reservoir.Loan[C] {
	s.Helper()
	l, err := r.Acquire(s.Context())
	s.must(err, "Acquire")
	return l
}

// works proves a borrowed connection and returns it.
func (s *suite[C]) works(l reservoir.Loan[C]) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), s.target.Patience)
	defer cancel()
	s.must(s.target.Check(ctx, l.Value()), "Check of a borrowed connection")
	s.must(l.Release(), "Release")
}

func (s *suite[C]) close(r *reservoir.Reservoir[C]) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), s.target.Patience)
	defer cancel()
	s.must(r.Close(ctx), "Close")
}

// reach looks until the condition holds. A server notices the end of a
// connection a little later than who ended it, and has no way to say so.
func (s *suite[C]) reach(holds func() bool, what string) {
	s.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-s.patience:
			s.Fatalf("%s: the server has %d connections", what, s.target.Live())
		}
	}
}

func (s *suite[C]) live(n int, when string) {
	s.Helper()
	s.reach(func() bool { return s.target.Live() == n }, when)
}

func (s *suite[C]) reuse() {
	r := s.reservoir(nil)
	l := s.acquire(r)
	first := l.Value()
	s.works(l)
	l = s.acquire(r)
	if l.Value() != first {
		s.Error("an idle connection was not reused")
	}
	s.live(1, "one connection is enough for one caller")
	s.works(l)
	if err := l.Release(); !errors.Is(err, reservoir.ErrReleased) {
		s.Errorf("a second Release gave %v", err)
	}
	s.close(r)
}

func (s *suite[C]) bound() {
	r := s.reservoir(func(c *reservoir.Config[C]) { c.MaxSize = 3 })
	var callers sync.WaitGroup
	for range 12 {
		callers.Go(func() {
			for range 5 {
				l, err := r.Acquire(s.Context())
				if err == nil {
					err = s.target.Check(s.Context(), l.Value())
				}
				if err == nil {
					err = l.Release()
				}
				if n := s.target.Live(); n > 3 || err != nil {
					s.Errorf("%d connections of at most 3, %v", n, err)
					return
				}
			}
		})
	}
	callers.Wait()
	s.close(r)
}

func (s *suite[C]) replaceBroken() {
	r := s.reservoir(func(c *reservoir.Config[C]) {
		c.MaxSize, c.CheckOnAcquire, c.IdleBeforeCheck, c.CheckInterval = 1, true, -1, -1
	})
	l := s.acquire(r)
	broken := l.Value()
	s.works(l)
	s.target.Break(broken)
	l = s.acquire(r)
	if l.Value() == broken {
		s.Error("a broken connection was lent")
	}
	s.works(l)
	if n := r.Stats().Closed[reservoir.Unhealthy]; n != 1 {
		s.Errorf("%d connections closed as unhealthy, not 1", n)
	}
	s.close(r)
}

func (s *suite[C]) discard() {
	r := s.reservoir(nil)
	l := s.acquire(r)
	s.live(1, "borrowed")
	s.target.Break(l.Value())
	s.must(l.Discard(errors.New("broken by the suite")), "Discard")
	s.live(0, "discarded")
	s.works(s.acquire(r))
	s.close(r)
}

func (s *suite[C]) giveUp() {
	slow := make(chan struct{})
	r := s.reservoir(func(c *reservoir.Config[C]) {
		c.MaxSize = 1
		c.Open = func(ctx context.Context) (C, error) { <-slow; return s.target.Open(ctx) }
	})
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := r.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
		s.Errorf("Acquire gave %v, not its context's error", err)
	}
	close(slow)
	s.works(s.acquire(r))
	if opens := r.Stats().Opens; opens != 1 {
		s.Errorf("%d opens: the first was lost", opens)
	}
	s.close(r)
}

func (s *suite[C]) reset() {
	r := s.reservoir(func(c *reservoir.Config[C]) { c.MinIdle, c.MaxSize = 2, 2 })
	s.must(r.WaitReady(s.Context(), 2), "WaitReady")
	a, b := s.acquire(r), s.acquire(r)
	old := map[C]bool{a.Value(): true, b.Value(): true}
	s.works(a)
	r.Reset()
	s.works(b)
	s.must(r.WaitReady(s.Context(), 2), "WaitReady after Reset")
	a, b = s.acquire(r), s.acquire(r)
	if old[a.Value()] || old[b.Value()] {
		s.Error("a connection outlived Reset")
	}
	s.works(a)
	s.works(b)
	s.live(2, "after Reset")
	s.close(r)
}

func (s *suite[C]) resize() {
	r := s.reservoir(nil)
	loans := []reservoir.Loan[C]{s.acquire(r), s.acquire(r), s.acquire(r)}
	s.live(3, "borrowed")
	s.must(r.Resize(1), "Resize")
	for _, l := range loans {
		s.works(l)
	}
	s.live(1, "after Resize to 1")
	s.close(r)
}

func (s *suite[C]) closeUnderLoad() {
	r := s.reservoir(nil)
	s.works(s.acquire(r))
	var callers, busy sync.WaitGroup
	busy.Add(8)
	for range 8 {
		callers.Go(func() {
			once := sync.OnceFunc(busy.Done)
			defer once()
			for {
				l, err := r.Acquire(s.Context())
				if errors.Is(err, reservoir.ErrClosed) {
					return
				}
				if err != nil {
					s.Errorf("Acquire: %v", err)
					return
				}
				once()
				if err := l.Release(); err != nil {
					s.Errorf("Release: %v", err)
				}
			}
		})
	}
	busy.Wait()
	s.close(r)
	callers.Wait()
}

func (s *suite[C]) closeByForce() {
	r := s.reservoir(nil)
	l := s.acquire(r)
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	var forced *reservoir.CloseError
	if err := r.Close(ctx); !errors.As(err, &forced) || forced.Forced != 1 {
		s.Errorf("Close gave %v", err)
	}
	if err := l.Release(); !errors.Is(err, reservoir.ErrReleased) {
		s.Errorf("a late Release gave %v", err)
	}
}
