package flightconn

import (
	"context"
	"sync"
)

// ahead bounds the bytes that are read of the parts of a result before their
// turn. They are counted as the batches will be in memory, decompressed, before
// they are made.
//
// INVARIANT: the parts hold at most limit bytes unread, but for one batch, with
// its dictionaries, of the part whose turn it is: that one always goes on when
// nothing of it waits, so that nobody waits for a batch that waits for room.
type ahead struct {
	limit int64

	mu struct { // guards the fields below and those of each part's share; nothing is called under it
		sync.Mutex
		used    int64
		turn    *share
		changed chan struct{} // closed when there may be room
	}
}

// share is what one part holds unread.
type share struct {
	unread int   // batches that wait
	making int64 // bytes of the batch that is being read
}

func newAhead(limit int64) *ahead {
	a := &ahead{limit: limit}
	a.mu.changed = make(chan struct{})
	return a
}

// take waits for room for n more bytes of the batch that s reads.
func (a *ahead) take(ctx context.Context, s *share, n int64) error {
	for {
		a.mu.Lock()
		if n <= a.limit-a.mu.used || a.mu.turn == s && s.unread == 0 {
			a.mu.used += n
			s.making += n
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

// made says that the batch which s has read waits from now on, and how many
// bytes it counts.
func (a *ahead) made(s *share) (bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	bytes, s.making = s.making, 0
	s.unread++
	return bytes
}

// read says that a batch of s waits no more.
func (a *ahead) read(s *share, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.unread--
	a.give(bytes)
}

// end says that s reads no more.
func (a *ahead) end(s *share) {
	a.mu.Lock()
	defer a.mu.Unlock()
	bytes := s.making
	s.making = 0
	a.give(bytes)
}

// next says whose turn it is.
func (a *ahead) next(s *share) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.turn = s
	a.give(0)
}

// give wakes all who wait. The lock is held.
func (a *ahead) give(bytes int64) {
	a.mu.used -= bytes
	close(a.mu.changed)
	a.mu.changed = make(chan struct{})
}
