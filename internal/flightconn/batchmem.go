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
type batchMemory struct {
	memory.Allocator

	mu sync.Mutex
	// INVARIANT: batch has what was allocated since begin and not freed.
	batch map[*byte][]byte
}

func newBatchMemory(mem memory.Allocator) *batchMemory {
	return &batchMemory{Allocator: mem, batch: map[*byte][]byte{}}
}

// startBatch is called before a batch is read: what was allocated before belongs to
// others from now on.
func (m *batchMemory) startBatch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.batch)
}

// freeBatch frees what is left of a batch that nobody was given.
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

// Reallocate is part of memory.Allocator.
func (m *batchMemory) Reallocate(size int, b []byte) []byte {
	m.untrack(b)
	return m.track(m.Allocator.Reallocate(size, b))
}

// Free is part of memory.Allocator.
func (m *batchMemory) Free(b []byte) {
	m.untrack(b)
	m.Allocator.Free(b)
}

func (m *batchMemory) track(b []byte) []byte {
	if cap(b) > 0 {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.batch[unsafe.SliceData(b)] = b
	}
	return b
}

func (m *batchMemory) untrack(b []byte) {
	if cap(b) > 0 {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.batch, unsafe.SliceData(b))
	}
}
