// Package ipcwrite writes batches in Arrow's IPC format, with the dictionaries that they have.
//
// Arrow's own writer leaves out a dictionary that it takes for the one before: it compares
// floats to within 0.00001, and texts without the zero bytes at their ends. A reader would then
// give the rows that follow the values of the rows before.
package ipcwrite

import (
	"cmp"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// Writer writes batches of one schema. It belongs to one goroutine, and Close must be called.
//
// INVARIANT: what is read with the indices of a batch are the values of its own dictionaries.
type Writer struct {
	writer *ipc.Writer
	recode *recoder // nil: the schema has no dictionaries
	err    error    // of the first Write that failed
}

// recoder is what it takes to have dictionaries written again.
type recoder struct {
	out          payloads
	opts         []ipc.Option
	dictionaries Dictionaries
}

// New is a Writer to out, whose Close ends what is written. opts name the schema, too.
func New(out ipc.PayloadWriter, schema *arrow.Schema, opts ...ipc.Option) Writer {
	if !HasDictionary(schema) {
		return Writer{writer: ipc.NewWriterWithPayloadWriter(out, opts...)}
	}
	c := &recoder{out: payloads{PayloadWriter: out}, opts: slices.Clone(opts)} // a clone keeps those of others on the stack
	return Writer{writer: c.begin(), recode: c}
}

func (c *recoder) begin() *ipc.Writer { return ipc.NewWriterWithPayloadWriter(&c.out, c.opts...) }

// Write writes a batch, the dictionaries that it needs before it and, for the first, the
// schema before all. After an error it writes no more.
func (w *Writer) Write(batch arrow.RecordBatch) error {
	if w.err == nil && w.recode != nil {
		w.err = w.follow(batch)
	}
	if w.err == nil {
		w.err = w.writer.Write(batch)
	}
	return w.err
}

// follow has all dictionaries written again where Arrow's writer would leave out one that is
// another.
func (w *Writer) follow(batch arrow.RecordBatch) error {
	mistaken, err := w.recode.dictionaries.Follow(batch)
	if err != nil || !mistaken {
		return err
	}
	w.recode.out.skipsSchema = true
	if err := w.writer.Close(); err != nil {
		return err
	}
	w.writer = w.recode.begin()
	return nil
}

// Close writes the schema if no batch has done so, and what ends it all. What has failed has
// no end.
func (w *Writer) Close() error {
	err := cmp.Or(w.writer.Close(), w.err)
	if w.recode == nil {
		return err
	}
	w.recode.dictionaries.Release()
	if err != nil {
		return err
	}
	return w.recode.out.PayloadWriter.Close()
}

// payloads passes on what one writer writes after the other, but for a schema that is there.
type payloads struct {
	ipc.PayloadWriter
	skipsSchema bool // the next message is one
}

// WritePayload is part of ipc.PayloadWriter.
func (p *payloads) WritePayload(payload ipc.Payload) error {
	if p.skipsSchema {
		p.skipsSchema = false
		return nil
	}
	return p.PayloadWriter.WritePayload(payload)
}

// Close is part of ipc.PayloadWriter: the end is written by Writer.Close.
func (p *payloads) Close() error { return nil }
