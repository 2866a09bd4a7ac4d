package flightconn

import (
	"math/bits"
	"sync"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

// body is where the body of a message lands: the memory of the arrays that are made of
// it. It is its own allocator, whose Free the last Release of these arrays calls, and
// goes back to bodyPools then, so that a long result needs the memory of a few batches.
//
// INVARIANT: nobody reads a body after Free but through a reference that was released
// too early. poisonFreed, which tests and builds with the race detector have, makes
// that seen: what is freed is overwritten.
type body struct {
	data []byte // begins at a multiple of 64
	size int    // its number in bodyPools; noPool if it is in none
}

// bodyAlignment is what Arrow recommends for the memory of arrays.
const bodyAlignment = 64

// Bodies are kept by their sizes, four to each power of two, so that at most a quarter
// is unused: smallestBody, 5/4, 6/4 and 7/4 of it, twice that, and so on.
const (
	smallestBodyBits = 8
	bodySizes        = 4*(26-smallestBodyBits) + 1 // up to 64 MiB
	noPool           = -1
)

// bodyPools has bodies that nobody uses. The collector empties it: what a burst has
// left does not stay.
var bodyPools [bodySizes]sync.Pool // of *body

// newBody is a buffer of n bytes, whose content is anything. Its last Release gives the
// memory back.
func newBody(n int) *memory.Buffer {
	size := bodySizeOf(n)
	if size == noPool {
		b := &body{data: alignedBytes(n), size: noPool}
		return memory.NewBufferWithAllocator(b.data, b)
	}
	b, _ := bodyPools[size].Get().(*body)
	if b == nil {
		b = &body{data: alignedBytes(bytesOfSize(size)), size: size}
	}
	return memory.NewBufferWithAllocator(b.data[:n:n], b)
}

// bodySizeOf is the smallest size for n bytes.
func bodySizeOf(n int) int {
	if n <= 1<<smallestBodyBits {
		return 0
	}
	shift := bits.Len(uint(n-1)) - 3 // leaves three bits, of which the first is set
	size := 4*(shift+2-smallestBodyBits) + (n-1)>>shift - 3
	if size >= bodySizes {
		return noPool
	}
	return size
}

// bytesOfSize is how many bytes the bodies of a size have.
func bytesOfSize(size int) int { return (4 + size%4) << (smallestBodyBits - 2 + size/4) }

// alignedBytes are n bytes from a multiple of bodyAlignment on.
func alignedBytes(n int) []byte {
	b := make([]byte, n)
	if misalignment(b) != 0 {
		b = make([]byte, n+bodyAlignment)
		skip := bodyAlignment - misalignment(b)
		b = b[skip : skip+n : skip+n]
	}
	return b
}

func misalignment(b []byte) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % bodyAlignment)
}

// Free is part of memory.Allocator. It is called once, by whichever goroutine releases
// last.
func (b *body) Free([]byte) {
	if poisonFreed {
		b.data[0] = 0xdb
		for n := 1; n < len(b.data); n *= 2 { // copies are quick under the race detector, too
			copy(b.data[n:], b.data[:n])
		}
	}
	if b.size != noPool {
		bodyPools[b.size].Put(b)
	}
}

// Allocate is part of memory.Allocator. Nothing asks for it: the buffer is not mutable.
func (b *body) Allocate(size int) []byte { return memory.DefaultAllocator.Allocate(size) }

// Reallocate is part of memory.Allocator, like Allocate.
func (b *body) Reallocate(size int, old []byte) []byte {
	return memory.DefaultAllocator.Reallocate(size, old)
}
