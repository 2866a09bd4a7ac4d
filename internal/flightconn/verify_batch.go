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

// maxZstdWindow is how much of what it has decompressed a decompressor of zstd
// has to remember, in bytes: what zstd's own takes unless it is told otherwise.
// A window that is no larger than the content is accepted above that too.
const maxZstdWindow = 128 << 20

// zstdWindow is the largest window that frames ask for. A decompressor
// allocates it, whatever little comes of the frame. What is no frame, or is cut
// off, is for the decompressor to find. A buffer may have several frames, and
// frames to be skipped, one after another.
func zstdWindow(frames []byte) (largest uint64) {
	for len(frames) > 0 {
		window, size := zstdFrame(frames)
		largest = max(largest, window)
		if size > uint64(len(frames)) {
			break
		}
		frames = frames[size:]
	}
	return largest
}

// zstdFrame returns the window of the first frame and how long that is, more
// than there is if it does not end or is none. See RFC 8878, section 3.1. It
// never fails: bytes that are missing count as zeros, and each turn of its loop
// gets at least three bytes further.
func zstdFrame(b []byte) (window, size uint64) {
	const endless = 1 << 62
	at := func(from, n uint64) (v uint64) { // n bytes, those that are missing as zeros
		var word [8]byte
		if from < uint64(len(b)) {
			copy(word[:n], b[from:])
		}
		return binary.LittleEndian.Uint64(word[:])
	}
	switch magic := at(0, 4); {
	case magic&^0xf == 0x184d2a50:
		return 0, 8 + at(4, 4)
	case magic != 0xfd2fb528:
		return 0, endless
	}
	flags := at(4, 1)
	single := flags >> 5 & 1 // the window is the content
	pos := 5 + 1 - single
	if single == 0 {
		base := uint64(1) << (10 + at(5, 1)>>3)
		window = base + base/8*(at(5, 1)&7)
	}
	pos += [4]uint64{0, 1, 2, 4}[flags&3]
	length := [4]uint64{single, 2, 4, 8}[flags>>6]
	if single == 1 {
		window = at(pos, length)
		if length == 2 {
			window += 256
		}
	}
	pos += length
	for pos+3 <= uint64(len(b)) {
		block := at(pos, 3)
		pos += 3
		if kind := block >> 1 & 3; kind == 1 {
			pos++ // one byte, repeated
		} else {
			pos += block >> 3
		}
		if block&1 == 1 {
			return window, pos + flags&4 // with a checksum or without
		}
	}
	return window, endless
}
