package flightconn

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

// batchMemory is an allocator that can take back what was allocated for a
// batch that could not be read. Arrow's reader leaves such a batch by a panic,
// which it recovers from, and does not free the buffers that it had
// decompressed.
//
// Batches are freed by whoever holds them last, so it is safe for use by any
// goroutine.
//
// It also bounds what one batch takes. Arrow's reader does not look how many buffers a
// header has: for one that is missing it takes the bytes behind the last, which nobody
// has verified, and the length that they say. A panic of an allocator is an error of its.
//
// Each reader has one of its own around Config.Allocator, so that what several
// parts of a result allocate at once is told apart.
type batchMemory struct {
	memory.Allocator
	limit int64 // bytes

	mu sync.Mutex
	// INVARIANT: batch has what was allocated since startBatch and not freed, which is
	// size bytes.
	batch map[*byte][]byte
	size  int64
}

// newBatchMemory makes the allocator of one stream, on top of mem. maxInflated bounds
// the buffers of a message, and all dictionaries. A dictionary that is added to is
// copied, so that a batch takes three times that at most.
func newBatchMemory(mem memory.Allocator, maxInflated int64) *batchMemory {
	return &batchMemory{Allocator: mem, limit: 3 * maxInflated, batch: map[*byte][]byte{}}
}

// startBatch is called before a batch is read: what was allocated before
// belongs to others from now on. The schema, the dictionaries and the batches
// of before are released by Arrow's reader or by the caller, who may have
// retained them.
func (m *batchMemory) startBatch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.batch)
	m.size = 0
}

// freeBatch frees what is left of a batch that nobody was given. Arrow's reader
// must have been released before, since it frees what it still knows of; what
// is left after that is known to nobody. The allocator is the user's, so it is
// called without the lock.
func (m *batchMemory) freeBatch() {
	m.mu.Lock()
	left := m.batch
	m.batch, m.size = map[*byte][]byte{}, 0
	m.mu.Unlock()
	for _, b := range left {
		m.Allocator.Free(b)
	}
}

// Allocate is part of memory.Allocator.
func (m *batchMemory) Allocate(size int) []byte {
	m.admit(size)
	return m.track(m.Allocator.Allocate(size))
}

// Reallocate is part of memory.Allocator. The buffer is forgotten before the
// allocator has it: afterwards its address may be that of a buffer which
// another goroutine has just been given.
func (m *batchMemory) Reallocate(size int, b []byte) []byte {
	m.admit(size - len(b))
	m.untrack(b)
	return m.track(m.Allocator.Reallocate(size, b))
}

// admit panics where more bytes would be too many.
func (m *batchMemory) admit(more int) {
	m.mu.Lock()
	size := m.size
	m.mu.Unlock()
	if int64(more) > m.limit-size {
		panic(fmt.Errorf("a batch takes more than %d bytes", m.limit))
	}
}

// Free is part of memory.Allocator. As in Reallocate, the buffer is forgotten
// first.
func (m *batchMemory) Free(b []byte) {
	m.untrack(b)
	m.Allocator.Free(b)
}

// track notes a buffer by the address at which it begins. One without capacity
// has no address of its own, and nothing to free.
func (m *batchMemory) track(b []byte) []byte {
	if cap(b) > 0 {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.batch[unsafe.SliceData(b)] = b
		m.size += int64(len(b))
	}
	return b
}

// untrack forgets a buffer. It may be one of an earlier batch, which is not
// noted any more.
func (m *batchMemory) untrack(b []byte) {
	if cap(b) > 0 {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.size -= int64(len(m.batch[unsafe.SliceData(b)]))
		delete(m.batch, unsafe.SliceData(b))
	}
}
