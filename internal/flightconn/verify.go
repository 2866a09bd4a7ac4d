package flightconn

import (
	"encoding/binary"
	"errors"
	"iter"
)

// verifyMessage checks what the header of an IPC message claims against the
// sizes of the header and of the body; limit bounds the bytes that compressed
// buffers may claim to be. It returns what the message takes in memory.
//
// Arrow's reader believes it: what says that it is long is allocated, fields
// are followed as deep as they go, and what many fields share is copied for
// each. Running out of memory or stack ends the process, which nothing can
// recover from. What else may be wrong makes it fail or panic, which it
// recovers from itself, or is for the Validator to find.
func verifyMessage(header, body []byte, limit int64) (messageSize, error) {
	v := &verifier{buf: header, body: body, limit: limit, tablesLeft: len(header) / 4, bytesLeft: max(maxSchemaBytes, 4*len(header))}
	message := v.table(v.offset(0))
	inner := v.ref(message, 2)
	w := messageSize{batch: true}
	switch v.byteAt(message, 1) {
	case headerSchema:
		w.batch = false
		before := v.bytesLeft
		v.fields(inner, 1, maxFieldDepth)
		v.metadata(inner, 2)
		w.schemaBytes = before - v.bytesLeft
		if n := v.int64Field(message, 3); n < 0 || n > int64(len(body)) {
			v.reject("a schema with a body of %d bytes", n) // for which Arrow's reader of streams makes room
		}
	case headerDictionary:
		w.dictionary, w.delta = true, v.byteAt(inner, 2) != 0
		w.id = v.int64Field(inner, 0)
		w.record = v.record(v.ref(inner, 1))
	case headerRecord:
		w.record = v.record(inner)
		w.record.current = v.shortField(message, 0) == metadataV5
		w.record.metadata = v.field(message, 4) != 0
		w.rows = true
	}
	v.metadata(message, 4)
	switch {
	case v.err != nil:
		return messageSize{}, v.err
	case v.invalid:
		return messageSize{}, errors.New("the message header is no valid flatbuffer")
	default:
		if w.batch {
			w.bytes = int64(len(body)) + v.inflatedBytes + arrayBytesPerHeaderByte*int64(len(header))
		}
		return w, nil
	}
}

// arrayBytesPerHeaderByte is about how many bytes of Arrow's own the arrays take that a byte
// of a batch's header describes.
const arrayBytesPerHeaderByte = 8

// messageSize is what a message takes in memory. It is known before anything of
// it is allocated.
type messageSize struct {
	bytes             int64 // decompressed
	schemaBytes       int   // of a schema
	batch             bool  // it has a body
	dictionary, delta bool  // of these a dictionary, or an addition to it
	id                int64 // the dictionary's

	rows   bool         // it is a RecordBatch
	record recordLayout // of that, or of a dictionary
}

// Members of the unions MessageHeader and Type, of CompressionType and of
// MetadataVersion, in Arrow's format.
const (
	headerSchema     = 1
	headerDictionary = 2
	headerRecord     = 3
	codecZstd        = 1
	metadataV5       = 4 // of the version of the format
	typeTimestamp    = 10
	typeUnion        = 14
)

// maxSchemaBytes is how many bytes a schema may take in memory, or four times its
// message if that is more. Writers give each field its own name and metadata, so
// that a schema takes hardly more than its message; schemaFieldBytes is what a field,
// or an entry of metadata, takes beside its texts.
const (
	maxSchemaBytes   = 64 << 20
	schemaFieldBytes = 128
)

// verifier walks a flatbuffer. All its methods tolerate anything; invalid says
// that something did not fit, and err what, if that can be said.
//
// INVARIANT: offsets only point forward and tables bounds how many are
// visited, more than a buffer of that size can hold, so every walk ends, also
// where tables are shared many times over.
type verifier struct {
	buf           []byte
	body          []byte
	limit         int64
	tablesLeft    int
	inflatedBytes int64 // bytes that compressed buffers become
	bytesLeft     int   // bytes that what is visited may yet take in memory
	invalid       bool
	err           error // why, where that can be said better
}

// maxFieldDepth is how deep fields may be nested; Arrow's own reader of batches
// stops there too.
const maxFieldDepth = 64

// table is the position of a table, 0 for none, which the root never is. vtable
// is where its own table of fields begins, and vsize how long that is.
type table struct{ at, vtable, vsize int }

// markInvalid says that the header is no valid flatbuffer, and returns the
// position that stands for none. The walk goes on from there without effect.
func (v *verifier) markInvalid() int { v.invalid = true; return 0 }

// u16 and u32 read a number at any position, 0 where there is none.
func (v *verifier) u16(at int) int {
	if at < 0 || at+2 > len(v.buf) {
		return v.markInvalid()
	}
	return int(binary.LittleEndian.Uint16(v.buf[at:]))
}

func (v *verifier) u32(at int) int {
	if at < 0 || at+4 > len(v.buf) {
		return v.markInvalid()
	}
	return int(binary.LittleEndian.Uint32(v.buf[at:]))
}

// offset follows the forward offset at a position. Strings, vectors and tables
// are referred to like that, so that a walk only gets forward.
func (v *verifier) offset(at int) int {
	distance := v.u32(at)
	if distance == 0 || at+distance >= len(v.buf) {
		return v.markInvalid()
	}
	return at + distance
}

// table reads the beginning of a table. It counts: a header that refers to one
// table many times would otherwise be followed exponentially often.
func (v *verifier) table(at int) table {
	v.tablesLeft--
	if v.invalid || at == 0 || v.tablesLeft < 0 {
		v.markInvalid()
		return table{}
	}
	t := table{at: at, vtable: at - int(int32(v.u32(at)))}
	t.vsize = v.u16(t.vtable)
	if t.vsize%2 != 0 { // Arrow's reader would find a field in the last byte, which none here looks at
		v.markInvalid()
	}
	return t
}

// field is where a field of a table is, 0 if it is absent.
func (v *verifier) field(t table, n int) int {
	slot := 4 + 2*n
	if t.at == 0 || v.invalid || slot+2 > t.vsize {
		return 0
	}
	distance := v.u16(t.vtable + slot)
	if distance == 0 {
		return 0
	}
	return t.at + distance
}

// byteAt is a field of one byte, 0 if it is absent, which is the default of all
// that are read here.
func (v *verifier) byteAt(t table, n int) byte {
	at := v.field(t, n)
	if at == 0 {
		return 0
	}
	if at >= len(v.buf) {
		v.markInvalid()
		return 0
	}
	return v.buf[at]
}

// shortField is an unsigned number of 16 bits, 0 if it is absent.
func (v *verifier) shortField(t table, n int) int {
	at := v.field(t, n)
	if at == 0 {
		return 0
	}
	return v.u16(at)
}

// int64Field is a signed number of 64 bits, 0 if it is absent.
func (v *verifier) int64Field(t table, n int) int64 {
	at := v.field(t, n)
	if at == 0 {
		return 0
	}
	if at+8 > len(v.buf) {
		return int64(v.markInvalid())
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
// size is that of an element in bytes; all of them lie within the header then.
func (v *verifier) vector(t table, n, size int) (at, length int) {
	if at = v.field(t, n); at == 0 {
		return 0, 0
	}
	at = v.offset(at)
	length = v.u32(at)
	if length > (len(v.buf)-at-4)/size {
		return 0, v.markInvalid()
	}
	return at + 4, length
}

// text is a string, which each who refers to it copies.
func (v *verifier) text(t table, n int) {
	_, length := v.vector(t, n, 1)
	v.charge(length)
}

// charge counts bytes that a schema will take in memory, and refuses it when
// there are too many.
func (v *verifier) charge(bytes int) {
	if v.bytesLeft -= bytes; v.bytesLeft < 0 {
		v.reject("the schema would take more than %d bytes", max(maxSchemaBytes, 4*len(v.buf)))
	}
}

// tables are those of a vector, and charges for each. It ends where the schema is
// found to be invalid.
func (v *verifier) tables(t table, n int) iter.Seq[table] {
	return func(yield func(table) bool) {
		at, length := v.vector(t, n, 4)
		for i := range length {
			item := v.table(v.offset(at + 4*i))
			if v.invalid {
				return
			}
			v.charge(schemaFieldBytes)
			if !yield(item) {
				return
			}
		}
	}
}

// metadata checks a vector of KeyValues.
func (v *verifier) metadata(t table, n int) {
	for kv := range v.tables(t, n) {
		v.text(kv, 0)
		v.text(kv, 1)
	}
}

// fields checks a vector of Fields and their children. depth is how many levels
// there may yet be. Arrow's reader follows fields by recursion, and copies name
// and metadata of each.
func (v *verifier) fields(t table, n, depth int) {
	for f := range v.tables(t, n) {
		if depth == 0 {
			v.reject("fields are nested deeper than %d", maxFieldDepth)
			return
		}
		v.text(f, 0)
		switch v.byteAt(f, 2) {
		case typeTimestamp:
			v.text(v.ref(f, 3), 1)
		case typeUnion:
			_, codes := v.vector(v.ref(f, 3), 1, 4)
			v.charge(4 * codes)
		}
		v.fields(f, 5, depth-1)
		v.metadata(f, 6)
	}
}
