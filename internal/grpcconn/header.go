package grpcconn

import (
	"context"
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// outgoing is what ctx has of metadata, if it can be sent. Headers of HTTP, which what a server
// was itself called with has among it, are passed over as in gRPC.
func outgoing(ctx context.Context) (metadata.MD, error) {
	md, _ := metadata.FromOutgoingContext(ctx)
	for key, values := range md {
		if isOfProtocol(key) {
			continue
		}
		if !isKey(key) {
			return nil, status.Errorf(codes.Internal, "the header %q cannot be sent: its name has more than lower-case letters, digits and -_.", key)
		}
		if isBinary(key) {
			continue
		}
		for _, v := range values {
			if !isText(v) {
				return nil, status.Errorf(codes.Internal, "the header %q cannot be sent: its value has more than printable ASCII characters", key)
			}
		}
	}
	return md, nil
}

func isKey(key string) bool {
	for i := range len(key) {
		switch c := key[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return key != ""
}

func isText(value string) bool {
	for i := range len(value) {
		if value[i] < ' ' || value[i] > '~' {
			return false
		}
	}
	return true
}

// isBinary reports whether the values of a header are bytes, in base 64 on the wire.
func isBinary(key string) bool { return strings.HasSuffix(key, "-bin") }

// isOfProtocol reports whether a header is HTTP's or gRPC's own, and no metadata.
func isOfProtocol(key string) bool {
	if strings.HasPrefix(key, ":") {
		return true
	}
	switch key {
	case "content-type", "user-agent", "te", "grpc-encoding", "grpc-message", "grpc-message-type", "grpc-status", "grpc-timeout":
		return true
	default:
		return false
	}
}

// encodeHeaders puts the block of an RPC into headers. The lock is held. hpack's writer
// is a buffer, so it does not fail.
func (c *Conn) encodeHeaders(s *Stream) {
	c.mu.headers.Reset()
	s.eachHeader(func(f hpack.HeaderField) { _ = c.mu.encoder.WriteField(f) })
}

// headersExceed reports whether the headers are more than limit, as HTTP/2 counts them.
func (s *Stream) headersExceed(limit uint32) bool {
	if limit == math.MaxUint32 {
		return false
	}
	size := uint64(0)
	s.eachHeader(func(f hpack.HeaderField) { size += uint64(f.Size()) })
	return size > uint64(limit)
}

// eachHeader visits the headers of an RPC, as they are sent.
func (s *Stream) eachHeader(visit func(hpack.HeaderField)) {
	cfg := &s.conn.cfg
	scheme := "http"
	if cfg.TLS {
		scheme = "https"
	}
	visit(hpack.HeaderField{Name: ":method", Value: "POST"})
	visit(hpack.HeaderField{Name: ":scheme", Value: scheme})
	visit(hpack.HeaderField{Name: ":path", Value: s.method})
	visit(hpack.HeaderField{Name: ":authority", Value: cfg.Authority})
	visit(hpack.HeaderField{Name: "content-type", Value: "application/grpc"})
	visit(hpack.HeaderField{Name: "user-agent", Value: cfg.UserAgent})
	visit(hpack.HeaderField{Name: "te", Value: "trailers"})
	if deadline, ok := s.ctx.Deadline(); ok {
		// It differs each time, and would take the place of the others in hpack's table.
		visit(hpack.HeaderField{Name: "grpc-timeout", Value: timeoutText(time.Until(deadline)), Sensitive: true})
	}
	for key, values := range s.md {
		if isOfProtocol(key) {
			continue
		}
		for _, v := range values {
			if isBinary(key) {
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
			visit(hpack.HeaderField{Name: key, Value: v})
		}
	}
}

// timeoutText is a time as gRPC writes it, of eight digits at most. It is rounded up, so that
// the server does not end an RPC before the client does.
func timeoutText(d time.Duration) string {
	d = max(d, 1)
	units := []struct {
		size time.Duration
		name string
	}{{time.Nanosecond, "n"}, {time.Microsecond, "u"}, {time.Millisecond, "m"}, {time.Second, "S"}, {time.Minute, "M"}, {time.Hour, "H"}}
	for _, u := range units {
		if n := (d-1)/u.size + 1; n < 1e8 {
			return strconv.FormatInt(int64(n), 10) + u.name
		}
	}
	return "99999999H"
}
