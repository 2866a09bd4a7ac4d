package flightconn

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/endian"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// knownSchema is a schema as its message has it and decoded. It is never changed.
type knownSchema struct {
	header []byte
	schema *arrow.Schema

	// plain says that its batches can be read by batchDecoder: there are no
	// dictionaries, and numbers are as this machine has them.
	plain bool

	unreadable error // why Arrow's reader must not read its batches

	dictionaries int // how deep they are nested: 0 where there are none

	// views are how many arrays of views a batch has, and dictionaryViews how many the
	// values of one of its dictionaries have at most.
	views, dictionaryViews int

	needs           needs           // of a batch
	dictionaryNeeds map[int64]needs // of each dictionary, by its number
}

// checkVariadic refuses a message that counts the variadic buffers of fewer arrays than it
// has. Arrow's reader takes the bytes behind the last count for the next one, and
// allocates as many pointers. A message without any counts has none for all.
//
// Which dictionary it is does not matter: where one of them has views, a dictionary
// without any must have no counts at all, as writers leave them out.
func (s *knownSchema) checkVariadic(m messageSize) error {
	needed := s.views
	if m.dictionary {
		needed = s.dictionaryViews
	}
	if m.batch && m.record.variadicGiven && m.record.variadic < needed {
		return fmt.Errorf("counts of variadic buffers for %d of %d arrays", m.record.variadic, needed)
	}
	return nil
}

// viewsIn is how many arrays of views a type has, and how many the values of one of its
// dictionaries have at most.
func viewsIn(t arrow.DataType) (here, inDictionary int) {
	switch t := t.(type) {
	case arrow.ExtensionType:
		return viewsIn(t.StorageType())
	case *arrow.DictionaryType:
		values, deeper := viewsIn(t.ValueType)
		return 0, max(values, deeper)
	case arrow.BinaryViewDataType:
		return 1, 0
	case arrow.NestedType:
		for _, f := range t.Fields() {
			views, deeper := viewsIn(f.Type)
			here, inDictionary = here+views, max(inDictionary, deeper)
		}
	}
	return here, inDictionary
}

// schemaCache has the schemas of an endpoint's results by the bytes of their messages,
// so that a statement that is run again does not decode its schema again. It is safe
// for use by any goroutine, and its zero value is empty.
//
// INVARIANT: it has at most maxKnownSchemas entries, of at most about maxKnownBytes
// each, whatever the server sends: of a short message, whose fields refer to one text,
// may come a large schema. Messages are verified before they come here.
type schemaCache struct {
	mu     sync.Mutex
	schema map[string]*knownSchema
}

const (
	maxKnownSchemas = 64
	maxKnownBytes   = 64 << 10
)

// extensionKey is in the metadata of a field whose type somebody may register. What the
// message decodes to changes with that, so that such a schema is not kept.
var extensionKey = []byte("ARROW:extension:name")

// decode is the schema of a message, which takes so many bytes in memory (messageSize).
// header stays the caller's.
func (c *schemaCache) decode(header []byte, takes int) (*knownSchema, error) {
	c.mu.Lock()
	known := c.schema[string(header)]
	c.mu.Unlock()
	if known != nil {
		return known, nil
	}
	known, err := decodeSchemaMessage(bytes.Clone(header))
	if err != nil || len(header)+takes > maxKnownBytes || bytes.Contains(header, extensionKey) {
		return known, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.schema == nil || len(c.schema) >= maxKnownSchemas {
		c.schema = make(map[string]*knownSchema)
	}
	c.schema[string(known.header)] = known
	return known, nil
}

// decodeSchemaMessage decodes the header of a message that was verified. It is kept. An
// error is Arrow's.
func decodeSchemaMessage(header []byte) (*knownSchema, error) {
	rd, err := ipc.NewReaderFromMessageReader(&schemaMessage{header: header}, ipc.WithEnsureNativeEndian(false))
	if err != nil {
		return nil, err
	}
	defer rd.Release()
	s := &knownSchema{header: header, schema: rd.Schema()}
	fields := s.schema.Fields()
	for _, f := range fields {
		views, deeper := viewsIn(f.Type)
		s.views, s.dictionaryViews = s.views+views, max(s.dictionaryViews, deeper)
		s.dictionaries = max(s.dictionaries, dictionariesIn(f.Type))
	}
	s.plain = s.schema.IsNativeEndian() && s.dictionaries == 0
	s.unreadable = unreadable(s.schema)
	s.learnNeeds(fields)
	s.schema = s.schema.WithEndianness(endian.NativeEndian)
	return s, nil
}

// schemaMessage is an ipc.MessageReader that has one message, without a body.
type schemaMessage struct {
	header []byte
	given  bool
}

// Message is part of ipc.MessageReader.
func (m *schemaMessage) Message() (*ipc.Message, error) {
	if m.given {
		return nil, io.EOF
	}
	m.given = true
	return ipc.NewMessage(memory.NewBufferBytes(m.header), memory.NewBufferBytes(nil)), nil
}

// Retain is part of ipc.MessageReader.
func (m *schemaMessage) Retain() {}

// Release is part of ipc.MessageReader.
func (m *schemaMessage) Release() {}

// DecodeSchema reads a schema that a server has put into a cell, as that of a table in a catalogue.
// Arrow's flight.DeserializeSchema believes what it claims: see verifyMessage.
func DecodeSchema(data []byte) (*arrow.Schema, error) {
	schema, err := decodeSchema(data)
	if err == nil && schema == nil {
		err = malformed("schema of %d bytes: there is none", len(data))
	}
	return schema, err
}

// decodeSchema reads an encapsulated IPC schema message. It is nil for the
// absence of a schema. The schema is verified as that of a stream is.
func decodeSchema(data []byte) (*arrow.Schema, error) {
	header, err := schemaHeader(data)
	if err != nil || header == nil {
		return nil, err
	}
	known, err := decodeSchemaMessage(header)
	if err != nil {
		return nil, malformed("schema: %w", err)
	}
	return known.schema, nil
}

// CheckSchema fails for a serialized schema that another client must not be given, since it decodes
// it by Arrow's reader as it is.
func CheckSchema(data []byte) error {
	_, err := schemaHeader(data)
	return err
}

// schemaHeader is the header of an encapsulated message, which has its length, after a
// continuation mark from all but old writers, before it. It was verified.
func schemaHeader(data []byte) ([]byte, error) {
	if len(data) == 0 {
		return nil, nil
	}
	header := bytes.TrimPrefix(data, []byte{0xff, 0xff, 0xff, 0xff})
	if len(header) < 4 || uint64(binary.LittleEndian.Uint32(header)) > uint64(len(header)-4) {
		return nil, malformed("schema of %d bytes: cut off", len(data))
	}
	header = header[4 : 4+binary.LittleEndian.Uint32(header)]
	if len(header) == 0 {
		return nil, nil
	}
	if _, err := verifyMessage(header, nil, 0); err != nil {
		return nil, malformed("schema: %w", err)
	}
	return header, nil
}
