package flightconn

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

// boundedAllocator refuses to allocate for a batch what no server sends: the
// size of a decompressed buffer is a number in the message, which Arrow's
// reader believes. It panics, which the reader turns into an error; running
// out of memory would end the process.
type boundedAllocator struct {
	memory.Allocator
	limit int
}

// maxExpansion is how many times larger than the largest message a buffer may
// be when decompressed.
const maxExpansion = 16

func (a boundedAllocator) Allocate(size int) []byte {
	a.check(size)
	return a.Allocator.Allocate(size)
}

func (a boundedAllocator) Reallocate(size int, b []byte) []byte {
	a.check(size)
	return a.Allocator.Reallocate(size, b)
}

func (a boundedAllocator) check(size int) {
	if size < 0 || size > a.limit {
		panic(fmt.Sprintf("a buffer of %d bytes, above the limit of %d", size, a.limit))
	}
}

// batches is the allocator for what is read.
func (cfg *Config) batches() memory.Allocator {
	return boundedAllocator{Allocator: cfg.Allocator, limit: maxExpansion * cfg.MaxMessage}
}
