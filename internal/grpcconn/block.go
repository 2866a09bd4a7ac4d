package grpcconn

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/metadata"
)

// takeHeaders puts a block of headers together, and decodes it once it is whole.
func (f *frameReader) takeHeaders(p []byte) error {
	if f.kind == frameHeaders {
		if err := f.checkStream("HEADERS"); err != nil {
			return err
		}
		var ok bool
		if p, ok = stripHeaders(p, f.flags); !ok {
			return &protocolError{codeProtocol, "padding that is longer than its frame"}
		}
		f.blockEnds = f.flags&flagEndStream != 0
	} else if f.blockOf == 0 {
		return &protocolError{codeProtocol, "CONTINUATION without HEADERS"}
	}
	if f.flags&flagEndHeaders == 0 || len(f.block) > 0 {
		if len(f.block)+len(p) > maxHeaderList {
			return &protocolError{codeEnhanceYourCalm, "headers without an end"}
		}
		f.block = append(f.block, p...)
		p = f.block
	}
	if f.blockOf = f.stream; f.flags&flagEndHeaders == 0 {
		return nil
	}
	f.blockOf, f.block = 0, f.block[:0]
	if cap(f.block) > minMaxFrame {
		f.block = nil
	}
	block, err := f.decoder.decode(p)
	if err != nil {
		return &protocolError{codeCompression, "headers: " + err.Error()}
	}
	f.conn.takeBlock(f.stream, block, f.blockEnds)
	return nil
}

// stripHeaders is the block in the payload of HEADERS.
func stripHeaders(p []byte, flags byte) (_ []byte, ok bool) {
	padding := 0
	if flags&flagPadded != 0 {
		if len(p) == 0 {
			return nil, false
		}
		padding, p = int(p[0]), p[1:]
	}
	if flags&flagPriority != 0 {
		if len(p) < 5 {
			return nil, false
		}
		p = p[5:]
	}
	if padding > len(p) {
		return nil, false
	}
	return p[:len(p)-padding], true
}

// block is what the headers, or the trailers, of an RPC say.
type block struct {
	httpStatus  string
	contentType string
	status      string // grpc-status
	message     string
	details     string // of grpc-status-details-bin, decoded
	md          metadata.MD
	broken      error // a header that cannot be read
	regular     bool  // a header that is none of HTTP's own has come
}

// headerDecoder reads blocks of headers. It belongs to the reader.
type headerDecoder struct {
	hpack *hpack.Decoder
	block *block
	size  int
}

var (
	errHeadersTooLarge = errors.New("the server has sent headers that are too large")
	errTwoStatuses     = errors.New("the server has ended the call with two statuses")
)

func newHeaderDecoder() *headerDecoder {
	d := &headerDecoder{}
	d.hpack = hpack.NewDecoder(4096, d.field)
	d.hpack.SetMaxStringLength(maxHeaderList)
	return d
}

// decode reads a block, which must be whole. Every block has to be read, since those after it
// refer to it.
func (d *headerDecoder) decode(p []byte) (*block, error) {
	d.block, d.size = &block{}, 0
	if _, err := d.hpack.Write(p); err != nil {
		return nil, err
	}
	if err := d.hpack.Close(); err != nil {
		return nil, err
	}
	return d.block, nil
}

// field takes one header of the block.
func (d *headerDecoder) field(f hpack.HeaderField) {
	b := d.block
	if d.size += int(f.Size()); d.size > maxHeaderList {
		b.broken = errHeadersTooLarge
		return
	}
	if !b.isWellFormed(f) {
		b.broken = fmt.Errorf("the server has sent the header %.100q, which HTTP/2 does not have there", f.Name)
		return
	}
	switch f.Name {
	case ":status":
		b.httpStatus = f.Value
	case "content-type":
		b.contentType = f.Value
	case "grpc-status":
		if b.status != "" && b.status != f.Value {
			b.broken = errTwoStatuses
		}
		b.status = f.Value
	case "grpc-message":
		b.message = f.Value
	case "grpc-encoding": // a message that is compressed says so itself
	default:
		if !isOfProtocol(f.Name) {
			b.add(f.Name, f.Value)
		}
	}
}

// isWellFormed is HTTP/2's rule for a header: its own come first, and no name has upper case.
func (b *block) isWellFormed(f hpack.HeaderField) bool {
	if strings.HasPrefix(f.Name, ":") {
		return f.Name == ":status" && !b.regular
	}
	b.regular = true
	return httpguts.ValidHeaderFieldName(f.Name) && strings.ToLower(f.Name) == f.Name && httpguts.ValidHeaderFieldValue(f.Value)
}

// add adds metadata.
func (b *block) add(key, value string) {
	if isBinary(key) {
		decoded, err := decodeBinary(value)
		if err != nil {
			b.broken = errors.New("the header " + key + " is not in base 64")
			return
		}
		value = string(decoded)
	}
	if key == "grpc-status-details-bin" {
		b.details = value
	}
	if b.md == nil {
		b.md = metadata.MD{}
	}
	b.md[key] = append(b.md[key], value)
}

// decodeBinary reads base 64 with padding or without.
func decodeBinary(value string) ([]byte, error) {
	return base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "="))
}
