// Package flightconn is the native backend: backend.Conn over Arrow Flight
// SQL, on arrow-go's protocol messages and package grpcconn.
//
// An Endpoint is one server as a pool sees it, and Endpoint.Open makes the
// pool's connections. A Conn has three things of its own: a transport, a
// credential (with Basic, from a handshake of its own) and a cookie jar. So it
// is one session on every server, whatever the server binds sessions to.
//
// # One transport, once
//
// gRPC's own client replaces a dead transport in silence, and with it the session. A
// transport here is a grpcconn.Conn, which has one socket and ends with it. The end is seen
// where it happens, on the socket, before any call fails of it: Lost tells at once, calls
// under way fail with ErrSessionLost, later calls fail with it before anything is sent.
//
// With Config.DialOptions, which gRPC's own client alone understands, that is the
// transport. It is dialled once too: its dialer answers once, so that what follows the end
// of the socket is an error. It costs more (docs/performance.md).
//
// Clients of locations and control channels, which hold no session and may dial again, are
// gRPC's own in any case.
//
// A call is sent once. What is tried again is a stream that the server disowned
// (REFUSED_STREAM), if it only reads: HAProxy disowns so what its server has done when that closes
// its connection before it answers. One above the last of a GOAWAY fails, as Unsent, since there is no
// other transport. An error is Unsent exactly when no RPC of the call was handed to a
// transport, or all that were have been disowned, and believed.
//
// # Results
//
// A result of one endpoint is read in the caller's goroutine, without another.
// Several endpoints are read at once, eight at most, a few batches ahead
// (Config.Prefetch) and 64 MiB of all of them, counted decompressed, beside the
// batch that is next; they are delivered in order. Those at one place, the
// connection's own transport or another server, are opened one after the other, each when those before
// have sent theirs: servers that run one statement at a time per session, and those that serve
// few streams, would otherwise lock up. Where a server refuses a call while it serves another of the session, each
// waits for the end of the one before.
//
// Locations are tried in turn, through clients that all connections of the
// Endpoint share and that present the connection's own credential. A client
// lives as long as a stream uses it, and five minutes more. The empty list,
// the reuse location and the server's own address mean the connection itself.
// Failures at a location are not the connection's fault.
//
// Endpoints that wait while those before them are read are renewed before they
// expire (RenewFlightEndpoint). One that has expired is asked for all the same,
// since its server's clock may differ; the error then says that it was late.
//
// A query that wants to hear of its progress is planned by PollFlightInfo.
//
// The schema is that of the streams. A FlightInfo may hold another schema, from a
// stale cache. That is no error, since the caller is given the schema of the first
// stream.
//
// A FlightInfo stays as the server encoded it; an endpoint is decoded when it is
// fetched (Info). What is held of a result does not grow with the number of its
// endpoints, but for the 65,536 at most that are renewed.
//
// Everything that a server sends is checked: message headers before anything is made
// of them, against exhausting memory or stack, and arrays, against
// offsets out of bounds, and values that a few bytes make endless (Validator). No answer makes this
// package, or the reading of a value, panic or hang; but for what extension types of
// Arrow's or of the program's, once registered, make of a value's text.
//
// # Memory of batches
//
// A batch is one copy away from the socket's buffer: its message is taken apart while it comes
// (dataReceiver), and its body lands in memory that earlier batches have used (newBody),
// which the last Release of an array of it gives back. What of a batch was retained
// stays as it is and keeps that body alone. What was not changes with a later batch;
// builds with the race detector, or the tag invariants, overwrite it at once, so that
// tests find who reads it. Whatever of this module keeps a text or bytes copies them.
//
// Batches without compression and dictionaries become arrays here (batchDecoder), the
// others by Arrow's reader. A schema that the endpoint has had before is not decoded
// again (schemaCache), and that of a FlightInfo only where no stream has one.
//
// # What is learned
//
// Whether the server has CloseSession and each way to cancel, and whether it
// checks transaction ids, is learned from its answers, for the Endpoint:
// UNIMPLEMENTED, or INVALID_ARGUMENT with the words of servers that lack an
// action, means that it has not, if it is repeated after a harmless question was
// answered otherwise. A lack is looked at again after ten minutes. ListActions is
// never asked.
//
// # What it does not do
//
// Substrait is not used. Rows given to Ingest are read in the call's goroutine: a
// reader that blocks blocks the call. A token is refreshed for the next RPC, not under
// one that runs; only the first round trip of Open is made again.
//
// # Files
//
//	config.go, options.go      what can be set; session options
//	endpoint.go                what connections share, and what was learned of the server
//	open.go, handshake.go      dial, handshake, first round trip
//	conn.go, sessionend.go, transport.go, watched.go  the connection and its end; that of its session; its transport; its socket
//	dial.go, sockopt_linux.go, sockopt_other.go  how it is dialled, proxies; silence of the peer
//	identity.go, cookies.go, channel.go  who we are to the server; its cookies; RPCs in that name, and what their replies say of it
//	call.go, sends.go, stats.go  one call; what of it has been sent, and what came with it; of gRPC's client
//	errors.go, interceptor.go  its failure; that of an interceptor
//	query.go, info.go          planning; the FlightInfo, kept encoded
//	stream.go, turns.go, fetch.go  results, and where and in which order their rows are had; what locations answer that have none
//	merge.go, part.go, ahead.go, renew.go  several endpoints
//	assemble.go, codec.go      FlightData as it comes; messages of gRPC
//	body.go, poison_on.go, poison_off.go  the memory of batches
//	messages.go, schemas.go    messages that were verified, schemas that were decoded
//	needs.go, unreadable.go    what batches of a schema must have; what cannot be read
//	reader.go, decode.go, batchmem.go  batches of them, here and by Arrow's reader
//	external.go, locations.go, location_addr.go  clients of other servers
//	verify.go, verify_batch.go, zstd.go  message headers; batches, before and after they are made
//	validate.go, validate_layout.go, unfold.go   arrays that are made of others; offsets and indices; what one value may become
//	update.go, encode.go       DoPut; FlightData from Arrow
//	compact.go, putmessage.go  slices that Arrow cannot encode; FlightData as it is sent
//	checkrequest.go            what is refused before it is sent
//	prepared.go, numbered.go, nulls.go, printed.go, wholetext.go, ingest.go, tx.go, livetx.go, action.go, cancel.go  the calls of that name
//	equaltexts.go              statements that would be one for all connections
//	learntx.go                 how the server treats transactions that it does not know
//	control.go                 the channels on which cancel asks
//	contain.go, signer.go      functions and keys of the user's that TLS calls
//	containconn.go             connections of the user's Dialer
package flightconn
