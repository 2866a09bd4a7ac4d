package flightconn

import (
	"context"
	"errors"
	"unicode"

	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/internal/effect"
	"github.com/flightpool/flightpool/internal/eof"
)

// Open makes a connection and proves it: it dials, presents the credentials
// and makes a first round trip, within ctx. The caller must close what it
// returns. Errors are *backend.Error with StageDial, StageAuth or StageProbe,
// whose cause is what the server or the network said.
//
// An Open that fails closes its transport, and behind its caller ends the session that
// the first round trip may have begun (abandon), of which StillClosing tells the end. ctx bounds the
// open alone: the connection lives on when it ends.
//
// It may be called from many goroutines at once. ctx is that of the pool's
// open, not of the caller who waits for a connection.
func (e *Endpoint) Open(ctx context.Context) (_ backend.Conn, err error) {
	c := &Conn{endpoint: e, id: newIdentity(&e.cfg)}
	r := &rpcCall{conn: c, op: "Open", caller: ctx}
	if c.transport, err = newTransport(&e.cfg); err != nil {
		return nil, r.newError(backend.StageDial, backend.FaultUsage, err)
	}
	established := false
	defer func() {
		if !established { // also when an interceptor of the user's panics or ends the goroutine
			if closed := c.abandon(); closed != nil && err != nil {
				err = &unclosedError{err, closed}
			}
		}
	}()
	if err := c.transport.connect(ctx, &e.cfg); err != nil {
		return nil, r.wrapOpenError(backend.StageDial, err)
	}
	c.channel = &channel{cc: c.transport.cc, id: c.id, owner: c}
	c.flight = pb.NewFlightServiceClient(c.channel)
	if err := r.establish(ctx); err != nil {
		return nil, err
	}
	if !c.transport.dialed.Load() {
		return nil, r.newError(backend.StageDial, backend.FaultUsage, errOtherDialer)
	}
	if err := c.checkTx(ctx); err != nil {
		return nil, err
	}
	established = true
	return c, nil
}

// establish logs in and makes the first round trip. Each step needs the one
// before: a handshake gives the token, the token is what the round trip
// presents, and many servers begin the session with that.
//
// A credential that is refused is asked for once more, since the source may
// have had an old one; a second refusal is the server's word. Basic is not
// repeated: the password would be the same.
func (r *rpcCall) establish(ctx context.Context) error {
	c := r.conn
	if basic := c.cfg().Basic; basic != nil {
		if err := r.handshake(ctx, basic); err != nil {
			return r.wrapOpenError(backend.StageAuth, err)
		}
	}
	if err := r.obtainCredential(ctx); err != nil {
		return r.wrapOpenError(backend.StageAuth, err)
	}
	err := r.beginSession(ctx)
	if refusesToken(err) && c.cfg().Authorization != nil {
		if err = r.obtainCredential(ctx); err == nil { // the source is told of the refusal
			err = r.beginSession(ctx)
		}
	}
	if err != nil {
		return r.wrapOpenError(backend.StageProbe, err)
	}
	c.id.markEstablished()
	c.credentialAccepted(c.id.credential().Header)
	return nil
}

// beginSession is checkSession of a connection that is being opened. What the server does not
// let in has no session.
func (r *rpcCall) beginSession(ctx context.Context) error {
	r.conn.mayHaveSession = true
	err := r.checkSession(ctx)
	r.conn.mayHaveSession = !refusesToken(err)
	return err
}

// credentialError says that the source of credentials failed.
type credentialError struct{ err error }

func (e *credentialError) Error() string { return "no credential: " + e.err.Error() }
func (e *credentialError) Unwrap() error { return e.err }

// obtainCredential asks Config.Authorization, if there is one. ctx bounds the
// call of the source, which may have to fetch a token. What it gives is the
// connection's for all its life.
func (r *rpcCall) obtainCredential(ctx context.Context) error {
	source := r.conn.cfg().Authorization
	if source == nil {
		return nil
	}
	rejected := ""
	if p := r.conn.endpoint.rejectedAuthorization.Load(); p != nil {
		rejected = *p
	}
	credential, err := source(ctx, rejected)
	if err != nil {
		return &credentialError{err}
	}
	r.conn.id.setCredential(credential)
	return nil
}

// wrapOpenError classifies what a connection failed with before it was one.
//
// The stage that is given may be corrected: a refused credential is StageAuth
// wherever it shows, and what never reached the server is StageDial.
//
// In this order: the caller's context; the source of credentials; a refusal; a wrong
// interceptor; the reason for which the transport ended; the status.
func (r *rpcCall) wrapOpenError(stage backend.Stage, err error) error {
	lost := r.conn.Lost()
	s, _ := status.FromError(err)
	e := r.newError(stage, backend.FaultOf(s.Code(), s.Message()), err)
	e.SQLState = sqlState(s.Message())
	var noCredential *credentialError
	if errors.As(err, &noCredential) {
		e.Stage, e.Fault = backend.StageAuth, backend.FaultAuth
	}
	switch {
	case r.callerEndedErr(s.Code() == codes.DeadlineExceeded) != nil:
		e.Fault, e.Ctx = backend.FaultContext, r.callerEndedErr(true)
	case noCredential != nil:
	case backend.RefusesToken(s.Code(), s.Message()), s.Code() == codes.PermissionDenied:
		e.Stage, e.Fault = backend.StageAuth, backend.FaultAuth
	case errors.Is(lost, errUntracked):
		e.Fault, e.Err = backend.FaultUsage, lost
	case lost != nil:
		e.Fault, e.Err = backend.FaultTransport, &openError{reason: lost, cause: err}
	case e.Fault == backend.FaultContext: // the server's doing
		e.Fault = backend.FaultTransport
	}
	if e.Unsent && e.Stage != backend.StageAuth {
		e.Stage = backend.StageDial
	}
	return e
}

// openError says why the transport of an open ended, and what its call heard.
// The reason comes first in the chain: errors.As finds a certificate's error or
// a syscall's there.
type openError struct{ reason, cause error }

func (e *openError) Error() string {
	var connect *connectError
	grpcText := e.cause.Error()
	if s, ok := status.FromError(e.cause); ok {
		grpcText = s.Message()
	}
	switch {
	case errors.As(e.reason, &connect):
		return e.reason.Error()
	case errors.Is(e.reason, errClosedByGRPC):
		return grpcText
	default:
		return withHeard(e.reason.Error(), grpcText)
	}
}

func (e *openError) Unwrap() []error { return []error{e.reason, e.cause} }

// handshake presents user and password and keeps the token of the answer: from
// its headers or trailers, or else from its payload. A server that gives none,
// or has no handshake, is shown the password with each RPC.
//
// The password is the authorization header of this RPC. A token may also be the
// payload of the answer, which is taken only if it can be a header's value. An
// empty user or password is sent as it is.
func (r *rpcCall) handshake(ctx context.Context, basic *UserPass) error {
	password := basicAuth(basic.User, basic.Password)
	stream, err := r.conn.flight.Handshake(&trackedRPC{Context: ctx, tracker: &r.sends, authorization: password})
	if err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	token := ""
	for {
		reply, err := stream.Recv()
		if eof.Reached(err) || status.Code(err) == codes.Unimplemented {
			break
		}
		if err != nil {
			return err
		}
		if payload := string(reply.GetPayload()); token == "" && isHeaderValue(payload) {
			token = "Bearer " + payload
		}
	}
	header, _ := stream.Header() // the stream has ended well, so there is one
	for _, value := range metadata.Join(header, stream.Trailer()).Get(authorizationKey) {
		if value != "" {
			token = value
			break
		}
	}
	if token == "" {
		token = password
	}
	r.conn.id.setCredential(Credential{Header: token, Expires: JWTExpiry(token)})
	return nil
}

// isHeaderValue reports whether s can stand in a header: a payload that cannot
// is no token.
func isHeaderValue(s string) bool {
	for _, char := range s {
		if char > unicode.MaxASCII || !unicode.IsPrint(char) {
			return false
		}
	}
	return s != ""
}

// checkSession makes one round trip to check that the server is alive and
// accepts the credential. Any answer of its session layer is enough, even an
// error for this request; a configured ProbeSQL must succeed. PERMISSION_DENIED
// and whatever a transport says are no such answer.
func (r *rpcCall) checkSession(ctx context.Context) error {
	err := r.askHarmless(ctx)
	if r.conn.cfg().ProbeSQL == "" && sessionAnswered(err) {
		return nil
	}
	return err
}

// askHarmless plans ProbeSQL, or asks for one SqlInfo. Only the plan is asked
// for: no rows are fetched, and nothing is changed. An error is the server's or
// the transport's, as it came.
func (r *rpcCall) askHarmless(ctx context.Context) error {
	if sql := r.conn.cfg().ProbeSQL; sql != "" {
		_, err := r.plan(ctx, &pb.CommandStatementQuery{Query: sql})
		return err
	}
	_, err := r.plan(ctx, &pb.CommandGetSqlInfo{Info: []uint32{uint32(flightsql.SqlInfoFlightSqlServerName)}})
	return err
}

// sessionAnswered tells an answer of the server, be it a refusal, from the lack
// of one and from a refusal of ourselves. Servers refuse a question that they
// do not know with codes of every kind, which proves as well that they live. A page of
// HTTP may be a proxy's that has no server behind it.
func sessionAnswered(err error) bool {
	s, ok := status.FromError(err)
	if !ok || effect.IsPage(err) {
		return false
	}
	fault := backend.FaultOf(s.Code(), s.Message())
	return s.Code() == codes.OK || fault == backend.FaultUnsupported || fault == backend.FaultStatement && s.Code() != codes.PermissionDenied
}

// Ping is part of backend.Conn: it asks for one SqlInfo. A refusal by INTERNAL
// or UNKNOWN is returned, as the statement's fault: some servers say so for each
// RPC when they cannot make a session.
func (c *Conn) Ping(ctx context.Context) error {
	ctx, r, err := c.begin(ctx, "Ping", nil)
	if err != nil {
		return err
	}
	defer r.end()
	presented := c.id.credential().Header
	_, err = r.plan(ctx, &pb.CommandGetSqlInfo{Info: []uint32{uint32(flightsql.SqlInfoFlightSqlServerName)}})
	switch status.Code(err) {
	case codes.Internal, codes.Unknown:
	default:
		if sessionAnswered(err) {
			c.credentialAccepted(presented)
			return nil
		}
	}
	return r.wrapError(backend.StageProbe, err)
}
