package flightconn

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/internal/eof"
)

// affectedRowsKey is where SwanLake counts the rows of a statement that was
// sent as a query and has none.
const affectedRowsKey = "x-swanlake-affected-rows"

// reader reads the batches of one DoGet. It belongs to one goroutine.
//
// Its stages: openReader starts the RPC and reads the schema; next gives
// batches until io.EOF or an error; release ends it, at any moment. A message
// goes through messageReader, where its header is verified, then through
// Arrow's reader, then as a batch through the Validator. Nothing of the
// server's is believed before that.
type reader struct {
	stream        pb.FlightService_DoGetClient
	messages      *messageReader
	validator     Validator
	batches       *ipc.Reader       // nil: the stream ended without a schema
	nested        bool              // dictionaries have dictionaries
	batch         arrow.RecordBatch // with dictionaries of its own, owned
	mem           *batchMemory
	failed        bool // the last batch could not be read
	from          rowSource
	affected      int64
	affectedKnown bool
}

// openReader starts a DoGet and reads as far as the schema. The end of ctx is
// the end of the stream; there is no other way to end it early. reserve, unless it is
// nil, is called before a message is decoded that will take so many bytes.
//
// A stream may end with the status OK before any schema: then there is a
// reader, and it has no rows. The headers have come with the first message;
// they tell what a server counts of a statement that it was sent as a query.
func openReader(ctx context.Context, from rowSource, ticket *pb.Ticket, cfg *Config, reserve func(bytes int64) error) (*reader, error) {
	stream, err := from.client.DoGet(ctx, ticket)
	if err != nil {
		return nil, err
	}
	rd := &reader{stream: stream, from: from, messages: &messageReader{recv: stream.Recv, maxInflated: cfg.maxInflated(), reserve: reserve}, mem: newBatchMemory(cfg.Allocator)}
	rd.batches, err = newIPCReader(rd.messages, rd.mem)
	if err != nil {
		return nil, err
	}
	rd.nested = rd.batches != nil && nestsDictionaries(rd.batches.Schema())
	if header, err := stream.Header(); err == nil {
		if values := header.Get(affectedRowsKey); len(values) > 0 {
			n, err := strconv.ParseInt(values[0], 10, 64)
			rd.affected, rd.affectedKnown = n, err == nil
		}
	}
	return rd, nil
}

// openReader opens the stream of an endpoint, wherever it is. The RPC counts as
// one of the statement: it may be executing until the server has ended the
// stream.
func (r *rpcCall) openReader(ctx context.Context, endpoint *FlightEndpoint, reserve func(bytes int64) error) (*reader, error) {
	return fetch(ctx, r, endpoint, func(ctx context.Context, from rowSource) (*reader, error) {
		return openReader(r.statementContext(ctx), from, endpoint.ticket, r.conn.cfg(), reserve)
	})
}

// newIPCReader reads the schema. It is nil without an error if there is none. A
// failure of the RPC stays what gRPC has said; only where that is none the
// schema is at fault.
func newIPCReader(m *messageReader, mem memory.Allocator) (*ipc.Reader, error) {
	rd, err := ipc.NewReaderFromMessageReader(m, ipc.WithAllocator(mem))
	if err == nil {
		return rd, nil
	}
	if m.err == nil {
		return nil, malformed("schema: %w", err)
	}
	if eof.Reached(m.err) {
		return nil, nil
	}
	return nil, m.err
}

// schema is nil where the stream has none.
func (rd *reader) schema() *arrow.Schema {
	if rd.batches == nil {
		return nil
	}
	return rd.batches.Schema()
}

// next returns the next batch, valid until the following next or release, or
// io.EOF.
func (rd *reader) next() (arrow.RecordBatch, error) {
	if rd.batches == nil {
		return nil, io.EOF
	}
	rd.releaseBatch()
	rd.mem.startBatch()
	rd.failed = true // also if the allocator panics
	err := error(nil)
	if rd.batches.Next() {
		batch := rd.batches.RecordBatch()
		if rd.nested {
			batch = withOwnDictionaries(batch)
			rd.batch = batch
		}
		if err = rd.validator.Check(batch); err == nil {
			rd.failed = false
			return batch, nil
		}
	} else {
		err = rd.streamError()
	}
	rd.failed = err != nil
	if err != nil {
		return nil, withLocation(rd.from.location, err)
	}
	return nil, io.EOF
}

// streamError is nil if the RPC ended with the status OK. The result of Arrow's
// reader is not used: it takes any io.EOF for the end, including a
// decompressor's. It is asked when Arrow's reader has no further batch. What
// the RPC failed with comes first, then what Arrow's reader did not like.
func (rd *reader) streamError() error {
	switch err := rd.batches.Err(); {
	case rd.messages.err != nil && !eof.Reached(rd.messages.err):
		return rd.messages.err
	case err != nil:
		return malformed("batch: %w", err)
	case rd.messages.err == nil:
		return malformed("batch: Arrow's reader has stopped before the end of the stream")
	default:
		return nil
	}
}

// releaseBatch releases the copy of a batch that withOwnDictionaries has made.
// Arrow's reader releases its own.
func (rd *reader) releaseBatch() {
	if rd.batch != nil {
		rd.batch.Release()
		rd.batch = nil
	}
}

// release ends the use of a location and frees what the reader holds. On the
// connection's own transport it does not end the RPC, which the context of the
// call does. A second release does nothing more.
func (rd *reader) release() {
	rd.from.end()
	rd.releaseBatch()
	if rd.batches != nil {
		rd.batches.Release()
		rd.batches = nil
		if rd.failed {
			rd.mem.freeBatch() // after the release, which frees what Arrow's reader still knows of
		}
	}
}

// messageReader hands the FlightData of a stream to Arrow's IPC reader.
//
// It is what keeps a hostile header from Arrow's reader, and what counts a
// message before it is decompressed. Messages without a header carry
// application metadata, and are skipped.
type messageReader struct {
	recv         func() (*pb.FlightData, error)
	last         *ipc.Message
	err          error // what recv failed with
	dictionaries dictionaryBytes

	maxInflated int64                   // bytes that the buffers of one message may become, or all dictionaries take
	reserve     func(bytes int64) error // waits until a message of so many may be decoded; may be nil
}

var _ ipc.MessageReader = (*messageReader)(nil)

// Message is part of ipc.MessageReader. The message is valid until the next. It
// fails, without err, for a message that is refused here, and with err for what
// the RPC or the wait for the budget failed with: newIPCReader and streamError
// tell the two apart by that.
func (m *messageReader) Message() (*ipc.Message, error) {
	for {
		data, err := m.recv()
		if err != nil {
			m.err = err
			return nil, err
		}
		if len(data.GetDataHeader()) == 0 {
			if m.err = checkNoBody(data); m.err != nil {
				return nil, m.err
			}
			continue
		}
		size, err := verifyMessage(data.GetDataHeader(), data.GetDataBody(), m.maxInflated)
		if err != nil {
			return nil, err
		}
		bytes, err := m.dictionaries.add(size, m.maxInflated)
		if err != nil {
			return nil, err
		}
		if bytes > 0 && m.reserve != nil {
			if m.err = m.reserve(bytes); m.err != nil {
				return nil, m.err
			}
		}
		msg := ipc.NewMessage(memory.NewBufferBytes(data.GetDataHeader()), memory.NewBufferBytes(data.GetDataBody()))
		m.releaseLast()
		m.last = msg
		return msg, nil
	}
}

// checkNoBody fails for a message without a header that is more than application
// metadata: to pass over rows would make a short result.
func checkNoBody(data *pb.FlightData) error {
	if n := len(data.GetDataBody()); n > 0 {
		return malformed("a message of %d bytes and no header", n)
	}
	return nil
}

func (m *messageReader) releaseLast() {
	if m.last != nil {
		m.last.Release()
		m.last = nil
	}
}

// Retain is part of ipc.MessageReader. The IPC reader is the only owner.
func (m *messageReader) Retain() {}

// Release is part of ipc.MessageReader.
func (m *messageReader) Release() { m.releaseLast() }

// dictionaryBytes is what the dictionaries of a stream take in memory. They
// stay there to its end, or until they are replaced. A server that sends ever
// more dictionaries, or adds to one for ever, would otherwise fill the memory
// without a single row.
type dictionaryBytes struct {
	byID  map[int64]int64
	total int64
}

// add counts a message, of whatever kind. It returns how many bytes come with
// it: a dictionary that is added to is copied. limit bounds all dictionaries of
// the stream together, in bytes, decompressed. A dictionary that is replaced
// counts once: Arrow's reader drops the one before. A message that is none
// costs what its header and body say (messageSize).
//
// An error means that the stream must not be read on; the counts are then of no
// use.
func (d *dictionaryBytes) add(w messageSize, limit int64) (bytes int64, err error) {
	if !w.dictionary {
		return w.bytes, nil
	}
	before := d.byID[w.id]
	now := w.bytes
	if w.delta {
		now += before
	}
	if d.total += now - before; d.total > limit {
		return 0, fmt.Errorf("the dictionaries of one stream take more than %d bytes", limit)
	}
	if d.byID == nil {
		d.byID = make(map[int64]int64)
	}
	d.byID[w.id] = now
	return now, nil
}
