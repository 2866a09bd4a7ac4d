package flightconn

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A flatbuffer is written front to back. Its fields are byte, int64, members
// (another table), []members (a vector of tables), one that is twice the same
// table, or elements (a vector of anything); nil is absent.
type (
	members  []any
	twice    struct{ table members }
	elements struct {
		count int
		bytes []byte
	}
)

func flatbuffer(root members) []byte {
	f := &flat{bytes: make([]byte, 4)}
	f.point(0, f.table(root))
	return f.bytes
}

type flat struct{ bytes []byte }

func (f *flat) u32(v int) int {
	f.bytes = binary.LittleEndian.AppendUint32(f.bytes, uint32(v))
	return len(f.bytes) - 4
}

func (f *flat) point(from, to int) {
	binary.LittleEndian.PutUint32(f.bytes[from:], uint32(to-from))
}

func (f *flat) table(fields members) int {
	vtable := len(f.bytes)
	f.bytes = append(f.bytes, make([]byte, 4+2*len(fields))...)
	binary.LittleEndian.PutUint16(f.bytes[vtable:], uint16(4+2*len(fields)))
	at := len(f.bytes)
	f.u32(at - vtable)
	refs := map[int]any{}
	for i, field := range fields {
		if field == nil {
			continue
		}
		binary.LittleEndian.PutUint16(f.bytes[vtable+4+2*i:], uint16(len(f.bytes)-at))
		switch field := field.(type) {
		case byte:
			f.bytes = append(f.bytes, field)
		case int64:
			f.bytes = binary.LittleEndian.AppendUint64(f.bytes, uint64(field))
		default:
			refs[i] = field
			binary.LittleEndian.PutUint16(f.bytes[vtable+4+2*i:], uint16(f.u32(0)-at))
		}
	}
	for i := range fields { // what they refer to comes behind, in their order
		if ref, ok := refs[i]; ok {
			from := at + int(binary.LittleEndian.Uint16(f.bytes[vtable+4+2*i:]))
			f.point(from, f.ref(ref))
		}
	}
	return at
}

func (f *flat) ref(field any) int {
	switch field := field.(type) {
	case members:
		return f.table(field)
	case elements:
		at := f.u32(field.count)
		f.bytes = append(f.bytes, field.bytes...)
		return at
	case twice:
		at := f.u32(2)
		first, second := f.u32(0), f.u32(0)
		table := f.table(field.table)
		f.point(first, table)
		f.point(second, table)
		return at
	case []members:
		at := f.u32(len(field))
		refs := make([]int, len(field))
		for i := range refs {
			refs[i] = f.u32(0)
		}
		for i, table := range field {
			f.point(refs[i], f.table(table))
		}
		return at
	}
	panic("no such field")
}

func int64s(values ...int64) elements {
	return elements{count: len(values), bytes: i64s(values...)}
}

func spans(values ...int64) elements {
	return elements{count: len(values) / 2, bytes: i64s(values...)}
}

// Each claim of a header at its boundary: the last that is right, and the first
// that is not.
func TestAHeaderClaimsNoMoreThanThereIs(t *testing.T) {
	schema := func(fields ...members) []byte {
		return flatbuffer(members{nil, byte(headerSchema), members{nil, fields}})
	}
	record := func(fields ...any) []byte { return flatbuffer(members{nil, byte(headerRecord), members(fields)}) }
	dictionary := func(fields ...any) []byte {
		return flatbuffer(members{nil, byte(headerDictionary), members{nil, members(fields)}})
	}
	metadata := func(count int) []byte {
		return flatbuffer(members{nil, byte(0), nil, nil, elements{count, make([]byte, 12)}})
	}
	union := func(count int) members {
		return members{nil, nil, byte(typeUnion), members{nil, elements{count, make([]byte, 8)}}}
	}
	vtableAt := func(at int) []byte { // of an empty table in 12 bytes, in front of it: 4 bytes long
		b := []byte{4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0}
		binary.LittleEndian.PutUint32(b[4:], uint32(4-at))
		return b
	}
	disarm := func(b []byte) []byte { return b[:len(b)-1] }
	const half = 50 // of what buffers may become
	inflating := func(sizes ...int64) []byte { return i64s(sizes...) }
	for name, c := range map[string]struct {
		header, body []byte
		ok           bool
	}{
		"an empty table, its vtable last":     {vtableAt(10), nil, true},
		"a vtable that is cut":                {vtableAt(11), nil, false},
		"a vtable in front of all":            {vtableAt(-1), nil, false},
		"no bytes":                            {nil, nil, false},
		"an offset that leads nowhere":        {[]byte{0, 0, 0, 0, 0, 0, 0, 0}, nil, false},
		"an offset to the end":                {[]byte{4, 0, 0, 0}, nil, false},
		"no fields":                           {schema(), nil, true},
		"a length that is cut":                {disarm(schema()), nil, false},
		"metadata, all there":                 {flatbuffer(members{nil, byte(0), nil, nil, make([]members, 3)}), nil, true},
		"metadata, one too many":              {metadata(4), nil, false},
		"metadata, very many":                 {metadata(12), nil, false},
		"a union's codes, all there":          {schema(union(2)), nil, true},
		"a union's codes, one too many":       {schema(union(3)), nil, false},
		"a field's metadata, one too many":    {schema(members{nil, nil, nil, nil, nil, nil, elements{2, make([]byte, 4)}}), nil, false},
		"rows":                                {record(int64(math.MaxInt32)), nil, true},
		"rows that are cut":                   {disarm(record(int64(1))), nil, false},
		"too many rows":                       {record(int64(math.MaxInt32 + 1)), nil, false},
		"fewer rows than none":                {record(int64(-1)), nil, false},
		"rows of a dictionary":                {dictionary(int64(-1)), nil, false},
		"an array's rows":                     {record(int64(1), spans(math.MaxInt32, 0)), nil, true},
		"an array's rows, too many":           {record(int64(1), spans(1, 0, math.MaxInt32+1, 0)), nil, false},
		"a buffer, all there":                 {record(int64(1), nil, spans(3, 5)), make([]byte, 8), true},
		"a buffer beyond the body":            {record(int64(1), nil, spans(3, 6)), make([]byte, 8), false},
		"a buffer from below":                 {record(int64(1), nil, spans(-1, 5)), make([]byte, 8), false},
		"a buffer of less than nothing":       {record(int64(1), nil, spans(3, -1)), make([]byte, 8), false},
		"the second buffer beyond the body":   {record(int64(1), nil, spans(0, 0, 8, 1)), make([]byte, 8), false},
		"an empty buffer anywhere":            {record(int64(1), nil, spans(99, 0)), nil, true},
		"compressed, just its size":           {record(int64(1), nil, spans(0, 8), members{}), inflating(0), true},
		"compressed, less than its size":      {record(int64(1), nil, spans(0, 7), members{}), inflating(0), false},
		"compressed, as large as may be":      {record(int64(1), nil, spans(0, 8), members{}), inflating(2 * half), true},
		"compressed, larger":                  {record(int64(1), nil, spans(0, 8), members{}), inflating(2*half + 1), false},
		"compressed, less than nothing":       {record(int64(1), nil, spans(0, 8), members{}), inflating(-2), false},
		"compressed, but left as it was":      {record(int64(1), nil, spans(0, 8), members{}), inflating(-1), true},
		"compressed, two halves":              {record(int64(1), nil, spans(0, 8, 8, 8), members{}), inflating(half, half), true},
		"compressed, two halves and more":     {record(int64(1), nil, spans(0, 8, 8, 8), members{}), inflating(half, half+1), false},
		"variadic buffers, all there":         {record(int64(1), nil, spans(0, 0, 0, 0, 0, 0), nil, int64s(1, 2)), nil, true},
		"variadic buffers, more than any":     {record(int64(1), nil, spans(0, 0, 0, 0, 0, 0), nil, int64s(2, 2)), nil, false},
		"variadic buffers, fewer than none":   {record(int64(1), nil, spans(0, 0), nil, int64s(-1)), nil, false},
		"variadic buffers, none of no buffer": {record(int64(1), nil, nil, nil, int64s(0)), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := verifyMessage(slices.Clip(c.header), c.body, 2*half)
			if c.ok {
				require.NoError(t, err)
			} else {
				require.Error(t, err)
			}
		})
	}
}

// A header may refer to one table many times: following each reference would
// take for ever.
func TestTablesThatAreSharedManyTimesAreNotFollowedEachTime(t *testing.T) {
	field := members{}
	for range maxFieldDepth - 1 {
		field = members{nil, nil, nil, nil, nil, twice{field}}
	}
	header := flatbuffer(members{nil, byte(headerSchema), members{nil, []members{field}}})
	_, err := verifyMessage(header, nil, 0)
	require.Error(t, err)
}

// TestNoFieldHidesBehindAnOddTable: by the length of its table of fields a field would be
// there for Arrow's reader alone, such as metadata of any claimed length.
func TestNoFieldHidesBehindAnOddTable(t *testing.T) {
	batch := int64Batch(1)
	defer batch.Release()
	for _, message := range send(t, batch) {
		header := slices.Clone(message.GetDataHeader())
		root := binary.LittleEndian.Uint32(header)
		fields := int(root) - int(int32(binary.LittleEndian.Uint32(header[root:])))
		_, err := verifyMessage(header, message.GetDataBody(), 0)
		require.NoError(t, err)
		header[fields]--
		_, err = verifyMessage(header, message.GetDataBody(), 0)
		require.Error(t, err)
	}
}
