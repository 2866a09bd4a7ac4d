package registry

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// taskGroup counts goroutines, and waits for their end for a bounded time.
type taskGroup struct {
	mu      sync.Mutex
	running int
	allDone chan struct{} // closed when running is 0; nil: nobody waits
}

func (t *taskGroup) add() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running++
}

func (t *taskGroup) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running--; t.running == 0 && t.allDone != nil {
		close(t.allDone)
		t.allDone = nil
	}
}

// count says how many there are.
func (t *taskGroup) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running
}

// allDoneCh is closed when none are left.
func (t *taskGroup) allDoneCh() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running == 0 {
		return closedChan
	}
	if t.allDone == nil {
		t.allDone = make(chan struct{})
	}
	return t.allDone
}

// closedChan is closed.
var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// wait waits for the end of all until ctx ends, and says how many are left.
func (t *taskGroup) wait(ctx context.Context) int {
	select {
	case <-t.allDoneCh():
		return 0
	case <-ctx.Done():
	}
	return t.count()
}

// closeGrace is how long the end of a server waits, after its context has ended,
// for what it has then cancelled.
const closeGrace = 5 * time.Second

// withCloseGrace ends closeGrace after ctx.
func withCloseGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var mu sync.Mutex
	var timer *time.Timer
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		if late.Err() == nil {
			timer = time.AfterFunc(closeGrace, cancel)
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

// noticeQueue holds the notices for a server's owner. They are delivered one after the
// other, on a goroutine that exists while there are any: the source of a notice does
// not wait, and its receiver may call the registry, and wait for its end.
type noticeQueue struct {
	mu      sync.Mutex
	queue   []func()
	running bool
	closed  bool
}

func (n *noticeQueue) enqueue(log *slog.Logger, notice func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	n.queue = append(n.queue, notice)
	if !n.running {
		n.running = true
		go n.run(log)
	}
}

// close drops what has not been told yet.
func (n *noticeQueue) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed, n.queue = true, nil
}

func (n *noticeQueue) run(log *slog.Logger) {
	for {
		n.mu.Lock()
		if len(n.queue) == 0 {
			n.running = false
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
