package testserver

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// authority knows users and hands out bearer tokens.
type authority struct {
	srv      *Server
	required bool

	mu     sync.Mutex
	tokens map[string]struct{} // those that are valid
}

func (a *authority) init(s *Server) {
	a.srv = s
	a.tokens = map[string]struct{}{}
	for _, t := range s.opts.Tokens {
		a.tokens[t] = struct{}{}
	}
	a.required = len(s.opts.Users) > 0 || len(s.opts.Tokens) > 0 || s.profile.SessionKey == ByBearer
}

// checkBearer returns the bearer token of a call, or "" where none is needed.
func (a *authority) checkBearer(ctx context.Context) (string, error) {
	scheme, credential := authorization(ctx)
	if !strings.EqualFold(scheme, "Bearer") {
		credential = ""
	}
	if !a.required {
		return credential, nil
	}
	a.mu.Lock()
	_, ok := a.tokens[credential]
	a.mu.Unlock()
	switch {
	case ok:
		return credential, nil
	case credential == "":
		return "", status.Error(codes.Unauthenticated, "no bearer token")
	default:
		return "", status.Error(a.srv.profile.TokenCode, a.srv.profile.TokenText)
	}
}

// handshake checks who asks and hands out a token as the profile says.
func (a *authority) handshake(stream flight.FlightService_HandshakeServer) error {
	request, err := stream.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if a.srv.profile.Handshake == NoToken {
		return stream.Send(&flight.HandshakeResponse{})
	}
	user, password := basicCredentials(stream.Context(), request.GetPayload())
	if want, known := a.srv.opts.Users[user]; len(a.srv.opts.Users) > 0 && (!known || want != password) {
		return status.Error(codes.Unauthenticated, "user name or password is wrong")
	}

	token := rand.Text()
	a.mu.Lock()
	a.tokens[token] = struct{}{}
	a.mu.Unlock()
	a.srv.ledger.update(func(now *Snapshot) { now.Handshakes++ })
	if a.srv.profile.Handshake == TokenInPayload {
		return stream.Send(&flight.HandshakeResponse{Payload: []byte(token)})
	}
	if err := stream.SetHeader(metadata.Pairs("authorization", "Bearer "+token)); err != nil {
		return err
	}
	return stream.Send(&flight.HandshakeResponse{})
}

func (a *authority) expireAll() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.tokens)
	clear(a.tokens)
	return n
}

func (a *authority) expire(token string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, valid := a.tokens[token]
	delete(a.tokens, token)
	return valid
}

// basicCredentials reads them from the Basic header, padded or not, or from
// the payload, as clients of either kind send them.
func basicCredentials(ctx context.Context, payload []byte) (user, password string) {
	scheme, credential := authorization(ctx)
	if !strings.EqualFold(scheme, "Basic") {
		var auth flight.BasicAuth
		if proto.Unmarshal(payload, &auth) == nil {
			return auth.Username, auth.Password
		}
		return "", ""
	}
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(credential, "="))
	if err != nil {
		return "", ""
	}
	user, password, _ = strings.Cut(string(plain), ":")
	return user, password
}

func authorization(ctx context.Context) (scheme, credential string) {
	scheme, credential, _ = strings.Cut(header(ctx, "authorization"), " ")
	return scheme, credential
}

// header is the first value of a request header, or "".
func header(ctx context.Context, name string) string {
	if v := metadata.ValueFromIncomingContext(ctx, name); len(v) > 0 {
		return v[0]
	}
	return ""
}
