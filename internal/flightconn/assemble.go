package flightconn

import (
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/flightpool/flightpool/internal/grpcconn"
)

// receiveData has the messages of a DoGet made where they come, on a transport of our own.
func receiveData() grpc.CallOption {
	return grpcconn.ReceiveBy{Receiver: &dataReceiver{}}
}

// dataReceiver makes dataMessages of the bytes of a stream while they come: a body
// lands where the arrays will be, and nothing else is copied. As dataMessage.decode does, it
// leaves to protobuf what is not as servers send it.
//
// Start, Write and Finish belong to the goroutine that reads the transport, Deliver to the
// one that reads the stream.
type dataReceiver struct {
	message *dataMessage
	unused  atomic.Pointer[dataMessage] // for a later message

	left  int    // bytes of the message that have not come
	field []byte // of the next field, what has come of tag and length
	memo  [20]byte
	dst   destination
	n     int // bytes of the field that have not come
	at    int // in the body
	size  int // of the body, once it is whole
	come  int // bytes of bodies, of the stream
	whole []byte
	any   bool // the message is not as servers send it: all of it is kept in whole
}

// destination is where the bytes of a field go.
type destination int

const (
	toNowhere destination = iota // app_metadata
	toHeader
	toBody
)

// Start is part of grpcconn.Receiver.
func (r *dataReceiver) Start(size int) {
	r.message = r.unused.Swap(nil)
	if r.message == nil {
		r.message = &dataMessage{}
	}
	r.message.release()
	r.message.header = r.message.header[:0]
	r.left, r.field, r.n, r.any, r.whole = size, r.memo[:0], 0, false, nil
}

// Write is part of grpcconn.Receiver.
func (r *dataReceiver) Write(p []byte) {
	for len(p) > 0 {
		switch {
		case r.any:
			r.whole = append(r.whole, p...)
			r.left -= len(p)
			return
		case r.n > 0:
			n := min(r.n, len(p))
			r.store(p[:n])
			r.n, r.left, p = r.n-n, r.left-n, p[n:]
		default:
			r.field = append(r.field, p[0])
			r.left, p = r.left-1, p[1:]
			r.beginField()
		}
	}
}

// beginField looks at what has come of tag and length of a field.
func (r *dataReceiver) beginField() {
	tag, n := protowire.ConsumeVarint(r.field)
	if n < 0 {
		r.giveUpIf(len(r.field) >= 10)
		return
	}
	size, m := protowire.ConsumeVarint(r.field[n:])
	if m < 0 {
		r.giveUpIf(len(r.field) >= n+10 || tag != tagHeader && tag != tagAppMetadata && tag != tagBody)
		return
	}
	if size > uint64(r.left) {
		r.giveUpIf(true)
		return
	}
	switch tag {
	case tagHeader:
		r.dst, r.message.header = toHeader, r.message.header[:0]
	case tagAppMetadata:
		r.dst = toNowhere
	case tagBody:
		r.message.release()
		r.dst, r.at, r.size = toBody, 0, int(size)
		r.message.body = newBody(min(r.size, max(eagerBody, bodyGrowth*r.come)))
	default:
		r.giveUpIf(true)
		return
	}
	r.n, r.field = int(size), r.field[:0]
}

func (r *dataReceiver) store(p []byte) {
	switch r.dst {
	case toHeader:
		r.message.header = append(r.message.header, p...)
	case toBody:
		if r.at+len(p) > r.message.body.Len() {
			r.growBody(r.at + len(p))
		}
		r.at += copy(r.message.body.Bytes()[r.at:], p)
		r.come += len(p)
	case toNowhere:
	}
}

// eagerBody is how much is taken for a body before anything of it has come. A larger one is
// given bodyGrowth times what has come of the stream, and grows with what comes: a stream whose
// batches are large has theirs copied in its beginning alone.
const (
	eagerBody  = 2 * streamWindow
	bodyGrowth = 4
)

// growBody makes room for n bytes of the body at least.
func (r *dataReceiver) growBody(n int) {
	larger := newBody(min(r.size, max(n, bodyGrowth*r.at)))
	copy(larger.Bytes(), r.message.body.Bytes()[:r.at])
	r.message.body.Release()
	r.message.body = larger
}

// giveUpIf leaves the message to protobuf: what has come of it is put together again.
func (r *dataReceiver) giveUpIf(strange bool) {
	if !strange {
		return
	}
	r.any = true
	if r.message.header != nil {
		r.whole = protowire.AppendVarint(r.whole, tagHeader)
		r.whole = protowire.AppendBytes(r.whole, r.message.header)
	}
	if r.message.body != nil {
		r.whole = protowire.AppendVarint(r.whole, tagBody)
		r.whole = protowire.AppendBytes(r.whole, r.message.body.Bytes())
	}
	r.whole = append(r.whole, r.field...)
}

// Finish is part of grpcconn.Receiver.
func (r *dataReceiver) Finish() (any, error) {
	m := r.message
	r.message = nil
	if len(r.field) > 0 && !r.any {
		r.message = m
		r.giveUpIf(true) // the message ends within a tag or a length
		r.message = nil
	}
	if r.any {
		return m, m.decodeAny(r.whole)
	}
	return m, nil
}

// Deliver is part of grpcconn.Receiver. What into had is used for a later message.
func (r *dataReceiver) Deliver(message, into any) error {
	m, to := message.(*dataMessage), into.(*dataMessage)
	*m, *to = *to, *m
	m.release()
	r.unused.Store(m)
	return nil
}
