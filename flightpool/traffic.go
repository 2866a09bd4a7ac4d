package flightpool

import "sync/atomic"

// Traffic counts bytes (Config.Traffic). Its zero value is ready, it is safe for use by any
// goroutine, and it must not be copied.
type Traffic struct{ sent, received atomic.Uint64 }

// Sent is how many bytes were sent so far.
func (t *Traffic) Sent() uint64 { return t.sent.Load() }

// Received is how many bytes were received so far.
func (t *Traffic) Received() uint64 { return t.received.Load() }

func (t *Traffic) add(sent, received int) {
	if sent > 0 {
		t.sent.Add(uint64(sent))
	}
	if received > 0 {
		t.received.Add(uint64(received))
	}
}
