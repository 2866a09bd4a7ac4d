package flightconn

import (
	"encoding/binary"
	"errors"
)

// verifyMessage checks what the header of an IPC message claims against the
// sizes of the header and of the body; limit bounds the bytes that compressed
// buffers may claim to be. It returns what the message takes in memory.
//
// Arrow's reader believes it: what says that it is long is allocated, fields are
// followed as deep as they go, and what many fields share is copied for each. Running out of memory or stack ends
// the process, which nothing can recover from. What else may be wrong makes it
// fail or panic, which it recovers from itself, or is for Validate to find.
func verifyMessage(header, body []byte, limit int64) (weight, error) {
	v := &verifier{buf: header, body: body, limit: limit, tables: len(header) / 4, room: max(schemaRoom, 4*len(header))}
	message := v.table(v.offset(0))
	inner := v.ref(message, 2)
	w := weight{batch: true}
	switch v.byteAt(message, 1) {
	case headerSchema:
		w.batch = false
		v.fields(inner, 1, deepest)
		v.metadata(inner, 2)
	case headerDictionary:
		w.dictionary, w.delta = true, v.byteAt(inner, 2) != 0
		w.id = v.long(inner, 0)
		v.record(v.ref(inner, 1))
	case headerRecord:
		v.record(inner)
	}
	v.metadata(message, 4)
	switch {
	case v.err != nil:
		return weight{}, v.err
	case v.bad:
		return weight{}, errors.New("the message header is no valid flatbuffer")
	default:
		if w.batch {
			w.bytes = int64(len(body)) + v.inflated + headerWeight*int64(len(header))
		}
		return w, nil
	}
}

// headerWeight is about how many bytes of Arrow's own the arrays take that a byte
// of a batch's header describes.
const headerWeight = 8

// weight is what a message takes in memory.
type weight struct {
	bytes             int64 // decompressed
	batch             bool  // it has a body
	dictionary, delta bool  // of these a dictionary, or an addition to it
	id                int64 // the dictionary's
}

// Members of the unions MessageHeader and Type, and of CompressionType, in Arrow's
// format.
const (
	headerSchema     = 1
	headerDictionary = 2
	headerRecord     = 3
	codecZstd        = 1
	typeTimestamp    = 10
	typeUnion        = 14
)

// schemaRoom is how many bytes a schema may take in memory, or four times its
// message if that is more. Writers give each field its own name and metadata, so
// that a schema takes hardly more than its message; fieldRoom is what a field,
// or an entry of metadata, takes beside its texts.
const (
	schemaRoom = 64 << 20
	fieldRoom  = 128
)

// verifier walks a flatbuffer. All its methods tolerate anything; bad says
// that something did not fit.
//
// INVARIANT: offsets only point forward and tables bounds how many are
// visited, more than a buffer of that size can hold, so every walk ends, also
// where tables are shared many times over.
type verifier struct {
	buf      []byte
	body     []byte
	limit    int64
	tables   int
	inflated int64 // bytes that compressed buffers become
	room     int   // bytes that what is visited may yet take in memory
	bad      bool
	err      error // why, where that can be said better
}

// deepest is how deep fields may be nested; Arrow's own reader of batches
// stops there too.
const deepest = 64

// table is the position of a table, 0 for none, which the root never is.
type table struct{ at, vtable, vsize int }

func (v *verifier) fail() int { v.bad = true; return 0 }

func (v *verifier) u16(at int) int {
	if at < 0 || at+2 > len(v.buf) {
		return v.fail()
	}
	return int(binary.LittleEndian.Uint16(v.buf[at:]))
}

func (v *verifier) u32(at int) int {
	if at < 0 || at+4 > len(v.buf) {
		return v.fail()
	}
	return int(binary.LittleEndian.Uint32(v.buf[at:]))
}

// offset follows the forward offset at a position.
func (v *verifier) offset(at int) int {
	distance := v.u32(at)
	if distance == 0 || at+distance >= len(v.buf) {
		return v.fail()
	}
	return at + distance
}

func (v *verifier) table(at int) table {
	v.tables--
	if v.bad || at == 0 || v.tables < 0 {
		v.fail()
		return table{}
	}
	t := table{at: at, vtable: at - int(int32(v.u32(at)))}
	t.vsize = v.u16(t.vtable)
	return t
}

// field is where a field of a table is, 0 if it is absent.
func (v *verifier) field(t table, n int) int {
	slot := 4 + 2*n
	if t.at == 0 || v.bad || slot+2 > t.vsize {
		return 0
	}
	distance := v.u16(t.vtable + slot)
	if distance == 0 {
		return 0
	}
	return t.at + distance
}

func (v *verifier) byteAt(t table, n int) byte {
	at := v.field(t, n)
	if at == 0 {
		return 0
	}
	if at >= len(v.buf) {
		v.fail()
		return 0
	}
	return v.buf[at]
}

// long is a signed number of 64 bits, 0 if it is absent.
func (v *verifier) long(t table, n int) int64 {
	at := v.field(t, n)
	if at == 0 {
		return 0
	}
	if at+8 > len(v.buf) {
		return int64(v.fail())
	}
	return v.i64(at)
}

// ref is the table that a field refers to, none if it is absent.
func (v *verifier) ref(t table, n int) table {
	at := v.field(t, n)
	if at == 0 {
		return table{}
	}
	return v.table(v.offset(at))
}

// vector returns where the elements of a vector begin and how many there are.
func (v *verifier) vector(t table, n, size int) (at, length int) {
	if at = v.field(t, n); at == 0 {
		return 0, 0
	}
	at = v.offset(at)
	length = v.u32(at)
	if length > (len(v.buf)-at-4)/size {
		return 0, v.fail()
	}
	return at + 4, length
}

// text is a string, which each who refers to it copies.
func (v *verifier) text(t table, n int) {
	_, length := v.vector(t, n, 1)
	v.take(length)
}

func (v *verifier) take(bytes int) {
	if v.room -= bytes; v.room < 0 {
		v.reject("the schema would take more than %d bytes", max(schemaRoom, 4*len(v.buf)))
	}
}

// metadata checks a vector of KeyValues.
func (v *verifier) metadata(t table, n int) {
	at, length := v.vector(t, n, 4)
	for i := range length {
		kv := v.table(v.offset(at + 4*i))
		if v.bad {
			return
		}
		v.take(fieldRoom)
		v.text(kv, 0)
		v.text(kv, 1)
	}
}

// fields checks a vector of Fields and their children.
func (v *verifier) fields(t table, n, depth int) {
	at, length := v.vector(t, n, 4)
	if length > 0 && depth == 0 {
		v.reject("fields are nested deeper than %d", deepest)
	}
	for i := range length {
		f := v.table(v.offset(at + 4*i))
		if v.bad {
			return
		}
		v.take(fieldRoom)
		v.text(f, 0)
		switch v.byteAt(f, 2) {
		case typeTimestamp:
			v.text(v.ref(f, 3), 1)
		case typeUnion:
			_, codes := v.vector(v.ref(f, 3), 1, 4)
			v.take(4 * codes)
		}
		v.fields(f, 5, depth-1)
		v.metadata(f, 6)
	}
}
