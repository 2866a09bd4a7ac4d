package flightconn

import "encoding/binary"

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
