package flightconn

import (
	"encoding/binary"
	"fmt"
	"math"
)

// maxInflationFactor is how many times MaxMessage the compressed buffers of one message
// may become.
const maxInflationFactor = 16

// maxInflated bounds the bytes that the buffers of one message may become. It
// also bounds all dictionaries of a stream together.
func (cfg *Config) maxInflated() int64 { return maxInflationFactor * int64(cfg.MaxMessage) }

// reject says what is wrong. Only the first reason counts.
func (v *verifier) reject(format string, args ...any) {
	if !v.invalid {
		v.err = fmt.Errorf(format, args...)
	}
	v.invalid = true
}

// i64 is an element that a vector has room for.
func (v *verifier) i64(at int) int64 { return int64(binary.LittleEndian.Uint64(v.buf[at:])) }

// record checks a RecordBatch: its rows, the nodes of its arrays, where its
// buffers lie, and the counts of variadic buffers. Nothing of it is allocated
// before: a node or buffer takes 16 bytes of the header. Which buffers belong
// to which array is for Arrow's reader to see, by the schema.
func (v *verifier) record(t table) {
	v.rows(v.int64Field(t, 0))
	nodes, count := v.vector(t, 1, 16)
	for i := range count {
		v.rows(v.i64(nodes + 16*i))
	}
	buffers, count := v.vector(t, 2, 16)
	compressed := v.field(t, 3) != 0
	v.buffers(buffers, count, compressed, compressed && v.byteAt(v.ref(t, 3), 0) == codecZstd)
	counts, variadic := v.vector(t, 4, 8)
	left := int64(count)
	for i := range variadic {
		n := v.i64(counts + 8*i)
		if n < 0 || n > left {
			v.reject("%d variadic buffers of %d buffers", n, count)
			return
		}
		left -= n
	}
}

// rows refuses more than other implementations of Arrow would take. Numbers of
// rows are added and multiplied further on, where larger ones would wrap round.
func (v *verifier) rows(n int64) {
	if n < 0 || n > math.MaxInt32 {
		v.reject("%d rows in one batch", n)
	}
}

// buffers checks that each lies in the body, and what compressed ones say that
// they will be. A compressed buffer begins with its length when decompressed,
// in 8 bytes, which is what Arrow's reader allocates; -1 there means that it
// was left as it is. All of a message together may be as long as v.limit.
func (v *verifier) buffers(at, count int, compressed, zstd bool) {
	left := v.limit
	for i := range count {
		from, size := v.i64(at+16*i), v.i64(at+16*i+8)
		if size == 0 {
			continue
		}
		if from < 0 || size < 0 || size > int64(len(v.body))-from {
			v.reject("buffer %d has %d bytes from %d of a body of %d", i, size, from, len(v.body))
			return
		}
		if !compressed {
			continue
		}
		if size < 8 {
			v.reject("compressed buffer %d has %d bytes", i, size)
			return
		}
		inflated := int64(binary.LittleEndian.Uint64(v.body[from:]))
		if inflated == -1 { // it is not compressed after all
			continue
		}
		if inflated < 0 || inflated > left {
			v.reject("buffer %d claims to be %d bytes, which makes more than %d in one message", i, inflated, v.limit)
			return
		}
		if zstd {
			if window := zstdWindow(v.body[from+8 : from+size]); window > uint64(max(inflated, maxZstdWindow)) {
				v.reject("buffer %d of %d bytes needs a window of %d to be decompressed", i, inflated, window)
				return
			}
		}
		left -= inflated
		v.inflatedBytes += inflated
	}
}
