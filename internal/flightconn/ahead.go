package flightconn

import (
	"context"
	"sync"
)

// readAheadBudget bounds the bytes that are read of the parts of a result before their
// turn. They are counted as the batches will be in memory, decompressed, before
// they are made.
//
// INVARIANT: the parts hold at most limit bytes unread, but for one batch, with
// its dictionaries, of the current part: that one always goes on when nothing of
// it waits, so that no caller waits for a batch that waits for bytes.
//
// A bound on batches alone is not enough: eight parts with Config.Prefetch
// batches each, of which one message may decompress to sixteen times
// Config.MaxMessage, could take any memory.
//
// A part goes through four steps for each batch: reserve(0) before it receives
// a message, reserve(n) when the header of the message has told its size,
// batchQueued when the batch is handed over, and batchDelivered when the caller
// takes it. partEnded gives back what was reserved for a batch that never came
// about.
type readAheadBudget struct {
	limit int64

	mu struct { // guards the fields below and those of each part's usage; nothing is called under it
		sync.Mutex
		used    int64
		current *partUsage
		changed chan struct{} // closed when there may be bytes left
	}
}

// partUsage is what one part holds unread. The lock of the budget guards it.
type partUsage struct {
	queuedBatches   int   // batches that wait
	bytesInProgress int64 // bytes of the batch that is being read
}

// newReadAheadBudget makes a budget of limit bytes for one result. No part is
// current yet.
func newReadAheadBudget(limit int64) *readAheadBudget {
	a := &readAheadBudget{limit: limit}
	a.mu.changed = make(chan struct{})
	return a
}

// reserve waits until n more bytes of the batch that s reads fit the budget. It
// returns only the error of ctx. Those who wait are served in no order: each
// looks again whenever bytes are freed.
//
// With n = 0 it reserves nothing, and waits while the budget is exceeded, as it
// is when the current part has gone on beyond the limit.
func (a *readAheadBudget) reserve(ctx context.Context, s *partUsage, n int64) error {
	for {
		a.mu.Lock()
		if n <= a.limit-a.mu.used || a.mu.current == s && s.queuedBatches == 0 {
			a.mu.used += n
			s.bytesInProgress += n
			a.mu.Unlock()
			return nil
		}
		changed := a.mu.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// batchQueued records that the batch which s has read waits from now on, and
// returns how many bytes it counts. The caller keeps the number beside the
// batch and gives it to batchDelivered. A dictionary that came with the batch
// counts with it.
func (a *readAheadBudget) batchQueued(s *partUsage) (bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	bytes, s.bytesInProgress = s.bytesInProgress, 0
	s.queuedBatches++
	return bytes
}

// batchDelivered says that a batch of s waits no more. What the caller holds is
// not counted.
func (a *readAheadBudget) batchDelivered(s *partUsage, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.queuedBatches--
	a.freeBytes(bytes)
}

// partEnded says that s reads no more. Its batches that wait stay counted until
// they are delivered.
func (a *readAheadBudget) partEnded(s *partUsage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	bytes := s.bytesInProgress
	s.bytesInProgress = 0
	a.freeBytes(bytes)
}

// setCurrent makes s the part that is delivered now. It wakes those who wait,
// since the new one may go on although the budget is used up.
func (a *readAheadBudget) setCurrent(s *partUsage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.current = s
	a.freeBytes(0)
}

// freeBytes wakes all who wait. The lock is held. A channel that is closed and
// replaced does it, since those who wait have to heed a context too.
func (a *readAheadBudget) freeBytes(bytes int64) {
	a.mu.used -= bytes
	close(a.mu.changed)
	a.mu.changed = make(chan struct{})
}
