package flightconn

import (
	"cmp"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// messageReader receives the messages of a stream and verifies their headers. For
// Arrow's reader it is an ipc.MessageReader.
//
// It is what keeps a hostile header from Arrow's reader, and what counts a
// message before it is decompressed. Messages without a header carry
// application metadata, and are skipped.
type messageReader struct {
	messageCheck
	recv    func(*dataMessage) error
	message dataMessage // received last
	given   bool        // and not given to Arrow's reader yet
	last    *ipc.Message
	err     error                   // what recv failed with
	reserve func(bytes int64) error // waits until a message of so many may be decoded; may be nil
}

// messageCheck is what is known of a stream when its next message is verified, whoever
// decodes it then.
type messageCheck struct {
	known        *knownSchema // nil before the schema
	dictionaries dictionaryBytes
	maxInflated  int64 // bytes that the buffers of one message may become, or all dictionaries take
}

// verify verifies the next message. bytes are what it takes in memory, with what it is added to.
func (c *messageCheck) verify(header, body []byte) (size messageSize, bytes int64, err error) {
	if size, err = verifyMessage(header, body, c.maxInflated); err != nil {
		return messageSize{}, 0, err
	}
	if c.known != nil {
		if err := cmp.Or(c.known.checkVariadic(size), c.known.checkNeeds(size)); err != nil {
			return messageSize{}, 0, err
		}
	}
	bytes, err = c.dictionaries.add(size, c.maxInflated)
	return size, bytes, err
}

var _ ipc.MessageReader = (*messageReader)(nil)

// receive receives the next message, which is m.message until the next. It
// fails, without err, for a message that is refused here, and with err for what
// the RPC or the wait for the budget failed with: schemaOf and streamError
// tell the two apart by that.
func (m *messageReader) receive() (messageSize, error) {
	for {
		if m.err = m.recv(&m.message); m.err != nil {
			return messageSize{}, m.err
		}
		if len(m.message.header) == 0 {
			if m.err = checkNoBody(m.message.bodyBytes()); m.err != nil {
				return messageSize{}, m.err
			}
			continue
		}
		size, bytes, err := m.verify(m.message.header, m.message.bodyBytes())
		if err != nil {
			return messageSize{}, err
		}
		if bytes > 0 && m.reserve != nil {
			if m.err = m.reserve(bytes); m.err != nil {
				return messageSize{}, m.err
			}
		}
		return size, nil
	}
}

// Message is part of ipc.MessageReader. The message is valid until the next. Its header
// is not: Arrow's reader is through with it when it asks for the next.
func (m *messageReader) Message() (*ipc.Message, error) {
	if !m.given {
		if _, err := m.receive(); err != nil {
			return nil, err
		}
	}
	m.given = false
	body := m.message.takeBody()
	msg := ipc.NewMessage(memory.NewBufferBytes(m.message.header), body)
	body.Release()
	m.releaseLast()
	m.last = msg
	return msg, nil
}

// giveAgain has the message that was received last be the next of Arrow's reader too.
func (m *messageReader) giveAgain() { m.given = true }

// checkNoBody fails for a message without a header that is more than application
// metadata: to pass over rows would make a short result.
func checkNoBody(body []byte) error {
	if n := len(body); n > 0 {
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

// release gives back the messages.
func (m *messageReader) release() {
	m.message.release()
	m.releaseLast()
}

// Retain is part of ipc.MessageReader. The reader is the only owner.
func (m *messageReader) Retain() {}

// Release is part of ipc.MessageReader. Arrow's reader may end before the reader does.
func (m *messageReader) Release() {}

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
