// Package grpcconn is a gRPC client on one HTTP/2 connection that was dialled by
// its caller and is never dialled again.
//
// The end of the connection is the end of the Conn: whoever holds it can bind a
// server session to it. What gRPC's own client does besides (resolvers, balancers,
// reconnection, interceptors, compression, retries) is not here.
//
// # What is known of an RPC
//
// An Observer hears, once each and in this order, that an RPC was handed to the
// connection (Sent), that the server has answered (Header, Trailer) and that it is
// over (End). Trailers come of the server alone: an RPC that ended without them
// was given up here, or reset, or its connection has ended. Disowned takes Sent back:
// the server has said that it has not processed the RPC, nor will (a stream above the
// last one of GOAWAY, or REFUSED_STREAM). After REFUSED_STREAM an RPC of which one message
// was sent is sent once more. Nothing else is ever sent again. Proxies say REFUSED_STREAM of what
// a server has processed, too, if that closes its connection before it answers (HAProxy): so the
// Observer is asked whether it is to be believed (BelievesRefusal).
//
// # How it works
//
// One goroutine reads the socket for as long as it lives, and makes the messages of
// each stream of what comes (Receiver), so that a body lands where it stays. Where
// the socket is one of the system's and has no TLS, it has a buffer only while there
// is something to read, else one of 512 bytes while it waits.
//
// Frames to be sent are put together under the lock, in the order of their streams.
// The goroutine that ends the sending of an RPC writes them to the socket, as far as that takes
// them at once. The rest, and frames of the reader's, are written by a goroutine that
// lives until there is nothing more to write. So a peer that does not read holds up only
// who waits for room for a message, and that no longer than its context lasts.
//
// # Memory
//
// The server may send as much of a stream as its window (Config.StreamWindow), and
// one message above that, ahead of who reads it. The windows of a stream and of the
// connection are given back in quarters; that of the connection as soon as data has come, so
// that a stream that nobody reads holds up no other. What is made of messages may be larger than they
// are on the wire: a message of no use but to fill the memory, with a body of one byte, takes 430 bytes
// for 9. So no more of a Receiver's messages wait than the window has room for at 64 bytes each. What a message is announced to be takes no more
// than two windows before it comes, or four times what has come of its stream.
//
// # Files
//
//	conn.go, close.go          the connection: its beginning and its end
//	frame.go, read.go, data.go, block.go  frames: their form; what comes; data, headers
//	settings.go, keepalive.go  what the peer may ask for; whether it still lives
//	socket_unix.go, socket_other.go  reading and writing without waiting
//	write.go                   what leaves, and in which order
//	stream.go, send.go, receive.go  one RPC; its sending; its messages
//	invoke.go, options.go      RPCs of one message; options of gRPC's that are known
//	header.go, status.go       headers that are sent; what those and codes that come say of an RPC
package grpcconn
