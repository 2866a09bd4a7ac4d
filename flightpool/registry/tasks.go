package registry

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// closeGrace is how long the end of a server waits, after its context has ended,
// for what it has then cancelled.
const closeGrace = 5 * time.Second

// withCloseGrace ends closeGrace after ctx. The function it returns must be called; it
// stops the timer.
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

// enqueue takes a notice to be delivered after those before it. log is told of a panic
// in one.
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

// run delivers notices until there is none, and ends. A notice is code of the user's:
// one that panics, or ends its goroutine, does not keep the next ones.
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
