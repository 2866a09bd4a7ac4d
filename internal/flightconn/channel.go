package flightconn

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/eof"
)

// channel carries RPCs of one identity over a client connection. owner is the
// connection whose own transport that is, if it is: what the server says of
// session and credential comes from there.
//
// owner is nil for a control channel and for the client of a location. Those
// present the same identity, but another server may answer there, so that its
// cookies, its tokens and its refusals say nothing of the connection.
type channel struct {
	cc    grpc.ClientConnInterface
	id    *identity
	owner *Conn
}

// Invoke is part of grpc.ClientConnInterface. Headers and trailers are looked at whether
// the RPC has failed or not: a refusal may carry the cookie of a new session.
func (ch *channel) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	ctx, rpc := ch.track(ctx)
	ctx, authorization := ch.id.addHeaders(ctx, rpc)
	err := ch.cc.Invoke(ctx, method, args, reply, ch.callOptions(rpc, opts)...)
	rpc.returned.Store(true)
	_, err = ch.observeReply(rpc, authorization, rpc.checkEnd(err))
	return err
}

// NewStream is part of grpc.ClientConnInterface. An error of it means that
// nothing was sent, or that the stream could not be made; replies come with
// RecvMsg.
func (ch *channel) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := ch.newStream(ctx, desc, method, opts...)
	if err != nil {
		return nil, err // no *channelStream that is nil
	}
	return stream, nil
}

func (ch *channel) newStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (*channelStream, error) {
	ctx, rpc := ch.track(ctx)
	ctx, authorization := ch.id.addHeaders(ctx, rpc)
	stream, err := ch.cc.NewStream(ctx, desc, method, ch.callOptions(rpc, opts)...)
	if err != nil {
		rpc.returned.Store(true)
		_, err = ch.observeReply(rpc, authorization, err)
		return nil, err
	}
	return &channelStream{ClientStream: stream, channel: ch, rpc: rpc, authorization: authorization}, nil
}

var getDesc = &grpc.StreamDesc{StreamName: "DoGet", ServerStreams: true}

// get begins a DoGet. The ticket is encoded. Messages are received as what wireCodec
// knows, or as protobuf's.
func (ch *channel) get(ctx context.Context, ticket []byte, opts ...grpc.CallOption) (*channelStream, error) {
	stream, err := ch.newStream(ctx, getDesc, servicePrefix+"DoGet", append(opts, encodedCall...)...)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(encodedMessage(ticket)); err != nil && !eof.Reached(err) { // RecvMsg says why it is over
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	return stream, nil
}

// track is track for an RPC of the channel: what its reply gives is its connection's.
func (ch *channel) track(ctx context.Context) (context.Context, *trackedRPC) {
	ctx, rpc := track(ctx)
	rpc.owner = ch.owner
	return ctx, rpc
}

// observeReply takes from a reply what whoever reads it needs to know, and returns the
// RPC's error. An RPC that names what another session does not have has not
// done what its answer says.
//
// What the reply gives the connection it has when it comes (trackedRPC.learn).
// A credential that was refused is remembered for the endpoint, so that the
// next Open tells the source of it. A session that the server has replaced ends
// the transport: what is lost with it is not known here, and the holder of the
// connection decides by Lost.
//
// authorization is the header with which the RPC was sent, which may differ
// from the credential by now. header is what has come of headers since the last look.
func (ch *channel) observeReply(rpc *trackedRPC, authorization string, err error) (header metadata.MD, _ error) {
	err = withoutCredential(ofInterceptor(err), authorization)
	header = rpc.takeHeader()
	rpc.learn(nil)
	if ch.owner == nil {
		return header, err
	}
	if refusesToken(err) {
		rejected := authorization // only here it is kept
		ch.owner.endpoint.rejectedAuthorization.Store(&rejected)
	}
	if !errors.Is(ch.owner.Lost(), backend.ErrSessionReplaced) {
		return header, err
	}
	ch.owner.transport.callOnLost()
	if rpc.info != nil && rpc.info.needsSession {
		return header, backend.ErrSessionReplaced
	}
	return header, err
}

// checkEnd is err, with which the RPC has ended for us, if that is how gRPC has ended it, and
// else what that is: an interceptor may have answered in the server's place.
//
// An end without an error is the server's only where its trailers have come and gRPC has
// ended the RPC well: trailers alone come before what it has sent was read, and may tell a
// failure. Where our side ends the RPC in that moment, gRPC tells of either end.
//
// An answer of the server's that gRPC has not told is none.
func (r *trackedRPC) checkEnd(err error) error {
	if !r.begun.Load() {
		return err
	}
	end := r.ended.Load()
	switch {
	case end != nil && end.err != nil && status.Code(end.err) != status.Code(err):
		return end.err
	case err != nil && (end == nil || end.isWell()) && isReply(err):
		return malformed("%s: %v", r.unfounded(), err) // not wrapped: it would pass for the server's
	case err != nil, end != nil && r.trailed.Load():
		return err
	case r.Err() != nil:
		return status.FromContextError(r.Err()).Err()
	default:
		return malformed("DialOptions: an interceptor has ended an RPC that the server has not")
	}
}

// checkSend is err, with which the sending of a message, or of the end of all, has failed. An
// answer of the server's comes with RecvMsg alone: what an interceptor tells of a stream with a
// message on its way is none.
func (r *trackedRPC) checkSend(err error) error {
	if err == nil || eof.Reached(err) || !r.messageSent.Load() || !isReply(err) {
		return ofInterceptor(err)
	}
	if end := r.ended.Load(); end != nil && end.err != nil {
		return err
	}
	return malformed("DialOptions: an interceptor has told a failure of what it has sent: %v", err)
}

// channelStream looks at the headers with the first message and at the trailers at the
// end. Like any stream it is received from by one goroutine at a time.
type channelStream struct {
	grpc.ClientStream
	channel       *channel
	rpc           *trackedRPC
	authorization string
	begun         bool
	header        metadata.MD // once the stream has begun
}

// SendMsg is part of grpc.ClientStream.
func (s *channelStream) SendMsg(m any) error {
	s.rpc.sending.Store(true)
	defer s.rpc.sending.Store(false)
	return s.rpc.checkSend(s.ClientStream.SendMsg(m))
}

// CloseSend is part of grpc.ClientStream.
func (s *channelStream) CloseSend() error { return s.rpc.checkSend(s.ClientStream.CloseSend()) }

// RecvMsg is part of grpc.ClientStream. The regular end stays io.EOF itself,
// unless the server has replaced the session meanwhile.
func (s *channelStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil && s.begun {
		return nil
	}
	failure := err
	switch {
	case eof.Reached(err):
		failure = s.rpc.checkEnd(nil)
	case err != nil:
		failure = s.rpc.checkEnd(err)
	}
	header, failure := s.channel.observeReply(s.rpc, s.authorization, failure)
	if !s.begun {
		s.begun, s.header = true, header
	}
	if failure != nil {
		return failure
	}
	return err
}

// callInfo is what the RPCs of one call present beside the identity. needsSession is
// set before the first of them, by the call's own goroutine.
type callInfo struct {
	headers      metadata.MD
	needsSession bool // it names a transaction or a prepared statement, which another session does not have
}

// addHeaders gives an RPC, of which ctx is the context, its headers, and returns the
// authorization among them. The headers of the call win over the configured
// ones, and these over what the caller's context has of outgoing metadata: a
// server that calls us from a handler of its own has its own callers'
// credentials there.
//
// What notPassedOn names is never taken from there. The authorization that is returned is what the server is going to
// judge, and empty where the RPC has none.
func (id *identity) addHeaders(ctx context.Context, rpc *trackedRPC) (context.Context, string) {
	if id.anonymous {
		return metadata.NewOutgoingContext(ctx, nil), ""
	}
	var ofCall metadata.MD
	if rpc.info != nil {
		ofCall = rpc.info.headers
	}
	authorization := cmp.Or(rpc.authorization, id.credential().Header)
	outgoing, has := metadata.FromOutgoingContext(ctx)
	if !has && authorization == "" && len(id.headers)+len(ofCall) == 0 {
		return id.addCookies(ctx), ""
	}
	md := metadata.MD{}
	for key, values := range outgoing {
		if !slices.Contains(notPassedOn, key) {
			md.Append(key, values...)
		}
	}
	for _, headers := range []metadata.MD{id.headers, ofCall} {
		for key, values := range headers {
			md.Set(key, values...)
		}
	}
	if authorization != "" {
		md.Set(authorizationKey, authorization)
	}
	return id.addCookies(metadata.NewOutgoingContext(ctx, md)), authorization
}

func (id *identity) credential() Credential {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.mu.credential
}

// learn gives the connection what the headers that have come, and then trailer, have of its
// identity: cookies, and a token in place of the last one.
//
// INVARIANT: it has that in the order in which it comes, before whoever reads the reply looks, and
// of a reply that nobody reads to its end, too: the server knows the last token alone. With gRPC's
// client it has the headers once something follows them: the server may disown the RPC until then.
func (r *trackedRPC) learn(trailer metadata.MD) {
	if r.owner == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, md := range [...]metadata.MD{r.mu.unlearned, trailer} {
		if r.owner.id.learnFromReply(r, md) {
			r.owner.transport.recordReplaced()
		}
	}
	r.mu.unlearned = nil
}

// learnFromReply takes from a reply what the server gives: its cookies, and a
// token in place of the last one, as servers do that renew it with every call.
// It reports whether the server has put another session in the place of ours.
// The jar takes the cookies in any case, so that the next RPC presents what the
// server has asked for.
func (id *identity) learnFromReply(ctx context.Context, md metadata.MD) (replaced bool) {
	if len(md.Get("set-cookie")) > 0 {
		replaced = id.sessionReplaced(md.Get("set-cookie"))
		if jar, ok := id.cookies.(flight.ClientHeadersMiddleware); ok {
			jar.HeadersReceived(ctx, md)
			id.hasCookies.Store(true)
		}
	}
	for _, token := range md.Get(authorizationKey) {
		if token != "" {
			id.replaceToken(token)
			break
		}
	}
	return replaced
}
