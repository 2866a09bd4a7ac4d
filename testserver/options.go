package testserver

import (
	"crypto/tls"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"

	"github.com/flightpool/flightpool/testserver/engine"
)

// InMemory as Options.Listen makes a server without sockets: clients reach it
// through Server.Dial only. It runs inside a testing/synctest bubble.
const InMemory = "memory"

// Options of a Server. The zero value is useful: a Strict server with the
// scripted engine on a free loopback port, without TLS and authentication.
type Options struct {
	// Profile is how the server behaves. The zero Profile is Strict().
	Profile Profile

	// Engine is the database. Nil is a Script without additions. Server.Close closes it.
	Engine engine.Engine

	// Listen is the address: "host:port", "unix:/path" or InMemory.
	// Default "127.0.0.1:0".
	Listen string

	// TLS is the server's side of TLS. Nil is plain text.
	TLS *tls.Config

	// Users maps user names to passwords of the Basic handshake. Without
	// users and tokens everybody is let in; with them every RPC but the
	// handshake needs a bearer token.
	Users map[string]string

	// Tokens are bearer tokens that are valid from the start, without a
	// handshake.
	Tokens []string

	// Allocator makes the Arrow buffers. Default memory.DefaultAllocator.
	Allocator memory.Allocator

	// GRPC are further options of the gRPC server, appended last.
	GRPC []grpc.ServerOption
}
