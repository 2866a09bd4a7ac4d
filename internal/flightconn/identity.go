package flightconn

import (
	"context"
	"crypto/rand"
	"sync"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/metadata"
)

const authorizationKey = "authorization"

// identity is who a connection is to the server: headers, credential and
// cookies. Each connection has its own, and every channel that acts for the
// connection (its transport, the control channel, locations) presents it.
type identity struct {
	headers metadata.MD
	source  func(ctx context.Context, rejected string) (string, error)
	cookies flight.CookieMiddleware

	mu struct { // guards the fields below
		sync.Mutex
		token    string // from the handshake
		rejected string // what the server last refused as unauthenticated
	}
}

func newIdentity(cfg *Config) *identity {
	headers := cfg.Headers
	if cfg.SessionHeader != "" {
		headers = metadata.Join(headers, metadata.Pairs(cfg.SessionHeader, rand.Text()))
	}
	return &identity{headers: headers, source: cfg.Authorization, cookies: flight.NewCookieMiddleware()}
}

// present adds the identity to the RPC that ctx belongs to, and returns the
// authorization presented. The RPC's own headers win over the credential, the
// credential over the configured headers.
func (id *identity) present(ctx context.Context) (context.Context, string, error) {
	own, _ := metadata.FromOutgoingContext(ctx)
	authorization := ""
	if values := own.Get(authorizationKey); len(values) > 0 {
		authorization = values[0]
	} else {
		var err error
		if authorization, err = id.authorization(ctx); err != nil {
			return nil, "", err
		}
	}
	md := metadata.MD{}
	for key, values := range id.headers {
		md.Append(key, values...)
	}
	for key, values := range own {
		md.Set(key, values...)
	}
	if authorization != "" {
		md.Set(authorizationKey, authorization)
	}
	return id.cookies.StartCall(metadata.NewOutgoingContext(ctx, md)), authorization, nil
}

func (id *identity) authorization(ctx context.Context) (string, error) {
	id.mu.Lock()
	token, rejected := id.mu.token, id.mu.rejected
	id.mu.Unlock()
	if id.source == nil {
		return token, nil
	}
	return id.source(ctx, rejected)
}

// setToken makes the handshake's token the credential.
func (id *identity) setToken(token string) {
	id.mu.Lock()
	id.mu.token = token
	id.mu.Unlock()
}

// refuse remembers a credential that the server did not accept.
func (id *identity) refuse(authorization string) {
	id.mu.Lock()
	id.mu.rejected = authorization
	id.mu.Unlock()
}

// learn keeps the cookies of a reply.
func (id *identity) learn(ctx context.Context, md metadata.MD) {
	if len(md.Get("set-cookie")) > 0 {
		if jar, ok := id.cookies.(flight.ClientHeadersMiddleware); ok {
			jar.HeadersReceived(ctx, md)
		}
	}
}
