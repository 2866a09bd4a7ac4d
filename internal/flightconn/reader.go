package flightconn

import (
	"context"
	"io"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
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
// goes through messageReader, where its header is verified, and then becomes a batch
// that the Validator has checked: by batchDecoder, or by Arrow's reader from the first
// message on that batchDecoder cannot read. Nothing of the server's is believed before
// that.
type reader struct {
	messages      *messageReader
	validator     Validator
	known         *knownSchema      // nil: the stream ended without one
	arrow         *ipc.Reader       // Arrow's reader, nil while it is not needed
	batch         arrow.RecordBatch // owned; nil where it is that of Arrow's reader
	allocator     memory.Allocator  // Config.Allocator
	mem           *batchMemory      // of Arrow's reader, on top of that
	failed        bool              // the last batch could not be read
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
func openReader(ctx context.Context, from rowSource, ticket []byte, e *Endpoint, reserve func(bytes int64) error) (*reader, error) {
	stream, err := from.channel.get(ctx, ticket, receiveData())
	if err != nil {
		return nil, err
	}
	recv := func(m *dataMessage) error { return stream.RecvMsg(m) }
	rd := &reader{from: from, allocator: e.cfg.Allocator, messages: &messageReader{recv: recv, messageCheck: messageCheck{maxInflated: e.cfg.maxInflated()}, reserve: reserve}}
	rd.validator.maxValue = e.cfg.maxInflated()
	if rd.known, err = schemaOf(rd.messages, &e.schemas); err != nil {
		rd.messages.release()
		return nil, err
	}
	rd.messages.known = rd.known
	if rd.known != nil && !rd.known.plain {
		if err := rd.useArrowsReader(); err != nil {
			return nil, err
		}
	}
	rd.affected, rd.affectedKnown = stream.affectedRows()
	return rd, nil
}

// affectedRows is what the server counts in the headers of the stream, which come with its first message.
func (s *channelStream) affectedRows() (n int64, known bool) {
	values := s.header.Get(affectedRowsKey)
	if len(values) == 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	return n, err == nil
}

// openReader opens the stream of an endpoint, wherever it is. The RPC counts as
// one of the statement: it may be executing until the server has ended the
// stream.
func (r *rpcCall) openReader(ctx context.Context, endpoint *FlightEndpoint, turn *Turn, reserve func(bytes int64) error) (*reader, error) {
	return fetch(ctx, r, endpoint, turn, func(ctx context.Context, from rowSource) (*reader, error) {
		return openReader(ctx, from, endpoint.ticket, r.conn.endpoint, reserve)
	})
}

// schemaOf reads the schema of a stream. It is nil without an error if there is none. A
// failure of the RPC stays what gRPC has said; only where that is none the
// schema is at fault.
func schemaOf(m *messageReader, known *schemaCache) (*knownSchema, error) {
	size, err := m.receive()
	if err == nil {
		var s *knownSchema
		if s, err = known.decode(m.message.header, size.schemaBytes); err == nil {
			return s, nil
		}
	}
	if m.err == nil {
		return nil, malformed("schema: %w", err)
	}
	if eof.Reached(m.err) {
		return nil, nil
	}
	return nil, m.err
}

// useArrowsReader has Arrow's reader read what is left of the stream. It is told the
// schema once more. An error means that it does not take a schema that it took before, or
// would make other values of what comes.
func (rd *reader) useArrowsReader() (err error) {
	if err := rd.known.unreadable; err != nil {
		return malformed("schema: %w", err)
	}
	rd.mem = newBatchMemory(rd.allocator, rd.messages.maxInflated)
	source := &arrowSource{messageReader: rd.messages, schema: &schemaMessage{header: rd.known.header}}
	if rd.arrow, err = ipc.NewReaderFromMessageReader(source, ipc.WithAllocator(rd.mem)); err != nil {
		return malformed("schema: %w", err)
	}
	return nil
}

// arrowSource is what Arrow's reader reads of a stream: the schema, then the rest.
type arrowSource struct {
	*messageReader
	schema *schemaMessage
}

// Message is part of ipc.MessageReader.
func (s *arrowSource) Message() (*ipc.Message, error) {
	if !s.schema.given {
		return s.schema.Message()
	}
	return s.messageReader.Message()
}

// schema is nil where the stream has none.
func (rd *reader) schema() *arrow.Schema {
	if rd.known == nil {
		return nil
	}
	return rd.known.schema
}

// next returns the next batch, valid until the following next or release, or
// io.EOF.
func (rd *reader) next() (arrow.RecordBatch, error) {
	if rd.known == nil {
		return nil, io.EOF
	}
	rd.releaseBatch()
	rd.failed = true // also if the allocator panics
	batch, err := rd.read()
	rd.failed = err != nil && !eof.Reached(err)
	if rd.failed {
		return nil, withLocation(rd.from.location, err)
	}
	return batch, err
}

// read makes the next batch.
func (rd *reader) read() (arrow.RecordBatch, error) {
	if rd.arrow == nil {
		size, err := rd.messages.receive()
		switch {
		case rd.messages.err != nil:
			return nil, rd.messages.err // io.EOF itself, if the RPC ended with the status OK
		case err != nil:
			return nil, malformed("batch: %w", err)
		case size.rows && size.record.plain():
			body := rd.messages.message.takeBody()
			rd.batch, err = decodeBatch(rd.known.schema, rd.messages.message.header, size.record, body, &rd.validator)
			body.Release()
			if err != nil {
				return nil, malformed("batch: %w", err)
			}
			return rd.batch, nil
		}
		rd.messages.giveAgain()
		if err := rd.useArrowsReader(); err != nil {
			return nil, err
		}
	}
	rd.mem.startBatch()
	if !rd.arrow.Next() {
		return nil, rd.streamError()
	}
	batch := rd.arrow.RecordBatch()
	if rd.known.dictionaries > 1 {
		rd.validator.dictionaries = nil // Arrow's reader has changed dictionaries that were found valid
	}
	if err := rd.validator.Check(batch); err != nil || rd.known.dictionaries == 0 {
		return batch, err
	}
	rd.batch = withOwnDictionaries(batch)
	return rd.batch, nil
}

// streamError is io.EOF if the RPC ended with the status OK. The result of Arrow's
// reader is not used: it takes any io.EOF for the end, including a
// decompressor's. It is asked when Arrow's reader has no further batch. What
// the RPC failed with comes first, then what Arrow's reader did not like.
func (rd *reader) streamError() error {
	switch err := rd.arrow.Err(); {
	case rd.messages.err != nil && !eof.Reached(rd.messages.err):
		return rd.messages.err
	case err != nil:
		return malformed("batch: %w", err)
	case rd.messages.err == nil:
		return malformed("batch: Arrow's reader has stopped before the end of the stream")
	default:
		return io.EOF
	}
}

// releaseBatch releases a batch that is no more Arrow's reader's than the arrays in it.
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
	rd.messages.release()
	rd.known = nil
	if rd.arrow != nil {
		rd.arrow.Release()
		rd.arrow = nil
		if rd.failed {
			rd.mem.freeBatch() // after the release, which frees what Arrow's reader still knows of
		}
	}
}
