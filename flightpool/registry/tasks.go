package registry

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// tasks are goroutines that somebody waits for, but not for ever.
type tasks struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is 0; nil: nobody waits
}

func (t *tasks) add() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
}

func (t *tasks) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// left says how many there are.
func (t *tasks) left() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// ended is closed when none are left.
func (t *tasks) ended() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == 0 {
		return none
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	return t.idle
}

// none is closed.
var none = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// wait waits for the end of all until ctx ends, and says how many are left.
func (t *tasks) wait(ctx context.Context) int {
	select {
	case <-t.ended():
		return 0
	case <-ctx.Done():
	}
	return t.left()
}

// forcedTime is how long the end of a server waits, after its context has ended,
// for what it has then cancelled.
const forcedTime = 5 * time.Second

// lenient ends forcedTime after ctx.
func lenient(ctx context.Context) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var mu sync.Mutex
	var timer *time.Timer
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		if late.Err() == nil {
			timer = time.AfterFunc(forcedTime, cancel)
		}
	})
	return late, func() {
		stop()
		cancel()
		mu.Lock()
		defer mu.Unlock()
		if timer != nil {
			timer.Stop()
		}
	}
}

// notices are what a server's owner is told, one after the other, on a goroutine
// that there is while there is something to tell: whoever causes one does not wait
// for it, and what is told may itself call the registry, and wait for its end.
type notices struct {
	mu      sync.Mutex
	queue   []func()
	telling bool
	closed  bool
}

func (n *notices) tell(log *slog.Logger, notice func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	n.queue = append(n.queue, notice)
	if !n.telling {
		n.telling = true
		go n.run(log)
	}
}

// close drops what has not been told yet.
func (n *notices) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed, n.queue = true, nil
}

func (n *notices) run(log *slog.Logger) {
	for {
		n.mu.Lock()
		if len(n.queue) == 0 {
			n.telling = false
			n.mu.Unlock()
			return
		}
		notice := n.queue[0]
		n.queue = n.queue[1:]
		n.mu.Unlock()
		exited := true
		func() {
			defer func() {
				if p := recover(); p != nil && log != nil {
					log.Error("registry: Config.Health panicked", "panic", fmt.Sprint(p))
				} else if p == nil && exited {
					go n.run(log) // the notice has ended this goroutine; the next ones go on
				}
			}()
			notice()
			exited = false
		}()
	}
}
