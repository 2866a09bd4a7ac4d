package export

import (
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// An arrowWriter writes an Arrow IPC stream.
//
// arrow-go's writer leaves out a dictionary that it takes for the one before: it compares floats
// to within 0.00001, and texts without the zero bytes at their ends. Then another writer goes
// on, which writes all of them.
type arrowWriter struct {
	out    *arrowStream
	schema *arrow.Schema
	writer *ipc.Writer
	last   []arrow.Array // the dictionaries of the batch before, owned
	begun  bool          // something was written, or is to be
}

func newArrow(w io.Writer, schema *arrow.Schema) (*arrowWriter, error) {
	for _, f := range schema.Fields() {
		if contains(f.Type, isCodedTwice) {
			return nil, fmt.Errorf("as Arrow: column %q: Arrow's format has no dictionary of dictionaries", f.Name)
		}
	}
	a := &arrowWriter{out: &arrowStream{Writer: w}, schema: schema}
	a.begin()
	return a, nil
}

func (a *arrowWriter) begin() {
	a.writer = ipc.NewWriterWithPayloadWriter(a.out, ipc.WithSchema(a.schema))
}

func (a *arrowWriter) Write(batch arrow.RecordBatch) (err error) {
	defer func() {
		if err != nil {
			_ = a.release() // err says more
		}
	}()
	defer contain("as Arrow", &err)
	var own []arrow.Array
	for _, column := range batch.Columns() {
		own = appendDictionaries(own, column.Data())
	}
	before := a.last
	a.last = own
	defer release(before)
	for i := 0; i < len(own) && len(before) == len(own); i++ {
		if isMistaken(before[i], own[i]) {
			a.out.hasSchema = true
			if err := a.writer.Close(); err != nil {
				return err
			}
			a.begin()
			break
		}
	}
	a.begun = true
	return a.writer.Write(batch)
}

func (a *arrowWriter) Close() error {
	a.begun = true // the schema at least
	if err := a.release(); err != nil {
		return err
	}
	return a.out.end()
}

// release lets go of the dictionaries, which arrow-go's writer holds until its Close. It does not end what is written.
func (a *arrowWriter) release() error {
	release(a.last)
	a.last = nil
	if !a.begun {
		return nil
	}
	return a.writer.Close()
}

func release(arrays []arrow.Array) {
	for _, a := range arrays {
		a.Release()
	}
}

// appendDictionaries appends the dictionaries of an array and of all that it is made of.
func appendDictionaries(to []arrow.Array, d arrow.ArrayData) []arrow.Array {
	if storageOf(d.DataType()).ID() == arrow.DICTIONARY {
		return appendDictionaries(append(to, array.MakeFromData(d.Dictionary())), d.Dictionary())
	}
	for _, child := range d.Children() {
		to = appendDictionaries(to, child)
	}
	return to
}

// isMistaken reports whether arrow-go's writer takes own for before, and it is not. Floats that
// are near are not looked at: zeros may differ in their sign.
func isMistaken(before, own arrow.Array) bool {
	if before.Data() == own.Data() || before.Len() != own.Len() || !array.ApproxEqual(before, own, array.WithNaNsEqual(true)) {
		return false
	}
	return contains(own.DataType(), func(t arrow.DataType) bool { return arrow.IsFloating(t.ID()) }) || !array.Equal(before, own)
}

// isCodedTwice reports whether a type is a dictionary of dictionaries.
func isCodedTwice(t arrow.DataType) bool {
	coded, ok := t.(*arrow.DictionaryType)
	return ok && storageOf(coded.ValueType).ID() == arrow.DICTIONARY
}

// contains reports whether a type, or one that it is made of, is such a one.
func contains(t arrow.DataType, is func(arrow.DataType) bool) bool {
	t = storageOf(t)
	switch of := t.(type) {
	case *arrow.DictionaryType:
		return is(t) || contains(of.ValueType, is)
	case arrow.NestedType:
		return slices.ContainsFunc(of.Fields(), func(f arrow.Field) bool { return contains(f.Type, is) })
	default:
		return is(t)
	}
}

// An arrowStream is what one writer writes after the other, with one schema and one end.
type arrowStream struct {
	io.Writer
	hasSchema bool // the next message is a schema, which is there
}

// Start is part of ipc.PayloadWriter.
func (s *arrowStream) Start() error { return nil }

// WritePayload is part of ipc.PayloadWriter.
func (s *arrowStream) WritePayload(p ipc.Payload) error {
	if s.hasSchema {
		s.hasSchema = false
		return nil
	}
	_, err := p.WritePayload(s.Writer)
	return err
}

// Close is part of ipc.PayloadWriter: another writer may follow.
func (s *arrowStream) Close() error { return nil }

func (s *arrowStream) end() error {
	_, err := s.Write([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	return err
}
