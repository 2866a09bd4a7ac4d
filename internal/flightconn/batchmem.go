package flightconn

import (
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
// Each reader has one of its own around Config.Allocator, so that what several
// parts of a result allocate at once is told apart.
type batchMemory struct {
	memory.Allocator

	mu sync.Mutex
	// INVARIANT: batch has what was allocated since begin and not freed.
	batch map[*byte][]byte
}

// newBatchMemory makes the allocator of one stream, on top of mem.
func newBatchMemory(mem memory.Allocator) *batchMemory {
	return &batchMemory{Allocator: mem, batch: map[*byte][]byte{}}
}

// startBatch is called before a batch is read: what was allocated before
// belongs to others from now on. The schema, the dictionaries and the batches
// of before are released by Arrow's reader or by the caller, who may have
// retained them.
func (m *batchMemory) startBatch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.batch)
}

// freeBatch frees what is left of a batch that nobody was given. Arrow's reader
// must have been released before, since it frees what it still knows of; what
// is left after that is known to nobody. The allocator is the user's, so it is
// called without the lock.
func (m *batchMemory) freeBatch() {
	m.mu.Lock()
	left := m.batch
	m.batch = map[*byte][]byte{}
	m.mu.Unlock()
	for _, b := range left {
		m.Allocator.Free(b)
	}
}

// Allocate is part of memory.Allocator.
func (m *batchMemory) Allocate(size int) []byte { return m.track(m.Allocator.Allocate(size)) }

// Reallocate is part of memory.Allocator. The buffer is forgotten before the
// allocator has it: afterwards its address may be that of a buffer which
// another goroutine has just been given.
func (m *batchMemory) Reallocate(size int, b []byte) []byte {
	m.untrack(b)
	return m.track(m.Allocator.Reallocate(size, b))
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
	}
	return b
}

// untrack forgets a buffer. It may be one of an earlier batch, which is not
// noted any more.
func (m *batchMemory) untrack(b []byte) {
	if cap(b) > 0 {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.batch, unsafe.SliceData(b))
	}
}
