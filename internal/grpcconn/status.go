package grpcconn

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/flightpool/flightpool/internal/eof"
)

// errNoNumbers ends the use of a connection that has had a billion RPCs.
var errNoNumbers = errors.New("the connection has no numbers left for calls")

// lostStatus is what RPCs end with when their connection has ended.
func lostStatus(reason error) error {
	return status.Error(codes.Unavailable, reason.Error())
}

// ofTransport begins the texts of what no server of gRPC's has answered, as those of gRPC's do:
// a statement is not to blame for it (backend.FaultOf).
const ofTransport = "transport: "

// internalStatus is for what the server has done wrong on the way.
func internalStatus(text string) error { return status.Error(codes.Internal, ofTransport+text) }

// resetStatus is the status of an RPC that the server has reset, as gRPC defines it. A server
// that sees the deadline pass before we do resets by CANCEL.
func (s *Stream) resetStatus(code errorCode) error {
	c := codes.Internal
	switch code {
	case codeRefusedStream:
		c = codes.Unavailable
	case codeCancel:
		c = codes.Canceled
		if deadline, ok := s.ctx.Deadline(); ok && !deadline.After(time.Now()) {
			c = codes.DeadlineExceeded
		}
	case codeEnhanceYourCalm, codeFlowControl:
		c = codes.ResourceExhausted
	case codeInadequateSecurity:
		c = codes.PermissionDenied
	default:
	}
	return status.Errorf(c, "the server, or a proxy before it, has ended the call without an answer: stream terminated by RST_STREAM of the server, code %d (%s)", code, code)
}

// String is the code's name in RFC 9113.
func (c errorCode) String() string {
	names := [...]string{
		"NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED", "FRAME_SIZE_ERROR",
		"REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
	}
	if uint64(c) < uint64(len(names)) {
		return names[c]
	}
	return "unknown"
}

// takeBlock takes the headers, or the trailers, of an RPC. It is the reader's.
func (c *Conn) takeBlock(id uint32, b *block, ends bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.mu.streams[id]
	if s == nil {
		return
	}
	if !s.headersCame {
		informational, failure := b.refuse()
		switch {
		case failure != nil:
			s.observer.Header(b.md)
			c.resetStream(s, codeCancel, failure)
			return
		case informational && ends:
			c.resetStream(s, codeProtocol, internalStatus("the server has ended the call with an informational status"))
			return
		case informational:
			return
		}
	}
	switch {
	case b.broken != nil:
		c.resetStream(s, codeProtocol, internalStatus(b.broken.Error()))
	case ends:
		s.end(b)
		c.frames.wakeLater(s)
	case s.headersCame:
		c.resetStream(s, codeProtocol, internalStatus("the server has sent headers in the middle of the call"))
	default:
		s.headersCame, s.header = true, b.md
		s.observer.Header(b.md)
		s.tellHeader()
	}
}

// end ends an RPC by the trailers of the server. The lock is held.
func (s *Stream) end(b *block) {
	s.trailer = b.md
	s.observer.Trailer(b.md)
	err := b.err()
	if eof.Reached(err) && (s.got > 0 || s.left > 0) {
		err = internalStatus("the server has ended the call within a message")
	}
	if !s.sentEnd {
		s.conn.mu.out = appendReset(s.conn.mu.out, s.id, codeNone)
		s.conn.startWriter()
	}
	s.finish(err, false)
}

// refuse is why the headers are no answer of a gRPC server's, as gRPC maps it.
func (b *block) refuse() (informational bool, failure error) {
	if isGRPC(b.contentType) {
		return false, nil
	}
	code, err := strconv.Atoi(b.httpStatus)
	if err != nil {
		return false, internalStatus(fmt.Sprintf("the server has answered with the HTTP status %q", b.httpStatus))
	}
	if code >= 100 && code < 200 {
		return true, nil
	}
	text := fmt.Sprintf(ofTransport+"the server has answered with HTTP status %d and content type %q: it speaks no gRPC there", code, b.contentType)
	return false, status.Error(codeOfHTTP(code), text)
}

// isGRPC reports whether a content type is gRPC's: another, such as that of gRPC-Web, may begin
// as it does.
func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// codeOfHTTP is the status that gRPC gives to a status of HTTP.
func codeOfHTTP(code int) codes.Code {
	switch code {
	case 400:
		return codes.Internal
	case 401:
		return codes.Unauthenticated
	case 403:
		return codes.PermissionDenied
	case 404:
		return codes.Unimplemented
	case 429, 502, 503, 504:
		return codes.Unavailable
	default:
		return codes.Unknown
	}
}

// err is the status of trailers: io.EOF for OK.
func (b *block) err() error {
	if b.status == "" {
		return status.Error(codes.Unknown, ofTransport+"the server has ended the call without a status")
	}
	code, err := strconv.ParseUint(b.status, 10, 32)
	if err != nil {
		return status.Errorf(codes.Unknown, ofTransport+"the server has ended the call with the status %q", b.status)
	}
	if code == 0 {
		return io.EOF
	}
	if b.details != "" {
		var details spb.Status
		if proto.Unmarshal([]byte(b.details), &details) == nil && details.GetCode() == int32(code) {
			return status.FromProto(&details).Err()
		}
	}
	return status.Error(codes.Code(code), decodeMessage(b.message))
}

// decodeMessage reads a grpc-message: what cannot be printed is percent-encoded.
func decodeMessage(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				out.WriteByte(byte(v))
				i += 2
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}
